// The aggregate of the tests: a bank account, and the small things tests share.

package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
)

type (
	Event     interface{ isEvent() }
	Opened    struct{ Owner string }
	Deposited struct{ Amount int64 }
	Withdrawn struct{ Amount int64 }

	Command  interface{ isCommand() }
	Open     struct{ Owner string }
	Deposit  struct{ Amount int64 }
	Withdraw struct{ Amount int64 }
	Touch    struct{}
	// Shift makes several events at once.
	Shift struct{ Amounts []int64 }

	State struct {
		Owner   string `json:"owner"`
		Balance int64  `json:"balance"`
		Events  int    `json:"events"`
	}
)

func (Opened) isEvent()    {}
func (Deposited) isEvent() {}
func (Withdrawn) isEvent() {}

func (Open) isCommand()     {}
func (Deposit) isCommand()  {}
func (Withdraw) isCommand() {}
func (Touch) isCommand()    {}
func (Shift) isCommand()    {}

var errFunds = errors.New("insufficient funds")

func decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Open:
		return []Event{Opened{c.Owner}}, nil
	case Deposit:
		return []Event{Deposited{c.Amount}}, nil
	case Withdraw:
		if s.Balance < c.Amount {
			return nil, fmt.Errorf("withdraw %d of %d: %w", c.Amount, s.Balance, errFunds)
		}
		return []Event{Withdrawn{c.Amount}}, nil
	case Shift:
		var events []Event
		for _, a := range c.Amounts {
			events = append(events, Deposited{a})
		}
		return events, nil
	}
	return nil, nil // Touch
}

func evolve(s State, e Event) State {
	s.Events++
	switch e := e.(type) {
	case Opened:
		s.Owner = e.Owner
	case Deposited:
		s.Balance += e.Amount
	case Withdrawn:
		s.Balance -= e.Amount
	}
	return s
}

type (
	executor    = aggregate.Executor[State, Command, Event]
	accountType = aggregate.Type[State, Command, Event]
	result      = aggregate.Result[State, Event]
)

var (
	decider = aggregate.Decider[State, Command, Event]{Initial: func() State { return State{} }, Decide: decide, Evolve: evolve}
	events  = schema.New[Event](schema.Wire[Opened]("opened", 1), schema.Wire[Deposited]("deposited", 1), schema.Wire[Withdrawn]("withdrawn", 1))
)

func accounts(s aggregate.Snapshots) accountType {
	return accountType{Category: "account", Schema: events, Decider: decider, Snapshots: s}
}

const alice = eventstore.Stream("account-alice")

// newStore returns a Store over a fresh memlog with faults.
func newStore(t testing.TB) (*eventstore.Store, *faulty) {
	t.Helper()
	log := &faulty{Log: memlog.New(nil)}
	store := eventstore.New(log, nil)
	t.Cleanup(func() { store.Close() })
	return store, log
}

func newExecutor(t testing.TB, store *eventstore.Store, typ accountType, o *aggregate.Options) *executor {
	t.Helper()
	x, err := aggregate.NewExecutor(context.Background(), store, typ, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func execute(t testing.TB, x *executor, key string, c Command, o ...aggregate.CallOption) result {
	t.Helper()
	res, err := x.Execute(context.Background(), key, c, o...)
	if err != nil {
		t.Fatalf("%#v on %s: %v", c, key, err)
	}
	return res
}

// entries reads a whole stream.
func entries(t testing.TB, store *eventstore.Store, s eventstore.Stream) []eventstore.Entry {
	t.Helper()
	var all []eventstore.Entry
	for e, err := range store.Read(context.Background(), s, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("wanted error %v, found %v", want, err)
	}
}

func wantBalance(t testing.TB, s State, balance int64, count int) {
	t.Helper()
	if s.Balance != balance || s.Events != count {
		t.Fatalf("wanted balance %d after %d events, found %+v", balance, count, s)
	}
}
