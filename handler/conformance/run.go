// run: one handler on its way through the rules.

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

type run struct {
	ctx    context.Context
	h      handler.Handler
	o      Options
	caller *handler.Caller
	rule   string
	result Result
	calls  atomic.Int64
}

// counted is the handler, its calls counted.
func (r *run) counted() handler.Handler {
	return handler.Func(func(ctx context.Context, q *handler.Request) (*handler.Reply, error) {
		r.calls.Add(1)
		return r.h.Handle(ctx, q)
	})
}

// found notes that the rule is broken.
func (r *run) found(name, format string, args ...any) {
	if len(r.result.Findings) < maxFindings {
		r.result.Findings = append(r.result.Findings, Finding{Rule: r.rule, Case: name, Err: fmt.Errorf(format, args...)})
	}
}

// wants notes an error of another kind than wanted.
func (r *run) wants(name string, err error, kinds ...error) {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return
		}
	}
	r.found(name, "wanted %q, found %v", kinds[0], errorText(err))
}

func errorText(err error) string {
	if err == nil {
		return "a reply as if all were well"
	}
	return err.Error()
}

// moment is the Now of all commands: cases hold none.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// decide is the request of a case.
func (r *run) decide(c *Case) *handler.Request {
	q := &handler.Request{Op: handler.Decide, Stream: c.Stream, Events: entries(c.Given, 0), Command: &c.When, Now: moment,
		ID: eventstore.NameUUID("command of " + c.Name), After: eventstore.Mark{Seqno: eventstore.Seqno(len(c.Given))}}
	if n := len(c.Given); n > 0 {
		q.After.ID = entryID(n)
	}
	return q
}

// evolve is the request to fold events behind a state.
func (r *run) evolve(c *Case, state []byte, events []handler.Event, at int) *handler.Request {
	q := &handler.Request{Op: handler.Evolve, Stream: c.Stream, State: state, Events: entries(events, at)}
	if state != nil {
		q.StateVersion = r.result.Description.StateVersion
	}
	return q
}

func entryID(seqno int) eventstore.UUID { return eventstore.NameUUID(fmt.Sprint("entry ", seqno)) }

// entries are events that stand behind seqno at, with what a host surely knows of them.
func entries(events []handler.Event, at int) []handler.Entry {
	all := make([]handler.Entry, len(events))
	for i, e := range events {
		all[i] = handler.Entry{Event: e, Seqno: eventstore.Seqno(at + i + 1)}
	}
	return all
}

// call makes a call that must succeed.
func (r *run) call(name string, q *handler.Request) *handler.Reply {
	reply, err := r.caller.Call(r.ctx, q)
	if err != nil {
		r.found(name, "wanted a reply, found %v", err)
	}
	return reply
}

// stateOf folds all events of a case.
func (r *run) stateOf(c *Case) ([]byte, bool) {
	reply := r.call(c.Name, r.evolve(c, nil, c.Given, 0))
	if reply == nil {
		return nil, false
	}
	return reply.State, true
}

// sameJSON says if two values are the same but for white space, escapes and the order of
// fields: handlers in several languages write JSON in several ways.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return decode(a, &x) == nil && decode(b, &y) == nil && reflect.DeepEqual(x, y)
}

func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// sameEvents says how events differ from those wanted; nil if they do not.
func sameEvents(found, wanted []handler.Event) error {
	if len(found) != len(wanted) {
		return fmt.Errorf("wanted %d events, found %d: %s", len(wanted), len(found), listed(found))
	}
	for i := range found {
		f, w := found[i], wanted[i]
		if f.Type != w.Type || w.Version > 0 && f.Version != w.Version || !sameJSON(f.Data, w.Data) {
			return fmt.Errorf("event %d: wanted %s version %d %s, found %s version %d %s", i, w.Type, w.Version, w.Data, f.Type, f.Version, f.Data)
		}
	}
	return nil
}

func listed(events []handler.Event) string {
	var b bytes.Buffer
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s; ", e.Type, e.Data)
	}
	return b.String()
}
