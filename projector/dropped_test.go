// A version that is gone: dropped, or lost in a failover.

package projector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// unregister takes the version back as a failover does, with its read model.
func (l *ledger) unregister(t testing.TB, only ...projector.Key) {
	t.Helper()
	l.wiped()
	if err := l.Update(t.Context(), "p", func(all []projector.Version) (left []projector.Version, err error) {
		for _, v := range all {
			if len(only) > 0 && v.Key != only[0] {
				left = append(left, v)
			}
		}
		return left, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A worker whose version a failover took back registers it anew and goes on. It holds
// again what it has not come to.
func TestLostVersionIsRegisteredAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{Lanes: 4, LeaseTTL: ttl})
		for _, n := range []int{0, 40} {
			e.ok(a.p.Wait(within(t), e.spread(n, 20)))
			time.Sleep(10 * time.Second)
			l.unregister(t)
			e.ok(projector.New(e.store, "p", "account", l).Unregister(t.Context())) // the hold is lost too
			time.Sleep(ttl)
			if holds, err := e.store.ListHolds(t.Context()); err != nil || len(holds) != 1 {
				t.Errorf("holds %+v, %v", holds, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), ttl+5*time.Second)
			e.ok(a.p.Wait(ctx, e.spread(40, 20)))
			cancel()
			l.exact(t, e.all("account"))
		}
		if err := a.stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Lost in one of several backends it is registered there anew, with as many lanes as in
// the other.
func TestVersionLostInOneBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRouted(t, nil), newLedger()
		p := r.over(&worker{ledger: l}, projector.Options{Lanes: 2, LeaseTTL: ttl})
		stop := run(t, p)
		token := r.deposit("order-1", 20)
		r.ok(p.Wait(within(t), token))
		r.ok(p.SetLanes(t.Context(), 3))
		l.unregister(t, keyBlue)
		ctx, cancel := context.WithTimeout(t.Context(), 2*ttl+5*time.Second)
		defer cancel()
		r.ok(p.Wait(ctx, token))
		if n := l.count(); n != 20 {
			t.Errorf("%d entries handled, want 20", n)
		}
		for _, v := range versions(t, l) {
			if len(v.Lanes) != 3 {
				t.Errorf("%d lanes of %s, want 3", len(v.Lanes), v.Key)
			}
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Workers of a version that was dropped stop, though it is dropped twice. A worker that is
// started registers it anew. Where it was not dropped after all, no sign of that is left.
func TestDropStopsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		admin := projector.NewAdmin(e.store, l)
		o := projector.Options{LeaseTTL: ttl}
		a, b := e.start(l, o), e.start(l, o)
		e.ok(a.p.Wait(within(t), e.spread(40, 20)))
		e.ok(admin.Drop(t.Context(), "p", 1))
		wantKind(t, admin.Drop(t.Context(), "p", 1), projector.ErrNotRegistered)
		l.wiped()
		time.Sleep(ttl + 5*time.Second)
		for _, w := range []*workerProcess{a, b} {
			if w.p.Status().Running {
				t.Error("it runs")
			}
			wantKind(t, w.stop(), eventstore.ErrFenced)
		}
		if all := versions(t, l); len(all) != 0 {
			t.Errorf("versions %+v", all)
		}
		c := e.start(l, o)
		e.ok(c.p.Wait(within(t), e.spread(40, 20)))
		l.exact(t, e.all("account"))

		_, err := admin.Rebuild(t.Context(), "p", false)
		e.ok(err)
		wantKind(t, admin.Drop(t.Context(), "p", 1), eventstore.ErrInvalid)
		l.unregister(t)
		time.Sleep(ttl + 5*time.Second)
		if all := versions(t, l); len(all) != 1 {
			t.Errorf("versions %+v", all)
		}
		l.exact(t, e.all("account"))
	})
}

// What cannot be signed is not dropped; where no leases are nobody needs the sign.
func TestDropWithoutLeases(t *testing.T) {
	e, l := newEnv(t, nil), newLedger()
	p := projector.New(e.store, "p", "account", l)
	_, err := p.CatchUp(t.Context(), 0)
	e.ok(err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := projector.NewAdmin(e.store, l).Drop(ctx, "p", 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if all := versions(t, l); len(all) != 1 {
		t.Errorf("versions %+v", all)
	}
	bare := eventstore.New(struct{ eventstore.Log }{e.log}, nil)
	if err := projector.NewAdmin(bare, l).Drop(t.Context(), "p", 1); !errors.Is(err, errors.ErrUnsupported) { // of its holds
		t.Error(err)
	}
	if all := versions(t, l); len(all) != 0 {
		t.Errorf("versions %+v", all)
	}
}
