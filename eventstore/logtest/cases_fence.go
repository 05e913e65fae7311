// Cases: epochs and who holds them.

package logtest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/wattle-es/wattle/eventstore"
)

var fenceCases = []testCase{
	{name: "next", rule: "Fence grants the stream's epoch plus one, another one each time, to the same holder too", run: fenceNext},
	{name: "at", rule: "FenceAt needs an epoch strictly above the stream's, or equal with the same holder", run: fenceAt},
	{name: "creates the stream", rule: "a fence creates a shared stream, without entries", run: fenceCreates},
	{name: "head is final", rule: "after a grant no lower epoch writes, and the head read with it is final", run: fenceHeadIsFinal},
	{name: "failed grant burns none", rule: "a grant that fails leaves the old epoch and uses none up (I5)", run: failedGrantBurnsNone},
	{name: "highest", rule: "epochs end at 2^63-1 with an error, they do not begin anew", run: fenceHighest},
	{name: "durable", rule: "a grant is seen by another process (I5)", run: fenceDurable},
	{name: "racing fences", rule: "fences racing for one stream are each granted an epoch of their own", run: racingFences},
	{name: "racing fences at one epoch", rule: "of several holders that ask for one epoch exactly one is granted it", run: racingFencesAt},
	{name: "racing a first append", rule: "a fence that races the first append leaves one of the two orders: fenced first and the append refused if its epoch is too low, or written first and in the head", run: fenceRacingFirstAppend},
	{name: "racing an owner", rule: "whatever an owner was acked before it was fenced is in the head that the fence returned, and nothing after", run: fenceRacingOwner},
	{name: "equal claims racing", rule: "equal computed epochs racing: exactly one wins, the others are fenced or too late", run: equalClaimsRacing},
}

func fenceNext(e *env) {
	w := e.filled(e.stream("a"), 2)
	holder := eventstore.NewUUID()
	for i := range 3 {
		want := eventstore.Head{Epoch: eventstore.Epoch(2 + i), Holder: holder, Last: w.last}
		if got := e.fence(w.stream, holder, 0); got != want {
			e.Errorf("fence %d = %+v, want %+v", i, got, want)
		}
	}
	e.refusedBatches(eventstore.ErrFenced, w.batch(events(1)...))
	b := w.batch(events(1)...)
	b.Epoch, b.Holder = 4, holder
	e.appendBatches(b)
}

func fenceAt(e *env) {
	w := e.filled(e.stream("a"), 1)
	holder, other := eventstore.NewUUID(), eventstore.NewUUID()
	e.fence(w.stream, holder, 10)
	for range 2 {
		if got := e.fence(w.stream, holder, 10); got.Epoch != 10 {
			e.Errorf("the same grant again = %+v, want epoch 10", got)
		}
	}
	for at, who := range map[eventstore.Epoch]eventstore.UUID{1: holder, 9: holder, 10: other, 3: other} {
		_, err := e.history.Fence(e.ctx, e.store, w.stream, who, at)
		got := wantKind(e, err, eventstore.ErrFenced)
		wantFacts(e, got)
		if got.Head.Epoch != 10 || got.Head.Holder != holder {
			e.Errorf("FenceAt(%d): head in the error = %+v, want epoch 10 of %v", at, *got.Head, holder)
		}
	}
	e.fence(w.stream, other, 11)
	if got := e.fence(w.stream, holder, 0); got.Epoch != 12 {
		e.Errorf("Fence after FenceAt(11) = %+v, want epoch 12", got)
	}
}

func fenceCreates(e *env) {
	s, holder := e.stream("a"), eventstore.NewUUID()
	want := eventstore.Head{Epoch: 1, Holder: holder}
	if got := e.fence(s, holder, 0); got != want || e.head(s) != want {
		e.Errorf("fence of a new stream = %+v, head %+v, want %+v", got, e.head(s), want)
	}
	if all := e.read(s, 0); len(all) != 0 {
		e.Errorf("a stream that was only fenced has %d entries, want none", len(all))
	}
	w := &writer{e: e, stream: s, holder: holder, epoch: 1, owns: true}
	w.append(2)
	at, holder := e.stream("b"), eventstore.NewUUID()
	if got := e.fence(at, holder, 77); got != (eventstore.Head{Epoch: 77, Holder: holder}) {
		e.Errorf("FenceAt(77) of a new stream = %+v", got)
	}
}

func fenceHeadIsFinal(e *env) {
	w := e.filled(e.stream("a"), 3)
	h := e.fence(w.stream, eventstore.NewUUID(), 0)
	if h.Last != w.last {
		e.Errorf("head of the fence = %+v, want it at %v", h, w.last)
	}
	for range 3 {
		e.refusedBatches(eventstore.ErrFenced, w.batch(events(1)...))
	}
	claim := w.batch(events(1)...)
	claim.Claim, claim.Epoch = true, h.Epoch
	e.refusedBatches(eventstore.ErrFenced, claim)
}

func failedGrantBurnsNone(e *env) {
	s, holder := e.stream("a"), eventstore.NewUUID()
	e.fence(s, holder, 5)
	for range 5 {
		_, err := e.history.Fence(e.ctx, e.store, s, eventstore.NewUUID(), 4)
		wantKind(e, err, eventstore.ErrFenced)
		claim := e.writer(s)
		claim.epoch = 5
		e.refusedBatches(eventstore.ErrFenced, claim.batch(events(1)...))
	}
	if got := e.fence(s, holder, 0); got.Epoch != 6 {
		e.Errorf("the next grant = %+v, want epoch 6", got)
	}
}

func fenceHighest(e *env) {
	s, holder := e.stream("a"), eventstore.NewUUID()
	e.fence(s, holder, eventstore.MaxNumber)
	for range 2 {
		h, err := e.history.Fence(e.ctx, e.store, s, holder, 0)
		if _, ok := errors.AsType[*eventstore.Error](err); !ok {
			e.Errorf("Fence above epoch 2^63-1 = %+v, %v, want an *eventstore.Error", h, err)
		}
	}
	want := eventstore.Head{Epoch: eventstore.MaxNumber, Holder: holder}
	if got := e.head(s); got != want {
		e.Errorf("head = %+v, want %+v", got, want)
	}
	if got := e.fence(s, holder, eventstore.MaxNumber); got != want {
		e.Errorf("the same grant again = %+v, want %+v", got, want)
	}
}

func fenceDurable(e *env) {
	w := e.filled(e.stream("a"), 1)
	h := e.fence(w.stream, eventstore.NewUUID(), 0)
	other := e.through(e.another())
	if got := other.head(w.stream); got != h {
		e.Errorf("head read by another = %+v, want %+v", got, h)
	}
	other.refusedBatches(eventstore.ErrFenced, w.batch(events(1)...))
}

func racingFences(e *env) {
	s := e.stream("a")
	const n = 20
	var mu sync.Mutex
	granted := map[eventstore.Epoch]bool{}
	together(n, func(int) {
		h, err := e.history.Fence(e.ctx, e.store, s, eventstore.NewUUID(), 0)
		if err != nil {
			e.Errorf("Fence = %v, want nil", err)
		}
		mu.Lock()
		defer mu.Unlock()
		granted[h.Epoch] = true
	})
	if len(granted) != n || e.head(s).Epoch != n {
		e.Errorf("%d fences were granted epochs %v, head %+v, want each of 1 to %d", n, granted, e.head(s), n)
	}
}

func racingFencesAt(e *env) {
	for round := range rounds(20) {
		s := e.stream(fmt.Sprint(round))
		won := count(8, func(int) bool {
			_, err := e.history.Fence(e.ctx, e.store, s, eventstore.NewUUID(), 3)
			return wonOr(e, err, eventstore.ErrFenced)
		})
		if won != 1 {
			e.Errorf("%d holders were granted epoch 3, want 1", won)
		}
	}
}

func fenceRacingFirstAppend(e *env) {
	for round := range rounds(50) {
		w := e.writer(e.stream(fmt.Sprint(round)))
		w.epoch = eventstore.Epoch(1 + round%2) // at epoch 1 a fence before refuses it, at 2 it does not
		var fenced eventstore.Head
		var fenceErr, appendErr error
		together(2, func(i int) {
			if i == 0 {
				fenced, fenceErr = e.history.Fence(e.ctx, e.store, w.stream, eventstore.NewUUID(), 0)
			} else {
				_, appendErr = e.append(appendOf(w.batch(events(2)...)))
			}
		})
		if fenceErr != nil {
			e.Fatalf("Fence = %v, want nil", fenceErr)
		}
		writtenFirst := fenced.Last.Seqno == 2
		want := eventstore.Head{Epoch: 1, Holder: fenced.Holder} // fenced, nothing written
		switch {
		case writtenFirst:
			want = eventstore.Head{Epoch: w.epoch + 1, Holder: fenced.Holder, Last: fenced.Last}
		case appendErr == nil:
			want = eventstore.Head{Epoch: 2, Holder: w.holder, Last: e.head(w.stream).Last}
		default:
			wantKind(e, appendErr, eventstore.ErrFenced)
		}
		mustWrite := writtenFirst || w.epoch == 2
		if h := e.head(w.stream); h != want || mustWrite && appendErr != nil {
			e.Errorf("claim at %d raced a fence: append %v, fence %+v, head %+v, want %+v", w.epoch, appendErr, fenced, h, want)
		}
	}
}

func fenceRacingOwner(e *env) {
	for round := range rounds(10) {
		w := e.filled(e.stream(fmt.Sprint(round)), 1)
		var acks atomic.Int64
		var final eventstore.Head
		together(2, func(i int) {
			if i == 0 {
				for acks.Load() < 3 {
					runtime.Gosched()
				}
				final, _ = e.history.Fence(e.ctx, e.store, w.stream, eventstore.NewUUID(), 0)
				return
			}
			for ; ; acks.Add(1) {
				done, err := e.append(appendOf(w.batch(events(1)...)))
				if !wonOr(e, err, eventstore.ErrFenced) {
					acks.Add(3)
					return
				}
				w.wrote(done.Receipts[0])
			}
		})
		if final.Last != w.last || e.head(w.stream) != final {
			e.Errorf("acked through %v, the fence returned %+v, head is %+v: want them to agree", w.last, final, e.head(w.stream))
		}
	}
}

func equalClaimsRacing(e *env) {
	for round := range rounds(20) {
		s := e.stream(fmt.Sprint(round))
		if round%2 == 1 {
			e.filled(s, 2)
		}
		claims := make([]eventstore.Batch, 8)
		for i := range claims {
			claims[i] = e.writer(s).batch(events(2)...)
		}
		won := count(len(claims), func(i int) bool {
			_, err := e.append(appendOf(claims[i]))
			return wonOr(e, err, eventstore.ErrFenced)
		})
		if won != 1 {
			e.Errorf("%d of %d equal claims won, want 1", won, len(claims))
		}
	}
}

// count calls f(0) … f(n-1) at once and returns how many of them were true.
func count(n int, f func(i int) bool) int {
	won := make([]bool, n)
	together(n, func(i int) { won[i] = f(i) })
	total := 0
	for _, w := range won {
		if w {
			total++
		}
	}
	return total
}

// wonOr says if err is nil; else it must be of the kind of the losers. It may be
// called from any goroutine.
func wonOr(e *env, err, kind error) bool {
	if err != nil && !errors.Is(err, kind) {
		e.Errorf("the loser of a race = %v, want %v", err, kind)
	}
	return err == nil
}
