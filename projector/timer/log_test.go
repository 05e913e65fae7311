// Timers on the log's clock: the same feed gives the same fired entries.

package timer_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector/timer"
)

// sell appends an entry to a followed category.
func (e *env) sell(stream eventstore.Stream) {
	e.t.Helper()
	h, err := e.store.Head(e.t.Context(), stream)
	e.ok(err)
	_, err = e.store.Append(e.t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: stream, Epoch: h.Epoch + 1, Claim: true,
		Holder: eventstore.UUID{1}, After: h.Last, Events: []eventstore.Event{{Type: "sold"}}}}})
	e.ok(err)
}

func TestLogClock(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1, LogCategories: []eventstore.Category{"sale"}})
	s := e.scheduler()
	e.catchUp(s)
	e.clock.pass(time.Hour)
	e.sell("sale-1") // before the timer: it says nothing to it
	e.set("a", -time.Minute, timer.OnLog())
	e.set("b", time.Minute, timer.OnLog())
	e.set("wall", 0)
	e.catchUp(s)
	e.want("a", timer.Pending)
	e.want("wall", timer.Fired) // the two clocks have nothing to do with each other
	e.clock.pass(time.Hour)
	e.catchUp(s)
	e.want("b", timer.Pending) // nothing was appended
	e.sell("sale-1")
	e.catchUp(s)
	e.want("a", timer.Fired)
	e.want("b", timer.Fired)
	b, err := e.timers.Get(t.Context(), "b")
	e.ok(err)
	if b.By == nil || b.By.Stream != "sale-1" || b.By.Seqno != 2 || !b.By.Time.Equal(e.clock.now()) || b.By.Position == 0 {
		t.Fatalf("fired by %+v", b.By)
	}
	moved := e.set("c", time.Minute, timer.OnLog())
	moved, err = e.timers.Reschedule(t.Context(), "c", moved.Due.Add(time.Hour))
	e.ok(err)
	e.clock.pass(time.Minute)
	e.sell("sale-2")
	e.catchUp(s)
	e.want("c", timer.Pending)
	e.clock.pass(time.Hour)
	e.sell("sale-2")
	e.catchUp(e.scheduler()) // one that has seen nothing yet
	c, err := e.timers.Get(t.Context(), "c")
	e.ok(err)
	if c.State != timer.Fired || c.Generation != moved.Generation || c.By.Stream != "sale-2" || c.By.Seqno != 2 {
		t.Fatalf("c %+v by %+v", c, c.By)
	}
}

// firing is what of a fired entry does not depend on when it was appended.
type firing struct {
	Name       string
	Generation eventstore.Seqno
	Due, At    time.Time
	Stream     eventstore.Stream
	Seqno      eventstore.Seqno
}

func TestLogClockIsDeterministic(t *testing.T) {
	for seed := range uint64(10) {
		want := replay(t, seed, 0)
		if len(want) == 0 {
			t.Fatalf("seed %d: nothing fired", seed)
		}
		for _, every := range []int{1, 3, 17} {
			if got := replay(t, seed, every); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: looking every %d steps fired\n%v\nlooking once\n%v", seed, every, got, want)
			}
		}
	}
}

// replay appends a history that follows from the seed, with a scheduler that looks
// every so many steps (0: at the end alone) and is now and then a new one. It holds
// what was fired against the rule, and returns it.
func replay(t *testing.T, seed uint64, every int) []firing {
	e := newEnv(t, timer.Options{Keep: -1, MaxPending: 64, LogCategories: []eventstore.Category{"sale", "return"}})
	rng := rand.New(rand.NewPCG(seed, 7))
	s := e.scheduler()
	type sold struct {
		at   time.Time
		step int
		s    eventstore.Stream
		n    eventstore.Seqno
	}
	var clock []sold
	set, want := map[string]int{}, map[string]timer.Timer{}
	counts := map[eventstore.Stream]eventstore.Seqno{}
	for step := range 120 {
		e.clock.pass(time.Duration(rng.IntN(20_000)-8_000) * time.Millisecond) // it goes back at times
		if rng.IntN(3) == 0 {
			name := fmt.Sprint("timer ", step)
			set[name] = step
			want[name] = e.set(name, time.Duration(rng.IntN(120)-20)*time.Second, timer.OnLog())
		} else {
			stream := eventstore.Stream([]string{"sale-1", "sale-2", "return-1", "other-1"}[rng.IntN(4)])
			if stream == "other-1" {
				e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "other"}))
				e.sell(stream)
			} else {
				e.sell(stream)
				counts[stream]++
				p, err := e.store.ReadFrom(t.Context(), stream, counts[stream]-1, 1)
				e.ok(err)
				clock = append(clock, sold{p.Entries[0].Time, step, stream, counts[stream]})
			}
		}
		if every > 0 && step%every == 0 {
			if rng := rand.New(rand.NewPCG(seed, uint64(step))); rng.IntN(4) == 0 {
				s = e.scheduler()
			}
			e.catchUp(s)
		}
	}
	e.catchUp(s)
	var all []firing
	entries := history(t, e.store, "timer")
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		i := slices.IndexFunc(clock, func(c sold) bool { return c.step > set[name] && !c.at.Before(want[name].Due) })
		last := entries[name][len(entries[name])-1]
		switch {
		case i < 0 && last.State == timer.Pending && len(entries[name]) == 1:
		case i >= 0 && last.State == timer.Fired && len(entries[name]) == 2 && last.By.Stream == clock[i].s && last.By.Seqno == clock[i].n:
			all = append(all, firing{name, last.Generation, last.Due, last.By.Time, last.By.Stream, last.By.Seqno})
		default:
			t.Fatalf("seed %d, every %d: timer %q due at %v: %d entries, the last %v by %+v, want the clock's entry %d", seed, every, name, want[name].Due,
				len(entries[name]), last.State, last.By, i)
		}
	}
	slices.SortFunc(all, func(a, b firing) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// With more log timers than it may have a scheduler says so, and goes on once they are
// fewer.
func TestLogClockOverloaded(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1, MaxPending: 16, LogCategories: []eventstore.Category{"sale"}})
	for i := range 17 {
		e.set(fmt.Sprint(i), time.Minute, timer.OnLog())
	}
	s := e.scheduler()
	_, err := s.CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrOverloaded)
	wantKind(t, s.Run(t.Context()), eventstore.ErrOverloaded)
	_, err = e.timers.Cancel(t.Context(), "3")
	e.ok(err)
	_, err = s.CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrOverloaded) // it goes by the feed, in which they all were pending at one time
	larger := e.o
	larger.MaxPending = 32
	s, err = timer.NewScheduler(t.Context(), e.store, &larger)
	e.ok(err)
	e.clock.pass(time.Minute)
	e.sell("sale-1")
	e.catchUp(s)
	if s.Status().Fired != 16 {
		t.Fatalf("%d fired, want 16", s.Status().Fired)
	}
}
