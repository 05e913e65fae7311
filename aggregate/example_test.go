// The first page, as it runs.

package aggregate_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
)

func Example() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()

	events := schema.New[Event](
		schema.Wire[Opened]("opened", 1),
		schema.Wire[Deposited]("deposited", 1),
		schema.Wire[Withdrawn]("withdrawn", 1))
	decider := aggregate.Decider[State, Command, Event]{
		Initial: func() State { return State{} },
		Decide:  decide, // func(State, Command) ([]Event, error)
		Evolve:  evolve, // func(State, Event) State
	}
	accounts := aggregate.Type[State, Command, Event]{Category: "account", Schema: events, Decider: decider}
	exec, err := aggregate.NewExecutor(ctx, store, accounts, nil)
	if err != nil {
		panic(err)
	}

	id := eventstore.NewUUID() // made once, where the command is made
	for range 2 {              // delivered twice
		res, err := exec.Execute(ctx, "alice", Deposit{Amount: 500}, aggregate.CommandID(id))
		fmt.Println(res.Mark.Seqno, res.State.Balance, res.Replayed, err)
	}
	_, err = exec.Execute(ctx, "alice", Withdraw{Amount: 700})
	fmt.Println(errors.Is(err, errFunds), err)

	// Output:
	// 1 500 false <nil>
	// 1 500 true <nil>
	// true withdraw 700 of 500: insufficient funds
}

func ExampleExecutor_ExecuteMulti() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	exec, err := aggregate.NewExecutor(ctx, store, accounts(aggregate.Snapshots{}), nil)
	if err != nil {
		panic(err)
	}
	if _, err := exec.Execute(ctx, "alice", Deposit{Amount: 500}); err != nil {
		panic(err)
	}

	res, err := exec.ExecuteMulti(ctx, []string{"alice", "bob"}, func(s map[string]State) (map[string][]Event, error) {
		if s["alice"].Balance < 200 {
			return nil, errFunds
		}
		return map[string][]Event{"alice": {Withdrawn{200}}, "bob": {Deposited{200}}}, nil
	})
	fmt.Println(res["alice"].State.Balance, res["bob"].State.Balance, err)
	// Output: 300 200 <nil>
}
