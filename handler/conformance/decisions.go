// The rules for handlers that decide.

package conformance

import (
	"bytes"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

var decides = []handler.Op{handler.Decide, handler.Evolve}

var decisions = []rule{
	{"a command's events, or the code of its refusal, are those of the case", decides, eachCase(thenFollows)},
	{"equal requests have equal replies", decides, eachCase(pure)},
	{"a state stands for the events that were folded into it", decides, eachCase(stateStands)},
	{"events fold into the same state in whatever pieces", decides, eachCase(pieces)},
	{"the state in a decision's reply has the decided events in it", decides, eachCase(stateAhead)},
	{"a stream key is any text", decides, eachCase(anyKey)},
	{"a command of an unknown type is a bad request", decides, unknownCommand},
	{"a command whose data is not right is a bad request or refused", decides, garbledCommand},
	{"an event of an unknown type is a bad request", decides, unknownEvent},
	{"a state that it cannot read is a bad request", decides, garbledState},
	{"a state of another version is refused as such", decides, otherState},
	{"a stream of another category is a bad request", decides, otherCategory},
	{"a decision without a command is a bad request", decides, noCommand},
}

// eachCase tries a rule on all cases.
func eachCase(try func(*run, *Case)) func(*run) {
	return func(r *run) {
		for i := range r.o.Cases {
			try(r, &r.o.Cases[i])
		}
	}
}

func thenFollows(r *run, c *Case) {
	reply, err := r.caller.Call(r.ctx, r.decide(c))
	refused, ok := errors.AsType[*handler.Rejected](err)
	switch {
	case err != nil && !ok:
		r.found(c.Name, "wanted a decision, found %v", err)
	case c.Rejected != "" && !ok:
		r.found(c.Name, "wanted a refusal with the code %q, found events %s", c.Rejected, listed(reply.Events))
	case c.Rejected == "" && ok:
		r.found(c.Name, "wanted events %s, found the refusal %v", listed(c.Then), refused)
	case ok && refused.Code != c.Rejected:
		r.found(c.Name, "wanted a refusal with the code %q, found %v", c.Rejected, refused)
	case !ok:
		if err := sameEvents(reply.Events, c.Then); err != nil {
			r.found(c.Name, "%w", err)
		}
	}
}

func pure(r *run, c *Case) {
	q := r.decide(c)
	q.Key = q.ID
	first := r.plain(q)
	for range 2 {
		if again := r.plain(q); !bytes.Equal(again, first) {
			r.found(c.Name, "wanted %s, found %s", first, again)
			return
		}
	}
}

func stateStands(r *run, c *Case) {
	if len(c.Given) == 0 {
		return
	}
	state, ok := r.stateOf(c)
	if !ok {
		return
	}
	q := r.decide(c)
	q.Key = q.ID
	want := r.plain(q)
	q.Events, q.State, q.StateVersion = nil, state, r.result.Description.StateVersion
	if got := r.plain(q); !bytes.Equal(got, want) {
		r.found(c.Name, "wanted %s, found with the state %s in the place of %d events %s", want, state, len(c.Given), got)
	}
}

func pieces(r *run, c *Case) {
	if len(c.Given) < 2 {
		return
	}
	whole, ok := r.stateOf(c)
	if !ok {
		return
	}
	n := len(c.Given) / 2
	first := r.call(c.Name, r.evolve(c, nil, c.Given[:n], 0))
	if first == nil {
		return
	}
	second := r.call(c.Name, r.evolve(c, first.State, c.Given[n:], n))
	if second != nil && !sameJSON(second.State, whole) {
		r.found(c.Name, "wanted the state %s, found in two pieces %s", whole, second.State)
	}
}

func stateAhead(r *run, c *Case) {
	if c.Rejected != "" {
		return
	}
	reply := r.call(c.Name, r.decide(c))
	if reply == nil || reply.State == nil { // not told: the host folds
		return
	}
	events := append(append([]handler.Event{}, c.Given...), reply.Events...)
	folded := r.call(c.Name, r.evolve(c, nil, events, 0))
	if folded != nil && !sameJSON(folded.State, reply.State) {
		r.found(c.Name, "wanted the state %s, found %s", folded.State, reply.State)
	}
}

func anyKey(r *run, c *Case) {
	q := r.decide(c)
	q.Key = q.ID
	want := r.plain(q)
	q.Stream = eventstore.Stream(string(q.Stream.Category()) + "-" + "a \"key\" \\ with ümläuts, 漢字 and 🎈-:/?#[]")
	if got := r.plain(q); !bytes.Equal(got, want) {
		r.found(c.Name, "wanted %s, found on %q %s", want, q.Stream, got)
	}
}

// first is the first case, or one made of nothing.
func (r *run) first() *Case {
	if len(r.o.Cases) > 0 {
		c := r.o.Cases[0]
		return &c
	}
	return &Case{Name: "none", Stream: r.anyStream(), When: handler.Command{Type: "none", Data: []byte("{}")}}
}

// bad is a request that must be refused as one, and the next one answered.
func (r *run) bad(q *handler.Request, kinds ...error) {
	_, err := r.caller.Call(r.ctx, q)
	r.wants("", err, kinds...)
	r.call("", &handler.Request{Op: handler.Describe})
}

func unknownCommand(r *run) {
	c := r.first()
	c.When.Type = "conformance.no_such_command"
	r.bad(r.decide(c), handler.ErrBadRequest)
}

func garbledCommand(r *run) {
	for _, w := range r.result.Description.Commands {
		for _, data := range []string{`[1]`, `"text"`, `17`} {
			c := r.first()
			c.When = handler.Command{Type: w.Name, Version: w.Version, Data: []byte(data)}
			_, err := r.caller.Call(r.ctx, r.decide(c))
			if _, refused := errors.AsType[*handler.Rejected](err); !refused {
				r.wants(w.Name+" "+data, err, handler.ErrBadRequest)
			}
		}
	}
}

func unknownEvent(r *run) {
	c := r.first()
	c.Given = []handler.Event{{Type: "conformance.no_such_event", Version: 1, Data: []byte("{}")}}
	r.bad(r.decide(c), handler.ErrBadRequest)
	r.bad(r.evolve(c, nil, c.Given, 0), handler.ErrBadRequest)
}

func garbledState(r *run) {
	for _, state := range []string{`"text"`, `[1,2]`, `17`} {
		c := r.first()
		r.bad(r.evolve(c, []byte(state), nil, 0), handler.ErrBadRequest)
	}
}

func otherState(r *run) {
	c := r.first()
	state, ok := r.stateOf(c)
	if !ok {
		return
	}
	q := r.evolve(c, state, nil, 0)
	q.StateVersion++
	r.bad(q, handler.ErrStateVersion)
}

func otherCategory(r *run) {
	c := r.first()
	c.Stream = "conformance_other-1"
	r.bad(r.decide(c), handler.ErrBadRequest)
}

func noCommand(r *run) {
	q := r.decide(r.first())
	q.Command = nil
	r.bad(q, handler.ErrBadRequest)
}
