// What a failover takes back that nobody is told of: the last steps of a lane that has
// nothing to do, and the version itself.

package projector_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// lose puts the ledger's first version back to what it was.
func (l *ledger) lose(t testing.TB, lanes []projector.Checkpoint, handled int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for position := range l.handled {
		if int(position) > handled {
			delete(l.handled, position)
		}
	}
	l.last = map[string]eventstore.Position{}
	if err := l.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		all[0].Lanes = lanes
		return all, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A worker with nothing to do finds its last step taken back, with or without the claim
// before it, and takes it again. So does one that has more lanes than were left.
func TestIdleLaneMissesItsLastStep(t *testing.T) {
	for name, c := range map[string]struct {
		lanes int
		from  int // 0: as it was registered, 1: as it was claimed, 2: behind the first entries
	}{"the step": {1, 2}, "all steps": {1, 1}, "the claim": {1, 0}, "the step of some lanes": {4, 2}, "the claim of some lanes": {4, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l := newEnv(t, nil), newLedger()
				registered := func() []projector.Checkpoint { return versions(t, l)[0].Lanes }
				p := projector.New(e.store, "p", "account", l, &projector.Options{Lanes: c.lanes, LeaseTTL: ttl})
				_, err := p.CatchUp(t.Context(), 1) // registers
				e.ok(err)
				before := [][]projector.Checkpoint{registered()}
				stop := run(t, p)
				time.Sleep(time.Second)
				before = append(before, registered())
				e.spread(20, 20)
				time.Sleep(10 * time.Second)
				before = append(before, registered())
				token := e.spread(20, 20)
				time.Sleep(10 * time.Second)
				l.lose(t, before[c.from], []int{0, 0, 20}[c.from])
				ctx, cancel := context.WithTimeout(t.Context(), ttl+5*time.Second)
				defer cancel()
				if err := p.Wait(ctx, token); err != nil {
					t.Errorf("%v, status %+v", err, p.Status())
				}
				l.exact(t, e.all("account"))
				_ = stop()
			})
		})
	}
}

// The same without Control: the handler's checkpoint is looked at now and then.
func TestIdleProjectorMissesItsLastStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, db := newEnv(t, nil), &database{}
		p := projector.New(e.store, "p", "account", db)
		stop := run(t, p)
		for _, kept := range []int{5, 0} {
			e.deposit("account-a", 5)
			time.Sleep(10 * time.Second)
			before, _, _ := db.get()
			if kept == 0 {
				before = projector.Checkpoint{}
			}
			token := e.deposit("account-a", 1)
			time.Sleep(10 * time.Second)
			db.mu.Lock()
			db.kept, db.model = before, db.model[:kept]
			db.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := p.Wait(ctx, token); err != nil {
				t.Errorf("%v, status %+v", err, p.Status())
			}
			cancel()
			db.check(t, e.all("account"))
		}
		_ = stop()
	})
}

// An instance without Control that another one has fenced stops, though it has nothing to do.
func TestIdleProjectorIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, db := newEnv(t, nil), &database{}
		e.deposit("account-a", 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- projector.New(e.store, "p", "account", db).Run(ctx) }()
		time.Sleep(time.Second)
		stop := run(t, projector.New(e.store, "p", "account", db))
		wantKind(t, <-done, eventstore.ErrFenced)
		_ = stop()
	})
}

// counted counts how often lanes are loaded. It is slow to tell of versions every other time.
type counted struct {
	*worker
	lanes, looks atomic.Int64
}

func (c *counted) Versions(ctx context.Context, name string) ([]projector.Version, error) {
	defer time.Sleep(time.Second * time.Duration(c.looks.Add(1)%2))
	return c.worker.Versions(ctx, name)
}

func (c *counted) Lane(ctx context.Context, key projector.Key) (projector.Lane, error) {
	c.lanes.Add(1)
	return c.worker.Lane(ctx, key)
}

// A lane is not loaded anew because of its own steps: neither of those that are kept and
// not known to be yet, nor of those that a look at the version came too early for.
func TestOwnStepsAreNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		late := func(by time.Duration) func(context.Context, projector.Step) error {
			return func(_ context.Context, s projector.Step) error {
				if len(s.Batch) > 0 {
					time.Sleep(by)
				}
				return nil
			}
		}
		h := &counted{worker: &worker{ledger: l, before: late(1300 * time.Millisecond), after: late(400 * time.Millisecond)}}
		p := projector.New(e.store, "p", "account", h, &projector.Options{LeaseTTL: ttl, PageSize: 1})
		stop := run(t, p)
		time.Sleep(10 * time.Second)
		before := h.lanes.Load()
		e.ok(p.Wait(t.Context(), e.spread(60, 20)))
		time.Sleep(time.Minute)
		if n := h.lanes.Load() - before; n != 0 {
			t.Errorf("loaded %d times", n)
		}
		l.exact(t, e.all("account"))
		_ = stop()
	})
}
