// A projection as users write it, from its events to its documents.

package guest_test

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// Paid is the one event of this example.
type Paid struct{ Cents int }

// balance is a document.
type balance struct {
	Cents    int
	Payments int
}

var paid = schema.New[Paid](schema.Wire[Paid]("paid", 1))

// balances runs anywhere: here it is called in the process, but a client of any carrier
// may stand in its place.
var balances = guest.Projection[Paid]{
	Name: "balances", Category: "wallet", Events: paid,
	Apply: func(e projector.Event[Paid], docs *guest.Docs) error {
		var b balance
		docs.Get(string(e.Stream), &b)
		docs.Put(string(e.Stream), balance{b.Cents + e.Value.Cents, b.Payments + 1})
		return nil
	},
}

func Example() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "wallet", TrimFreely: true}); err != nil {
		panic(err)
	}
	for i, cents := range []int{500, -120, 20} {
		e, err := paid.Encode(Paid{cents})
		if err != nil {
			panic(err)
		}
		stream := eventstore.Stream(fmt.Sprint("wallet-", i%2))
		h, err := store.Head(ctx, stream)
		if err != nil {
			panic(err)
		}
		b := eventstore.Batch{Stream: stream, Epoch: h.Epoch + 1, Claim: true, Holder: eventstore.NewUUID(), After: h.Last, Events: []eventstore.Event{e}}
		if _, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
			panic(err)
		}
	}

	caller, err := handler.NewCaller(ctx, guest.New(balances), nil)
	if err != nil {
		panic(err)
	}
	docs := &guest.MemoryDocuments{}
	p := guest.NewProjector(store, "balances", caller, docs, nil)
	if _, err := p.CatchUp(ctx, 0); err != nil {
		panic(err)
	}
	for d, err := range docs.All(ctx, "balances", 1) {
		fmt.Println(d.Key, string(d.Data), err)
	}
	// Output:
	// wallet-0 {"Cents":520,"Payments":2} <nil>
	// wallet-1 {"Cents":-120,"Payments":1} <nil>
}
