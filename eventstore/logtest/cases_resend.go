// Cases: the proved ack. Sending a batch again tells whether it is there.

package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var resendCases = []testCase{
	{name: "at once", rule: "a batch resent at once is proved: the same receipt, nothing written (A4)", run: resendAtOnce},
	{name: "after many entries", rule: "a batch is proved however many entries have been written since (A4)", run: resendAfterMany},
	{name: "after being fenced", rule: "a claim that landed with its answer lost, then fenced by another, then resent: nil, written once, and the receipt says that the stream was fenced", run: resendAfterFenced},
	{name: "after fence without entries", rule: "a grant alone makes the receipt say that the stream was fenced", run: resendAfterGrant},
	{name: "through another handle", rule: "a batch is proved by another process too", run: resendThroughAnother},
	{name: "several batches", rule: "an append of several batches is proved as a whole, each receipt for itself", run: resendSeveral},
	{name: "proved with guards", rule: "the guards of an append that is proved are not looked at: they held when it went through", run: resendWithGuards},
	{name: "proved, guard gone", rule: "nor when the guarded stream's category has been deleted since", run: resendGuardGone},
	{name: "proved beside unprovable", rule: "a proved batch does not vouch for one that is unprovable, whether guards hold or not", run: provedBesideUnprovable},
	{name: "other content", rule: "the same batch ID with other content is refused as reused, whatever differs (A4)", run: resendOtherContent},
	{name: "other content, fenced", rule: "a reused batch ID is told as reused though the writer has been fenced since", run: resendOtherContentFenced},
	{name: "other trace", rule: "trace metadata is no content: a batch resent from another span is proved, and what stands there stays", run: resendOtherTrace},
	{name: "after a trim", rule: "when the proof has been trimmed the outcome is unknown and unprovable, never a guess (A4)", run: resendAfterTrim},
	{name: "after a partial trim", rule: "a batch of which a part was trimmed is unprovable", run: resendAfterPartialTrim},
	{name: "absent behind a trim", rule: "a trim leaves proofs of absence: the batch reaches beyond the head, another entry ends where it would, or stands where it would", run: absentBehindTrim},
	{name: "mixed", rule: "a batch that is there and one that is not were never sent together: reused", run: resendMixed},
	{name: "refused is absent", rule: "a batch that was refused can be sent again with a new place", run: refusedIsAbsent},
	{name: "racing itself", rule: "the same append sent by many at once is written once and acked to all (I6)", run: racingItself},
	{name: "lost answer", rule: "a context that ends during an append leaves it wholly there or wholly absent, and resending tells which (A7, I2)", run: lostAnswer},
	{name: "lost answers of several", rule: "the same for an append of several batches", run: lostAnswerOfSeveral},
}

// proved resends an append that is there; it must be proved and change nothing.
func (e *env) proved(a eventstore.Append, fencedSince bool) {
	e.Helper()
	before := e.heads(a)
	done, err := e.append(a)
	if err != nil {
		e.Fatalf("resent %s: %v, want nil", describe(a.Batches), err)
	}
	for _, r := range done.Receipts {
		if !r.Replays || r.Fenced != fencedSince {
			e.Errorf("receipt of the resent batch = %+v, want Replays and Fenced %t", r, fencedSince)
		}
	}
	if after := e.heads(a); fmt.Sprint(after) != fmt.Sprint(before) {
		e.Errorf("heads after the resent append = %v, want as before %v", after, before)
	}
}

func appendOf(b ...eventstore.Batch) eventstore.Append { return eventstore.Append{Batches: b} }

func resendAtOnce(e *env) {
	w := e.filled(e.stream("a"), 2)
	b := w.batch(events(3)...)
	w.send(b)
	for range 3 {
		e.proved(appendOf(b), false)
	}
	claim := e.writer(w.stream)
	first := claim.batch(events(1)...)
	claim.send(first)
	e.proved(appendOf(first), false)
	e.proved(appendOf(b), true)
}

func resendAfterMany(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(2)...)
	w.send(b)
	for range rounds(10) {
		w.append(100)
	}
	e.proved(appendOf(b), false)
}

func resendAfterFenced(e *env) {
	w := e.filled(e.stream("a"), 1)
	claim := e.writer(w.stream)
	b := claim.batch(events(2)...)
	claim.send(b)
	claim.fencedBy(1)
	e.proved(appendOf(b), true)
	if got := len(e.read(w.stream, 0)); got != 4 {
		e.Errorf("%d entries, want 4: the batch once", got)
	}
}

func resendAfterGrant(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(1)...)
	w.send(b)
	e.fence(w.stream, eventstore.NewUUID(), 0)
	e.proved(appendOf(b), true)
}

func resendThroughAnother(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(2)...)
	w.send(b)
	e.through(e.another()).proved(appendOf(b), false)
}

func resendSeveral(e *env) {
	x, y := e.filled(e.stream("x"), 1), e.writer(e.stream("y"))
	a := appendOf(x.batch(events(2)...), y.batch(events(1)...))
	e.appendBatches(a.Batches...)
	e.proved(a, false)
	e.filled(y.stream, 1)
	done, err := e.append(a)
	if err != nil || done.Receipts[0].Fenced || !done.Receipts[1].Fenced {
		e.Errorf("resent with the second stream fenced = %+v, %v, want Fenced in the second receipt only", done.Receipts, err)
	}
}

func resendWithGuards(e *env) {
	w, g := e.writer(e.stream("a")), e.filled(e.stream("g"), 1)
	a := appendOf(w.batch(events(1)...))
	a.Guards = []eventstore.Guard{{Stream: g.stream, At: g.last}}
	if _, err := e.append(a); err != nil {
		e.Fatalf("Append = %v, want nil", err)
	}
	g.append(1)
	e.proved(a, false)
}

func resendGuardGone(e *env) {
	c := e.newCategory("guarded", false)
	a := appendOf(e.writer(e.stream("a")).batch(events(1)...))
	a.Guards = []eventstore.Guard{{Stream: streamIn(c, "g")}}
	if _, err := e.append(a); err != nil {
		e.Fatalf("Append = %v, want nil", err)
	}
	if err := e.store.DeleteCategory(e.ctx, c); err != nil {
		e.Fatalf("DeleteCategory = %v, want nil", err)
	}
	e.proved(a, false)
}

func provedBesideUnprovable(e *env) {
	x, y := e.writer(e.stream("x")), e.writer(e.stream("y"))
	a := appendOf(x.batch(events(1)...), y.batch(events(1)...))
	e.appendBatches(a.Batches...)
	e.filled(y.stream, 1)
	e.trim(y.stream, 1)
	e.unprovable(a)
	a.Guards = []eventstore.Guard{{Stream: e.stream("g")}}
	e.unprovable(a)
	a.Guards[0].Stream = e.filled(e.stream("g"), 1).stream
	e.unprovable(a)
}

// altered returns batches that have the ID of b and other content.
func altered(b eventstore.Batch) map[string]eventstore.Batch {
	all := map[string]eventstore.Batch{}
	change := func(what string, f func(*eventstore.Batch, *eventstore.Event)) {
		c := whole(b)
		f(&c, &c.Events[0])
		all[what] = c
	}
	change("data", func(_ *eventstore.Batch, e *eventstore.Event) { e.Data = []byte("other") })
	change("type", func(_ *eventstore.Batch, e *eventstore.Event) { e.Type = "other" })
	change("version", func(_ *eventstore.Batch, e *eventstore.Event) { e.Version = 2 })
	change("content type", func(_ *eventstore.Batch, e *eventstore.Event) { e.ContentType = "text/plain" })
	change("event ID", func(_ *eventstore.Batch, e *eventstore.Event) { e.ID = eventstore.NewUUID() })
	change("metadata", func(_ *eventstore.Batch, e *eventstore.Event) { e.Metadata = eventstore.Metadata{"by": "other"} })
	change("no metadata", func(_ *eventstore.Batch, e *eventstore.Event) { e.Metadata = nil })
	change("order", func(b *eventstore.Batch, _ *eventstore.Event) { slices.Reverse(b.Events) })
	change("one less", func(b *eventstore.Batch, _ *eventstore.Event) { b.Events = b.Events[:len(b.Events)-1] })
	change("one more", func(b *eventstore.Batch, _ *eventstore.Event) {
		b.Events = append(b.Events, whole(eventstore.Batch{Events: events(1)}).Events[0])
	})
	return all
}

func resendOtherContent(e *env) {
	w := e.filled(e.stream("a"), 1)
	b := w.batch(events(3)...)
	w.send(b)
	check := func() {
		for what, c := range altered(b) {
			if err := e.refusedBatches(eventstore.ErrBatchIDReused, c); err.Stream != w.stream {
				e.Errorf("%s: error of %q, want %q", what, err.Stream, w.stream)
			}
		}
	}
	check() // the batch ends at the head
	w.append(1)
	check() // and below it
	e.proved(appendOf(b), false)
}

func resendOtherContentFenced(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(3)...)
	w.send(b)
	w.fencedBy(2)
	for _, c := range altered(b) {
		e.refusedBatches(eventstore.ErrBatchIDReused, c)
	}
}

func resendOtherTrace(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(2)...)
	traced := func(parent string) eventstore.Batch {
		c := whole(b)
		for i := range c.Events {
			c.Events[i].Metadata[eventstore.MetaTraceparent] = parent
			c.Events[i].Metadata[eventstore.MetaTracestate] = "of=" + parent[3:5]
		}
		return c
	}
	first := traced("00-11111111111111111111111111111111-1111111111111111-01")
	w.send(first)
	e.proved(appendOf(traced("00-22222222222222222222222222222222-2222222222222222-00")), false)
	e.proved(appendOf(b), false)
	if got := e.read(w.stream, 0)[0]; !sameEvent(got.Event, whole(first).Events[0]) {
		e.Errorf("entry = %s, want as first appended %s", brief(got.Event), brief(first.Events[0]))
	}
}

// unprovable demands that an append is unknown for good.
func (e *env) unprovable(a eventstore.Append) {
	e.Helper()
	if err := e.refused(eventstore.ErrUnknown, a); !err.Unprovable {
		e.Errorf("%v: Unprovable is not set", err)
	}
}

func resendAfterTrim(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(2)...)
	w.send(b)
	w.append(3)
	e.trim(w.stream, 2)
	e.unprovable(appendOf(b))
	e.trim(w.stream, 5)
	e.unprovable(appendOf(b))
	w.fencedBy(1)
	e.unprovable(appendOf(b))
}

func resendAfterPartialTrim(e *env) {
	w := e.writer(e.stream("a"))
	b := w.batch(events(3)...)
	w.send(b)
	e.trim(w.stream, 1)
	e.unprovable(appendOf(b))
	w.append(1)
	e.unprovable(appendOf(b))
	e.trim(w.stream, 2)
	e.unprovable(appendOf(b))
}

func absentBehindTrim(e *env) {
	w := e.filled(e.stream("a"), 4)
	e.trim(w.stream, 2)
	loser := eventstore.Batch{ID: eventstore.NewUUID(), Stream: w.stream, Epoch: 1, Holder: w.holder, After: eventstore.Mark{}}
	for n, kind := range map[int]error{
		1: eventstore.ErrUnknown, // would be entry 1, which is gone
		3: eventstore.ErrAlreadyWritten,
		4: eventstore.ErrAlreadyWritten, // entry 4 is another one
		9: eventstore.ErrAlreadyWritten, // would reach beyond the head
	} {
		b := loser
		b.ID, b.Events = eventstore.NewUUID(), events(n)
		e.refusedBatches(kind, b)
	}
	e.trim(w.stream, 4)
	for n, kind := range map[int]error{3: eventstore.ErrUnknown, 4: eventstore.ErrAlreadyWritten, 5: eventstore.ErrAlreadyWritten} {
		b := loser
		b.ID, b.Events = eventstore.NewUUID(), events(n)
		e.refusedBatches(kind, b)
	}
	// The registry keeps the mark of the last entry through a trim.
	other := w.batch(events(1)...)
	other.After.ID = eventstore.NewUUID()
	e.refusedBatches(eventstore.ErrDiverged, other)
	w.append(1)
}

func resendMixed(e *env) {
	x, y, z := e.filled(e.stream("x"), 1), e.writer(e.stream("y")), e.writer(e.stream("z"))
	b := x.batch(events(1)...)
	x.send(b)
	e.refusedBatches(eventstore.ErrBatchIDReused, b, y.batch(events(1)...))
	e.refusedBatches(eventstore.ErrBatchIDReused, z.batch(events(1)...), b)
	e.refusedBatches(eventstore.ErrBatchIDReused, y.batch(events(1)...), b, z.batch(events(1)...))
	e.proved(appendOf(b), false)
}

func refusedIsAbsent(e *env) {
	w := e.filled(e.stream("a"), 1)
	b := w.batch(events(2)...)
	w.append(1)
	e.refusedBatches(eventstore.ErrAlreadyWritten, b)
	b.After = w.last
	e.appendBatches(b)
	e.proved(appendOf(b), false)
}

func racingItself(e *env) {
	for round := range rounds(20) {
		w := e.filled(e.stream(fmt.Sprint(round)), 1)
		a := appendOf(w.batch(events(3)...), e.writer(e.stream(fmt.Sprint(round, "second"))).batch(events(1)...))
		const senders = 5
		replays := make([]bool, senders)
		together(senders, func(i int) {
			done, err := e.append(a)
			if err != nil || done.Receipts[0].Replays != done.Receipts[1].Replays {
				e.Errorf("sender %d = %+v, %v, want nil", i, done, err)
				return
			}
			replays[i] = done.Receipts[0].Replays
		})
		written := 0
		for _, r := range replays {
			if !r {
				written++
			}
		}
		if written != 1 && !e.Failed() {
			e.Errorf("%d senders were told that they wrote it, want 1", written)
		}
	}
}

func lostAnswer(e *env) {
	w := e.filled(e.stream("a"), 1)
	loseAnswers(e, func(int) eventstore.Append { return appendOf(w.batch(events(3)...)) }, func(a eventstore.Appended) { w.wrote(a.Receipts[0]) })
}

func lostAnswerOfSeveral(e *env) {
	w := e.filled(e.stream("a"), 1)
	loseAnswers(e, func(i int) eventstore.Append {
		return appendOf(w.batch(events(2)...), e.writer(e.stream(fmt.Sprint(i))).batch(events(1)...))
	}, func(a eventstore.Appended) { w.wrote(a.Receipts[0]) })
}

// loseAnswers ends the context of appends at every moment of them, and resends
// each with the same IDs until it is acked.
func loseAnswers(e *env, next func(i int) eventstore.Append, acked func(eventstore.Appended)) {
	e.Helper()
	for i := range rounds(50) {
		a := next(i)
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(i*i)*time.Microsecond)
		_, err := e.history.Append(ctx, e.store, a)
		cancel()
		mayBeThere := err == nil || errors.Is(err, eventstore.ErrUnknown)
		if !mayBeThere && !errors.Is(err, context.DeadlineExceeded) {
			e.Fatalf("append %d with a context that ends = %v, want nil, its error or ErrUnknown", i, err)
		}
		done, err := e.append(a)
		if err != nil {
			e.Fatalf("append %d resent = %v, want nil", i, err)
		}
		if r := done.Receipts[0]; r.Replays && !mayBeThere {
			e.Errorf("append %d was told as not written, and was there", i)
		}
		acked(done)
	}
}
