// Run and CatchUp: waking, restarts, outages, other histories, bounds.

package timer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector/timer"
)

// run starts s.Run and returns a function that stops it and gives its error.
func run(t testing.TB, s *timer.Scheduler) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// A scheduler that has seen a timer fires it on time; one that has not sees it when it
// polls.
func TestRunIsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const poll = 10 * time.Second
		store := eventstore.New(memlog.New(nil), nil)
		o := &timer.Options{PollInterval: poll, Keep: -1}
		timers, err := timer.New(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := timer.NewScheduler(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		set := func(name string, in time.Duration) {
			if _, err := timers.Set(t.Context(), name, time.Now().Add(in), nil); err != nil {
				t.Fatal(err)
			}
		}
		set("far", 25*time.Hour+123*time.Microsecond)
		stop := run(t, s)
		time.Sleep(3 * time.Second) // it has looked: the next time is 7 s from now
		set("near", time.Second)
		set("after", 8*time.Second)
		time.Sleep(26 * time.Hour)
		all := history(t, store, "timer")
		rules{late: poll, done: true}.check(t, all)
		for name, want := range map[string]time.Duration{"far": 0, "near": 6 * time.Second, "after": 0} {
			if late := all[name][1].Entry.Time.Sub(all[name][0].Due); late != want {
				t.Errorf("timer %s was %v late, want %v", name, late, want)
			}
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}

		// What came due while nobody looked fires when somebody does, the rest on time.
		began := time.Now()
		set("while down", 30*time.Second)
		set("later", 2*time.Hour)
		time.Sleep(time.Hour)
		s, err = timer.NewScheduler(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		run(t, s)
		time.Sleep(2 * time.Hour)
		all = history(t, store, "timer")
		for name, want := range map[string]time.Duration{"while down": time.Hour, "later": 2 * time.Hour} {
			if after := all[name][1].Entry.Time.Sub(began); after != want {
				t.Errorf("timer %s fired after %v, want %v", name, after, want)
			}
		}
	})
}

// announcer delivers at once.
type announcer struct {
	mu   sync.Mutex
	subs map[int]func(eventstore.Announcement)
	n    int
}

func (a *announcer) Announce(_ context.Context, hints []eventstore.Announcement) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.subs {
		for _, h := range hints {
			f(h)
		}
	}
	return nil
}

func (a *announcer) Subscribe(_ context.Context, _ []eventstore.Category, f func(eventstore.Announcement)) (func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subs == nil {
		a.subs = map[int]func(eventstore.Announcement){}
	}
	a.n++
	id := a.n
	a.subs[id] = f
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.subs, id)
	}, nil
}

func TestAnnouncementsWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{}
		store := eventstore.New(memlog.New(nil), &eventstore.Options{Announcer: a})
		o := &timer.Options{PollInterval: time.Hour, Keep: -1}
		timers, err := timer.New(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := timer.NewScheduler(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, s)
		time.Sleep(time.Minute)
		for i := range 10 {
			if _, err := timers.Set(t.Context(), fmt.Sprint(i), time.Now().Add(time.Duration(i)*time.Second), nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		rules{late: 20 * time.Millisecond, done: true}.check(t, history(t, store, "timer"))
		_ = stop()
		if len(a.subs) != 0 {
			t.Error("still subscribed after Run")
		}
	})
}

func TestOutageHealsAndTheEndStops(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1, PollInterval: 5 * time.Millisecond})
	down := true
	e.log.read = func() error {
		e.log.mu.Lock()
		defer e.log.mu.Unlock()
		if down {
			return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}
		}
		return nil
	}
	e.set("a", 0)
	s := e.scheduler()
	stop := run(t, s)
	until(t, func() bool { return errors.Is(s.Status().Err, eventstore.ErrUnavailable) })
	if !s.Status().Looked.IsZero() {
		t.Error("says that it looked during an outage")
	}
	wantKind(t, s.Run(t.Context()), eventstore.ErrInvalid)
	_, err := s.CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrInvalid)
	e.log.mu.Lock()
	down = false
	e.log.mu.Unlock()
	until(t, func() bool { return s.Status().Fired == 1 && !s.Status().Looked.IsZero() })
	e.ok(e.store.Close())
	until(t, func() bool { return errors.Is(s.Status().Err, eventstore.ErrClosed) })
	if err := stop(); !errors.Is(err, eventstore.ErrClosed) {
		t.Fatalf("Run ended with %v, want ErrClosed", err)
	}
}

// until waits for something that happens beside the test.
func until(t testing.TB, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited 20 s for nothing")
		}
	}
}

// What is in memory is thrown away when the store is another one.
func TestOtherHistory(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1})
	s := e.scheduler()
	for i := range 20 {
		e.set(fmt.Sprint("old", i), time.Minute)
	}
	e.catchUp(s)
	old := e.log.Log
	e.log.Log = memlog.New(&memlog.Options{Now: e.clock.now})
	var err error
	e.timers, err = timer.New(t.Context(), e.store, &e.o)
	e.ok(err)
	e.set("new", time.Minute)
	e.clock.pass(time.Minute)
	e.catchUp(s)
	e.want("new", timer.Fired)
	if s.Status().Pending != 0 || s.Status().Fired != 1 {
		t.Fatalf("status %+v", s.Status())
	}
	e.log.Log = old
	e.catchUp(s)
	if _, fired := (rules{done: true}).check(t, history(t, e.store, "timer")); fired != 20 {
		t.Fatalf("%d fired, want 20", fired)
	}
}

// Behind a Route timers live in the backend of their category, and so does their clock.
func TestRoute(t *testing.T) {
	clock := newClock()
	var backends []eventstore.Backend
	for _, name := range []string{"main", "side"} {
		backends = append(backends, eventstore.Backend{Name: name, Log: memlog.New(&memlog.Options{Now: clock.now})})
	}
	route, err := eventstore.NewRoute(backends, &eventstore.RouteOptions{Default: "main", Table: map[eventstore.Category]string{"timer": "side", "sale": "side"}})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, clock: clock, store: eventstore.New(route, nil)}
	for _, c := range []eventstore.Category{"sale", "order"} {
		e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}))
	}
	_, err = timer.New(t.Context(), e.store, &timer.Options{LogCategories: []eventstore.Category{"order"}})
	wantKind(t, err, eventstore.ErrCrossBackend)
	e.o = timer.Options{Now: clock.now, Keep: time.Minute, LogCategories: []eventstore.Category{"sale"}}
	e.timers, err = timer.New(t.Context(), e.store, &e.o)
	e.ok(err)
	e.set("wall", 0)
	e.set("log", 0, timer.OnLog())
	e.sell("sale-1")
	s := e.scheduler()
	e.catchUp(s)
	e.want("wall", timer.Fired)
	e.want("log", timer.Fired)
	clock.pass(time.Hour)
	e.catchUp(s)
	e.wantLeft("wall", 0)
}

// Entries that are of no timer set none and keep no timer waiting.
func TestForeignEntries(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1})
	s := e.scheduler()
	e.set("a", time.Minute)
	e.set("b", time.Minute)
	e.catchUp(s)
	h, err := e.store.Head(t.Context(), "timer-a")
	e.ok(err)
	for stream, events := range map[eventstore.Stream][]eventstore.Event{
		"timer-a": {{Type: "something.else", Data: []byte("{}")}},
		"timer-c": {{Type: timer.SetType, Data: []byte("{")}},
		"timer-d": {{Type: timer.SetType, Version: 2, Data: []byte("{}")}},
	} {
		b := eventstore.Batch{Stream: stream, Epoch: h.Epoch + 1, Claim: true, Holder: eventstore.NewUUID(), Events: events}
		if stream == "timer-a" {
			b.After = h.Last
		}
		_, err := e.store.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}})
		e.ok(err)
	}
	e.clock.pass(time.Minute)
	e.catchUp(s)
	e.want("b", timer.Fired)
	for _, name := range []string{"a", "c", "d"} {
		_, err := e.timers.Get(t.Context(), name)
		wantKind(t, err, eventstore.ErrCorrupt)
	}
	if s.Status().Pending != 0 || s.Status().Fired != 1 {
		t.Fatalf("status %+v", s.Status())
	}
}

// More timers than a scheduler may have in memory, with many that are over among them.
func TestWindow(t *testing.T) {
	const limit, timers = 16, 200
	e := newEnv(t, timer.Options{Keep: -1, MaxPending: limit})
	due := func(i int) time.Duration { return time.Duration(i*37%timers) / 3 * time.Second } // three of each
	for i := range timers {
		e.set(fmt.Sprint(i), due(i))
	}
	for i := 0; i < timers; i += 4 {
		_, err := e.timers.Cancel(t.Context(), fmt.Sprint(i))
		e.ok(err)
	}
	s := e.scheduler()
	late := time.Duration(0)
	for range timers/3 + 1 {
		e.catchUp(s)
		if n := s.Status().Pending; n > limit {
			t.Fatalf("%d pending in memory, want at most %d", n, limit)
		}
		e.clock.pass(time.Second)
		late = time.Second
	}
	if set, fired := (rules{late: late, done: true}).check(t, history(t, e.store, "timer")); set != timers || fired != timers*3/4 {
		t.Fatalf("%d set, %d fired", set, fired)
	}
	for i := range timers { // all at the same moment
		e.set(fmt.Sprint(i), time.Minute)
	}
	e.catchUp(s)
	e.clock.pass(time.Minute)
	e.catchUp(s)
	if _, fired := (rules{done: true}).check(t, history(t, e.store, "timer")); fired != timers*3/4+timers {
		t.Fatalf("%d fired", fired)
	}
	e.catchUp(e.scheduler()) // nothing but what is over
}

// CatchUp ends when its time does, and what is left is done by the next.
func TestBudget(t *testing.T) {
	const timers = 400 // fewer than a page of the feed
	e := newEnv(t, timer.Options{Keep: -1})
	for i := range timers {
		e.set(fmt.Sprint(i), 0)
	}
	e.log.bend(func(_ context.Context, _ eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		time.Sleep(2 * time.Millisecond)
		return do()
	})
	s := e.scheduler()
	calls := 0
	for more := true; more; calls++ {
		began := time.Now()
		var err error
		more, err = s.CatchUp(t.Context(), 10*time.Millisecond)
		e.ok(err)
		if took := time.Since(began); took > time.Second {
			t.Fatalf("took %v", took)
		}
		if calls > timers {
			t.Fatal("no end")
		}
	}
	if calls < 2 {
		t.Errorf("all in %d call, want more", calls)
	}
	if _, fired := (rules{done: true}).check(t, history(t, e.store, "timer")); fired != timers {
		t.Fatalf("%d fired, want %d", fired, timers)
	}
}

// What a pending timer takes in memory, at names of 20 bytes.
func TestMemory(t *testing.T) {
	const timers, most = 100_000, 250
	e := newEnv(t, timer.Options{Keep: -1, LogCategories: []eventstore.Category{"sale"}})
	due := e.clock.now().Add(time.Hour).Format(time.RFC3339)
	for i := 0; i < timers; {
		var a eventstore.Append
		for ; len(a.Batches) < eventstore.MaxAppendBatches && i < timers; i++ {
			stream, err := eventstore.NewStream("timer", fmt.Sprintf("payment-of-%09d", i))
			e.ok(err)
			a.Batches = append(a.Batches, eventstore.Batch{Stream: stream, Epoch: 1, Claim: true, Holder: eventstore.UUID{1}, Events: []eventstore.Event{
				{Type: timer.SetType, Data: fmt.Appendf(nil, `{"due":%q,"clock":%q,"payload":"AAAA"}`, due, timer.Clock(i%2))}}})
		}
		_, err := e.store.Append(t.Context(), a)
		e.ok(err)
	}
	s := e.scheduler()
	before := heap()
	e.catchUp(s)
	each := float64(int64(heap())-int64(before)) / timers
	t.Logf("%.0f bytes per pending timer", each)
	if n := s.Status().Pending; n != timers || each > most {
		t.Fatalf("%d pending, %.0f bytes each; want %d of at most %d", n, each, timers, most)
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
