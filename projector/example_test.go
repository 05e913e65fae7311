// The first page of a projector, as a program.

package projector_test

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

func Example() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}); err != nil {
		panic(err)
	}

	balances := map[string]int64{}
	p := projector.New(store, "balances", "account", projector.Memory(events, func(_ context.Context, e projector.Event[Event]) error {
		switch v := e.Value.(type) {
		case Deposited:
			balances[e.Stream.Key()] += v.Amount
		}
		return nil
	}))
	run, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- p.Run(run) }()

	deposit, err := events.Encode(Deposited{Amount: 500})
	if err != nil {
		panic(err)
	}
	written, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{{
		Stream: "account-alice", Epoch: 1, Claim: true, Holder: eventstore.NewUUID(), Events: []eventstore.Event{deposit},
	}}})
	if err != nil {
		panic(err)
	}
	if err := p.Wait(ctx, written.Token); err != nil { // read your own writes
		panic(err)
	}
	stop()
	fmt.Println(<-done)
	fmt.Println("alice has", balances["alice"])
	// Output:
	// context canceled
	// alice has 500
}
