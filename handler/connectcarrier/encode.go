// The contract's types as messages. What the JSON of the contract would change it changes
// here too: empty lists are none, what is not UTF-8 becomes U+FFFD, absent data is empty.

package connectcarrier

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
)

const jsonType = "application/json"

// valid makes a text UTF-8, without which a message cannot be sent.
func valid[T ~string](s T) string {
	if utf8.ValidString(string(s)) {
		return string(s)
	}
	return strings.Map(func(r rune) rune { return r }, string(s))
}

func uuid(u eventstore.UUID) string {
	if u.IsZero() {
		return ""
	}
	return u.String()
}

// count is a number that the contract allows to 2^31-1; others are refused over there.
func count(n int) uint32 {
	if n < 0 || n > math.MaxInt32 {
		return math.MaxUint32
	}
	return uint32(n)
}

func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func contentType(s string) string {
	if s == jsonType {
		return ""
	}
	return valid(s)
}

// present is data that is told from none even when it is empty.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func mark(m eventstore.Mark) *handlerv1.Mark {
	if m == (eventstore.Mark{}) {
		return nil
	}
	return &handlerv1.Mark{Seqno: uint64(m.Seqno), Id: uuid(m.ID)}
}

func texts(list []string) []string {
	var all []string
	for _, s := range list {
		all = append(all, valid(s))
	}
	return all
}

func metadata(m eventstore.Metadata) map[string]string {
	if len(m) == 0 {
		return nil
	}
	all := make(map[string]string, len(m))
	for k, v := range m {
		all[valid(k)] = valid(v)
	}
	return all
}

func documents(docs map[string][]byte) map[string][]byte {
	if len(docs) == 0 {
		return nil
	}
	all := make(map[string][]byte, len(docs))
	for k, doc := range docs {
		all[valid(k)] = doc
	}
	return all
}

func list[T, M any](all []T, message func(*T) *M) []*M {
	if len(all) == 0 {
		return nil
	}
	messages := make([]*M, len(all))
	for i := range all {
		messages[i] = message(&all[i])
	}
	return messages
}

// encodeRequest is the message of a request. It refers to the request's payloads.
func encodeRequest(r *handler.Request) *handlerv1.Request {
	m := &handlerv1.Request{V: handler.Version, Op: valid(r.Op), Key: uuid(r.Key), Deadline: moment(r.Deadline),
		Traceparent: valid(r.Traceparent), Tracestate: valid(r.Tracestate), Now: moment(r.Now), Id: uuid(r.ID),
		Stream: valid(r.Stream), After: mark(r.After), StateVersion: count(r.StateVersion), State: r.State,
		Projector: valid(r.Projector), ProjectorVersion: count(r.ProjectorVersion),
		Events: list(r.Events, entry), Docs: documents(r.Docs)}
	if r.Command != nil {
		m.Command = command(r.Command)
	}
	return m
}

func entry(e *handler.Entry) *handlerv1.Entry {
	return &handlerv1.Entry{Stream: valid(e.Stream), Seqno: uint64(e.Seqno), Position: uint64(e.Position), Id: uuid(e.ID),
		Time: moment(e.Time), Event: event(&e.Event), Meta: metadata(e.Metadata), Quiet: e.Quiet}
}

func event(e *handler.Event) *handlerv1.Event {
	return &handlerv1.Event{Type: valid(e.Type), Version: count(e.Version), ContentType: contentType(e.ContentType), Data: present(e.Data)}
}

func command(c *handler.Command) *handlerv1.Command {
	return &handlerv1.Command{Type: valid(c.Type), Version: count(c.Version), ContentType: contentType(c.ContentType),
		Data: present(c.Data), Meta: metadata(c.Metadata)}
}

// encodeReply is the message of a reply. It refers to the reply's payloads.
func encodeReply(r *handler.Reply) *handlerv1.Reply {
	m := &handlerv1.Reply{V: handler.Version, Key: uuid(r.Key), Stream: valid(r.Stream), State: r.State,
		Events: list(r.Events, event), Keys: texts(r.Keys), Put: documents(r.Put), Delete: texts(r.Delete),
		Commands: list(r.Commands, func(c *handler.Issue) *handlerv1.Issue {
			return &handlerv1.Issue{Stream: valid(c.Stream), Command: command(&c.Command), Position: uint64(c.Position)}
		}),
		Timers: list(r.Timers, func(t *handler.Timer) *handlerv1.Timer {
			return &handlerv1.Timer{Name: valid(t.Name), Due: moment(t.Due), Data: t.Data, Cancel: t.Cancel, Position: uint64(t.Position)}
		}),
		Failed: list(r.Failed, func(f *handler.EntryFailure) *handlerv1.EntryFailure {
			return &handlerv1.EntryFailure{Position: uint64(f.Position), Message: valid(f.Message)}
		}),
		Mark: mark(r.Mark), Replayed: r.Replayed, More: r.More, Description: description(r.Description)}
	if r.Failure != nil {
		m.Error = &handlerv1.Failure{Code: valid(r.Failure.Code), Message: valid(r.Failure.Message)}
	}
	if r.Rejected != nil {
		m.Rejected = &handlerv1.Rejected{Code: valid(r.Rejected.Code), Message: valid(r.Rejected.Message)}
	}
	if r.Token != (eventstore.Token{}) {
		m.Token = r.Token.String()
	}
	return m
}

func description(d *handler.Description) *handlerv1.Description {
	if d == nil {
		return nil
	}
	wire := func(w *handler.Wire) *handlerv1.Wire {
		return &handlerv1.Wire{Name: valid(w.Name), Version: count(w.Version)}
	}
	return &handlerv1.Description{Name: valid(d.Name), Release: valid(d.Release), Category: valid(d.Category), Capabilities: texts(d.Capabilities),
		Events: list(d.Events, wire), Commands: list(d.Commands, wire), StateVersion: count(d.StateVersion)}
}
