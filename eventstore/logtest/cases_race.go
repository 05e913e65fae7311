// Cases: many writers at once.

package logtest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/wattle-es/wattle/eventstore"
)

var raceCases = []testCase{
	{name: "one after", rule: "20 at one barrier append after the same entry: 1 ack, 19 refusals, acks are entries (A1)", run: oneAfter},
	{name: "two processes", rule: "at 3, two processes append after 3: one wins, the other has a typed refusal, the head is 4 (A2)", run: twoProcesses},
	{name: "load, decide, append", rule: "20 that reload and try again until they are acked leave exactly 20 entries (A1)", run: loadDecideAppend},
	{name: "crossing streams", rule: "appends of several streams in crossing order all come to an end, each wholly there or wholly absent", run: crossingStreams},
	{name: "guards crossing writes", rule: "of two appends that each guard what the other writes, one is refused: a guard is checked in the step that writes", run: crossingGuards},
	{name: "many streams", rule: "appends to different streams at once do not disturb one another", run: manyStreams},
}

func oneAfter(e *env) {
	const n = 20
	for round := range rounds(50) {
		w := e.filled(e.stream(fmt.Sprint(round)), 1)
		batches := make([]eventstore.Batch, n)
		for i := range batches {
			batches[i] = w.batch(events(1)...) // all of one owner
			if round%2 == 1 {                  // each of its own
				batches[i].Claim, batches[i].Epoch, batches[i].Holder = true, eventstore.Epoch(2+i), eventstore.NewUUID()
			}
		}
		acks := count(n, func(i int) bool {
			_, err := e.append(appendOf(batches[i]))
			if err != nil && !errors.Is(err, eventstore.ErrAlreadyWritten) && !errors.Is(err, eventstore.ErrFenced) {
				e.Errorf("the loser of a race = %v, want already written or fenced", err)
			}
			return err == nil
		})
		if head := e.head(w.stream).Last.Seqno; acks != 1 || head != 2 {
			e.Errorf("round %d: %d acks and head %d, want 1 and 2", round, acks, head)
		}
	}
}

func twoProcesses(e *env) {
	processes := []*env{e, e.through(e.another())}
	for round := range rounds(100) {
		s := e.stream(fmt.Sprint(round))
		e.filled(s, 3)
		batches := []eventstore.Batch{e.writer(s).batch(events(1)...), processes[1].writer(s).batch(events(1)...)}
		acks := count(2, func(i int) bool {
			_, err := processes[i].append(appendOf(batches[i]))
			if err != nil && !errors.Is(err, eventstore.ErrFenced) {
				e.Errorf("the loser of a race = %v, want fenced", err)
			}
			return err == nil
		})
		if head := e.head(s).Last.Seqno; acks != 1 || head != 4 {
			e.Errorf("round %d: %d acks and head %d, want 1 and 4", round, acks, head)
		}
	}
}

func loadDecideAppend(e *env) {
	const n = 20
	for round := range rounds(5) {
		s := e.stream(fmt.Sprint(round))
		acks := count(n, func(int) bool {
			holder, id := eventstore.NewUUID(), eventstore.NewUUID()
			for {
				h, err := e.store.Head(e.ctx, s)
				if err == nil {
					_, err = e.append(appendOf(eventstore.Batch{ID: id, Stream: s, Epoch: h.Epoch + 1, Holder: holder, Claim: true, After: h.Last, Events: events(1)}))
				}
				if err == nil {
					return true
				}
				if !errors.Is(err, eventstore.ErrAlreadyWritten) && !errors.Is(err, eventstore.ErrFenced) {
					e.Errorf("append = %v, want nil, already written or fenced", err)
					return false
				}
			}
		})
		if head := e.head(s).Last.Seqno; acks != n || head != n {
			e.Errorf("round %d: %d acks and head %d, want %d", round, acks, head, n)
		}
	}
}

func crossingStreams(e *env) {
	streams := []eventstore.Stream{e.stream("x"), e.stream("y"), e.stream("z")}
	var acked atomic.Int64
	together(6, func(i int) {
		holder := eventstore.NewUUID()
		for round := range rounds(20) {
			var a eventstore.Append
			for j := range 2 {
				s := streams[(i+round+j*(1+i%2))%3]
				h, err := e.store.Head(e.ctx, s)
				if err != nil {
					e.Errorf("Head = %v, want nil", err)
					return
				}
				a.Batches = append(a.Batches, eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: h.Epoch + 1, Holder: holder, Claim: true, After: h.Last, Events: events(1 + j)})
			}
			_, err := e.append(a)
			switch {
			case err == nil:
				acked.Add(3)
			case !errors.Is(err, eventstore.ErrAlreadyWritten) && !errors.Is(err, eventstore.ErrFenced):
				e.Errorf("append = %v, want nil, already written or fenced", err)
			}
		}
	})
	total := eventstore.Seqno(0)
	for _, s := range streams {
		total += e.head(s).Last.Seqno
	}
	if int64(total) != acked.Load() {
		e.Errorf("%d entries there, %d acked", total, acked.Load())
	}
}

func crossingGuards(e *env) {
	for round := range rounds(30) {
		ws := []*writer{e.filled(e.stream(fmt.Sprint(round, "x")), 1), e.filled(e.stream(fmt.Sprint(round, "y")), 1)}
		acks := count(2, func(i int) bool {
			a := appendOf(ws[i].batch(events(1)...))
			a.Guards = []eventstore.Guard{{Stream: ws[1-i].stream, At: ws[1-i].last}}
			_, err := e.append(a)
			return wonOr(e, err, eventstore.ErrGuard)
		})
		if acks != 1 {
			e.Errorf("round %d: %d appends went through, each guarding what the other writes; want 1", round, acks)
		}
	}
}

func manyStreams(e *env) {
	const writers, size = 16, 2
	batches := rounds(20)
	e.alternate(writers, batches, size)
	for i := range writers {
		if got := seqnos(e.read(e.stream(fmt.Sprint(i)), 0)); !slices.Equal(got, span(1, eventstore.Seqno(batches*size))) {
			e.Errorf("stream %d: %v, want 1 to %d", i, got, batches*size)
		}
	}
}
