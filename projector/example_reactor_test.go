// A process manager that remembers, as a program: an aggregate and two reactors.

package projector_test

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
)

// An order is shipped once it is paid and its goods are packed, whichever comes first.
// The process manager is an aggregate: what has happened comes to it as commands, and
// what is to be done goes out as its events.
type (
	Fact     struct{ What string } // command: "paid" or "packed"
	Noted    struct{ What string } // event
	Complete struct{}              // event: both are there
	Process  interface{ process() }
	Progress struct{ Paid, Packed bool }
)

func (Noted) process()    {}
func (Complete) process() {}

var shipping = aggregate.Type[Progress, Fact, Process]{
	Category: "shipping",
	Schema:   schema.New[Process](schema.Wire[Noted]("noted", 1), schema.Wire[Complete]("complete", 1)),
	Decider: aggregate.Decider[Progress, Fact, Process]{
		Initial: func() Progress { return Progress{} },
		Decide: func(p Progress, f Fact) ([]Process, error) {
			events := []Process{Noted(f)}
			if now := note(p, f.What); now != p && now.Paid && now.Packed {
				events = append(events, Complete{})
			}
			return events, nil
		},
		Evolve: func(p Progress, e Process) Progress {
			if n, ok := e.(Noted); ok {
				return note(p, n.What)
			}
			return p
		},
	},
}

func note(p Progress, what string) Progress {
	return Progress{Paid: p.Paid || what == "paid", Packed: p.Packed || what == "packed"}
}

// A parcel is the other end: it is sent.
type (
	Send struct{ Order string }
	Sent struct{ Order string }
)

var parcels = aggregate.Type[int, Send, Sent]{
	Category: "parcel",
	Schema:   schema.New[Sent](schema.Wire[Sent]("sent", 1)),
	Decider: aggregate.Decider[int, Send, Sent]{
		Initial: func() int { return 0 },
		Decide:  func(_ int, c Send) ([]Sent, error) { return []Sent{Sent(c)}, nil },
		Evolve:  func(n int, _ Sent) int { return n + 1 },
	},
}

// Happened are the events that come from outside.
type Happened struct{ What string }

func ExampleNewReactor() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(store.CreateCategory(ctx, eventstore.CategorySpec{Name: "order"}))
	manager, err := aggregate.NewExecutor(ctx, store, shipping, nil)
	must(err)
	parcel, err := aggregate.NewExecutor(ctx, store, parcels, nil)
	must(err)
	happened := schema.New[Happened](schema.Wire[Happened]("happened", 1))

	// What happens to an order is told to its process manager.
	gather := func() *projector.Projector {
		return projector.NewReactor(store, "shipping.gather", "order", &projector.MemoryCheckpoints{}, projector.ReactorOptions[Happened, Fact]{
			Events: happened,
			React:  func(e projector.Event[Happened]) ([]Fact, error) { return []Fact{{e.Value.What}}, nil },
			Issue: func(ctx context.Context, c projector.Command[Fact]) error {
				_, err := manager.Execute(ctx, c.Entry.Stream.Key(), c.Value, aggregate.CommandID(c.ID), aggregate.CausedBy(c.Entry))
				return err
			},
		})
	}
	// What the process manager decides is done.
	act := func() *projector.Projector {
		return projector.NewReactor(store, "shipping.act", "shipping", &projector.MemoryCheckpoints{}, projector.ReactorOptions[Process, Send]{
			Events: shipping.Schema,
			React: func(e projector.Event[Process]) ([]Send, error) {
				if _, done := e.Value.(Complete); done {
					return []Send{{Order: e.Stream.Key()}}, nil
				}
				return nil, nil
			},
			Issue: func(ctx context.Context, c projector.Command[Send]) error {
				_, err := parcel.Execute(ctx, c.Value.Order, c.Value, aggregate.CommandID(c.ID), aggregate.CausedBy(c.Entry))
				return err
			},
		})
	}

	var after eventstore.Mark
	for i, what := range []string{"packed", "paid"} {
		e, err := happened.Encode(Happened{what})
		must(err)
		done, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{{Stream: "order-4711", Epoch: eventstore.Epoch(i + 1), Claim: true,
			Holder: eventstore.NewUUID(), After: after, Events: []eventstore.Event{e}}}})
		must(err)
		after = done.Receipts[0].Last
	}
	for range 2 { // the second time everything is lost but the streams: all is issued again
		for _, p := range []*projector.Projector{gather(), act()} {
			_, err := p.CatchUp(ctx, 0)
			must(err)
		}
		progress, _, err := manager.Load(ctx, "4711")
		must(err)
		sent, _, err := parcel.Load(ctx, "4711")
		must(err)
		fmt.Printf("%+v, parcels sent: %d\n", progress, sent)
	}
	// Output:
	// {Paid:true Packed:true}, parcels sent: 1
	// {Paid:true Packed:true}, parcels sent: 1
}
