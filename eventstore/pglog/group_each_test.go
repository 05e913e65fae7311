// Group commit: the predicate holds for each member, as it does alone.

package pglog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestGroupDecidesEach(t *testing.T) {
	const n = 7
	o := newOneSenderAfter(t, n, func(o *oneSender) {
		if _, err := o.other.Fence(t.Context(), stream(1), eventstore.NewUUID()); err != nil {
			t.Fatal(err)
		}
	})
	want := make([]error, n) // nil: written
	bend := func(i int, kind error, f func(*eventstore.Batch)) {
		b := o.own[stream(i)]
		f(&b)
		o.own[stream(i)], want[i] = b, kind
	}
	bend(1, eventstore.ErrFenced, func(*eventstore.Batch) {}) // its owner does not know yet
	bend(2, eventstore.ErrFenced, func(b *eventstore.Batch) { b.Holder = eventstore.NewUUID() })
	bend(3, eventstore.ErrDiverged, func(b *eventstore.Batch) { b.After.ID = eventstore.NewUUID() })
	bend(4, eventstore.ErrFenced, func(b *eventstore.Batch) { b.Claim = true })
	bend(5, nil, func(b *eventstore.Batch) { b.Claim, b.Epoch, b.Holder = true, 2, eventstore.NewUUID() })
	for i := range n {
		o.background(stream(i), func(_ eventstore.Appended, err error) {
			if !errors.Is(err, want[i]) {
				t.Errorf("%s: %v, want %v", stream(i), err, want[i])
			}
		})
	}
	o.queued(n)
	// Behind the owner's batch on the last one, another holder's, that no owner sent.
	first := o.own[stream(6)]
	foreign := next(first, eventstore.Receipt{Last: eventstore.Mark{Seqno: first.Last()}}, 1)
	foreign.Holder = eventstore.NewUUID()
	o.own[stream(6)] = foreign
	o.background(stream(6), func(_ eventstore.Appended, err error) {
		if !errors.Is(err, eventstore.ErrFenced) {
			t.Errorf("another holder's, behind the owner's: %v, want ErrFenced", err)
		}
	})
	o.queued(n + 1)
	o.unblock()
	o.wg.Wait()
	var heads []eventstore.Seqno
	for i := range n {
		h, err := o.s.Head(t.Context(), stream(i))
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, h.Last.Seqno)
	}
	if got := fmt.Sprint(heads); got != "[3 1 1 1 1 3 3]" {
		t.Errorf("heads %s", got)
	}
	checkStreams(t, o.s, n)
}

// The connection is cut behind a group that was committed: its outcome is unknown to
// each caller that still waits.
func TestGroupCutOff(t *testing.T) {
	const n = 4
	o := newOneSender(t, n)
	for i := range n {
		o.background(stream(i), func(_ eventstore.Appended, err error) {
			if !errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("%s: %v, want ErrUnknown", stream(i), err)
			}
		})
	}
	o.queued(n)
	o.wire.muteNext.Store(true)
	o.unblock()
	o.committed()
	admin := pgtest.Pool(t)
	eventually(t, "the group's session is ended", func() bool { // it is seen as idle a little after its commit
		return number(t, admin, "select count(pg_terminate_backend(pid)) from pg_stat_activity where state = 'idle' and query like 'with g as materialized%'") == 1
	})
	o.wg.Wait()
	for i := range n {
		if done := must(t, o.s, one(o.own[stream(i)])); !done.Receipts[0].Replays {
			t.Errorf("%s resent: %+v, want it proved", stream(i), done)
		}
	}
}
