// The quickstart of the README, as it runs: an account, its balance projected, and
// a query that reads its own write. Memory stands in for PostgreSQL; the lines to
// change are in the README.
package quickstart

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
)

// Events are facts: plain structs behind an interface of yours.
type Event interface{ isEvent() }

type Opened struct{ Owner string }
type Deposited struct{ Amount int64 }

func (Opened) isEvent()    {}
func (Deposited) isEvent() {}

// Command and State are yours too.
type Command interface{ isCommand() }

type Open struct{ Owner string }
type Deposit struct{ Amount int64 }

func (Open) isCommand()    {}
func (Deposit) isCommand() {}

type State struct {
	Owner   string
	Balance int64
}

var errNotOpen = errors.New("the account is not open")

// decide is pure: state and command in, events or a refusal out.
func decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Open:
		if s.Owner != "" {
			return nil, nil // open already: accepted, nothing new
		}
		return []Event{Opened{Owner: c.Owner}}, nil
	case Deposit:
		if s.Owner == "" {
			return nil, errNotOpen
		}
		return []Event{Deposited{Amount: c.Amount}}, nil
	}
	return nil, fmt.Errorf("unknown command %T", c)
}

// evolve folds an event into the state.
func evolve(s State, e Event) State {
	switch e := e.(type) {
	case Opened:
		s.Owner = e.Owner
	case Deposited:
		s.Balance += e.Amount
	}
	return s
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()

	events := schema.New[Event](
		schema.Wire[Opened]("opened", 1),
		schema.Wire[Deposited]("deposited", 1))
	accounts := aggregate.Type[State, Command, Event]{
		Category: "account",
		Schema:   events,
		Decider: aggregate.Decider[State, Command, Event]{
			Initial: func() State { return State{} },
			Decide:  decide,
			Evolve:  evolve,
		},
	}
	exec, err := aggregate.NewExecutor(ctx, store, accounts, nil)
	if err != nil {
		panic(err)
	}

	balances := map[string]int64{} // the read model
	p := projector.New(store, "balances", "account", projector.Memory(events,
		func(ctx context.Context, e projector.Event[Event]) error {
			if d, ok := e.Value.(Deposited); ok {
				balances[e.Stream.Key()] += d.Amount
			}
			return nil
		}))
	go p.Run(ctx)

	_, err = exec.Execute(ctx, "alice", Deposit{Amount: 500})
	fmt.Println("too early:", err)

	if _, err := exec.Execute(ctx, "alice", Open{Owner: "Alice"}); err != nil {
		panic(err)
	}
	res, err := exec.Execute(ctx, "alice", Deposit{Amount: 500},
		aggregate.CommandKey("payment 4711")) // delivered twice, decided once
	if err != nil {
		panic(err)
	}
	if err := p.Wait(ctx, res.Token); err != nil { // read your own write
		panic(err)
	}
	fmt.Println("version", res.Mark.Seqno, "balance", balances["alice"])
	// Output:
	// too early: the account is not open
	// version 2 balance 500
}
