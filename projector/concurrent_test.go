// Several keys at once: what is kept is before the first entry that is not finished,
// whatever fails, and nothing is skipped or out of order within a key.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// effectStore is where effects go: one for each (version, position), however often it comes.
type effectStore struct {
	mu      sync.Mutex
	effects map[eventstore.Position]int // how often each came
	order   map[string][]eventstore.Entry
	under   map[string]bool
	at      atomic.Int32
	most    int32
	t       testing.TB
}

func newEffectStore(t testing.TB) *effectStore {
	return &effectStore{t: t, effects: map[eventstore.Position]int{}, order: map[string][]eventstore.Entry{}, under: map[string]bool{}}
}

func (s *effectStore) begin(e eventstore.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, s.at.Add(1))
	if key := e.Stream.Key(); s.under[key] {
		s.t.Errorf("key %q handled twice at once", key)
	} else {
		s.under[key] = true
	}
}

func (s *effectStore) end(e eventstore.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.Add(-1)
	delete(s.under, e.Stream.Key())
}

func (s *effectStore) put(e eventstore.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.effects[e.Position]++; s.effects[e.Position] == 1 {
		s.order[e.Stream.Key()] = append(s.order[e.Stream.Key()], e)
	}
}

// check says that every entry through a position has had its effect, and that those of a
// key came in order.
func (s *effectStore) check(all []eventstore.Entry, through eventstore.Position) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range all {
		if e.Position <= through && s.effects[e.Position] == 0 {
			s.t.Fatalf("position %d skipped, checkpoint %d", e.Position, through)
		}
	}
	for key, got := range s.order {
		if !slices.IsSortedFunc(got, func(a, b eventstore.Entry) int { return int(a.Position) - int(b.Position) }) {
			s.t.Fatalf("key %q out of order", key)
		}
	}
}

// TestConcurrentSinkKeepsTheLowestUnfinished: five at once, 150 events, one panics at 40.
func TestConcurrentSinkKeepsTheLowestUnfinished(t *testing.T) {
	e := newEnv(t, nil)
	for i := range 150 {
		e.deposit(stream(i%30), 1)
	}
	all := e.all("account")
	bad := all[39]
	var c projector.MemoryCheckpoints
	effects := newEffectStore(t)
	var panicking atomic.Bool
	panicking.Store(true)
	var started atomic.Int32
	five := make(chan struct{})    // are under way
	reached := make(chan struct{}) // 44 is under way, and ends before 40 does
	f := func(ctx context.Context, key projector.Key, entry eventstore.Entry) error {
		effects.begin(entry)
		defer effects.end(entry)
		if n := started.Add(1); n < 5 {
			<-five
		} else if n == 5 {
			close(five)
		}
		if panicking.Load() {
			switch entry.Position {
			case all[43].Position:
				effects.put(entry)
				close(reached)
				return nil
			case bad.Position:
				<-reached
				panic("at event 40")
			}
		}
		effects.put(entry)
		return nil
	}
	h := projector.ConcurrentSink(alone{&c}, 5, f)
	p := projector.New(e.store, "p", "account", h)
	claim := projector.Checkpoint{Epoch: 1, Holder: eventstore.UUID{7}}
	e.ok(c.Save(t.Context(), projector.Step{Key: p.Key(), To: claim}))
	to := claim.Past(all[149], claim)
	err := h.Handle(t.Context(), projector.Step{Key: p.Key(), From: claim, To: to, Batch: all})
	named, ok := errors.AsType[*projector.EntryError](err)
	if !ok || named.Position != bad.Position || named.Count != 1 || len(named.Stack) == 0 {
		t.Fatalf("error %v, want that of position %d with the stack of its panic", err, bad.Position)
	}
	kept, _ := c.Load(t.Context(), p.Key())
	if kept.Mark != all[38].PositionMark() {
		t.Fatalf("checkpoint %v, want position 39", kept)
	}
	if effects.effects[all[43].Position] != 1 || effects.effects[bad.Position] != 0 {
		t.Fatal("the entry behind was not finished, or the bad one was")
	}
	effects.check(all, kept.Position)

	panicking.Store(false)
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	effects.check(all, all[149].Position)
	for i, entry := range all {
		if n := effects.effects[entry.Position]; i < 39 && n != 1 || i == 43 && n != 2 || len(effects.effects) != 150 {
			t.Errorf("event %d came %d times", i+1, n)
		}
	}
	if effects.most != 5 {
		t.Errorf("%d at once, want 5", effects.most)
	}
}

// TestConcurrentSinkInOrderAcrossCategories: streams of one key in two categories.
func TestConcurrentSinkInOrderAcrossCategories(t *testing.T) {
	e := newEnv(t, nil)
	for range 20 {
		e.deposit("account-a", 1)
		e.deposit("other-a", 1)
		e.deposit("account-b", 1)
	}
	effects := newEffectStore(t)
	h := projector.ConcurrentSink(&projector.MemoryCheckpoints{}, 8, func(_ context.Context, _ projector.Key, entry eventstore.Entry) error {
		effects.begin(entry)
		defer effects.end(entry)
		time.Sleep(rand.N(200 * time.Microsecond))
		effects.put(entry)
		return nil
	})
	p := projector.New(e.store, "p", "account", h, &projector.Options{Categories: []eventstore.Category{"other"}})
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	all := e.all("account", "other")
	effects.check(all, all[len(all)-1].Position)
	if effects.most != 2 {
		t.Errorf("%d at once, want the 2 keys", effects.most)
	}
}

func TestConcurrentSinkWhenTheContextEnds(t *testing.T) {
	e := newEnv(t, nil)
	for i := range 20 {
		e.deposit(stream(i), 1)
	}
	all := e.all("account")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var c projector.MemoryCheckpoints
	var finished sync.Map
	h := projector.ConcurrentSink(alone{&c}, 4, func(_ context.Context, _ projector.Key, entry eventstore.Entry) error {
		if entry.Position == all[7].Position {
			cancel()
		}
		if entry.Position > all[7].Position {
			<-ctx.Done() // so that no more than were at it by then are finished
		}
		finished.Store(entry.Position, true)
		return nil
	})
	p := projector.New(e.store, "p", "account", h)
	_, err := p.CatchUp(ctx, 0)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if _, named := errors.AsType[*projector.EntryError](err); named {
		t.Errorf("an entry is blamed: %v", err)
	}
	kept, _ := c.Load(t.Context(), p.Key())
	count, lowest := 0, len(all) // finished, and the first that is not
	for i := range all {
		if _, ok := finished.Load(all[i].Position); ok {
			count++
		} else {
			lowest = min(lowest, i)
		}
	}
	if lowest == 0 || count > 12 || kept.Position != all[lowest-1].Position {
		t.Errorf("%d finished, the first %d of them in a row, kept %v: it went on, or what was waited for is not kept", count, lowest, kept)
	}
}

// TestConcurrentSinkStops: nothing behind an entry at fault is begun, nothing at all when
// another instance has taken over, and nothing that is quiet.
func TestConcurrentSinkStops(t *testing.T) {
	e := newEnv(t, nil)
	for i := range 6 {
		e.deposit(stream(i), 1)
	}
	var c projector.MemoryCheckpoints
	var came []eventstore.Position
	refuse := true
	h := projector.ConcurrentSink(alone{&c}, 1, func(_ context.Context, _ projector.Key, entry eventstore.Entry) error {
		came = append(came, entry.Position)
		if refuse && len(came) == 3 {
			return errors.New("refused")
		}
		return nil
	})
	p := projector.New(e.store, "p", "account", h)
	claim := projector.Checkpoint{Epoch: 1, Holder: eventstore.UUID{7}}
	e.ok(c.Save(t.Context(), projector.Step{Key: p.Key(), To: claim}))
	all := e.all("account")
	st := projector.Step{Key: p.Key(), From: claim, To: claim.Past(all[5], claim), Batch: all}
	if err := h.Handle(t.Context(), st); err == nil || len(came) != 3 {
		t.Errorf("%d entries came, error %v", len(came), err)
	}
	wantKind(t, h.Handle(t.Context(), st), eventstore.ErrFenced) // it has kept the first two
	if len(came) != 3 {
		t.Errorf("a fenced one has had effects: %v", came)
	}

	refuse, came = false, nil
	sink := func(_ context.Context, _ projector.Key, entry eventstore.Entry) error {
		came = append(came, entry.Position)
		return nil
	}
	for _, version := range []int{1, 2} { // the second is a shadow of the first
		p := projector.New(e.store, "q", "account", projector.ConcurrentSink(&c, 1, sink), &projector.Options{Version: version})
		_, err := p.CatchUp(t.Context(), 0)
		e.ok(err)
		kept, err := c.Load(t.Context(), p.Key())
		if e.ok(err); kept.Position != 6 {
			t.Errorf("version %d: kept %v", version, kept)
		}
	}
	if len(came) != 6 {
		t.Errorf("%d effects of a version and its shadow, want 6", len(came))
	}
}

func TestConcurrentSinkMistakes(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 1)
	f := func(context.Context, projector.Key, eventstore.Entry) error { return nil }
	for name, h := range map[string]projector.Handler{
		"none":           projector.ConcurrentSink(&projector.MemoryCheckpoints{}, 0, f),
		"too many":       projector.ConcurrentSink(&projector.MemoryCheckpoints{}, projector.MaxSinkKeys+1, f),
		"no checkpoints": projector.ConcurrentSink(nil, 1, f),
		"no function":    projector.ConcurrentSink(&projector.MemoryCheckpoints{}, 1, nil),
	} {
		_, err := projector.New(e.store, "p", "account", h).CatchUp(t.Context(), 0)
		wantKind(t, err, eventstore.ErrInvalid)
		if err := h.Handle(t.Context(), projector.Step{}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := projector.ConcurrentSink(alone{&projector.MemoryCheckpoints{}}, 2, func(context.Context, projector.Key, eventstore.Entry) error {
		runtime.Goexit()
		return nil
	})
	if _, err := projector.New(e.store, "p", "account", gone).CatchUp(within(t), 0); err == nil {
		t.Error("a function that ends its goroutine has handled the entry")
	}
}

// alone are checkpoints that are no Control: nothing is parked.
type alone struct{ projector.Checkpoints }

// TestConcurrentSinkParks: with a Control a key that cannot be handled is parked and the
// others go on, several at once; retried it loses nothing, whatever grew meanwhile.
func TestConcurrentSinkParks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 10 {
		e := newEnv(t, nil)
		fill := func() {
			for range 60 {
				e.deposit(stream(r.IntN(8)), 1)
			}
		}
		var c projector.MemoryCheckpoints
		effects := newEffectStore(t)
		var troubled atomic.Bool
		troubled.Store(true)
		f := func(_ context.Context, _ projector.Key, entry eventstore.Entry) error {
			effects.begin(entry)
			defer effects.end(entry)
			if key := entry.Stream.Key(); troubled.Load() && (key == "3" || key == "5" && entry.Seqno > 4) {
				return errors.New("cannot be handled")
			}
			effects.put(entry)
			return nil
		}
		h := projector.ConcurrentSink(&c, 1+r.IntN(6), f)
		p := projector.New(e.store, "p", "account", h, &projector.Options{Tries: 1, PageSize: 1 + r.IntN(40)})
		caught := func() {
			t.Helper()
			for range 200 {
				if more, err := p.CatchUp(t.Context(), 0); err == nil && !more {
					return
				}
			}
			t.Fatal("does not catch up")
		}
		for range 3 {
			fill()
			caught()
		}
		for _, entry := range e.all("account") {
			key := entry.Stream.Key()
			if parked := key == "3" || key == "5" && entry.Seqno > 4; parked == (effects.effects[entry.Position] > 0) {
				t.Fatalf("entry %d of %q: parked %v, %d effects", entry.Seqno, entry.Stream, parked, effects.effects[entry.Position])
			}
		}
		troubled.Store(false)
		e.ok(c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
			for i := range all[0].Parked {
				all[0].Parked[i].Request = projector.Retry
			}
			all[0].Fence(eventstore.UUID{})
			return all, nil
		}))
		fill()
		caught()
		all := e.all("account")
		effects.check(all, all[len(all)-1].Position)
	}
}

// TestConcurrentSinkBetweenParked: a step that has parked keys grow is kept whole or not at
// all, or the entries that wait before the one at fault would be left out.
func TestConcurrentSinkBetweenParked(t *testing.T) {
	e := newEnv(t, nil)
	for i := range 3 {
		e.deposit(stream(i), 1)
	}
	all := e.all("account")
	var c projector.MemoryCheckpoints
	h := projector.ConcurrentSink(&c, 1, func(_ context.Context, _ projector.Key, entry eventstore.Entry) error {
		if entry.Position == all[2].Position {
			return errors.New("refused")
		}
		return nil
	})
	key := projector.Key{Projector: "p", Version: 1}
	claim := projector.Checkpoint{Epoch: 1, Holder: eventstore.UUID{7}}
	e.ok(c.Save(t.Context(), projector.Step{Key: key, To: claim}))
	grown := projector.Parked{StreamKey: "1", Stream: stream(1), Through: all[1].Position}
	st := projector.Step{Key: key, From: claim, To: claim.Past(all[2], claim), Batch: []eventstore.Entry{all[0], all[2]}, Park: []projector.Parked{grown}}
	if err := h.Handle(t.Context(), st); err == nil {
		t.Fatal("no error")
	}
	if kept, _ := c.Load(t.Context(), key); !kept.Same(claim) {
		t.Errorf("kept %v, and what is parked is as before", kept)
	}
}

// lossy are checkpoints whose Save is lost before or after it is kept, as it is when
// the process dies there.
type lossy struct {
	projector.MemoryCheckpoints
	lose func() (before, after bool)
}

func (c *lossy) Save(ctx context.Context, s projector.Step) error {
	before, after := c.lose()
	if before {
		return errOutage
	}
	if err := c.MemoryCheckpoints.Save(ctx, s); err != nil {
		return err
	}
	if after {
		return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "test"}
	}
	return nil
}

// TestConcurrentSinkRandom: errors, panics, ended contexts, lost saves and other instances
// at random moments. At every one all entries through the checkpoint have had their
// effect; in the end all have, those of a key in order, each once by its position.
func TestConcurrentSinkRandom(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(60) {
		concurrentHistory(t, seed+i)
	}
}

func concurrentHistory(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // of r
	chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return r.IntN(n) == 0 }
	e := newEnv(t, nil)
	keys := 1 + r.IntN(20)
	for range 40 + r.IntN(80) {
		c := []string{"account", "other"}[r.IntN(2)]
		e.deposit(eventstore.Stream(fmt.Sprintf("%s-%d", c, r.IntN(keys))), 1+r.IntN(2))
	}
	all := e.all("account", "other")
	effects := newEffectStore(t)
	troubled, calls := true, 0
	c := &lossy{lose: func() (bool, bool) { return troubled && chance(8), troubled && chance(8) }}
	var p *projector.Projector
	var stopCall context.CancelFunc
	f := func(ctx context.Context, key projector.Key, entry eventstore.Entry) error {
		effects.begin(entry)
		defer effects.end(entry)
		runtime.Gosched()
		switch {
		case troubled && chance(25):
			return errors.New("refused")
		case troubled && chance(40):
			panic("random")
		case troubled && chance(60):
			effects.put(entry)
			return errors.New("done, and the answer lost")
		case troubled && chance(60):
			stopCall()
		case troubled && chance(60): // another instance takes over
			kept, _ := c.Load(ctx, p.Key())
			to := kept
			to.Epoch, to.Holder = to.Epoch+1, eventstore.NewUUID()
			_ = c.MemoryCheckpoints.Save(context.WithoutCancel(ctx), projector.Step{Key: p.Key(), From: kept, To: to})
		}
		effects.put(entry)
		return nil
	}
	n := 1 + r.IntN(8)
	p = projector.New(e.store, "p", "account", projector.ConcurrentSink(alone{c}, n, f),
		&projector.Options{Categories: []eventstore.Category{"other"}, PageSize: 1 + r.IntN(60)})
	for ; ; calls++ {
		troubled = calls < 60
		ctx, cancel := context.WithCancel(t.Context())
		stopCall = cancel
		more, err := p.CatchUp(ctx, 0)
		cancel()
		kept, _ := c.Load(t.Context(), p.Key())
		effects.check(all, kept.Position)
		if err == nil && !more {
			break
		}
		if calls > 100 {
			t.Fatalf("seed %d does not come to an end: %v", seed, err)
		}
	}
	effects.check(all, all[len(all)-1].Position)
	if got := slices.Sorted(maps.Keys(effects.effects)); len(got) != len(all) || int(effects.most) > n {
		t.Fatalf("seed %d: %d effects, want %d; %d at once, want at most %d", seed, len(got), len(all), effects.most, n)
	}
}
