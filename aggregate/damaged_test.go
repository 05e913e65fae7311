// Histories that are not what they should be: damaged, and another one under the
// same epoch.

package aggregate_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// bentLoad is a memlog whose answers to Load a test can change.
type bentLoad struct {
	*memlog.Log
	bend func(*eventstore.Loaded)
}

func (b *bentLoad) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	l, err := b.Log.Load(ctx, s, fingerprint, limit)
	if err == nil {
		b.bend(&l)
	}
	return l, err
}

// A history with a hole, a repetition, or an end before its head is corrupt: nothing
// is decided on it and nothing written behind it.
func TestDamagedLoad(t *testing.T) {
	for name, bend := range map[string]func(*eventstore.Loaded){
		"hole":       func(l *eventstore.Loaded) { l.Entries = slices.Delete(slices.Clone(l.Entries), 1, 2) },
		"repetition": func(l *eventstore.Loaded) { l.Entries = slices.Insert(slices.Clone(l.Entries), 1, l.Entries[0]) },
		"too short":  func(l *eventstore.Loaded) { l.Head.Last = eventstore.Mark{Seqno: 5, ID: eventstore.NewUUID()} },
		"other head": func(l *eventstore.Loaded) { l.Head.Last.ID = eventstore.NewUUID() },
	} {
		t.Run(name, func(t *testing.T) {
			log := memlog.New(nil)
			typ := accounts(aggregate.Snapshots{})
			store := eventstore.New(log, nil)
			execute(t, newExecutor(t, store, typ, nil), "alice", Shift{[]int64{1, 2, 3, 4}})
			x := newExecutor(t, eventstore.New(&bentLoad{log, bend}, nil), typ, nil)
			_, err := x.Execute(context.Background(), "alice", Deposit{1})
			wantErr(t, err, eventstore.ErrCorrupt)
			if n := len(entries(t, store, alice)); n != 4 {
				t.Fatalf("%d events", n)
			}
		})
	}
}

// A restored store in which the same holder has written something else under the
// same epoch: only the last entry's ID tells it from the history that was folded.
func TestDivergedUnderTheSameEpoch(t *testing.T) {
	for _, n := range []int{1, 3, 5} { // shorter, as long, longer
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			store, log := newStore(t)
			x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
			execute(t, x, "alice", Shift{[]int64{1, 2, 3}})

			log.Log = memlog.New(nil)
			newExecutor(t, store, accounts(aggregate.Snapshots{}), nil) // makes the category
			b := eventstore.Batch{Stream: alice, Epoch: 1, Holder: x.Holder(), Claim: true}
			for range n {
				e, err := events.Encode(Deposited{1000})
				if err != nil {
					t.Fatal(err)
				}
				b.Events = append(b.Events, e)
			}
			if _, err := store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
				t.Fatal(err)
			}
			_, err := x.Execute(context.Background(), "alice", Deposit{1})
			wantErr(t, err, eventstore.ErrDiverged)
			if got := len(entries(t, store, alice)); got != n {
				t.Fatalf("the other history grew to %d", got)
			}
		})
	}
}
