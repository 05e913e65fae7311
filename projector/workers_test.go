// Workers: lanes are shared, taken over and given up, and every entry is handled once.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

const ttl = 3 * time.Second

func TestWorkersShareTheLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		o := projector.Options{Lanes: 16, LeaseTTL: ttl}
		share := func(want string, all ...*workerProcess) {
			t.Helper()
			eventually(t, ttl+5*time.Second, "lanes "+want, func() bool {
				n := lanes(all...)
				slices.Sort(n)
				return fmt.Sprint(n) == want
			})
		}
		e.spread(300, 40)
		a := e.start(l, o)
		share("[16]", a)
		b := e.start(l, o)
		share("[8 8]", a, b)
		c := e.start(l, o)
		share("[5 5 6]", a, b, c)
		e.spread(300, 40)
		// One that leaves, one that is killed: the others go on meanwhile and take over.
		_ = b.stop()
		share("[8 8]", a, c)
		c.kill()
		token := e.spread(300, 40)
		share("[16]", a)
		e.ok(a.p.Wait(within(t), token))
		l.exact(t, e.all("account"))
	})
}

// The lanes of a worker that is alive are not touched when another one joins, leaves or
// dies, but for those that it gives up.
func TestRebalancingStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		o := projector.Options{Lanes: 8, LeaseTTL: ttl}
		a := e.start(l, o)
		e.ok(a.p.Wait(within(t), e.spread(80, 20)))
		epochs := func() (n []eventstore.Epoch) {
			for _, lane := range a.p.Status().Lanes {
				n = append(n, lane.Checkpoint.Epoch)
			}
			return n
		}
		before := epochs()
		b := e.start(l, o)
		eventually(t, ttl+5*time.Second, "half each", func() bool { return fmt.Sprint(lanes(a, b)) == "[4 4]" })
		for _, lane := range a.p.Status().Lanes {
			if lane.Checkpoint.Epoch != before[lane.Lane] {
				t.Errorf("lane %d, which it kept, was claimed again", lane.Lane)
			}
		}
		for _, lane := range b.p.Status().Lanes {
			if lane.Checkpoint.Epoch <= before[lane.Lane] {
				t.Errorf("lane %d acquired at epoch %d, was %d", lane.Lane, lane.Checkpoint.Epoch, before[lane.Lane])
			}
		}
	})
}

// L1: a worker frozen in its handler loses its lanes after the TTL. When it thaws all it
// does is refused.
func TestL1FrozenWorkerIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		o := projector.Options{Lanes: 4, LeaseTTL: ttl, PageSize: 10}
		thaw := make(chan struct{})
		frozen := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
			if len(s.Batch) > 0 {
				<-thaw
			}
			return nil
		}}
		z := e.start(frozen, o)
		eventually(t, ttl, "all lanes", func() bool { return fmt.Sprint(lanes(z)) == "[4]" })
		token := e.spread(100, 20)
		time.Sleep(time.Second)
		z.dead.mu.Lock()
		z.dead.cut = true // a frozen process renews nothing
		z.dead.mu.Unlock()
		a := e.start(l, o)
		ctx, cancel := context.WithTimeout(t.Context(), ttl+5*time.Second)
		defer cancel()
		e.ok(a.p.Wait(ctx, token))
		steps := l.stepped()
		close(thaw)
		time.Sleep(time.Second)
		if n := l.stepped() - steps; n != 0 {
			t.Errorf("%d steps after it thawed", n)
		}
		l.exact(t, e.all("account"))
	})
}

// A worker that cannot renew its leases leaves its lanes when these have run out, though
// nobody has taken them: by then somebody may. It comes back to them by itself.
func TestExpiredLeasesAreNotWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{Lanes: 4, LeaseTTL: ttl})
		e.ok(a.p.Wait(within(t), e.spread(20, 20)))
		cut := func(is bool) {
			a.dead.mu.Lock()
			defer a.dead.mu.Unlock()
			a.dead.cut = is
		}
		cut(true)
		time.Sleep(ttl + projector.MaxBackoff)
		before := l.count()
		token := e.spread(20, 20)
		time.Sleep(10 * ttl)
		if n := l.count() - before; n != 0 {
			t.Errorf("%d entries handled after the leases had run out", n)
		}
		cut(false)
		ctx, cancel := context.WithTimeout(t.Context(), ttl+5*time.Second)
		defer cancel()
		e.ok(a.p.Wait(ctx, token))
		l.exact(t, e.all("account"))
	})
}

// While nothing happens nothing is written but leases, in one call for all lanes.
func TestIdleWorkersWriteLeasesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		var steps atomic.Int64
		w := &worker{ledger: l, before: func(context.Context, projector.Step) error { steps.Add(1); return nil }}
		a := e.start(w, projector.Options{Lanes: 100, LeaseTTL: ttl})
		e.ok(a.p.Wait(within(t), e.spread(100, 50)))
		time.Sleep(time.Minute) // the last checkpoints that pass entries over
		writes := -steps.Load()
		var reads int
		e.log.set(func(l *bentLog) { reads = l.reads })
		time.Sleep(time.Minute)
		e.log.set(func(l *bentLog) { reads = l.reads - reads })
		writes += steps.Load()
		if polls := int(time.Minute / eventstore.DefaultPollInterval); writes != 0 || reads > polls+1 {
			t.Errorf("%d steps and %d reads of the feed in a minute, want 0 and at most %d", writes, reads, polls)
		}
	})
}

// Without a Route nothing is said of backends: there is one, and it has no name.
func TestErrorsOfTheOnlyBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		e.spread(4, 4)
		bad := &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "test"}
		w := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
			if len(s.Batch) > 0 {
				return bad
			}
			return nil
		}}
		p := projector.New(e.store, "p", "account", w, &projector.Options{Lanes: 4, LeaseTTL: ttl})
		if err := p.Run(within(t)); !errors.Is(err, eventstore.ErrInvalid) || strings.Contains(err.Error(), "backend") {
			t.Errorf("Run: %v", err)
		}
		e.ok(projector.New(e.store, "p", "account", l, &projector.Options{}).SetLanes(within(t), 4))
		ctx, cancel := context.WithCancel(t.Context())
		w.before = func(context.Context, projector.Step) error { cancel(); return nil }
		if err := projector.New(e.store, "p", "account", w).SetLanes(ctx, 2); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "backend") {
			t.Errorf("SetLanes: %v", err)
		}
	})
}

// A slow lane does not hold up the others.
func TestSlowLaneHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		e.spread(400, 40)
		slow := eventstore.Stream("account-0").Slot()
		w := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
			if len(s.Batch) > 0 && s.Key.Lane == projector.LaneOf(slow, 8) {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		a := e.start(w, projector.Options{Lanes: 8, PageSize: 10})
		time.Sleep(10 * time.Second)
		missing := 0
		for _, entry := range e.all("account") {
			if l.handled[entry.Position] == 0 {
				missing++
				if projector.LaneOf(entry.Stream.Slot(), 8) != projector.LaneOf(slow, 8) {
					t.Fatalf("%s, of another lane, is held up", entry.Stream)
				}
			}
		}
		if missing == 0 {
			t.Error("nothing was slow")
		}
		_ = a
	})
}

// Any history of workers that come, go, die, freeze and lose answers ends in the same
// model, and all is handled within TTL + 5 s once nothing is wrong any more.
func TestWorkersByChance(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	first := rand.Uint64()
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { workersByChance(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func workersByChance(t *testing.T, r *rand.Rand) {
	e, l := newEnv(t, nil), newLedger()
	o := projector.Options{Lanes: 1 + r.IntN(12), LeaseTTL: ttl, PageSize: 1 + r.IntN(20)}
	healed, luck := false, rand.New(rand.NewPCG(r.Uint64(), 2)) // behind l.mu
	odd := func(n int) bool { return !healed && luck.IntN(n) == 0 }
	wild := func() *worker {
		return &worker{ledger: l,
			before: func(ctx context.Context, s projector.Step) error {
				l.mu.Lock()
				frozen, cut := odd(60), odd(40)
				l.mu.Unlock()
				if frozen {
					time.Sleep(2 * ttl)
				}
				if cut {
					return errOutage
				}
				return nil
			},
			after: func(context.Context, projector.Step) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				if odd(30) {
					return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "test"}
				}
				return nil
			}}
	}
	var all []*workerProcess
	admin := projector.NewAdmin(e.store, l)
	for range 40 {
		switch n := r.IntN(8); {
		case n < 3:
			e.spread(1+r.IntN(30), 15)
		case n == 3 || len(all) == 0:
			all = append(all, e.start(wild(), o))
		case n == 4:
			gone := r.IntN(len(all))
			all[gone].kill()
			all = slices.Delete(all, gone, gone+1)
		case n == 5:
			if err := projector.New(e.store, "p", "account", l, &o).SetLanes(within(t), 1+r.IntN(20)); err != nil && !errors.Is(err, eventstore.ErrOverloaded) {
				t.Error(err)
			}
		case n == 6:
			_, _ = projector.New(e.store, "p", "account", wild(), &o).CatchUp(t.Context(), time.Second)
		default:
			e.ok(ignore(admin.Pause(t.Context(), "p", 1), projector.ErrNotRegistered))
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			e.ok(ignore(admin.Resume(t.Context(), "p", 1), projector.ErrNotRegistered))
		}
		time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
	}
	l.mu.Lock()
	healed = true
	l.mu.Unlock()
	time.Sleep(2 * ttl) // frozen ones have thawed
	token := e.spread(10, 15)
	all = append(all, e.start(l, o))
	ctx, cancel := context.WithTimeout(t.Context(), ttl+5*time.Second)
	defer cancel()
	e.ok(all[0].p.Wait(ctx, token))
	l.exact(t, e.all("account"))
}

func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}

// refusing is a control that takes no changes.
type refusing struct {
	*worker
	err error
}

func (c refusing) Update(context.Context, string, func([]projector.Version) ([]projector.Version, error)) error {
	return c.err
}

// A control that cannot be changed is what is told, not that others took the lanes.
func TestSetLanesTellsOfAnOutage(t *testing.T) {
	e, l := newEnv(t, nil), newLedger()
	_, err := projector.New(e.store, "p", "account", l).CatchUp(t.Context(), 0)
	e.ok(err)
	for _, kind := range []error{eventstore.ErrUnavailable, eventstore.ErrUnknown} {
		h := refusing{&worker{ledger: l}, &eventstore.Error{Kind: kind, Op: "test"}}
		wantKind(t, projector.New(e.store, "p", "account", h).SetLanes(t.Context(), 4), kind)
	}
}

// Lanes that have come differently far are divided anew, up and down, without repeating
// or skipping; and a change that is broken off anywhere is done again.
func TestSetLanes(t *testing.T) {
	for _, c := range []struct{ from, to int }{{1, 4}, {4, 1}, {4, 6}, {6, 4}, {16, 5}, {5, 16}, {3, 1000}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l := newEnv(t, nil), newLedger()
				e.spread(300, 60)
				steps := map[int]int{}
				w := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
					if steps[s.Key.Lane]++; steps[s.Key.Lane] > 2+s.Key.Lane*3 {
						return errOutage
					}
					return nil
				}}
				o := &projector.Options{Lanes: c.from, PageSize: 5}
				if _, err := projector.New(e.store, "p", "account", w, o).CatchUp(t.Context(), 0); !errors.Is(err, errOutage) {
					t.Fatal(err)
				}
				before := l.count()
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				w.before = func(context.Context, projector.Step) error {
					if n++; n == 7 {
						cancel() // in the middle of it
					}
					return nil
				}
				p := projector.New(e.store, "p", "account", w, o)
				if err := p.SetLanes(ctx, c.to); err != nil {
					e.ok(p.SetLanes(t.Context(), c.to))
				}
				all := versions(t, l)[0].Lanes
				if len(all) != c.to || l.count() < before {
					t.Fatalf("%d lanes, %d handled", len(all), l.count())
				}
				if _, err := p.CatchUp(t.Context(), 0); err != nil {
					t.Error(err)
				}
				l.exact(t, e.all("account"))
				if err := p.SetLanes(t.Context(), projector.MaxLanes+1); !errors.Is(err, eventstore.ErrInvalid) {
					t.Error(err)
				}
			})
		})
	}
}

// The hold stays where the lane is that has come least far.
func TestHoldStaysBehindTheLowestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		late := projector.LaneOf(eventstore.Stream("account-7").Slot(), 4)
		w := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
			if s.Key.Lane == late && len(s.Batch) > 0 {
				return errOutage
			}
			return nil
		}}
		e.start(w, projector.Options{Lanes: 4})
		e.spread(100, 20)
		time.Sleep(time.Minute)
		if l.count() == 0 {
			t.Error("nothing handled")
		}
		for i := range 20 {
			s := eventstore.Stream(fmt.Sprintf("account-%d", i))
			if r, err := e.store.Trim(t.Context(), s, 5, false); err != nil || projector.LaneOf(s.Slot(), 4) == late && r.Trimmed > 0 {
				t.Errorf("%s trimmed %+v, %v", s, r, err)
			}
		}
		_ = l
	})
}

// What CatchUp does between the moment when the lanes were levelled and that when they
// are divided is not lost, nor done again.
func TestSetLanesBesideCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		e.spread(100, 30)
		o := &projector.Options{Lanes: 4, PageSize: 5}
		meddling := &meddler{ledger: l}
		p := projector.New(e.store, "p", "account", meddling, o)
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		meddling.meddle = func() {
			e.spread(20, 30)
			if _, err := projector.New(e.store, "p", "account", l, o).CatchUp(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		e.ok(p.SetLanes(t.Context(), 3))
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Error(err)
		}
		l.exact(t, e.all("account"))
		if n := len(versions(t, l)[0].Lanes); n != 3 || meddling.meddle != nil {
			t.Errorf("%d lanes", n)
		}
	})
}

// meddler is a ledger on which somebody else works just before its versions are changed.
type meddler struct {
	*ledger
	meddle func()
}

func (m *meddler) Update(ctx context.Context, name string, f func([]projector.Version) ([]projector.Version, error)) error {
	if meddle := m.meddle; meddle != nil {
		m.meddle = nil
		meddle()
	}
	return m.ledger.Update(ctx, name, f)
}
