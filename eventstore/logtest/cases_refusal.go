// Cases: how an append is refused, and that a refusal writes nothing.

package logtest

import (
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

var refusalCases = []testCase{
	{name: "fenced", rule: "an append under another epoch, or another holder's, is refused as fenced", run: fenced},
	{name: "claims", rule: "a claim at or below the stream's epoch is refused as fenced", run: claimsRefused},
	{name: "absent stream", rule: "without a claim or a fence a stream that does not exist has no owner", run: absentStream},
	{name: "diverged", rule: "a marked entry that is another one, or gone with lost history, is told as diverged, never continued", run: diverged},
	{name: "diverged under a warm writer", rule: "same epoch and seqno, other ID: an owner whose history was replaced is stopped", run: divergedUnderWarmWriter},
	{name: "already written", rule: "an append after an earlier entry is refused", run: alreadyWritten},
	{name: "after the head", rule: "an append after 5, after 2^63-1 or after 0 on a head of 2 is refused, names head 2, and stores nothing (A5)", run: afterTheHead},
	{name: "one of several", rule: "one refused batch of several: no seqno moves, nothing is written, no stream is created", run: oneOfSeveral},
	{name: "ranking", rule: "of several refusals the highest is told: ErrNoSuchCategory > ErrBatchIDReused > ErrFenced > ErrDiverged > ErrAlreadyWritten > ErrGap > ErrUnknown > ErrGuard", run: ranking},
	{name: "ranking in one batch", rule: "fenced hides diverged hides already written or gap", run: rankingInOneBatch},
	{name: "first of equals", rule: "among equal refusals the first batch's is told", run: firstOfEquals},
}

func fenced(e *env) {
	old := e.filled(e.stream("a"), 2)
	now := old.fencedBy(1)
	after := now.last
	for name, b := range map[string]eventstore.Batch{
		"lower epoch":              {Epoch: 1, Holder: old.holder},
		"same epoch, other holder": {Epoch: 2, Holder: old.holder},
		"higher epoch, no claim":   {Epoch: 3, Holder: now.holder},
		"2^63-1, no claim":         {Epoch: eventstore.MaxNumber, Holder: now.holder},
	} {
		b.Stream, b.After, b.Events = now.stream, after, events(1)
		err := e.refusedBatches(eventstore.ErrFenced, b)
		if *err.Head != e.head(now.stream) {
			e.Errorf("%s: head in the error = %+v, want %+v", name, *err.Head, e.head(now.stream))
		}
	}
	now.append(1)
}

func claimsRefused(e *env) {
	w := e.writer(e.stream("a"))
	w.epoch = 5
	w.append(1)
	for _, epoch := range []eventstore.Epoch{1, 4, 5} {
		for _, holder := range []eventstore.UUID{w.holder, eventstore.NewUUID()} {
			b := w.batch(events(1)...)
			b.Claim, b.Epoch, b.Holder = true, epoch, holder
			e.refusedBatches(eventstore.ErrFenced, b)
		}
	}
}

func absentStream(e *env) {
	w := e.writer(e.stream("a"))
	w.owns = true
	e.refusedBatches(eventstore.ErrFenced, w.batch(events(1)...))
	w.owns, w.last = false, eventstore.Mark{Seqno: 3}
	e.refusedBatches(eventstore.ErrGap, w.batch(events(1)...))
	w.last.ID = eventstore.NewUUID()
	e.refusedBatches(eventstore.ErrDiverged, w.batch(events(1)...))
	if h := e.head(w.stream); h != (eventstore.Head{}) {
		e.Errorf("head = %+v, want zero: nothing was written", h)
	}
}

func diverged(e *env) {
	w := e.filled(e.stream("a"), 3)
	first := e.read(w.stream, 0)[0]
	for name, after := range map[string]eventstore.Mark{
		"another entry at the head":      {Seqno: 3, ID: eventstore.NewUUID()},
		"another entry below the head":   {Seqno: 1, ID: eventstore.NewUUID()},
		"the right ID at another seqno":  {Seqno: 2, ID: first.ID},
		"an entry above the head":        {Seqno: 4, ID: eventstore.NewUUID()},
		"an entry far above the head":    {Seqno: eventstore.MaxNumber, ID: eventstore.NewUUID()},
		"the head's ID, above the head ": {Seqno: 4, ID: w.last.ID},
	} {
		for _, claim := range []bool{true, false} {
			b := w.batch(events(1)...)
			b.After = after
			if b.Claim = claim; claim {
				b.Epoch++
			}
			err := e.refusedBatches(eventstore.ErrDiverged, b)
			if err.Head.Last != w.last {
				e.Errorf("%s: head in the error = %+v, want it at %v", name, *err.Head, w.last)
			}
		}
	}
}

func divergedUnderWarmWriter(e *env) {
	// The category is deleted and made anew, and the same holder's stream is written
	// again to the same seqno under the same epoch: as after a failover to a lagging
	// copy, only the ID of the last entry tells the difference.
	c := e.newCategory("lost", false)
	warm := e.filled(streamIn(c, "a"), 3)
	if err := e.store.DeleteCategory(e.ctx, c); err != nil {
		e.Fatalf("DeleteCategory = %v, want nil", err)
	}
	e.history.Forget(c)
	if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c}); err != nil {
		e.Fatalf("CreateCategory = %v, want nil", err)
	}
	other := e.writer(warm.stream)
	other.holder = warm.holder
	other.append(3)
	e.refusedBatches(eventstore.ErrDiverged, warm.batch(events(1)...))
	other.append(1)
	e.refusedBatches(eventstore.ErrDiverged, warm.batch(events(1)...))
}

func alreadyWritten(e *env) {
	w := e.filled(e.stream("a"), 3)
	all := e.read(w.stream, 0)
	for _, after := range []eventstore.Mark{{}, all[0].Mark(), all[1].Mark(), {Seqno: 2}} {
		b := w.batch(events(1)...)
		b.After = after
		e.refusedBatches(eventstore.ErrAlreadyWritten, b)
		b.Claim, b.Epoch = true, w.epoch+1
		e.refusedBatches(eventstore.ErrAlreadyWritten, b)
	}
	long := w.batch(events(10)...) // reaches beyond the head
	long.After = all[0].Mark()
	e.refusedBatches(eventstore.ErrAlreadyWritten, long)
}

func afterTheHead(e *env) {
	w := e.filled(e.stream("a"), 2)
	for after, kind := range map[eventstore.Seqno]error{
		5: eventstore.ErrGap, 3: eventstore.ErrGap, eventstore.MaxNumber: eventstore.ErrGap, eventstore.MaxNumber - 1: eventstore.ErrGap,
		0: eventstore.ErrAlreadyWritten,
	} {
		b := w.batch(events(2)...)
		b.After = eventstore.Mark{Seqno: after}
		err := e.refusedBatches(kind, b)
		if err.Head.Last != w.last {
			e.Errorf("after %d: head in the error = %+v, want 2", after, *err.Head)
		}
	}
	w.append(1)
	if got := len(e.read(w.stream, 0)); got != 3 {
		e.Errorf("%d entries, want 3", got)
	}
}

func oneOfSeveral(e *env) {
	old := e.filled(e.stream("old"), 2)
	fresh, bad := e.writer(e.stream("fresh")), e.filled(e.stream("bad"), 2)
	late := bad.batch(events(1)...)
	late.After = eventstore.Mark{}
	for place := range 3 {
		batches := []eventstore.Batch{old.batch(events(2)...), fresh.batch(events(1)...), late}
		e.refusedBatches(eventstore.ErrAlreadyWritten, slices.Concat(batches[place:], batches[:place])...)
	}
	unknown := eventstore.Stream("nosuch" + string(e.category) + "-a")
	elsewhere := &writer{e: e, stream: unknown, holder: eventstore.NewUUID(), epoch: 1}
	e.refusedBatches(eventstore.ErrNoSuchCategory, old.batch(events(1)...), fresh.batch(events(1)...), elsewhere.batch(events(1)...))
	e.refused(eventstore.ErrGuard, eventstore.Append{Batches: []eventstore.Batch{fresh.batch(events(1)...), old.batch(events(1)...)},
		Guards: []eventstore.Guard{{Stream: bad.stream}}})
	e.appendBatches(fresh.batch(events(1)...), old.batch(events(1)...), bad.batch(events(1)...))
}

// flaw adds to an append what makes it refused with a kind, on streams of its own.
type flaw struct {
	kind error
	add  func(e *env, key string, a *eventstore.Append)
}

// flaws in the order in which they are told.
var flaws = []flaw{
	{eventstore.ErrNoSuchCategory, func(e *env, key string, a *eventstore.Append) {
		w := &writer{e: e, stream: streamIn(eventstore.Category("nosuch"+string(e.category)), key), holder: eventstore.NewUUID(), epoch: 1}
		a.Batches = append(a.Batches, w.batch(events(1)...))
	}},
	{eventstore.ErrBatchIDReused, func(e *env, key string, a *eventstore.Append) {
		w := e.writer(e.stream(key))
		b := w.batch(events(2)...)
		w.send(b)
		b.Events = append([]eventstore.Event{event("other")}, b.Events[1:]...)
		a.Batches = append(a.Batches, b)
	}},
	{eventstore.ErrFenced, func(e *env, key string, a *eventstore.Append) {
		w := e.filled(e.stream(key), 1)
		w.fencedBy(1)
		a.Batches = append(a.Batches, w.batch(events(1)...))
	}},
	{eventstore.ErrDiverged, func(e *env, key string, a *eventstore.Append) {
		w := e.filled(e.stream(key), 1)
		w.last.ID = eventstore.NewUUID()
		a.Batches = append(a.Batches, w.batch(events(1)...))
	}},
	{eventstore.ErrAlreadyWritten, func(e *env, key string, a *eventstore.Append) {
		w := e.filled(e.stream(key), 1)
		w.last = eventstore.Mark{}
		a.Batches = append(a.Batches, w.batch(events(1)...))
	}},
	{eventstore.ErrGap, func(e *env, key string, a *eventstore.Append) {
		w := e.filled(e.stream(key), 1)
		w.last = eventstore.Mark{Seqno: 2}
		a.Batches = append(a.Batches, w.batch(events(1)...))
	}},
	{eventstore.ErrUnknown, func(e *env, key string, a *eventstore.Append) {
		w := e.writer(e.stream(key))
		b := w.batch(events(1)...)
		w.send(b)
		w.append(1)
		e.trim(w.stream, 1)
		a.Batches = append(a.Batches, b)
	}},
	{eventstore.ErrGuard, func(e *env, key string, a *eventstore.Append) {
		w := e.filled(e.stream(key), 1)
		a.Guards = append(a.Guards, eventstore.Guard{Stream: w.stream})
	}},
}

func ranking(e *env) {
	for i, high := range flaws {
		for j, low := range flaws[i:] {
			for k, order := range [][]flaw{{high, low}, {low, high}} {
				var a eventstore.Append
				for n, f := range order {
					f.add(e, fmt.Sprint(i, j, k, n), &a)
				}
				if len(a.Batches) == 0 { // guards only
					a.Batches = append(a.Batches, e.writer(e.stream(fmt.Sprint(i, j, k, "new"))).batch(events(1)...))
				}
				before := e.heads(a)
				_, err := e.store.Append(e.ctx, a) // not noted: some of the batches are there
				wantFacts(e, wantKind(e, err, high.kind))
				if after := e.heads(a); fmt.Sprint(after) != fmt.Sprint(before) {
					e.Errorf("%v and %v: heads moved from %v to %v", order[0].kind, order[1].kind, before, after)
				}
			}
		}
	}
}

func rankingInOneBatch(e *env) {
	w := e.filled(e.stream("a"), 2)
	now := w.fencedBy(2)
	id := eventstore.NewUUID()
	for _, after := range []eventstore.Mark{now.last, {Seqno: 4, ID: id}, {Seqno: 2, ID: id}, {Seqno: 9, ID: id}, w.last, {}, {Seqno: 9}} {
		for _, epoch := range []eventstore.Epoch{1, 2, 3} {
			b := w.batch(events(1)...)
			b.After, b.Epoch = after, epoch // 1 is too low, 2 is another holder's, 3 was not granted
			e.refusedBatches(eventstore.ErrFenced, b)
		}
		b := w.batch(events(1)...)
		b.After, b.Epoch, b.Claim = after, 2, true
		e.refusedBatches(eventstore.ErrFenced, b)
	}
}

func firstOfEquals(e *env) {
	for _, f := range flaws {
		var a eventstore.Append
		f.add(e, "x"+f.kind.Error(), &a)
		f.add(e, "y"+f.kind.Error(), &a)
		first := eventstore.Stream("")
		if len(a.Batches) > 0 {
			first = a.Batches[0].Stream
		} else {
			first = a.Guards[0].Stream
			a.Batches = append(a.Batches, e.writer(e.stream("z")).batch(events(1)...))
		}
		_, err := e.store.Append(e.ctx, a)
		if got := wantKind(e, err, f.kind); got.Stream != first {
			e.Errorf("%v is of %s, want the first, %s", err, got.Stream, first)
		}
	}
}
