// Setting, cancelling, rescheduling and looking up timers.

package timer_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector/timer"
)

func TestLife(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1})
	s := e.scheduler()
	set := e.set("a", time.Minute)
	if set.Generation != 1 || set.State != timer.Pending || set.Mark.Seqno != 1 {
		t.Fatalf("set %+v", set)
	}
	got, err := e.timers.Get(t.Context(), "a")
	e.ok(err)
	if got.Generation != 1 || got.State != timer.Pending || !got.Due.Equal(set.Due) || string(got.Payload) != "a" ||
		got.ContentType != "application/json" || got.Mark != set.Mark || got.Position != set.Position {
		t.Fatalf("got %+v, set %+v", got, set)
	}
	moved, err := e.timers.Reschedule(t.Context(), "a", set.Due.Add(time.Minute))
	e.ok(err)
	if moved.Generation != 2 || string(moved.Payload) != "a" {
		t.Fatalf("rescheduled %+v", moved)
	}
	e.clock.pass(time.Minute)
	e.catchUp(s)
	e.want("a", timer.Pending) // the old due time does not count
	e.clock.pass(time.Minute)
	e.catchUp(s)
	e.want("a", timer.Fired)
	fired, err := e.timers.Get(t.Context(), "a")
	e.ok(err)
	if fired.Generation != 2 || string(fired.Payload) != "a" || fired.By != nil {
		t.Fatalf("fired %+v", fired)
	}

	_, err = e.timers.Cancel(t.Context(), "a")
	wantKind(t, err, timer.ErrFired)
	_, err = e.timers.Reschedule(t.Context(), "a", e.clock.now())
	wantKind(t, err, timer.ErrFired)

	again := e.set("a", time.Minute)
	if again.Generation != 4 {
		t.Fatalf("set again %+v", again)
	}
	cancelled, err := e.timers.Cancel(t.Context(), "a")
	e.ok(err)
	if cancelled.State != timer.Cancelled || cancelled.Generation != 4 {
		t.Fatalf("cancelled %+v", cancelled)
	}
	e.catchUp(s)
	if n := s.Status().Pending; n != 0 {
		t.Fatalf("%d pending in memory after the timer was cancelled", n)
	}
	if twice, err := e.timers.Cancel(t.Context(), "a"); err != nil || twice.Mark != cancelled.Mark {
		t.Fatalf("cancelled twice: %+v, %v", twice, err)
	}
	_, err = e.timers.Reschedule(t.Context(), "a", e.clock.now())
	wantKind(t, err, timer.ErrCancelled)
	e.clock.pass(time.Hour)
	e.catchUp(s)
	e.want("a", timer.Cancelled)
	if set, fired := (rules{done: true}).check(t, history(t, e.store, "timer")); set != 3 || fired != 1 {
		t.Fatalf("%d set, %d fired", set, fired)
	}
	if s.Status().Fired != 1 || s.Status().Pending != 0 || !s.Status().Next.IsZero() {
		t.Fatalf("status %+v", s.Status())
	}
}

func TestUnknownTimer(t *testing.T) {
	e := newEnv(t, timer.Options{})
	_, err := e.timers.Get(t.Context(), "nobody")
	wantKind(t, err, timer.ErrNoTimer)
	_, err = e.timers.Cancel(t.Context(), "nobody")
	wantKind(t, err, timer.ErrNoTimer)
	_, err = e.timers.Reschedule(t.Context(), "nobody", e.clock.now())
	wantKind(t, err, timer.ErrNoTimer)
}

func TestDue(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1})
	s := e.scheduler()
	set := func(name string, due time.Time) error {
		_, err := e.timers.Set(t.Context(), name, due, nil)
		return err
	}
	wantKind(t, set("zero", time.Time{}), eventstore.ErrInvalid)
	wantKind(t, set("beyond", time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)), eventstore.ErrInvalid)
	wantKind(t, set("rounded beyond", time.Date(9999, 12, 31, 23, 59, 59, 999_999_001, time.UTC)), eventstore.ErrInvalid)
	e.ok(set("last", time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)))
	e.ok(set("first", time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)))
	e.ok(set("past", e.clock.now().Add(-time.Hour)))
	e.ok(set("now", e.clock.now()))
	e.ok(set("a nanosecond", e.clock.now().Add(1)))
	e.ok(set("zoned", e.clock.now().In(time.FixedZone("east", 3600))))
	e.catchUp(s)
	for name, want := range map[string]timer.State{"last": timer.Pending, "first": timer.Fired, "past": timer.Fired, "now": timer.Fired,
		"a nanosecond": timer.Pending, "zoned": timer.Fired} {
		if got := e.state(name); got != want {
			t.Errorf("timer %q is %v, want %v", name, got, want)
		}
	}
	e.clock.pass(time.Microsecond - time.Nanosecond)
	e.catchUp(s)
	e.want("a nanosecond", timer.Pending)
	e.clock.pass(time.Nanosecond)
	e.catchUp(s)
	e.want("a nanosecond", timer.Fired)
	if next := s.Status().Next; next.Year() != 9999 {
		t.Errorf("next is due at %v", next)
	}
}

func TestIDs(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1})
	s := e.scheduler()
	id := eventstore.NewUUID()
	first := e.set("a", time.Minute, timer.ID(id))
	again := e.set("a", time.Hour, timer.ID(id))
	if !again.Replayed || again.Mark != first.Mark || !again.Due.Equal(first.Due) {
		t.Fatalf("set again %+v, first %+v", again, first)
	}
	cancel := eventstore.NewUUID()
	_, err := e.timers.Cancel(t.Context(), "a", timer.ID(cancel))
	e.ok(err)
	e.set("a", time.Minute)
	if c, err := e.timers.Cancel(t.Context(), "a", timer.ID(cancel)); err != nil || !c.Replayed || c.State != timer.Pending {
		t.Fatalf("cancelled again: %+v, %v; want the timer as it is", c, err)
	}
	e.clock.pass(time.Hour)
	e.catchUp(s)
	if after := e.set("a", time.Minute, timer.ID(id)); !after.Replayed || after.State != timer.Fired {
		t.Fatalf("set again after it fired: %+v", after)
	}
	for i := range timer.RememberedIDs {
		e.set("a", time.Minute, timer.ID(eventstore.NameUUID(fmt.Sprint(i))))
	}
	_, err = e.timers.Set(t.Context(), "a", e.clock.now(), nil, timer.ID(id))
	wantKind(t, err, timer.ErrForgotten) // it tells that it is older
	for i, want := range []bool{false, true} {
		if got := e.set("a", time.Minute, timer.ID(eventstore.NameUUID("new"))); got.Replayed != want {
			t.Fatalf("time %d: replayed %v", i, got.Replayed)
		}
	}
	if young := e.set("a", time.Minute, timer.ID(eventstore.NewUUID())); young.Replayed {
		t.Fatal("a new ID taken for a known one")
	}
	if known := e.set("a", time.Minute, timer.ID(eventstore.NameUUID("9"))); !known.Replayed {
		t.Fatal("one of the last IDs is not remembered")
	}
	_, err = e.timers.Set(t.Context(), "a", e.clock.now(), nil, timer.ID(eventstore.UUID{}))
	wantKind(t, err, eventstore.ErrInvalid)
}

// What is trimmed cannot tell, but for its age.
func TestIDsBeyondTrim(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: time.Minute})
	s := e.scheduler()
	old, plain := eventstore.NewUUID(), eventstore.NameUUID("plain")
	for name, id := range map[string]eventstore.UUID{"a": old, "b": plain} {
		e.set(name, 0, timer.ID(id))
	}
	e.catchUp(s)
	e.clock.pass(time.Hour)
	e.catchUp(s)
	_, err := e.timers.Set(t.Context(), "a", e.clock.now(), nil, timer.ID(old))
	wantKind(t, err, timer.ErrForgotten)
	time.Sleep(2 * time.Millisecond) // the IDs' time is in milliseconds
	if young := e.set("a", 0, timer.ID(eventstore.NewUUID())); young.Replayed || young.Generation != 3 {
		t.Fatalf("set again %+v", young)
	}
	if again := e.set("b", 0, timer.ID(plain)); again.Replayed {
		t.Fatalf("set again %+v", again)
	}
}

func TestRefused(t *testing.T) {
	e := newEnv(t, timer.Options{})
	now := e.clock.now()
	_, err := e.timers.Set(t.Context(), "a", now, make([]byte, timer.MaxPayloadBytes+1))
	wantKind(t, err, eventstore.ErrTooLarge)
	_, err = e.timers.Set(t.Context(), "a", now, nil, timer.OnLog())
	wantKind(t, err, eventstore.ErrInvalid)
	_, err = e.timers.Set(t.Context(), "", now, nil)
	wantKind(t, err, eventstore.ErrInvalid)
	_, err = e.timers.Set(t.Context(), "a\n", now, nil)
	wantKind(t, err, eventstore.ErrInvalid)
	largest := bytes.Repeat([]byte{0xff}, timer.MaxPayloadBytes)
	_, err = e.timers.Set(t.Context(), "large", now, largest, timer.ContentType("application/octet-stream"))
	e.ok(err)
	e.catchUp(e.scheduler())
	got, err := e.timers.Get(t.Context(), "large")
	e.ok(err)
	if got.State != timer.Fired || !bytes.Equal(got.Payload, largest) || got.ContentType != "application/octet-stream" {
		t.Fatalf("%v with %d bytes of %s", got.State, len(got.Payload), got.ContentType)
	}
	// A firing that is larger than what was set, by a little too much, keeps nobody waiting.
	strict := eventstore.New(e.log, &eventstore.Options{Limits: eventstore.Limits{EventBytes: 100}})
	picky, err := timer.New(t.Context(), strict, &e.o)
	e.ok(err)
	_, err = picky.Set(t.Context(), "tight", now, []byte("1234"))
	e.ok(err)
	_, err = picky.Set(t.Context(), "loose", now, nil)
	e.ok(err)
	s, err := timer.NewScheduler(t.Context(), strict, &e.o)
	e.ok(err)
	e.catchUp(s)
	e.want("tight", timer.Pending)
	e.want("loose", timer.Fired)
	e.catchUp(e.scheduler())
	e.want("tight", timer.Fired)
	for name, o := range map[string]timer.Options{
		"poll interval": {PollInterval: time.Millisecond}, "pending": {MaxPending: 3}, "retries": {Retries: -1}, "category": {Category: "a-b"},
		"clock": {LogCategories: []eventstore.Category{"timer"}}, "no clock": {LogCategories: []eventstore.Category{"nothing"}},
		"lease": {LeaseTTL: time.Millisecond},
	} {
		if _, err := timer.New(t.Context(), e.store, &o); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := timer.NewScheduler(t.Context(), e.store, &o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "kept"}))
	_, err = timer.New(t.Context(), e.store, &timer.Options{Category: "kept"})
	wantKind(t, err, eventstore.ErrInvalid)
}

// A lost answer is settled before anything is decided again.
func TestLostAnswers(t *testing.T) {
	for _, landed := range []bool{true, false} {
		e := newEnv(t, timer.Options{Keep: -1})
		calls := 0
		e.log.bend(func(_ context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			if calls++; calls > 1 {
				return do()
			}
			if landed {
				if done, err := do(); err != nil {
					return done, err
				}
			}
			return eventstore.Appended{}, lostAnswer(a)
		})
		e.set("a", time.Minute)
		if n := len(history(t, e.store, "timer")["a"]); n != 1 || calls != 2 {
			t.Fatalf("landed %v: %d entries after %d calls, want 1 after 2", landed, n, calls)
		}
	}
	e := newEnv(t, timer.Options{Keep: -1, Retries: 2})
	e.log.bend(func(_ context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		_, _ = do()
		return eventstore.Appended{}, lostAnswer(a)
	})
	id := eventstore.NewUUID()
	_, err := e.timers.Set(t.Context(), "a", e.clock.now(), nil, timer.ID(id))
	wantKind(t, err, eventstore.ErrUnknown)
	e.log.bend(nil)
	if again := e.set("a", 0, timer.ID(id)); !again.Replayed {
		t.Fatalf("set again %+v", again)
	}
	if n := len(history(t, e.store, "timer")["a"]); n != 1 {
		t.Fatalf("%d entries, want 1", n)
	}
}

// Who is beaten loads and decides again: of many that change a timer each is behind
// the one before.
func TestContenders(t *testing.T) {
	e := newEnv(t, timer.Options{Keep: -1})
	beaten := 0
	e.log.bend(func(ctx context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		if beaten++; beaten == 1 {
			other, err := timer.New(ctx, e.store, &e.o)
			e.ok(err)
			_, err = other.Set(ctx, "a", e.clock.now(), []byte("other"))
			e.ok(err)
		}
		return do()
	})
	if mine := e.set("a", time.Minute); mine.Generation != 2 {
		t.Fatalf("set %+v, want it behind the other", mine)
	}
	beaten = 1
	e.log.bend(func(ctx context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		if !fires(a) && a.Batches[0].Events[0].Type == timer.CancelledType {
			e.log.bend(nil)
			e.clock.pass(time.Hour)
			e.catchUp(e.scheduler())
		}
		return do()
	})
	_, err := e.timers.Cancel(t.Context(), "a") // it fires between load and append
	wantKind(t, err, timer.ErrFired)
	(rules{done: true}).check(t, history(t, e.store, "timer"))
}
