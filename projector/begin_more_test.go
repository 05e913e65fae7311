// Rebuilds from snapshots: lost answers, no snapshot, parked keys, waiting, one stream.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

// A step with the snapshot of a stream that is in no feed, whose answer was lost, does not
// land behind the step that brought a newer one.
func TestLateSnapshotIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, _ := quietWorld(t)
		w.append("account-a", 3)
		w.append("account-b", 3)
		w.append("account-a", 3)
		w.snapshot("account-b", 3, 3)
		var late []projector.Step
		stop := run(t, projector.New(w.store, "p", "account", &disturbed{r, func(_ context.Context, s projector.Step) error {
			if len(s.Batch) == 0 || len(late) > 0 && s.Batch[0].Type == projector.SnapshotType {
				return nil
			}
			if len(late) > 0 {
				_ = r.Handle(t.Context(), late[0])
				return nil
			}
			late = append(late, s)
			w.append("account-b", 2)
			w.snapshot("account-b", 5, 5)
			return errOutage
		}}, &projector.Options{Snapshots: true, NoHold: true}))
		time.Sleep(time.Minute)
		_ = stop()
		w.check(r, 1, false)
		if len(late) != 1 || r.snapshots != 1 {
			t.Errorf("%d steps late, %d snapshots handed over", len(late), r.snapshots)
		}
	})
}

// What was trimmed freely, and has no snapshot, stops a rebuild, in the feed and out of
// it, unless that is accepted. A version that had handled it all goes on.
func TestTrimmedWithoutSnapshot(t *testing.T) {
	for _, through := range []eventstore.Seqno{2, 3} {
		e := newEnv(t, nil)
		e.deposit("account-a", 3)
		e.deposit("account-b", 1)
		for _, o := range []*projector.Options{{Version: 1, Snapshots: true}, {Version: 2, Snapshots: true}, {Version: 3, Snapshots: true, AcceptTrimmed: true}} {
			h := newLedger()
			p := projector.New(e.store, "p", "account", h, o)
			if o.Version == 1 {
				catchUp(t, p, 0)
			}
			if _, err := e.store.Trim(t.Context(), "account-a", through, false); err != nil {
				t.Fatal(err)
			}
			if o.Version == 1 {
				time.Sleep(0)
				e.ok(p.Unregister(t.Context()))
				_, err := e.store.Trim(t.Context(), "account-a", through, false)
				e.ok(err)
				e.deposit("account-a", 1)
				catchUp(t, projector.New(e.store, "p", "account", h, o), 0)
				continue
			}
			_, err := p.CatchUp(t.Context(), 0)
			if o.AcceptTrimmed {
				e.ok(err)
				continue
			}
			if got := wantKind(t, err, eventstore.ErrTrimmed); got.Stream != "account-a" || !strings.Contains(got.Hint, "save a snapshot") {
				t.Errorf("trimmed through %d: %v", through, err)
			}
		}
	}
}

// Keys are parked because of snapshots, wherever these are handed over, and in the end
// nothing is missing.
func TestParkedSnapshots(t *testing.T) {
	w, r, newProjector := quietWorld(t)
	broken := true
	r.bad = func(e eventstore.Entry) bool { return broken && e.Type == projector.SnapshotType }
	for _, key := range []string{"lost", "next", "place"} {
		for _, c := range []string{"account-", "other-"} {
			w.append(eventstore.Stream(c+key), 6)
		}
	}
	for _, c := range []eventstore.Stream{"account-", "other-"} {
		w.snapshot(c+"lost", 6, 6)
		w.snapshot(c+"next", 3, 3)
		w.snapshot(c+"place", 5, 2)
	}
	w.append("account-good", 3)
	o := &projector.Options{Categories: []eventstore.Category{"other"}, Tries: 1}
	p := newProjector(o)
	catchUp(t, p, 0)
	if r.models[1]["account-good"].Seqno != 3 || len(r.models[1]) != 1 {
		t.Errorf("models %+v", r.models[1])
	}
	admin := projector.NewAdmin(w.store, r)
	versions, err := r.Versions(t.Context(), "p")
	w.ok(err)
	if parked := versions[0].Parked; len(parked) != 3 || parked[0].Type != projector.SnapshotType || len(parked[0].Queue) != 2 {
		t.Errorf("parked %+v", parked)
	}
	for range 2 { // in vain at first
		_, err = admin.Retry(t.Context(), "p", 1, "")
		w.ok(err)
		catchUp(t, newProjector(o), 0)
		broken = false
	}
	w.check(r, 1, false)
	w.append("account-next", 1)
	w.append("account-lost", 1)
	catchUp(t, newProjector(o), 0)
	w.check(r, 1, false)
	if st := newProjector(o).Status(); st.Parked != 0 {
		t.Errorf("status %+v", st)
	}
}

// What waits under a parked key and is trimmed there comes as a snapshot.
func TestParkedAndTrimmedMeanwhile(t *testing.T) {
	w, r, newProjector := quietWorld(t)
	broken := true
	r.bad = func(e eventstore.Entry) bool { return broken && e.Stream == "account-a" && e.Seqno == 2 }
	w.append("account-a", 4)
	w.append("account-b", 2)
	o := &projector.Options{NoHold: true, Tries: 1}
	catchUp(t, newProjector(o), 0)
	for _, through := range []eventstore.Seqno{3, 4} {
		w.snapshot("account-a", through, through)
		if through == 4 {
			broken = false
		}
		_, err := projector.NewAdmin(w.store, r).Retry(t.Context(), "p", 1, "")
		w.ok(err)
		if through == 4 {
			catchUp(t, newProjector(o), 0)
		}
	}
	w.check(r, 1, false)
	w.append("account-a", 1)
	catchUp(t, newProjector(o), 0)
	w.check(r, 1, false)
}

// A snapshot that is skipped is given up; what comes behind it is handed over.
func TestSkippedSnapshot(t *testing.T) {
	w, r, newProjector := quietWorld(t)
	r.bad = func(e eventstore.Entry) bool { return e.Type == projector.SnapshotType }
	w.append("account-a", 4)
	w.snapshot("account-a", 2, 2)
	o := &projector.Options{Tries: 1}
	p := newProjector(o)
	catchUp(t, p, 0)
	r.models[1] = map[eventstore.Stream]balance{"account-a": {Seqno: 2}} // as who skips has seen to
	w.ok(projector.NewAdmin(w.store, r).Skip(t.Context(), "p", 1, "a", "made by hand"))
	catchUp(t, p, 0)
	if got := r.models[1]["account-a"]; got.Seqno != 4 || len(r.faults) > 0 {
		t.Errorf("model %+v, faults %v", got, r.faults)
	}
	if records, err := r.Skipped(t.Context(), projector.Key{Projector: "p", Version: 1}); err != nil || len(records) != 1 || records[0].Type != projector.SnapshotType {
		t.Errorf("records %+v, %v", records, err)
	}
}

// An event that has the name of snapshots is an event.
func TestEventNamedLikeSnapshots(t *testing.T) {
	w, _, _ := quietWorld(t)
	_, err := w.store.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: "account-a", Epoch: 1, Holder: eventstore.UUID{1}, Claim: true,
		Events: []eventstore.Event{{Type: projector.SnapshotType, Data: []byte("{}")}}}}})
	w.ok(err)
	seen := 0
	catchUp(t, projector.New(w.store, "p", "account", projector.Func(func(_ context.Context, batch []eventstore.Entry) error {
		for _, e := range batch {
			if _, ok := projector.SnapshotOf(e); ok {
				t.Error("taken for a snapshot")
			}
			seen++
		}
		return nil
	}), &projector.Options{Snapshots: true}), 0)
	if seen != 1 {
		t.Errorf("%d entries", seen)
	}
}

// Who waits for its write, which was trimmed, waits for the snapshot that contains it.
func TestWaitForSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, newProjector := quietWorld(t)
		w.append("account-a", 3)
		w.snapshot("account-a", 3, 3)
		page, err := w.store.ReadFeed(t.Context(), 0, eventstore.Filter{AcceptTrimmed: true}, 1)
		w.ok(err)
		token := eventstore.Token{Incarnation: page.Incarnation, Position: 3}
		p := newProjector(&projector.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Wait(ctx, token); err == nil {
			t.Error("Wait returned before anything was handled")
		}
		stop := run(t, p)
		w.ok(p.Wait(within(t), token))
		w.check(r, 1, false)
		_ = stop()
	})
}

// A lane at the end of the feed does not pass what is gone while an append is in flight
// below it, which may be trimmed as soon as it is there.
func TestGoneBelowAnAppendInFlight(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 2)
	w := &world{t: t, store: e.store, rng: rand.New(rand.NewSource(1))}
	_, err := w.store.Trim(t.Context(), "account-a", 2, false)
	w.ok(err)
	horizon := eventstore.Position(1)
	e.log.readFeed = func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
		p.Horizon = horizon
		return p, err
	}
	for range 2 {
		l := newLedger()
		p := projector.New(e.store, "p", "account", l, &projector.Options{Snapshots: true, AcceptTrimmed: true})
		catchUp(t, p, 0)
		kept, err := l.Load(t.Context(), p.Key())
		w.ok(err)
		if (kept.Position >= 2) != (horizon >= 2) {
			t.Errorf("horizon %d, checkpoint %v", horizon, kept)
		}
		horizon = 2
	}
}

// A stream that is followed alone begins with its snapshot, goes on behind it, and jumps
// to the next one if it was overtaken.
func TestOneStreamFromItsSnapshot(t *testing.T) {
	for _, keep := range []eventstore.Seqno{0, 1} {
		w, r, newProjector := quietWorld(t)
		o := &projector.Options{Stream: "account-a", PageSize: 2, NoHold: true}
		w.append("account-a", 5)
		w.snapshot("account-a", 5, 5-keep)
		for range 3 {
			catchUp(t, newProjector(o), 0)
			w.check(r, 1, false)
			w.append("account-a", 5)
		}
		if r.snapshots != 1 {
			t.Errorf("keep %d: %d snapshots", keep, r.snapshots)
		}
		w.snapshot("account-a", 19, 19-keep) // 16 through 20 were not handled
		catchUp(t, newProjector(o), 0)
		w.check(r, 1, false)
		if r.snapshots != 2 {
			t.Errorf("keep %d: %d snapshots", keep, r.snapshots)
		}
	}
}

// Who reacts to events gets no states.
func TestSnapshotsAreNotForReactors(t *testing.T) {
	w, _, _ := quietWorld(t)
	o := projector.Options{Snapshots: true}
	p := projector.NewReactor(w.store, "r", "account", &projector.MemoryCheckpoints{}, projector.ReactorOptions[Event, int]{Events: events,
		React: func(projector.Event[Event]) ([]int, error) { return nil, nil }, Issue: func(context.Context, projector.Command[int]) error { return nil }, Projector: o})
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	w.append("account-a", 4)
	w.snapshot("account-a", 4, 4)
	s := projector.NewSnapshotter(w.store, "s", "account", &projector.MemoryCheckpoints{}, projector.SnapshotOptions{Take: w.take, Every: 2, Projector: o})
	catchUp(t, s, 0)
}

// Random histories once more, with keys that are parked, skipped never, and retried.
func TestParkedFromSnapshotsIsExact(t *testing.T) {
	for seed := range 150 {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { parkAtRandom(t, int64(seed)) })
		})
	}
}

func parkAtRandom(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	w := newWorld(t, memlog.New(nil), rng)
	r := newReplica()
	broken := 3
	r.bad = func(e eventstore.Entry) bool { return broken > 0 && (int(e.Seqno)+len(e.Type))%4 < broken-1 }
	h := &shaky{replica: r, rng: rng, odds: []int{0, 5}[rng.Intn(2)]}
	o := projector.Options{Snapshots: true, Lanes: 1 + rng.Intn(2), PageSize: 1 + rng.Intn(7), Categories: []eventstore.Category{"other"},
		NoHold: rng.Intn(2) == 0, Tries: 1 + rng.Intn(2)}
	admin := projector.NewAdmin(w.store, r)
	for range 40 {
		for range rng.Intn(6) {
			w.tick()
		}
		broken = rng.Intn(4)
		_, _ = projector.New(w.store, "p", "account", h, &o).CatchUp(t.Context(), 0)
		if rng.Intn(3) == 0 {
			_, _ = admin.Retry(t.Context(), "p", 1, "")
		}
	}
	h.odds, broken = 0, 0
	for range 3 { // a step that parks a key may land only now: it is wanted again then
		_, err := admin.Retry(t.Context(), "p", 1, "")
		w.ok(err)
		catchUp(t, projector.New(w.store, "p", "account", h, &o), 0)
	}
	w.check(r, 1, false)
}
