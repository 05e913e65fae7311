// Package guest runs projections as handlers: the code that turns events into documents
// may be in this process, in another one, in a function that is frozen between calls, or a
// WebAssembly guest.
//
// # The far side
//
// A [Projection] is a pure function over the events of a category and the JSON documents
// that each names. [New] makes it a handler.Handler, which any carrier can serve:
//
//	var Balances = guest.Projection[Event]{
//		Name: "balances", Category: "account", Events: events,
//		Apply: func(e projector.Event[Event], docs *guest.Docs) error {
//			var b Balance
//			docs.Get(string(e.Stream), &b)
//			b.Cents += e.Value.(Deposited).Cents
//			docs.Put(string(e.Stream), b)
//			return nil
//		},
//	}
//
// # The host
//
// [NewProjector] follows the category that a handler describes and has it project:
//
//	caller, err := handler.NewCaller(ctx, h, nil) // h: guest.New(Balances), or a carrier's client
//	p := guest.NewProjector(store, "balances", caller, pgdocuments.New(pool, nil), nil)
//	go p.Run(ctx)
//
// A batch goes through it like this:
//
//	keys     ask the handler which documents the entries concern; nothing is begun yet
//	         ── transaction: the fenced checkpoint first ──
//	read     those documents, locked
//	project  ask the handler what becomes of them
//	write    the documents
//	issue    commands, timers: elsewhere, by IDs that follow from the entries
//	         ── commit: documents and checkpoint ──
//
// So each document has had each entry once, whatever is killed, frozen, fenced or answers
// twice. A command is issued at least once and always under the same ID, before the
// checkpoint passes its entry; who executes commands by their ID does so once. A batch
// that is over a limit of the handler's is cut into several calls in one transaction. The
// transaction stays open during the calls: see [NewHandler] for what bounds them.
//
// # What goes wrong
//
//	the handler cannot be reached       an outage: tried again until it can, the lane is red
//	it answers, but not this batch      the batch is halved until the entry is known; that one
//	                                    is tried Options.Tries times, then its key is parked
//	it names an entry that fails        the entry's key is parked at once: a pure function
//	                                    would say the same again
//	it answers what no handler may      the same, with what was wrong
//
// What "parked" means, and what happens where nothing is parked, is in package projector.
package guest
