// Faults: crashes at every step, outages, poison; the model stays the fold of the
// entries up to the checkpoint.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
)

// A crash at each point of each step in turn, by error and by panic, then a new
// process; model = fold(entries ≤ checkpoint) after each.
func TestCrashAtEveryPoint(t *testing.T) {
	crashes := 0
	for _, size := range []int{1, 3, 100} {
		for _, panics := range []bool{false, true} {
			for at := 1; ; at++ {
				e := newEnv(t, nil)
				e.deposit("account-a", 4)
				e.append("account-b", Renamed{"not handled"})
				e.deposit("account-b", 3)
				n, hit := 0, false
				db := &database{}
				db.fail = func(point string, _ *eventstore.Entry) error {
					if n++; n != at {
						return nil
					}
					hit = true
					if panics {
						panic("crash at " + point)
					}
					return fmt.Errorf("crash at %s", point)
				}
				o := &projector.Options{PageSize: size}
				_, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0)
				db.check(t, e.all("account"))
				if !hit {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				crashes++
				db.fail = nil
				if more, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0); more || err != nil {
					t.Fatalf("after the crash at point %d: more %v, %v", at, more, err)
				}
				db.check(t, e.all("account"))
				if len(db.model) != 8 {
					t.Fatalf("%d handled", len(db.model))
				}
			}
		}
	}
	t.Logf("%d crash points", crashes)
}

// One Run through many faults: it heals by itself, and the model is exact.
func TestRunThroughFaults(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			e := newEnv(t, nil)
			db := &database{}
			var healed atomic.Bool
			dice := rand.New(rand.NewPCG(seed, 1)) // of the projector's goroutine
			db.fail = func(point string, _ *eventstore.Entry) error {
				if !healed.Load() && dice.IntN(6) == 0 {
					return errOutage
				}
				return nil
			}
			p := projector.New(e.store, "p", "account", db, &projector.Options{PageSize: 1 + rnd.IntN(5)})
			stop := run(t, p)
			var token eventstore.Token
			for range 50 {
				token = e.append(stream(rnd.IntN(3)), Deposited{1})
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
				if rnd.IntN(10) == 0 {
					e.log.set(func(l *bentLog) { l.down = errOutage })
					time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
					e.log.set(func(l *bentLog) { l.down = nil })
				}
			}
			healed.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := p.Wait(ctx, token); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			db.check(t, e.all("account"))
			if err := stop(); !errors.Is(err, context.Canceled) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		})
	}
}

// P2 of the cases, and promise 14: an outage of an hour, then everything proceeds
// by itself within the longest pause.
func TestP2OutageHealsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		db := &database{}
		p := projector.New(e.store, "p", "account", db, nil)
		stop := run(t, p)
		e.ok(p.Wait(t.Context(), e.deposit("account-a", 3)))
		e.log.set(func(l *bentLog) { l.down = errOutage })
		time.Sleep(time.Hour)
		if s := p.Status(); s.CaughtUp || s.Lag == 0 || !errors.Is(s.LastError, eventstore.ErrUnavailable) {
			t.Errorf("status in the outage %+v", s)
		}
		token := e.deposit("account-a", 100)
		e.log.set(func(l *bentLog) { l.down = nil })
		began := time.Now()
		e.ok(p.Wait(within(t), token))
		if took := time.Since(began); took > projector.MaxBackoff {
			t.Errorf("took %v", took)
		}
		time.Sleep(time.Second)
		if s := p.Status(); !s.CaughtUp || s.LastError != nil {
			t.Errorf("status %+v", s)
		}
		stop()
		db.check(t, e.all("account"))
	})
}

// An entry at fault is tried a few times and then stops the projector; what
// stands before it has been handled, whatever the page.
func TestPoisonStops(t *testing.T) {
	boom := errors.New("boom")
	for name, f := range map[string]func() error{"error": func() error { return boom }, "panic": func() error { panic(boom) }} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, nil)
			e.deposit("account-a", 6)
			e.deposit("account-b", 4)
			tries := 0
			db := &database{fail: func(point string, entry *eventstore.Entry) error {
				if point == "entry" && entry.Position == 7 {
					tries++
					return f()
				}
				return nil
			}}
			p := projector.New(e.store, "p", "account", db, nil)
			err := p.Run(within(t))
			entry, ok := errors.AsType[*projector.EntryError](err)
			if !ok || !errors.Is(err, boom) || entry.Stream != "account-b" || entry.Seqno != 1 || !strings.Contains(err.Error(), "account-b") {
				t.Fatalf("%s: %v", name, err)
			}
			if (len(entry.Stack) > 0) != (name == "panic") {
				t.Errorf("%s: stack %q", name, entry.Stack)
			}
			if tries != projector.DefaultTries {
				t.Errorf("%s: tried %d times", name, tries)
			}
			db.check(t, e.all("account"))
			if len(db.model) != 6 || p.Status().CaughtUp || p.Status().LastError == nil {
				t.Errorf("%s: %d handled, %+v", name, len(db.model), p.Status())
			}
			// It goes on where it stopped when the cause is gone.
			db.fail = nil
			if _, err := p.CatchUp(t.Context(), 0); err != nil {
				t.Error(err)
			}
			db.check(t, e.all("account"))
		})
	}
}

// In memory, where effects cannot be taken back, each event is applied once too.
func TestMemoryIsExact(t *testing.T) {
	for _, batch := range []bool{false, true} {
		e := newEnv(t, nil)
		e.deposit("account-a", 20)
		n, sum := 0, int64(0)
		fail := func() error {
			if n++; n%3 == 0 {
				return errors.New("now and then")
			}
			return nil
		}
		h := projector.Memory(events, func(_ context.Context, ev projector.Event[Event]) error {
			if err := fail(); err != nil {
				return err
			}
			sum += ev.Value.(Deposited).Amount
			return nil
		})
		if batch {
			h = projector.MemoryBatch(events, func(_ context.Context, evs []projector.Event[Event]) error {
				if err := fail(); err != nil {
					return err
				}
				for _, ev := range evs {
					sum += ev.Value.(Deposited).Amount
				}
				return nil
			})
		}
		p := projector.New(e.store, "p", "account", h, &projector.Options{PageSize: 6})
		for more := true; more; {
			more, _ = p.CatchUp(t.Context(), 0)
		}
		if sum != 20 {
			t.Errorf("batch %v: sum %d, want 20", batch, sum)
		}
	}
}

func TestUnknownTypeStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.append("account-a", Deposited{1})
		e.append("account-a", Renamed{"x"})
		deposits := schema.New[Event](schema.Wire[Deposited]("deposited", 1))
		n := 0
		for _, h := range []projector.Handler{
			projector.Memory(deposits, func(context.Context, projector.Event[Event]) error { n++; return nil }),
			projector.MemoryBatch(deposits, func(context.Context, []projector.Event[Event]) error { n++; return nil }),
		} {
			n = 0
			err := projector.New(e.store, "p", "account", h, &projector.Options{StopOnPoison: true}).Run(within(t))
			entry, ok := errors.AsType[*projector.EntryError](err)
			if !ok || entry.Seqno != 2 || !errors.Is(err, schema.ErrUnknownType) || n != 1 {
				t.Errorf("%v, %d handled", err, n)
			}
		}
	})
}

// An effect outside of any transaction comes at least once, in order; a
// repetition is of one batch, with the same positions.
func TestSink(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 20)
	var c projector.MemoryCheckpoints
	var seen []eventstore.Position
	crash := true
	h := projector.Sink(&crashing{&c, &crash}, func(_ context.Context, key projector.Key, batch []eventstore.Entry) error {
		if key.String() != "p/1/0" {
			t.Error(key)
		}
		for _, e := range batch {
			seen = append(seen, e.Position)
		}
		return nil
	})
	p := projector.New(e.store, "p", "account", h, &projector.Options{PageSize: 5})
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(seen) != "[1 2 3 4 5 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20]" {
		t.Error(seen)
	}
	// A zombie that is known to be fenced does nothing outside.
	kept, _ := c.Load(t.Context(), p.Key())
	old := kept
	old.Epoch--
	n := len(seen)
	wantKind(t, h.Handle(t.Context(), projector.Step{Key: p.Key(), From: old, To: kept, Batch: e.all("account")}), eventstore.ErrFenced)
	if len(seen) != n {
		t.Error("a fenced sink did something")
	}
}

var errCrash = errors.New("crash")

type crashing struct {
	projector.Checkpoints
	armed *bool
}

func (c *crashing) Save(ctx context.Context, s projector.Step) error {
	if *c.armed {
		*c.armed = false
		return errCrash
	}
	return c.Checkpoints.Save(ctx, s)
}
