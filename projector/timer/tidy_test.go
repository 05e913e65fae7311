// What is trimmed, and what keeps it.

package timer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector/timer"
)

// left returns how many entries of a timer are there, and its last seqno.
func (e *env) left(name string) (entries, last eventstore.Seqno) {
	e.t.Helper()
	h, err := e.store.Head(e.t.Context(), eventstore.Stream("timer-"+name))
	e.ok(err)
	return h.Last.Seqno - h.Trimmed, h.Last.Seqno
}

func (e *env) wantLeft(name string, want eventstore.Seqno) {
	e.t.Helper()
	if got, last := e.left(name); got != want {
		e.t.Fatalf("%d of %d entries of timer %s left, want %d", got, last, name, want)
	}
}

func TestTidy(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: time.Hour})
	s := e.scheduler()
	e.set("fired", time.Minute)
	e.set("cancelled", time.Minute)
	_, err := e.timers.Cancel(t.Context(), "cancelled")
	e.ok(err)
	for range 5 {
		e.set("moved", 100*time.Hour)
	}
	e.set("plain", 100*time.Hour)
	e.clock.pass(time.Minute)
	e.catchUp(s)
	e.set("again", 0)
	e.catchUp(s)
	e.set("again", 100*time.Hour)
	e.clock.pass(time.Hour)
	e.catchUp(s)
	e.wantLeft("fired", 2) // for an hour, not yet for longer
	e.clock.pass(time.Second)
	e.catchUp(s)
	for name, want := range map[string]eventstore.Seqno{"fired": 0, "cancelled": 0, "moved": 1, "plain": 1, "again": 1} {
		e.wantLeft(name, want)
	}
	_, err = e.timers.Get(t.Context(), "fired")
	wantKind(t, err, timer.ErrNoTimer)
	_, err = e.timers.Cancel(t.Context(), "fired")
	wantKind(t, err, timer.ErrNoTimer)
	_, err = e.timers.Reschedule(t.Context(), "fired", e.clock.now())
	wantKind(t, err, timer.ErrNoTimer)
	if again := e.set("fired", 0); again.Generation != 3 {
		t.Fatalf("set again %+v, want a generation never used before", again)
	}
	e.clock.pass(100 * time.Hour)
	fresh := e.scheduler()
	e.catchUp(fresh)
	if fresh.Status().Fired != 4 {
		t.Fatalf("%d fired after a start, want 4", fresh.Status().Fired)
	}
}

// A hold on the category keeps what a reactor has not handled, and goes on keeping
// what is behind it.
func TestHoldsKeep(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: time.Hour})
	s := e.scheduler()
	e.set("a", 0)
	e.catchUp(s)
	e.set("b", 0)
	e.catchUp(s)
	at := history(t, e.store, "timer")["b"][0].Entry.Position
	e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: "reactor", Category: "timer", Position: at}))
	e.clock.pass(2 * time.Hour)
	e.catchUp(s)
	e.wantLeft("a", 0)
	e.wantLeft("b", 2)
	e.ok(e.store.ReleaseHold(t.Context(), "reactor", "timer", ""))
	e.catchUp(s)
	e.wantLeft("b", 0)
}

// Disk and start stay bounded by what is pending and what was over within Keep.
func TestTidyKeepsUp(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: time.Minute})
	s := e.scheduler()
	const rounds, each = 40, 20
	for range rounds {
		for i := range each {
			e.set(fmt.Sprint(i), 0)
		}
		e.catchUp(s)
		e.clock.pass(time.Minute)
	}
	e.clock.pass(time.Second)
	e.catchUp(s)
	left := 0
	for _, entries := range history(t, e.store, "timer") {
		left += len(entries)
	}
	if left != 0 || s.Status().Fired != rounds*each {
		t.Fatalf("%d entries left of %d firings", left, s.Status().Fired)
	}
}
