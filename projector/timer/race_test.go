// What happens between a scheduler's look and its append: the fence decides.

package timer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector/timer"
)

// between has f done once, when a firing is about to be appended.
func (e *env) between(f func()) {
	e.log.bend(func(_ context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		if fires(a) {
			e.log.bend(nil)
			f()
		}
		return do()
	})
}

func TestOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		do          func(e *env)
		state       timer.State
		set, fired  int
		byScheduler uint64
	}{
		"cancelled": {func(e *env) {
			_, err := e.timers.Cancel(e.t.Context(), "a")
			e.ok(err)
		}, timer.Cancelled, 1, 0, 0},
		"rescheduled": {func(e *env) {
			_, err := e.timers.Reschedule(e.t.Context(), "a", e.clock.now().Add(time.Hour))
			e.ok(err)
		}, timer.Pending, 2, 0, 0},
		"fired by another": {func(e *env) { e.catchUp(e.scheduler()) }, timer.Fired, 1, 1, 0},
		"fired by another and set again": {func(e *env) {
			e.catchUp(e.scheduler())
			e.set("a", time.Hour)
		}, timer.Pending, 2, 1, 0},
		"fenced and left alone": {func(e *env) {
			_, err := e.store.Fence(e.t.Context(), "timer-a", eventstore.NewUUID())
			e.ok(err)
		}, timer.Fired, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, timer.Options{Keep: -1})
			s := e.scheduler()
			e.set("a", time.Minute)
			e.catchUp(s)
			e.clock.pass(time.Minute)
			e.between(func() { c.do(e) })
			e.catchUp(s)
			e.want("a", c.state)
			if set, fired := (rules{}).check(t, history(t, e.store, "timer")); set != c.set || fired != c.fired {
				t.Fatalf("%d set, %d fired; want %d and %d", set, fired, c.set, c.fired)
			}
			if got := s.Status().Fired; got != c.byScheduler {
				t.Fatalf("the scheduler says it fired %d, want %d", got, c.byScheduler)
			}
			e.clock.pass(time.Hour)
			e.catchUp(s)
			(rules{done: true}).check(t, history(t, e.store, "timer"))
		})
	}
}

// Frozen so long that everything it knew is trimmed.
func TestFrozenThroughTrim(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: time.Minute})
	s := e.scheduler()
	e.set("a", time.Minute)
	e.catchUp(s)
	e.clock.pass(time.Minute)
	e.between(func() {
		other := e.scheduler()
		e.catchUp(other)
		e.clock.pass(time.Hour)
		e.catchUp(other)
		if h, err := e.store.Head(t.Context(), "timer-a"); err != nil || h.Trimmed != 2 {
			t.Fatalf("head %+v, %v; want all of it trimmed", h, err)
		}
	})
	e.catchUp(s)
	if s.Status().Fired != 0 || s.Status().Pending != 0 {
		t.Fatalf("status %+v", s.Status())
	}
	if h, err := e.store.Head(t.Context(), "timer-a"); err != nil || h.Last.Seqno != 2 {
		t.Fatalf("head %+v, %v; want nothing behind the firing", h, err)
	}
	if next := e.set("a", 0); next.Generation != 3 {
		t.Fatalf("set again %+v", next)
	}
	e.catchUp(s)
	e.want("a", timer.Fired)
}

// A firing whose answer is lost is sent again and proved; others are not kept waiting.
func TestFiringLost(t *testing.T) {
	for _, landed := range []bool{true, false} {
		e := newEnv(t, timer.Options{Keep: -1})
		s := e.scheduler()
		for i := range 5 {
			e.set(fmt.Sprint(i), 0)
		}
		e.log.bend(func(_ context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			if a.Batches[0].Stream != "timer-3" {
				return do()
			}
			if landed {
				_, _ = do()
			}
			return eventstore.Appended{}, lostAnswer(a)
		})
		more, err := s.CatchUp(t.Context(), 0)
		if !more || !errors.Is(err, eventstore.ErrUnknown) || !errors.Is(s.Status().Err, eventstore.ErrUnknown) {
			t.Fatalf("more %v, error %v", more, err)
		}
		_, fired := rules{}.check(t, history(t, e.store, "timer"))
		if want := map[bool]int{true: 5, false: 4}[landed]; fired != want {
			t.Fatalf("%d fired, want %d", fired, want)
		}
		e.log.bend(nil)
		e.catchUp(s)
		if _, fired := (rules{done: true}).check(t, history(t, e.store, "timer")); fired != 5 || s.Status().Err != nil {
			t.Fatalf("%d fired, error %v", fired, s.Status().Err)
		}
	}
}

// Real goroutines: whoever cancels learns whether he won.
func TestCancelRacesFire(t *testing.T) {
	const timers = 200
	e := newEnv(t, timer.Options{Keep: -1})
	for i := range timers {
		e.set(fmt.Sprint(i), 0)
	}
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			if _, err := e.scheduler().CatchUp(t.Context(), 0); err != nil {
				t.Error(err)
			}
		})
	}
	won := make([]bool, timers)
	for first := range 2 {
		running.Go(func() {
			for i := timers - 1 - first; i >= 0; i -= 2 {
				switch _, err := e.timers.Cancel(context.Background(), fmt.Sprint(i)); {
				case err == nil:
					won[i] = true
				case !errors.Is(err, timer.ErrFired):
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	count := 0
	for i, won := range won {
		want := timer.Fired
		if won {
			want, count = timer.Cancelled, count+1
		}
		e.want(fmt.Sprint(i), want)
	}
	(rules{done: true}).check(t, history(t, e.store, "timer"))
	t.Logf("%d of %d cancelled in time", count, timers)
}

// What a scheduler has in memory may be over and trimmed when it is due.
func TestStaleThroughTrim(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: time.Minute})
	s := e.scheduler()
	e.set("a", time.Minute)
	e.set("b", 10*time.Hour)
	e.catchUp(s)
	other := e.scheduler()
	e.clock.pass(time.Minute)
	e.catchUp(other)
	e.clock.pass(time.Hour)
	e.catchUp(other)
	e.clock.pass(10 * time.Hour)
	e.catchUp(s) // its page has the firing no more
	if s.Status().Fired != 1 || s.Status().Pending != 0 {
		t.Fatalf("status %+v", s.Status())
	}
	e.want("b", timer.Fired)
}
