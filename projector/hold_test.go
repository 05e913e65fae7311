// Holds and the snapshotter: what a projector has not come to is not trimmed.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func TestHoldFollowsTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 10)
		e.deposit("other-b", 5)
		db := &database{}
		o := &projector.Options{Categories: []eventstore.Category{"other"}, PageSize: 4}
		p := projector.New(e.store, "p", "account", db, o)
		trim := func(through eventstore.Seqno) eventstore.TrimResult {
			r, err := e.store.Trim(t.Context(), "account-a", through, false)
			e.ok(err)
			return r
		}
		// Registered before it has come anywhere: nothing goes.
		boom := errors.New("boom")
		db.fail = func(string, *eventstore.Entry) error { return boom }
		if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if r := trim(10); r.Trimmed != 0 || !strings.Contains(r.StoppedBy, p.HoldName()) {
			t.Errorf("trimmed %+v", r)
		}
		db.fail = nil
		stop := run(t, p)
		time.Sleep(time.Second)
		token := e.deposit("account-a", 10)
		e.ok(p.Wait(within(t), token))
		time.Sleep(10 * time.Second) // at most holdInterval and a poll
		if r := trim(20); r.Trimmed != 19 {
			t.Errorf("trimmed %+v, want all but the marked entry", r)
		}
		holds, err := e.store.ListHolds(t.Context())
		e.ok(err)
		if len(holds) != 2 || holds[0].Position != token.Position || holds[0].ID != e.marks["account-a"].ID || holds[1].Category != "other" {
			t.Errorf("holds %+v", holds)
		}
		stop()
		e.ok(p.Unregister(t.Context()))
		if r := trim(20); r.Trimmed != 20 {
			t.Errorf("trimmed %+v after Unregister", r)
		}
		if holds, _ = e.store.ListHolds(t.Context()); len(holds) != 0 {
			t.Errorf("holds %+v", holds)
		}
	})
}

// Holds move seldom, and another version's is another one.
func TestHoldMovesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		db := &database{}
		p := projector.New(e.store, "p", "account", db)
		if other := projector.New(e.store, "p", "account", db, &projector.Options{Version: 2}); other.HoldName() == p.HoldName() {
			t.Error(p.HoldName())
		}
		stop := run(t, p)
		moves, last := 0, eventstore.Position(0)
		for range 600 {
			e.deposit("account-a", 1)
			time.Sleep(100 * time.Millisecond)
			holds, err := e.store.ListHolds(t.Context())
			e.ok(err)
			if holds[0].Position != last {
				moves, last = moves+1, holds[0].Position
			}
		}
		if moves < 8 || moves > 12 {
			t.Errorf("%d moves in a minute", moves)
		}
		stop()
	})
}

// Entries that do not match are passed before the checkpoint is kept behind them. The
// hold waits for that: whoever starts anew begins at the checkpoint.
func TestHoldIsNotAheadOfTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		db := &database{}
		p := projector.New(e.store, "p", "account", db, &projector.Options{Types: []string{"deposited"}, PollInterval: 10 * time.Millisecond})
		stop := run(t, p)
		moves, last := 0, eventstore.Position(0)
		for i := range 300 {
			if i == 60 {
				time.Sleep(2300 * time.Millisecond) // so that writes and moves fall apart
			}
			e.append("account-a", Renamed{"x"})
			time.Sleep(100 * time.Millisecond)
			holds, err := e.store.ListHolds(t.Context())
			e.ok(err)
			kept, _, _ := db.get()
			if holds[0].Position > kept.Position {
				t.Fatalf("the hold is at %d, the checkpoint at %d", holds[0].Position, kept.Position)
			}
			if holds[0].Position != last {
				moves, last = moves+1, holds[0].Position
			}
		}
		if moves < 3 {
			t.Errorf("%d moves in half a minute", moves)
		}
		stop()
	})
}

// snapshots are "taken" at the head, of no content.
func takeSnapshot(store *eventstore.Store, taken *[]string) func(context.Context, eventstore.Stream) (eventstore.Mark, error) {
	return func(ctx context.Context, s eventstore.Stream) (eventstore.Mark, error) {
		h, err := store.Head(ctx, s)
		if err != nil {
			return eventstore.Mark{}, err
		}
		*taken = append(*taken, fmt.Sprintf("%s@%d", s, h.Last.Seqno))
		return h.Last, store.SaveSnapshot(ctx, eventstore.Snapshot{Stream: s, At: h.Last, Fingerprint: "x"})
	}
}

func TestSnapshotterTrims(t *testing.T) {
	e := newEnv(t, nil)
	var taken []string
	o := projector.SnapshotOptions{Every: 10, KeepEntries: 3, Take: takeSnapshot(e.store, &taken), Projector: projector.Options{PageSize: 7}}
	var c projector.MemoryCheckpoints
	p := projector.NewSnapshotter(e.store, "snapshots", "account", &c, o)
	e.deposit("account-a", 9)
	e.deposit("account-b", 25)
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	e.deposit("account-a", 1)
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	// The snapshot at b's tenth entry is one of its head: the twentieth is gone then.
	if fmt.Sprint(taken) != "[account-b@25 account-a@10]" {
		t.Error(taken)
	}
	for s, want := range map[eventstore.Stream]eventstore.Seqno{"account-a": 7, "account-b": 22} {
		if h, err := e.store.Head(t.Context(), s); err != nil || h.Trimmed != want {
			t.Errorf("%s trimmed to %d, want %d (%v)", s, h.Trimmed, want, err)
		}
	}
	if p.Status().Position != 35 {
		t.Errorf("%+v", p.Status())
	}
}

// A trim that a hold stops is made when the hold has gone on, although the stream
// is quiet.
func TestSnapshotterTrimsBehindHoldsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 20)
		var taken []string
		var c projector.MemoryCheckpoints
		snapshots := projector.NewSnapshotter(e.store, "snapshots", "account", &c, projector.SnapshotOptions{Every: 10, Take: takeSnapshot(e.store, &taken)})
		slow := projector.New(e.store, "slow", "account", &database{})
		e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: slow.HoldName(), Category: "account"}))
		stop := run(t, snapshots)
		time.Sleep(time.Minute)
		if h, _ := e.store.Head(t.Context(), "account-a"); h.Trimmed != 0 || len(taken) == 0 {
			t.Errorf("trimmed to %d, taken %v", h.Trimmed, taken)
		}
		if _, err := slow.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		e.ok(slow.Unregister(t.Context()))
		time.Sleep(time.Minute)
		if h, _ := e.store.Head(t.Context(), "account-a"); h.Trimmed != 20 {
			t.Errorf("trimmed to %d", h.Trimmed)
		}
		stop()
	})
}

// Entries stay for a time, and go when it is over although the stream is quiet.
func TestSnapshotterKeepsForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 8)
		time.Sleep(time.Hour)
		e.deposit("account-a", 12)
		var taken []string
		var c projector.MemoryCheckpoints
		o := projector.SnapshotOptions{Every: 10, KeepEntries: 2, KeepFor: 30 * time.Minute, Take: takeSnapshot(e.store, &taken)}
		stop := run(t, projector.NewSnapshotter(e.store, "snapshots", "account", &c, o))
		for _, step := range []struct {
			wait    time.Duration
			trimmed eventstore.Seqno
		}{{time.Minute, 8}, {25 * time.Minute, 8}, {10 * time.Minute, 18}} {
			time.Sleep(step.wait)
			if h, _ := e.store.Head(t.Context(), "account-a"); h.Trimmed != step.trimmed {
				t.Errorf("trimmed to %d, want %d", h.Trimmed, step.trimmed)
			}
		}
		stop()
	})
}

func TestSnapshotterWithoutTrim(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 20)
	var taken []string
	var c projector.MemoryCheckpoints
	o := projector.SnapshotOptions{Every: 20, NoTrim: true, Take: takeSnapshot(e.store, &taken)}
	if _, err := projector.NewSnapshotter(e.store, "s", "account", &c, o).CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if h, _ := e.store.Head(t.Context(), "account-a"); h.Trimmed != 0 || len(taken) != 1 {
		t.Errorf("trimmed to %d, taken %v", h.Trimmed, taken)
	}
	o.Take = func(context.Context, eventstore.Stream) (eventstore.Mark, error) { panic("no") }
	o.Projector.StopOnPoison = true
	_, err := projector.NewSnapshotter(e.store, "panics", "account", &c, o).CatchUp(t.Context(), 0)
	if entry, ok := errors.AsType[*projector.EntryError](err); !ok || entry.Stream != "account-a" || entry.Seqno != 20 {
		t.Error(err)
	}
}
