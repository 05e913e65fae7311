// Options of an Executor, and those of one call.

package aggregate

import (
	"context"
	"fmt"
	"maps"

	"github.com/wattle-es/wattle/eventstore"
)

// Options of an Executor; nil and the zero value are the defaults.
type Options struct {
	// CacheBytes bounds the states kept warm, as Type.Size counts them, least
	// recently used out first. 0: eventstore.DefaultCacheBytes. Negative: none is
	// kept, as suits a function that is called rarely.
	CacheBytes int
	// Retries is how often a command is decided on freshly loaded state before it is
	// given up with the log's last refusal, and how often a batch whose outcome is
	// unknown is sent again. 0: eventstore.DefaultRetries.
	Retries int
	// Append carries out the appends of commands, for effects that are to be one
	// transaction with them, as pgcheckpoint.Inline makes it; nil: Store.Append. It keeps
	// the promises of Store.Append towards the same store, lost answers included, and
	// gives the log's errors as they are. Any other error than an *eventstore.Error refuses
	// the command: nothing was written, Execute returns it as it is, and it is not decided
	// again, whatever the error wraps. Only when the outcome of an earlier attempt is not
	// known does such an error say nothing about that one, and it is asked for again.
	Append func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error)
}

// CallOption is an option of one Execute or ExecuteMulti.
type CallOption func(*call)

// call is what the options of one call say.
type call struct {
	command  eventstore.UUID // zero: none was given
	expect   map[string]eventstore.Mark
	metadata eventstore.Metadata
	err      error // the first wrong option
}

// theKey stands in call.expect for the only key of an Execute.
const theKey = ""

// CommandID gives the command an ID, best a UUIDv7 that its sender made and sends
// again with every repeat. See the package comment for what it promises.
func CommandID(id eventstore.UUID) CallOption {
	return func(c *call) {
		if id.IsZero() {
			c.wrong("command ID", "a UUID", "the zero UUID")
		}
		c.command = id
	}
}

// CommandKey gives the command the ID that eventstore.NameUUID makes of a string:
// an order number, a message id. It carries no time; see the package comment.
func CommandKey(key string) CallOption {
	if key == "" {
		return func(c *call) { c.wrong("command key", "a string that names the command", "an empty one") }
	}
	return CommandID(eventstore.NameUUID(key))
}

// Expect demands that the stream's last entry is the one at m, when the command is
// decided and when its events are appended; the zero Mark demands that there is
// none. A Mark without an ID demands the seqno only. If the stream has gone on the
// answer is eventstore.ErrAlreadyWritten, if another entry stands there or it is
// gone eventstore.ErrDiverged, if m without an ID lies above the head
// eventstore.ErrGap; all as the log's own. A command that is in the history
// already is answered with its result whatever is expected.
func Expect(m eventstore.Mark) CallOption { return ExpectOf(theKey, m) }

// ExpectOf is Expect for one of the keys of an ExecuteMulti.
func ExpectOf(key string, m eventstore.Mark) CallOption {
	return func(c *call) {
		if c.expect == nil {
			c.expect = map[string]eventstore.Mark{}
		}
		c.expect[key] = m
	}
}

// Correlation names the conversation that the command belongs to
// (eventstore.MetaCorrelation).
func Correlation(id string) CallOption { return metadata(eventstore.MetaCorrelation, id) }

// Causation names what caused the command (eventstore.MetaCausation).
func Causation(id string) CallOption { return metadata(eventstore.MetaCausation, id) }

// CausedBy says that the command is a reaction to an entry: Causation is the
// entry's ID, Correlation the entry's own or, if it has none, its ID too.
func CausedBy(e eventstore.Entry) CallOption {
	correlation := e.Metadata[eventstore.MetaCorrelation]
	if correlation == "" {
		correlation = e.ID.String()
	}
	return func(c *call) {
		Correlation(correlation)(c)
		Causation(e.ID.String())(c)
	}
}

// Metadata adds to the metadata of the command's events. The keys that Wattle
// writes have options of their own and are refused here.
func Metadata(m eventstore.Metadata) CallOption {
	return func(c *call) {
		for _, k := range []string{eventstore.MetaCommand, eventstore.MetaCorrelation, eventstore.MetaCausation,
			eventstore.MetaTraceparent, eventstore.MetaTracestate} {
			if _, ok := m[k]; ok {
				c.wrong("metadata", "keys of your own", k)
			}
		}
		c.add(m)
	}
}

func metadata(key, value string) CallOption {
	return func(c *call) { c.add(eventstore.Metadata{key: value}) }
}

func (c *call) add(m eventstore.Metadata) {
	if c.metadata == nil {
		c.metadata = eventstore.Metadata{}
	}
	maps.Copy(c.metadata, m)
}

func (c *call) wrong(what, wanted, found string) {
	if c.err == nil {
		c.err = invalid("", what, wanted, found)
	}
}

// newCall gathers the options of a call over keys.
func newCall(keys []string, options []CallOption) (call, error) {
	var c call
	for _, o := range options {
		if o != nil {
			o(&c)
		}
	}
	if !c.command.IsZero() {
		c.add(eventstore.Metadata{eventstore.MetaCommand: c.command.String()})
	}
	if m, ok := c.expect[theKey]; ok && len(keys) == 1 {
		delete(c.expect, theKey)
		c.expect[keys[0]] = m
	}
	known := map[string]bool{}
	for _, k := range keys {
		known[k] = true
	}
	for k := range c.expect {
		if !known[k] {
			c.wrong("expected mark", "one of the command's keys (ExpectOf, when there are several)", fmt.Sprintf("%q", k))
		}
	}
	return c, c.err
}
