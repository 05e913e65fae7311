// What the tests of rebuilds from snapshots share: a store in which streams grow and are
// trimmed behind snapshots, and a read model of it that notices every wrong step.

package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// balance is the fold of a stream's deposits: it depends on their order.
type balance struct {
	Seqno eventstore.Seqno
	Fold  uint64
}

func (b balance) with(e eventstore.Entry) (balance, error) {
	b.Seqno = e.Seqno
	if e.Type != "deposited" {
		return b, nil
	}
	v, err := events.Decode(e)
	if err != nil {
		return b, err
	}
	b.Fold = b.Fold*31 + uint64(v.(Deposited).Amount)
	return b, nil
}

// world is a store and what was ever appended to it.
type world struct {
	t     testing.TB
	store *eventstore.Store
	rng   *rand.Rand

	mu      sync.Mutex
	marks   map[eventstore.Stream]eventstore.Mark
	history map[eventstore.Stream][]balance // by seqno
	ids     map[eventstore.Stream][]eventstore.UUID
}

func newWorld(t testing.TB, log eventstore.Log, rng *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, store: eventstore.New(log, nil), rng: rng, marks: map[eventstore.Stream]eventstore.Mark{},
		history: map[eventstore.Stream][]balance{}, ids: map[eventstore.Stream][]eventstore.UUID{}}
	for _, c := range []eventstore.Category{"account", "other"} {
		w.ok(w.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}))
	}
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// append appends n events to a stream; some are of another type than deposits.
func (w *world) append(s eventstore.Stream, n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	b := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: w.marks[s].Seqno == 0, After: w.marks[s]}
	for range n {
		value := Event(Deposited{int64(w.rng.Intn(1000))})
		if w.rng.Intn(4) == 0 {
			value = Renamed{"x"}
		}
		ev, err := events.Encode(value)
		w.ok(err)
		ev.ID = eventstore.NewUUID()
		b.Events = append(b.Events, ev)
	}
	done, err := w.store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{b}})
	w.ok(err)
	if len(w.history[s]) == 0 {
		w.history[s], w.ids[s] = []balance{{}}, []eventstore.UUID{{}}
	}
	for i, ev := range b.Events {
		at := w.history[s][len(w.history[s])-1]
		at, err := at.with(eventstore.Entry{Event: ev, Stream: s, Seqno: b.After.Seqno + eventstore.Seqno(i) + 1})
		w.ok(err)
		w.history[s], w.ids[s] = append(w.history[s], at), append(w.ids[s], ev.ID)
	}
	w.marks[s] = done.Receipts[0].Last
}

// snapshot keeps a snapshot of a stream at an entry and trims through another one.
func (w *world) snapshot(s eventstore.Stream, at, trim eventstore.Seqno) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := json.Marshal(w.history[s][at])
	w.ok(err)
	w.ok(w.store.SaveSnapshot(context.Background(), eventstore.Snapshot{Stream: s, At: eventstore.Mark{Seqno: at, ID: w.ids[s][at]}, Fingerprint: "balance 1", Data: data}))
	_, err = w.store.Trim(context.Background(), s, trim, false)
	w.ok(err)
}

// take is what a Snapshotter calls: a snapshot at the head.
func (w *world) take(_ context.Context, s eventstore.Stream) (eventstore.Mark, error) {
	w.mu.Lock()
	at := w.marks[s]
	w.mu.Unlock()
	w.snapshot(s, at.Seqno, 0)
	return at, nil
}

// tick does one thing at random.
func (w *world) tick() {
	w.t.Helper()
	c := []eventstore.Category{"account", "account", "other"}[w.rng.Intn(3)]
	s := eventstore.Stream(fmt.Sprintf("%s-%d", c, w.rng.Intn(5)))
	w.mu.Lock()
	last := int(w.marks[s].Seqno)
	w.mu.Unlock()
	if last == 0 || w.rng.Intn(3) > 0 {
		w.append(s, 1+w.rng.Intn(3))
		return
	}
	at := last
	if w.rng.Intn(2) == 0 {
		at = 1 + w.rng.Intn(last)
	}
	w.snapshot(s, eventstore.Seqno(at), eventstore.Seqno(at-min(at, w.rng.Intn(3))))
}

// check compares a model with all that was ever appended.
func (w *world) check(r *replica, version int, filtered bool) {
	w.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		w.t.Error(f)
	}
	for _, s := range slices.Sorted(maps.Keys(w.history)) {
		want, got := w.history[s][len(w.history[s])-1], r.models[version][s]
		if got.Fold != want.Fold || got.Seqno != want.Seqno && !filtered {
			w.t.Errorf("version %d: %s is %+v, want %+v", version, s, got, want)
		}
	}
}

// replica is a read model that commits with its checkpoints. Snapshots take the place of
// what it has; an entry must be the one behind that.
type replica struct {
	projector.MemoryCheckpoints
	filtered bool
	bad      func(e eventstore.Entry) bool // cannot be handled

	mu        sync.Mutex
	models    map[int]map[eventstore.Stream]balance // by version
	faults    []string
	snapshots int
	most      int // entries of a batch
}

func newReplica() *replica { return &replica{models: map[int]map[eventstore.Stream]balance{}} }

func (r *replica) Handle(ctx context.Context, s projector.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[eventstore.Stream]balance{}
	maps.Copy(next, r.models[s.Key.Version])
	var faults []string
	snapshots := 0
	for i, e := range s.Batch {
		if r.bad != nil && r.bad(e) {
			return projector.NewEntryError(s.Batch[i:i+1], errBad)
		}
		b, err := r.apply(next[e.Stream], e)
		if err != nil {
			faults = append(faults, fmt.Sprintf("version %d lane %d: %v", s.Key.Version, s.Key.Lane, err))
		}
		next[e.Stream] = b
		if _, ok := projector.SnapshotOf(e); ok {
			snapshots++
		}
	}
	if err := r.Save(ctx, s); err != nil {
		return err
	}
	r.models[s.Key.Version], r.faults, r.snapshots = next, append(r.faults, faults...), r.snapshots+snapshots
	r.most = max(r.most, len(s.Batch))
	return nil
}

// apply is a handler as users write it, with the check that it was given what follows.
func (r *replica) apply(has balance, e eventstore.Entry) (balance, error) {
	all, err := projector.Decode(events, []eventstore.Entry{e})
	if err != nil {
		return has, err
	}
	if sn, ok := all[0].Snapshot(); ok {
		var b balance
		if err := json.Unmarshal(sn.Data, &b); err != nil || sn.Fingerprint != "balance 1" || sn.ContentType != "application/json" {
			return b, fmt.Errorf("snapshot of %s: %+v, %v", e.Stream, sn, err)
		}
		if b.Seqno != e.Seqno || b.Seqno < has.Seqno {
			return b, fmt.Errorf("snapshot of %s at %d, with a state of %d, given to a model at %d", e.Stream, e.Seqno, b.Seqno, has.Seqno)
		}
		return b, nil
	}
	b, err := has.with(e)
	switch {
	case err != nil:
		return b, err
	case r.filtered && (e.Type != "deposited" || has.Seqno >= e.Seqno), !r.filtered && has.Seqno+1 != e.Seqno:
		return b, fmt.Errorf("entry %d of %s (%s) given to a model at %d", e.Seqno, e.Stream, e.Type, has.Seqno)
	}
	return b, nil
}

// shaky is a connection to a replica: steps fail before they land, their answer is lost,
// or they land when the answer was given up for lost.
type shaky struct {
	*replica
	rng  *rand.Rand
	odds int // one of so many steps fails; 0: none
	late []projector.Step
}

func (h *shaky) Handle(ctx context.Context, s projector.Step) error {
	if len(h.late) > 0 && h.rng.Intn(2) == 0 {
		_ = h.replica.Handle(ctx, h.late[0])
		h.late = h.late[1:]
	}
	if h.odds == 0 || h.rng.Intn(h.odds) > 0 {
		return h.replica.Handle(ctx, s)
	}
	switch h.rng.Intn(3) {
	case 0:
		return errOutage
	case 1:
		s.Batch = slices.Clone(s.Batch)
		h.late = append(h.late, s)
		return errOutage
	}
	return errors.Join(h.replica.Handle(ctx, s), errOutage)
}

// restless is a log on which something else happens before any answer is given, and
// which is out of reach now and then.
type restless struct {
	full
	before func(ctx context.Context) error
}

// full is what a backend implements.
type full interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Snapshots
	eventstore.TrimmedStreams
	eventstore.Holds
	eventstore.Leases
}

func (l *restless) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (p eventstore.FeedPage, err error) {
	if err := l.before(ctx); err != nil {
		return p, err
	}
	return l.full.ReadFeed(ctx, after, f, limit)
}

func (l *restless) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (p eventstore.Page, err error) {
	if err := l.before(ctx); err != nil {
		return p, err
	}
	return l.full.ReadFrom(ctx, s, after, limit)
}

func (l *restless) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (got eventstore.Loaded, err error) {
	if err := l.before(ctx); err != nil {
		return got, err
	}
	return l.full.Load(ctx, s, fingerprint, limit)
}

func (l *restless) Head(ctx context.Context, s eventstore.Stream) (h eventstore.Head, err error) {
	if err := l.before(ctx); err != nil {
		return h, err
	}
	return l.full.Head(ctx, s)
}

func (l *restless) ListTrimmed(ctx context.Context, c eventstore.Category, slots []eventstore.Slot, after string, limit int) (p eventstore.TrimmedPage, err error) {
	if err := l.before(ctx); err != nil {
		return p, err
	}
	return l.full.ListTrimmed(ctx, c, slots, after, min(limit, 2))
}
