// What the tests of this package share: a store that can be bent, a clock that is set,
// and the rules that every history of timers keeps.

package timer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector/timer"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bent is a process's way to a log: what it sends can be held up, lost, or its answer.
// It keeps the contract of Log.
type bent struct {
	*memlog.Log
	mu     sync.Mutex
	append func(ctx context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error)
	read   func() error // before each read of the feed
	feeds  int
}

func (b *bent) bend(f func(ctx context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.append = f
}

func (b *bent) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	b.mu.Lock()
	f := b.append
	b.mu.Unlock()
	do := func() (eventstore.Appended, error) { return b.Log.Append(ctx, a) }
	if f == nil {
		return do()
	}
	return f(ctx, a, do)
}

func (b *bent) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	b.mu.Lock()
	b.feeds++
	f2 := b.read
	b.mu.Unlock()
	if f2 != nil {
		if err := f2(); err != nil {
			return eventstore.FeedPage{}, err
		}
	}
	return b.Log.ReadFeed(ctx, after, f, limit)
}

func lostAnswer(a eventstore.Append) error {
	return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Stream: a.Batches[0].Stream, Err: errors.New("connection reset")}
}

func fires(a eventstore.Append) bool { return a.Batches[0].Events[0].Type == timer.FiredType }

// clock is one that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	return c.at
}

// env is a store of timers under a clock.
type env struct {
	t      testing.TB
	clock  *clock
	log    *bent
	store  *eventstore.Store
	timers *timer.Timers
	o      timer.Options
}

func newEnv(t testing.TB, o timer.Options) *env {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) }) // last, when all that runs was stopped
	e := &env{t: t, clock: newClock(), o: o}
	e.log = &bent{Log: memlog.New(&memlog.Options{Now: e.clock.now})}
	e.store = eventstore.New(e.log, nil)
	if e.o.Now == nil {
		e.o.Now = e.clock.now
	}
	for _, c := range o.LogCategories {
		e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}))
	}
	var err error
	e.timers, err = timer.New(t.Context(), e.store, &e.o)
	e.ok(err)
	return e
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) set(name string, in time.Duration, options ...timer.Option) timer.Timer {
	e.t.Helper()
	t, err := e.timers.Set(e.t.Context(), name, e.clock.now().Add(in), []byte(name), options...)
	e.ok(err)
	return t
}

func (e *env) scheduler() *timer.Scheduler {
	e.t.Helper()
	s, err := timer.NewScheduler(e.t.Context(), e.store, &e.o)
	e.ok(err)
	return s
}

func (e *env) catchUp(s *timer.Scheduler) {
	e.t.Helper()
	more, err := s.CatchUp(e.t.Context(), 0)
	if more || err != nil {
		e.t.Fatalf("more %v, error %v", more, err)
	}
}

// state returns what has become of a timer.
func (e *env) state(name string) timer.State {
	e.t.Helper()
	t, err := e.timers.Get(e.t.Context(), name)
	e.ok(err)
	return t.State
}

func (e *env) want(name string, state timer.State) {
	e.t.Helper()
	if got := e.state(name); got != state {
		e.t.Fatalf("timer %s is %v, want %v", name, got, state)
	}
}

func wantKind(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want %v", err, kind)
	}
}

// entry is one entry of a timer with what it says.
type entry struct {
	eventstore.Entry
	timer.Timer
}

// history returns the entries of the timers by name, in order.
func history(t testing.TB, store *eventstore.Store, category eventstore.Category) map[string][]entry {
	t.Helper()
	all := map[string][]entry{}
	for e, err := range store.Feed(context.Background(), 0, eventstore.Filter{Categories: []eventstore.Category{category}, AcceptTrimmed: true}) {
		if err != nil {
			t.Fatal(err)
		}
		v, err := timer.Events{}.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		all[v.Name] = append(all[v.Name], entry{e, v})
	}
	return all
}

// rules are those that a history of timers on the wall's clock must keep.
type rules struct {
	late time.Duration // how late a timer may fire; 0: as it likes
	done bool          // nothing may be pending any more
}

// check returns how many generations there were and how many fired.
func (r rules) check(t testing.TB, all map[string][]entry) (set, fired int) {
	t.Helper()
	for name, entries := range all {
		var pending *entry
		for i := range entries {
			e := &entries[i]
			at := fmt.Sprintf("timer %s, entry %d", name, e.Seqno)
			if e.State != timer.Pending && (pending == nil || e.Generation != pending.Generation) {
				t.Fatalf("%s: generation %d %v, which is not the pending one", at, e.Generation, e.State)
			}
			switch e.State {
			case timer.Pending:
				set++
				pending = e
				continue
			case timer.Fired:
				fired++
				r.fired(t, at, pending, e)
			}
			pending = nil
		}
		if pending != nil && r.done {
			t.Fatalf("timer %s: generation %d, due at %v, has not fired", name, pending.Generation, pending.Due)
		}
	}
	return set, fired
}

func (r rules) fired(t testing.TB, at string, set, e *entry) {
	t.Helper()
	if e.Entry.Time.Before(set.Due) {
		t.Fatalf("%s: fired at %v, due at %v", at, e.Entry.Time, set.Due)
	}
	from := set.Due
	if set.Entry.Time.After(from) {
		from = set.Entry.Time
	}
	if late := e.Entry.Time.Sub(from); r.late > 0 && late > r.late {
		t.Fatalf("%s: fired %v late, want at most %v", at, late, r.late)
	}
	if string(e.Timer.Payload) != string(set.Timer.Payload) || !e.Due.Equal(set.Due) {
		t.Fatalf("%s: fired with payload %q due at %v, set with %q and %v", at, e.Timer.Payload, e.Due, set.Timer.Payload, set.Due)
	}
	if cause := e.Metadata[eventstore.MetaCausation]; cause != set.ID.String() {
		t.Fatalf("%s: caused by %q, want %v", at, cause, set.ID)
	}
}
