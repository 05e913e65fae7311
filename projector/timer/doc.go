// Package timer keeps durable timers as ordinary fenced streams.
//
// A timer is a stream of one category ("timer" unless another is chosen), and its name
// is the stream's key. [Timers] sets, cancels and reschedules them; a [Scheduler]
// appends an entry of type [FiredType] to each that is due. Whoever is to act follows
// the category, best with a reactor (projector.NewReactor over [Events], with the
// type FiredType), whose commands have deterministic IDs.
//
//	timers, err := timer.New(ctx, store, nil)
//	_, err = timers.Set(ctx, "payment-4711", time.Now().Add(24*time.Hour), []byte(`{"order":"4711"}`))
//	s, err := timer.NewScheduler(ctx, store, nil)
//	go s.Run(ctx) // in any number of processes
//
// # The stream of a timer
//
// Each entry holds all there is to know of the timer, so the last one is its state:
//
//	timer.set        pending under a new generation: due, clock, payload
//	timer.cancelled  over: the generation will not fire
//	timer.fired      over: the generation has fired, with its payload
//
// A generation is the seqno of the entry that set it, so it is never used twice. Set
// begins a new one whatever was before; Reschedule begins one with the payload of the
// pending one, and is refused with [ErrFired] or [ErrCancelled] when the timer is over:
// what has fired cannot be moved any more, and to fire again is a new decision (Set).
//
// # Exactly one of several wins
//
// Every entry is a claim by append behind the last entry that was seen. So of a
// cancellation and a firing that race one is written, and the other is told: Cancel
// answers ErrFired, and a scheduler lets go. A generation fires once, however many
// schedulers there are, and whatever they have missed, crashed on or been frozen
// in: what a scheduler has in memory is a hint where to look, and it fires what it
// reads in the stream, behind that entry. The fired entry's ID, batch and content
// follow from the entry that set it: all schedulers append the same, and one whose
// answer was lost appends it again and learns that it is there. Schedulers need no
// lease; Options.LeaseTTL gives them one to save work.
//
// # When a timer fires
//
// [Wall]: not before its due time by the clock of the scheduler that fires it
// (Options.Now, as a rule that of its machine), and late by at most one poll interval,
// one page of the feed, one read and one append; when more than FireSide are due at
// once, as many rounds of read and append as it takes, and after a start also by the
// reading of the timers there are. With Options.LeaseTTL see there. It is a process's
// clock and not the store's since a store tells its time only when it is written to. So
// keep the machines in step: a clock that runs ahead fires early by as much. Due times
// are rounded up to the microsecond.
//
// [Log]: at the first entry of the followed categories (Options.LogCategories) that
// stands behind the entry that set the timer, by position, and whose Time is not before
// the due time. The fired entry names it. So a feed gives the same fired entries whoever
// reads it, when, and in which pages; only their order, and a cancellation that is
// appended before a scheduler has come that far, make a difference. A log timer does
// not fire while nothing is appended. What is trimmed from the followed categories before a
// scheduler has seen it says nothing: put a hold on them if that matters.
//
// # What is kept, and for how long
//
// In memory a scheduler keeps a name, a time and two numbers for each pending timer,
// of at most Options.MaxPending on either clock. Of more on the wall's clock it keeps
// those that are due soonest and reads the category again before they run out; more on
// the log's clock are eventstore.ErrOverloaded, since their order could not be told.
// Nothing else is needed: a scheduler that starts reads the category and, if log timers
// are pending, the followed categories from the oldest of these timers on.
//
// On disk schedulers trim what has been of no use for Options.Keep: what stands before
// the entry that set a pending timer, and timers that are over. Holds stop them, so an
// entry stays until every registered projector has handled it; one on a single timer's
// stream keeps its entries until it is gone and a scheduler has started since. The
// category is created so that it can be trimmed without snapshots, and a projector that
// begins at its start has to accept that (projector.Options.AcceptTrimmed). What stays
// of a timer that is over is what any trimmed stream leaves in a shared category: its
// head. Use a name again rather than a new one each time where that counts.
//
// The package imports the standard library and eventstore, and builds for GOOS=js and
// GOOS=wasip1.
package timer
