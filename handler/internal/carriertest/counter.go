// Package carriertest has what the tests of carriers share: an aggregate, requests to it,
// and what a call costs.
package carriertest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

type (
	event   interface{ isEvent() }
	added   struct{ N int }
	command interface{ isCommand() }
	add     struct{ N int }
	state   struct {
		Sum int `json:"sum"`
	}
	tooBig struct{ sum int }
)

func (added) isEvent() {}
func (add) isCommand() {}

func (e tooBig) Error() string { return fmt.Sprintf("the sum would be %d", e.sum) }
func (e tooBig) Code() string  { return "too-big" }

// MostSum is the highest sum of a counter: what would be over it is refused as too-big.
const MostSum = 1000

func counters(decided *atomic.Int64) aggregate.Type[state, command, event] {
	return aggregate.Type[state, command, event]{Category: "counter", Schema: schema.New[event](schema.Wire[added]("added", 1)),
		Decider: aggregate.Decider[state, command, event]{
			Initial: func() state { return state{} },
			Decide: func(s state, c command) ([]event, error) {
				if decided != nil {
					decided.Add(1)
				}
				n := c.(add).N
				if s.Sum+n > MostSum {
					return nil, tooBig{s.Sum + n}
				}
				return []event{added{n}}, nil
			},
			Evolve: func(s state, e event) state { return state{s.Sum + e.(added).N} }}}
}

func commands() guest.Commands[command] {
	return guest.CommandsOf(schema.New[command](schema.Wire[add]("add", 1)))
}

// Decider is the counter's Decider as a handler, release v1.2.3.
func Decider(t testing.TB) handler.Handler {
	t.Helper()
	h, err := guest.New(counters(nil), commands(), &guest.Options[command]{Name: "counter", Release: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Store is an empty store, closed with the test.
func Store(t testing.TB) *eventstore.Store {
	s := eventstore.New(memlog.New(nil), nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Executing is a whole Executor of counters over a store as a handler. decided counts the
// decisions; it may be nil.
func Executing(t testing.TB, s *eventstore.Store, decided *atomic.Int64) handler.Handler {
	t.Helper()
	x, err := aggregate.NewExecutor(t.Context(), s, counters(decided), nil)
	if err != nil {
		t.Fatal(err)
	}
	return guest.NewService(x, "counter", counters(nil).Schema, commands(), nil)
}

// Addition is the command to add n.
func Addition(n int) *handler.Command {
	return &handler.Command{Type: "add", Data: fmt.Appendf(nil, `{"N":%d}`, n)}
}

// Execute asks to add n to counter-a, under an ID made of a text.
func Execute(n int, id string) *handler.Request {
	return &handler.Request{Op: handler.Execute, Stream: "counter-a", ID: eventstore.NameUUID(id), Command: Addition(n)}
}

// Decide asks for the decision to add n to counter-a, which is empty.
func Decide(n int) *handler.Request {
	return &handler.Request{Op: handler.Decide, Stream: "counter-a", ID: eventstore.NameUUID("c"), Command: Addition(n)}
}

// Length is how many entries counter-a has.
func Length(t testing.TB, s *eventstore.Store) (n int) {
	t.Helper()
	for _, err := range s.Read(t.Context(), "counter-a", 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
