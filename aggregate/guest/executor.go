// The Executor of a remote Decider: the host's side.

package guest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

// Executor executes commands that a handler elsewhere decides. What is embedded has
// Execute and the like too; those of Executor itself give commands their Now and Seed.
// All methods may be called from several goroutines at once.
type Executor struct {
	*aggregate.Executor[State, Command, schema.Raw]
	remote *remote
	now    func() time.Time
}

// ExecutorOptions are the options of an Executor; nil and zero fields are the defaults.
type ExecutorOptions struct {
	Options   *aggregate.Options
	Snapshots aggregate.Snapshots // Version is left out: it is the handler's StateVersion
	Now       func() time.Time    // nil: time.Now
}

// NewExecutor returns an Executor over a handler, for the category that it describes. The
// handler must have the capability decide.
//
// An Execute ends, beside all that aggregate's can end with, in a *handler.Rejected or in
// a *handler.Error: then nothing was appended.
func NewExecutor(ctx context.Context, store *eventstore.Store, c *handler.Caller, o *ExecutorOptions) (*Executor, error) {
	if o == nil {
		o = &ExecutorOptions{}
	}
	d := c.Description()
	if !d.Can(handler.Decide) {
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Op: handler.Describe, Target: d.Name, Wanted: "a handler with the capability decide", Found: "none of it"}
	}
	known := make([]schema.RawWire, len(d.Events))
	for i, w := range d.Events {
		known[i] = schema.RawWire(w)
	}
	r := &remote{caller: c, description: d}
	t := aggregate.Type[State, Command, schema.Raw]{Category: d.Category, Schema: schema.NewRaw(known...), Remote: r.decide, Snapshots: o.Snapshots,
		Decider: aggregate.Decider[State, Command, schema.Raw]{
			Initial: func() State { return State{} },
			Decide:  func(State, Command) ([]schema.Raw, error) { return nil, errors.New("this handler is remote") },
			Evolve:  State.with,
		},
		Size: func(s State) int { return s.bytes }}
	t.Snapshots.Version = d.StateVersion
	x, err := aggregate.NewExecutor(ctx, store, t, o.Options)
	if err != nil {
		return nil, err
	}
	e := &Executor{Executor: x, remote: r, now: o.Now}
	if e.now == nil {
		e.now = time.Now
	}
	return e, nil
}

// Execute is that of aggregate.Executor.
func (x *Executor) Execute(ctx context.Context, key string, c Command, options ...aggregate.CallOption) (aggregate.Result[State, schema.Raw], error) {
	if c.Now.IsZero() {
		c.Now = x.now()
	}
	if c.Seed.IsZero() {
		c.Seed = eventstore.NewUUID()
	}
	return x.Executor.Execute(ctx, key, c, options...)
}

// Fold has the handler fold what it has not yet, and returns its state as JSON; nil for
// the state before the first event.
func (x *Executor) Fold(ctx context.Context, stream eventstore.Stream, s State) ([]byte, error) {
	rest := s.since()
	for len(rest) > 0 {
		n := x.remote.fits(s.json, rest)
		state, err := x.remote.evolve(ctx, stream, s.json, rest[:n], 0)
		if err != nil {
			return nil, err
		}
		s.json, rest = state, rest[n:]
	}
	return s.json, nil
}

// remote asks the handler.
type remote struct {
	caller      *handler.Caller
	description handler.Description
}

func (m *remote) decide(ctx context.Context, q aggregate.Question[State, Command]) (aggregate.Answer[State, schema.Raw], error) {
	var a aggregate.Answer[State, schema.Raw]
	id := q.CommandID
	if id.IsZero() {
		id = q.Command.Seed
	}
	state, rest := q.State.json, q.State.since()
	for n := m.fits(state, rest); n < len(rest); n = m.fits(state, rest) {
		var err error
		if state, err = m.evolve(ctx, q.Stream, state, rest[:n], q.After.Seqno-eventstore.Seqno(len(rest))); err != nil {
			return a, err
		}
		rest = rest[n:]
	}
	r := m.request(handler.Decide, q.Stream, state, rest, q.After.Seqno-eventstore.Seqno(len(rest)))
	r.ID, r.Now, r.After, r.Command = id, q.Command.Now.UTC(), q.After, &q.Command.Command
	r.Key = keyOf(r, len(rest))
	reply, err := m.caller.Call(ctx, r)
	if refused, ok := errors.AsType[*handler.Rejected](err); ok {
		a.Refused = refused
		return a, nil
	}
	if err != nil {
		return a, err
	}
	a.Events = make([]schema.Raw, len(reply.Events))
	for i, e := range reply.Events {
		a.Events[i] = schema.Raw{Name: e.Type, Version: e.Version, ContentType: contentType(e.ContentType), Data: e.Data}
	}
	if reply.State != nil {
		a.State, a.Folded = State{json: reply.State, bytes: len(reply.State)}, true
	}
	return a, nil
}

// keyOf is the key of a decision: the same for the same request, and for no other. State
// and events follow from where they end and how many the events are.
func keyOf(r *handler.Request, events int) eventstore.UUID {
	rest := *r
	rest.State, rest.Events = nil, nil
	return eventstore.NameUUID(strconv.Itoa(events) + string(handler.AppendRequest(nil, &rest)))
}

// fits says how many of the events go into one request, at least one.
func (m *remote) fits(state []byte, events []schema.Raw) int {
	l := m.caller.Limits()
	room := l.RequestBytes*3/4 - len(state)
	n := 0
	for n < len(events) && n < l.Batch {
		if room -= len(events[n].Data) + entryBytes; room < 0 && n > 0 {
			break
		}
		n++
	}
	return n
}

func (m *remote) request(op handler.Op, stream eventstore.Stream, state []byte, events []schema.Raw, at eventstore.Seqno) *handler.Request {
	r := &handler.Request{Op: op, Stream: stream, State: state, Events: make([]handler.Entry, len(events))}
	if state != nil {
		r.StateVersion = m.description.StateVersion
	}
	for i, e := range events {
		r.Events[i] = handler.Entry{Seqno: at + eventstore.Seqno(i) + 1, Event: handler.Event{Type: e.Name, Version: e.Version, ContentType: e.ContentType, Data: e.Data}}
	}
	return r
}

// evolve folds events that stand behind the one at a seqno.
func (m *remote) evolve(ctx context.Context, stream eventstore.Stream, state []byte, events []schema.Raw, at eventstore.Seqno) ([]byte, error) {
	reply, err := m.caller.Call(ctx, m.request(handler.Evolve, stream, state, events, at))
	if err != nil {
		return nil, err
	}
	return reply.State, nil
}

func versionText(n int) string { return "version " + strconv.Itoa(n) }
