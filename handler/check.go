// Check: what a host believes of a reply.

package handler

import (
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// Check says what of a reply no handler of this description may answer to r, as an *Error
// of kind ErrBadReply; nil if nothing. A reply that carries more than l.ReplyBytes is
// eventstore.ErrTooLarge, as it is for every carrier whose own limit it is over, or says that
// it is: another request may have a smaller one. (Gzip over HTTP that grows more than JSON can
// is ErrBadReply: how long it would be nobody knows.) Versions that the reply leaves to the
// host are filled in. Nothing of a reply may be used before it has passed.
func Check(d *Description, r *Request, reply *Reply, l Limits) error {
	l = l.orDefault()
	if n := reply.bytes(); n > l.ReplyBytes {
		return &Error{Kind: eventstore.ErrTooLarge, Op: r.Op, Stream: r.Stream, Wanted: fmt.Sprintf("a reply of at most %d bytes", l.ReplyBytes), Found: fmt.Sprint(n),
			Hint: "nothing of the reply was used; raise Limits.ReplyBytes, there and where it is carried"}
	}
	c := checker{d: d, r: r, reply: reply, l: l}
	if err := c.all(); err != nil {
		return &Error{Kind: ErrBadReply, Op: r.Op, Stream: r.Stream, Err: err, Hint: "this is a bug of the handler; nothing of the reply was used"}
	}
	return nil
}

type checker struct {
	d     *Description
	r     *Request
	reply *Reply
	l     Limits
}

func (c *checker) all() error {
	r, reply := c.r, c.reply
	switch {
	case reply.Key != r.Key:
		return fmt.Errorf("key: wanted that of the request, %v, found %v", r.Key, reply.Key)
	case reply.Stream != "" && reply.Stream != r.Stream:
		return fmt.Errorf("stream: wanted that of the request, %q, found %q", r.Stream, reply.Stream)
	case reply.Failure != nil:
		return c.coded("error", &reply.Failure.Code, &reply.Failure.Message)
	}
	if err := c.foreign(); err != nil {
		return err
	}
	switch r.Op {
	case Describe:
		return c.description()
	case Decide:
		return c.decided()
	case Evolve:
		return c.needs("state", reply.State != nil)
	case Keys:
		return c.documentKeys("keys", reply.Keys)
	case Project:
		return c.projected()
	case Execute:
		return c.decided()
	}
	return nil
}

// needs says that a field is missing.
func (c *checker) needs(name string, there bool) error {
	if there {
		return nil
	}
	return fmt.Errorf("%s: wanted one, found none", name)
}

// foreign finds what belongs to other operations.
func (c *checker) foreign() error {
	reply, op := c.reply, c.r.Op
	for _, f := range []struct {
		name  string
		there bool
		of    []Op
	}{
		{"rejected", reply.Rejected != nil, []Op{Decide, Execute}},
		{"description", reply.Description != nil, []Op{Describe}},
		{"state", reply.State != nil, []Op{Decide, Evolve}},
		{"events", len(reply.Events) > 0, []Op{Decide, Execute}},
		{"keys", len(reply.Keys) > 0, []Op{Keys}},
		{"put", len(reply.Put) > 0, []Op{Project}},
		{"delete", len(reply.Delete) > 0, []Op{Project}},
		{"commands", len(reply.Commands) > 0, []Op{Project}},
		{"timers", len(reply.Timers) > 0, []Op{Project}},
		{"failed", len(reply.Failed) > 0, []Op{Project}},
		{"mark", reply.Mark != (eventstore.Mark{}), []Op{Execute}},
		{"token", reply.Token != (eventstore.Token{}), []Op{Execute}},
		{"replayed", reply.Replayed, []Op{Execute}},
		{"more", reply.More, []Op{CatchUp}},
	} {
		if f.there && !slices.Contains(f.of, op) {
			return fmt.Errorf("%s: wanted none in the reply to %s", f.name, op)
		}
	}
	return nil
}

func (c *checker) coded(what string, code, message *string) error {
	if *code == "" || len(*code) > MaxCodeBytes {
		return fmt.Errorf("%s: wanted a code of 1 to %d bytes, found %d", what, MaxCodeBytes, len(*code))
	}
	*message = cut(*message, MaxMessageBytes)
	return nil
}

func (c *checker) description() error {
	d := c.reply.Description
	if d == nil {
		return c.needs("description", false)
	}
	if len(d.Events)+len(d.Commands) > MaxWires {
		return fmt.Errorf("wanted at most %d wire names, found %d", MaxWires, len(d.Events)+len(d.Commands))
	}
	if len(d.Capabilities) > MaxWires {
		return fmt.Errorf("wanted at most %d capabilities, found %d", MaxWires, len(d.Capabilities))
	}
	for _, list := range [][]Wire{d.Events, d.Commands} {
		for i, w := range list {
			if w.Name == "" || len(w.Name) > eventstore.MaxTypeBytes || w.Version < 1 || slices.Contains(list[:i], w) {
				return fmt.Errorf("wanted wire names of 1 to %d bytes with versions from 1, each once, found %q version %d", eventstore.MaxTypeBytes, w.Name, w.Version)
			}
		}
	}
	switch {
	case d.Can(Decide) && (d.Category == "" || len(d.Events) == 0 || len(d.Commands) == 0):
		return fmt.Errorf("wanted category, events and commands of a handler that decides, found %q, %d and %d", d.Category, len(d.Events), len(d.Commands))
	case d.Can(Decide) != d.Can(Evolve):
		return fmt.Errorf("wanted both capabilities decide and evolve, or none")
	}
	return nil
}

func (c *checker) decided() error {
	reply := c.reply
	if reply.Rejected != nil {
		if len(reply.Events) > 0 || reply.State != nil {
			return fmt.Errorf("wanted events or a rejection, found both")
		}
		return c.coded("rejected", &reply.Rejected.Code, &reply.Rejected.Message)
	}
	if n := len(reply.Events); n > c.l.Events {
		return fmt.Errorf("wanted at most %d events, found %d", c.l.Events, n)
	}
	for i := range reply.Events {
		if err := c.event(&reply.Events[i]); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return nil
}

// event checks one event, and fills its version in.
func (c *checker) event(e *Event) error {
	if e.Version == 0 {
		e.Version = newest(c.d.Events, e.Type)
	}
	switch {
	case !slices.Contains(c.d.Events, Wire{e.Type, e.Version}):
		return fmt.Errorf("wanted a wire name and version that the handler describes, found %q version %d", cut(e.Type, eventstore.MaxTypeBytes), e.Version)
	case e.Version != newest(c.d.Events, e.Type):
		return fmt.Errorf("wanted version %d of %q, the newest, found %d", newest(c.d.Events, e.Type), e.Type, e.Version)
	case e.Data == nil:
		return c.needs("data", false)
	case len(e.Data) > eventstore.MaxEventBytes:
		return fmt.Errorf("wanted at most %d bytes of data, found %d", eventstore.MaxEventBytes, len(e.Data))
	case len(e.ContentType) > eventstore.MaxContentTypeBytes:
		return fmt.Errorf("wanted a content type of at most %d bytes, found %d", eventstore.MaxContentTypeBytes, len(e.ContentType))
	}
	return nil
}

func (c *checker) documentKeys(what string, keys []string) error {
	if len(keys) > MaxDocumentKeys {
		return fmt.Errorf("%s: wanted at most %d, found %d", what, MaxDocumentKeys, len(keys))
	}
	for _, k := range keys {
		if k == "" || len(k) > MaxDocumentKey {
			return fmt.Errorf("%s: wanted keys of 1 to %d bytes, found %d", what, MaxDocumentKey, len(k))
		}
	}
	return nil
}

func (c *checker) projected() error {
	reply := c.reply
	put := make([]string, 0, len(reply.Put))
	for k := range reply.Put {
		put = append(put, k)
	}
	if err := c.documentKeys("put", put); err != nil {
		return err
	}
	if err := c.documentKeys("delete", reply.Delete); err != nil {
		return err
	}
	for _, k := range reply.Delete {
		if _, both := reply.Put[k]; both {
			return fmt.Errorf("document %q: wanted it written or removed, found both", k)
		}
	}
	if len(reply.Commands) > MaxIssues || len(reply.Timers) > MaxIssues {
		return fmt.Errorf("wanted at most %d commands and timers each, found %d and %d", MaxIssues, len(reply.Commands), len(reply.Timers))
	}
	for i, f := range reply.Failed {
		if c.caused(f.Position) == nil {
			return fmt.Errorf("failed: wanted positions of the request, found %v", f.Position)
		}
		reply.Failed[i].Message = cut(f.Message, MaxMessageBytes)
	}
	for i := range reply.Commands {
		if err := c.issue(&reply.Commands[i]); err != nil {
			return fmt.Errorf("command %d: %w", i, err)
		}
	}
	for i := range reply.Timers {
		if err := c.timer(&reply.Timers[i]); err != nil {
			return fmt.Errorf("timer %d: %w", i, err)
		}
	}
	return nil
}

// caused returns the entry of the request at a position.
func (c *checker) caused(p eventstore.Position) *Entry {
	for i := range c.r.Events {
		if e := &c.r.Events[i]; e.Position == p {
			return e
		}
	}
	return nil
}

// effect checks because of which entry there is a command or timer, and fills it in where
// there is one only.
func (c *checker) effect(p *eventstore.Position) error {
	if *p == 0 && len(c.r.Events) == 1 {
		*p = c.r.Events[0].Position
	}
	e := c.caused(*p)
	switch {
	case e == nil:
		return fmt.Errorf("wanted the position of an entry of the request, found %v", *p)
	case e.Quiet:
		return fmt.Errorf("wanted none for an entry that is quiet, found one for position %v", *p)
	case slices.ContainsFunc(c.reply.Failed, func(f EntryFailure) bool { return f.Position == *p }):
		return fmt.Errorf("wanted none for an entry that failed, found one for position %v", *p)
	}
	return nil
}

func (c *checker) issue(i *Issue) error {
	if i.Stream == "" || i.Type == "" || i.Data == nil {
		return fmt.Errorf("wanted stream, type and data")
	}
	return c.effect(&i.Position)
}

func (c *checker) timer(t *Timer) error {
	if t.Name == "" || t.Cancel != t.Due.IsZero() {
		return fmt.Errorf("wanted a name, and a due time or cancel")
	}
	return c.effect(&t.Position)
}
