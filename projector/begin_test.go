// Rebuilds from snapshots: random histories with trims, crashes and interleavings, and
// the cases that are easy to get wrong one by one.

package projector_test

import (
	"context"
	"fmt"
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

// Whatever is appended, kept as snapshots and trimmed, before a rebuild begins and while
// it works, wherever it crashes: in the end its model is the fold of all that was ever
// appended, and on the way each entry is given to a model that stands right before it.
func TestRebuildFromSnapshotsIsExact(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { rebuildAtRandom(t, int64(seed)) })
		})
	}
}

func rebuildAtRandom(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	log := memlog.New(nil)
	w := newWorld(t, log, rng)
	r := newReplica()
	r.filtered = rng.Intn(4) == 0
	broken := rng.Intn(3) == 0
	r.bad = func(e eventstore.Entry) bool { return broken && e.Stream.Key() == "1" && e.Seqno%3 == 1 }
	h := &shaky{replica: r, rng: rng, odds: []int{0, 3, 8}[rng.Intn(3)]}
	unrest, left := []int{0, 2, 6}[rng.Intn(3)], 0
	busy := &restless{full: log, before: func(context.Context) error {
		if left > 0 && rng.Intn(unrest) == 0 {
			left-- // else pages of one entry would never catch up
			w.tick()
		}
		if h.odds > 0 && rng.Intn(40) == 0 {
			return errOutage
		}
		return nil
	}}
	store := eventstore.New(busy, nil)
	o := projector.Options{Snapshots: true, Version: 2, Lanes: 1 + rng.Intn(4), PageSize: 1 + rng.Intn(7), Categories: []eventstore.Category{"other"},
		NoHold: rng.Intn(3) == 0, Tries: 2}
	if r.filtered {
		o.Types = []string{"deposited"}
	}
	live := projector.New(w.store, "p", "account", r, &projector.Options{Snapshots: true, Categories: o.Categories})
	snapshotter := projector.NewSnapshotter(w.store, "s", "account", &projector.MemoryCheckpoints{},
		projector.SnapshotOptions{Take: w.take, Every: uint64(1 + rng.Intn(4)), KeepEntries: uint64(rng.Intn(3)), Projector: projector.Options{Categories: o.Categories}})
	withLive := rng.Intn(2) == 0
	for range rng.Intn(60) {
		w.tick()
	}
	p := projector.New(store, "p", "account", h, &o)
	for range 40 {
		for range rng.Intn(4) {
			w.tick()
		}
		if rng.Intn(3) == 0 {
			catchUp(t, snapshotter, 0)
		}
		if withLive && !r.filtered && !broken {
			catchUp(t, live, 0)
		}
		if rng.Intn(20) == 0 && !broken {
			_ = p.SetLanes(t.Context(), 1+rng.Intn(4)) // also when it fails on the way
		}
		if rng.Intn(4) == 0 {
			p = projector.New(store, "p", "account", h, &o)
		}
		if unrest > 0 {
			left = 20
		}
		_, _ = p.CatchUp(t.Context(), []time.Duration{0, 1}[rng.Intn(2)])
	}
	h.odds, left, broken = 0, 0, false
	if withLive && !r.filtered {
		catchUp(t, live, 0)
	}
	_, err := projector.NewAdmin(w.store, r).Retry(t.Context(), "p", 2, "")
	w.ok(err)
	catchUp(t, p, 0)
	for _, s := range h.late {
		_ = r.Handle(t.Context(), s)
	}
	w.check(r, 2, r.filtered)
	if r.most > o.PageSize && !withLive {
		t.Errorf("a batch of %d with pages of %d", r.most, o.PageSize)
	}
}

// catchUp works until nothing is left, for a bounded number of tries.
func catchUp(t testing.TB, p *projector.Projector, budget time.Duration) {
	t.Helper()
	more, err := true, error(nil)
	for range 50 {
		if more, err = p.CatchUp(t.Context(), budget); !more && err == nil {
			return
		}
	}
	t.Fatalf("not caught up: more %v, %v", more, err)
}

// The same by Run, with a puller that reads ahead and sessions that go on after lost
// answers.
func TestRunFromSnapshotsIsExact(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runAtRandom(t, int64(seed)) })
		})
	}
}

func runAtRandom(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	w := newWorld(t, memlog.New(nil), rng)
	r := newReplica()
	h := &shaky{replica: r, rng: rand.New(rand.NewSource(seed)), odds: 4}
	o := projector.Options{Snapshots: true, Lanes: 1, PageSize: 1 + rng.Intn(7), Categories: []eventstore.Category{"other"},
		NoHold: rng.Intn(2) == 0, PollInterval: time.Duration(10+rng.Intn(300)) * time.Millisecond}
	for range rng.Intn(80) {
		w.tick()
	}
	p := projector.New(w.store, "p", "account", h, &o)
	stop := run(t, p)
	for range 60 {
		for range rng.Intn(5) {
			w.tick()
		}
		time.Sleep(time.Duration(rng.Intn(2000)) * time.Millisecond)
		if rng.Intn(6) == 0 {
			_ = stop()
			p = projector.New(w.store, "p", "account", h, &o)
			stop = run(t, p)
		}
	}
	_ = stop()
	h.odds = 0
	p = projector.New(w.store, "p", "account", h, &o)
	stop = run(t, p)
	time.Sleep(time.Minute)
	if st := p.Status(); !st.CaughtUp {
		t.Errorf("status %+v", st)
	}
	_ = stop()
	w.check(r, 1, false)
}

// quietWorld is a world in which nothing happens but what the test does.
func quietWorld(t *testing.T) (*world, *replica, func(*projector.Options) *projector.Projector) {
	w, r := newWorld(t, memlog.New(nil), rand.New(rand.NewSource(1))), newReplica()
	return w, r, func(o *projector.Options) *projector.Projector {
		o.Snapshots = true
		return projector.New(w.store, "p", "account", r, o)
	}
}

// A snapshot stands where its last entry stood, between the entries of other streams; one
// at an entry that is gone comes right before the next one.
func TestSnapshotStandsInItsPlace(t *testing.T) {
	w, _, _ := quietWorld(t)
	for range 4 {
		w.append("account-a", 1)
		w.append("account-b", 1)
	}
	w.snapshot("account-a", 3, 1) // of the future: 2 and 3 are still there
	w.snapshot("account-b", 2, 2)
	var got []string
	var at eventstore.Position
	h := projector.Memory(events, func(_ context.Context, e projector.Event[Event]) error {
		sn, is := e.Snapshot()
		if is != (e.Type == projector.SnapshotType) || is == (e.Value != nil) || is && (sn.Stream != e.Stream || sn.At != e.Mark() || sn.Fingerprint != "balance 1" || len(sn.Data) == 0 || sn.Time.IsZero()) {
			t.Errorf("event %+v, snapshot %+v, %v", e, sn, is)
		}
		if e.Position > 0 && e.Position <= at {
			t.Errorf("position %d after %d", e.Position, at)
		}
		at = max(at, e.Position)
		got = append(got, fmt.Sprintf("%s%d@%d", map[bool]string{true: "S"}[is], e.Seqno, e.Position))
		return nil
	})
	p := projector.New(w.store, "p", "account", h, &projector.Options{Snapshots: true, PageSize: 2})
	catchUp(t, p, 0)
	if want := "[S3@5 S2@0 3@6 4@7 4@8]"; fmt.Sprint(got) != want {
		t.Errorf("handed over %v, want %s", got, want)
	}
}

// The snapshot of a stream without an entry was handed over; before the feed comes to its
// new entries a further snapshot stands for some of them, and the rebuild begins anew.
func TestSnapshotAdvancesWithNewEntries(t *testing.T) {
	for _, crash := range []bool{false, true} {
		w, r, newProjector := quietWorld(t)
		w.append("account-a", 2)
		w.append("account-b", 5)
		w.append("account-a", 2)
		w.snapshot("account-b", 5, 5)
		h := &worker{ledger: newLedger()}
		steps := 0
		h.before = func(ctx context.Context, s projector.Step) error {
			if steps++; len(s.Batch) == 0 {
				return nil
			}
			if _, ok := projector.SnapshotOf(s.Batch[0]); !ok {
				return nil
			}
			w.append("account-b", 2) // as the snapshot is about to be handled
			w.snapshot("account-b", 7, 7)
			w.append("account-b", 1)
			return map[bool]error{true: errOutage}[crash]
		}
		_, _ = projector.New(w.store, "p", "account", &disturbed{r, h.before}, &projector.Options{Snapshots: true, PageSize: 1}).CatchUp(t.Context(), 0)
		catchUp(t, newProjector(&projector.Options{PageSize: 1}), 0)
		w.check(r, 1, false)
		if r.snapshots == 0 || steps == 0 {
			t.Error("no snapshot was handed over")
		}
	}
}

// disturbed is a replica before whose steps something happens.
type disturbed struct {
	*replica
	before func(context.Context, projector.Step) error
}

func (h *disturbed) Handle(ctx context.Context, s projector.Step) error {
	if err := h.before(ctx, s); err != nil {
		return err
	}
	return h.replica.Handle(ctx, s)
}

// A hold cannot keep what stands below what is gone already. A stream that is trimmed
// wholly there, when others have had their turn, gets it all the same.
func TestStreamLostBelowTheHold(t *testing.T) {
	w, r, newProjector := quietWorld(t)
	w.append("account-a", 1)
	w.append("account-b", 3)
	w.append("account-c", 1)
	w.append("account-d", 3)
	w.append("account-c", 1)
	w.snapshot("account-d", 3, 3) // the hold will stand behind it
	p := newProjector(&projector.Options{PageSize: 1})
	if _, err := p.CatchUp(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.snapshot("account-b", 3, 3)
	catchUp(t, p, 0)
	w.check(r, 1, false)
	w.append("account-b", 2)
	catchUp(t, newProjector(&projector.Options{}), 0)
	w.check(r, 1, false)
}

// Where nothing is left of a category the checkpoint passes what is gone, once.
func TestNothingLeft(t *testing.T) {
	w, r, newProjector := quietWorld(t)
	w.append("account-a", 3)
	w.append("account-b", 3)
	w.append("other-a", 1)
	w.snapshot("account-b", 3, 3)
	w.snapshot("account-a", 3, 3)
	for range 3 {
		catchUp(t, newProjector(&projector.Options{PageSize: 1}), 0)
	}
	if r.snapshots != 2 {
		t.Errorf("%d snapshots handed over, want each once", r.snapshots)
	}
	w.check(&replica{models: map[int]map[eventstore.Stream]balance{1: {"account-a": r.models[1]["account-a"], "account-b": r.models[1]["account-b"], "other-a": w.history["other-a"][1]}}}, 1, false)
	p := newProjector(&projector.Options{})
	w.append("account-a", 1)
	catchUp(t, p, 0)
	if got := r.models[1]["account-a"]; got != w.history["account-a"][4] {
		t.Errorf("account-a is %+v", got)
	}
}

// Types leave out entries, not snapshots, also where the snapshot stands at an entry of
// another type and nothing comes behind it.
func TestSnapshotPassesTypes(t *testing.T) {
	w, r, newProjector := quietWorld(t)
	r.filtered = true
	for i := range eventstore.Seqno(12) {
		s := eventstore.Stream(fmt.Sprintf("account-%d", i))
		w.append(s, 6)
		w.snapshot(s, 6, 2)
	}
	catchUp(t, newProjector(&projector.Options{Types: []string{"deposited"}, PageSize: 5}), 0)
	w.check(r, 1, true)
	if r.snapshots != 12 || r.most > 5 {
		t.Errorf("%d snapshots, batches of up to %d", r.snapshots, r.most)
	}
}

// A batch is never larger than a page, not even for a snapshot before an entry.
func TestSnapshotsFitIntoBatches(t *testing.T) {
	for page := 1; page < 5; page++ {
		w, r, newProjector := quietWorld(t)
		for i := range 7 {
			s := eventstore.Stream(fmt.Sprintf("account-%d", i))
			w.append(s, 3)
			w.snapshot(s, 2, 2)
		}
		catchUp(t, newProjector(&projector.Options{PageSize: page}), 0)
		w.check(r, 1, false)
		if r.most > page {
			t.Errorf("a batch of %d with pages of %d", r.most, page)
		}
	}
}
