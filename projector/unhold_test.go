// Holds of parked keys end with what they are for, whatever ends that.

package projector_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// parkedHolds returns the streams that are held for parked keys.
func (e *env) parkedHolds() (streams []eventstore.Stream) {
	e.t.Helper()
	all, err := e.store.ListHolds(context.Background())
	e.ok(err)
	for _, h := range all {
		if h.Stream != "" {
			streams = append(streams, h.Stream)
		}
	}
	return streams
}

// renamedIsBad is a handler that cannot take one type until it is mended.
func renamedIsBad(mended *atomic.Bool) *picky {
	return newPicky(func(e eventstore.Entry) error {
		if !mended.Load() && e.Type == "renamed" {
			return errBad
		}
		return nil
	})
}

// A reset takes parked keys away, and the holds on what waited with them: at the worker
// that goes on, at one that comes later, and where there is CatchUp only. What is parked
// again is held again.
func TestResetReleasesParkedHolds(t *testing.T) {
	work := map[string]func(e *env, h *picky, o projector.Options) (wait func()){
		"one worker": func(e *env, h *picky, o projector.Options) func() {
			e.start(h, o)
			return func() { time.Sleep(30 * time.Second) }
		},
		"another worker": func(e *env, h *picky, o projector.Options) func() {
			return func() {
				w := e.start(h, o)
				time.Sleep(30 * time.Second)
				_ = w.stop()
			}
		},
		"CatchUp": func(e *env, h *picky, o projector.Options) func() {
			return func() {
				_, err := projector.New(e.store, "p", "account", h, &o).CatchUp(e.t.Context(), 0)
				e.ok(err)
			}
		},
	}
	for name, work := range work {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, mended := newEnv(t, nil), &atomic.Bool{}
				h := renamedIsBad(mended)
				admin := projector.NewAdmin(e.store, h)
				e.spread(20, 10)
				e.append("account-3", Renamed{"x"})
				e.append("account-4", Renamed{"x"})
				work := work(e, h, projector.Options{Lanes: 3, Tries: 1})
				work()
				for range 2 {
					h.wiped()
					e.ok(admin.Reset(t.Context(), "p", 1, false))
					work()
					if held := e.parkedHolds(); len(held) != 2 || len(versions(t, h)[0].Parked) != 2 {
						t.Fatalf("parked again, and held: %v", held)
					}
				}
				mended.Store(true)
				h.wiped()
				e.ok(admin.Reset(t.Context(), "p", 1, false))
				work()
				h.exact(t, e.all("account"))
				if held := e.parkedHolds(); len(held) != 0 {
					t.Errorf("behind a reset held: %v", held)
				}
			})
		})
	}
}

// What is held for a step that parks, and is never done, is released: by the session that
// goes on, or by the one that takes over from a worker that died.
func TestHoldOfAStepThatIsNotDone(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e, mended := newEnv(t, nil), &atomic.Bool{}
			h := renamedIsBad(mended)
			var parking atomic.Int32
			dying := make(chan struct{})
			h.before = func(ctx context.Context, s projector.Step) error {
				if len(s.Park) == 0 {
					return nil
				}
				if parking.Add(1); len(e.parkedHolds()) != 1 {
					t.Error("not held before it is parked")
				}
				mended.Store(true)
				if dies {
					close(dying)
					<-ctx.Done()
				}
				return errOutage
			}
			e.append("account-3", Renamed{"x"})
			w := e.start(h, projector.Options{Tries: 1, LeaseTTL: ttl})
			if dies {
				<-dying
				w.kill()
				e.start(h, projector.Options{Tries: 1, LeaseTTL: ttl})
			}
			time.Sleep(time.Minute)
			h.exact(t, e.all("account"))
			if held := e.parkedHolds(); len(held) != 0 || parking.Load() != 1 {
				t.Errorf("held %v behind %d steps", held, parking.Load())
			}
		})
	}
}

// The holds of other lanes, versions and projectors are not a session's to release.
func TestHoldsOfOthersStay(t *testing.T) {
	e, mended := newEnv(t, nil), &atomic.Bool{}
	h := renamedIsBad(mended)
	for i := range 10 {
		e.append(stream(i), Renamed{"x"})
	}
	p := projector.New(e.store, "p", "account", h, &projector.Options{Lanes: 4, Tries: 1, Categories: []eventstore.Category{"other"}})
	_, err := p.CatchUp(t.Context(), 0)
	e.ok(err)
	e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: "projector/p/2/0/parked", Stream: "account-1"}))
	e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: p.HoldName() + "/parked", Stream: "other-none"})) // of a step that was not done
	admin := projector.NewAdmin(e.store, h)
	e.ok(admin.Pause(t.Context(), "p", 1))
	e.ok(admin.Resume(t.Context(), "p", 1)) // each lane is claimed anew
	e.spread(10, 10)
	_, err = p.CatchUp(t.Context(), 0)
	e.ok(err)
	if held := e.parkedHolds(); len(held) != 11 {
		t.Errorf("held %v", held)
	}
	e.ok(p.Unregister(t.Context()))
	if all, err := e.store.ListHolds(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("behind Unregister held %v, %v", all, err)
	}
	e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: p.HoldName(), Category: "other"})) // followed no longer
	e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: p.HoldName() + "/parked", Stream: "account-3"}))
	e.ok(admin.Drop(t.Context(), "p", 1))
	if all, err := e.store.ListHolds(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("behind Drop held %v, %v", all, err)
	}
	if !errors.Is(admin.Drop(t.Context(), "p", 1), projector.ErrNotRegistered) {
		t.Error("dropped twice")
	}
}

// A reset holds what is to be handled again before it sets checkpoints back, and again
// behind that: a worker that had looked before moves the hold to where the version was.
func TestResetHoldsBeforeAndAfter(t *testing.T) {
	e, l := newEnv(t, nil), newLedger()
	e.spread(20, 4)
	p := projector.New(e.store, "p", "account", l)
	_, err := p.CatchUp(t.Context(), 0)
	e.ok(err)
	at := func() eventstore.Position {
		t.Helper()
		all, err := e.store.ListHolds(t.Context())
		e.ok(err)
		if len(all) != 1 {
			t.Fatalf("holds %+v", all)
		}
		return all[0].Position
	}
	move := func() {
		e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: p.HoldName(), Category: "account", Position: 20}))
	}
	move()
	admin, calls := projector.NewAdmin(e.store, l), 0
	reset := func(version int, accept bool) error {
		return admin.ResetWith(t.Context(), "p", version, accept, func(version int, reset func([]projector.Version) ([]projector.Version, error)) error {
			if calls++; version != 1 || !accept && at() != 0 {
				t.Errorf("version %d, held at %d when it is reset", version, at())
			}
			defer move()
			return l.Update(t.Context(), "p", reset)
		})
	}
	for _, version := range []int{1, 0} {
		e.ok(reset(version, false))
		if versions(t, l)[0].Lanes[0].Position != 0 || at() != 0 {
			t.Errorf("held at %d behind a reset of %+v", at(), versions(t, l)[0].Lanes)
		}
	}
	// What the function refuses is refused, and what is gone is not begun.
	wantKind(t, admin.ResetWith(t.Context(), "p", 1, false, func(int, func([]projector.Version) ([]projector.Version, error)) error { return errOutage }), eventstore.ErrUnavailable)
	move()
	_, err = e.store.Trim(t.Context(), "account-0", 2, false)
	e.ok(err)
	calls = 0
	wantKind(t, reset(1, false), eventstore.ErrTrimmed)
	if calls != 0 {
		t.Error("reset although it is gone")
	}
	e.ok(reset(1, true))
	wantKind(t, reset(7, false), projector.ErrNotRegistered)
	wantKind(t, admin.Reset(t.Context(), "", 1, false), eventstore.ErrInvalid)
}

// A worker that looked just before its version was dropped, and moves the hold just after,
// leaves none behind.
func TestDropBesideABeat(t *testing.T) {
	for i := range 10 {
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, nil)
			h := &watched{ledger: newLedger()}
			w := e.start(h, projector.Options{LeaseTTL: ttl})
			e.ok(w.p.Wait(within(t), e.spread(10, 5)))
			time.Sleep(10*time.Second + time.Duration(i)*time.Second)
			e.ok(w.p.Wait(within(t), e.spread(10, 5)))
			h.behind(func() { e.ok(projector.NewAdmin(e.store, h.ledger).Drop(context.Background(), "p", 1)) })
			time.Sleep(time.Minute)
			if all, err := e.store.ListHolds(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("held behind Drop: %+v, %v", all, err)
			}
			wantKind(t, w.stop(), eventstore.ErrFenced)
		})
	}
}

// Nor does it release what a version of that number holds that was registered anew, before
// it sees that its own was dropped or while it releases.
func TestDropAndRegisterAnew(t *testing.T) {
	for looks := range 3 {
		synctest.Test(t, func(t *testing.T) {
			e, h := newEnv(t, nil), &watched{ledger: newLedger()}
			w := e.start(h, projector.Options{LeaseTTL: ttl})
			e.ok(w.p.Wait(within(t), e.spread(10, 5)))
			anew := func() {
				bad := renamedIsBad(&atomic.Bool{})
				bad.ledger = h.ledger
				e.append("account-3", Renamed{"x"})
				_, err := projector.New(e.store, "p", "account", bad, &projector.Options{Tries: 1}).CatchUp(context.Background(), 0)
				e.ok(err)
			}
			drop := func() { e.ok(projector.NewAdmin(e.store, h.ledger).Drop(context.Background(), "p", 1)) }
			steps := []func(){drop, func() {}, func() {}}
			steps = append(steps[:looks+1], anew)
			h.behind(steps...)
			time.Sleep(time.Minute)
			all, err := e.store.ListHolds(t.Context())
			e.ok(err)
			category := len(all) > 0 && all[0].Category == "account" && all[0].Stream == ""
			if parked := e.parkedHolds(); !category || len(parked) != 1 {
				t.Errorf("registered anew after %d looks: %+v", looks, all)
			}
			_ = w.stop()
		})
	}
}

// watched is a ledger on which something is done just behind looks at its versions, once
// each.
type watched struct {
	*ledger
	mu   sync.Mutex
	todo []func()
}

func (w *watched) behind(todo ...func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.todo = todo
}

func (w *watched) Versions(ctx context.Context, name string) ([]projector.Version, error) {
	all, err := w.ledger.Versions(ctx, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.todo) > 0 {
		w.todo[0]()
		w.todo = w.todo[1:]
	}
	return all, err
}
