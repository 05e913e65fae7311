// A server that takes no writes, under connections that were made to a primary.

package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestCaseC2ReadOnlyUnderThePool: after a switch-over the address still leads to the
// old primary for a while, now a standby; what connects then stays connected to it.
// Writers, readers and projectors leave it by themselves, and readiness tells.
func TestCaseC2ReadOnlyUnderThePool(t *testing.T) {
	a := pgtest.NewServer(t)
	migrated(t, a)
	direct(t, a).Close()
	front := pgtest.NewProxy(t, a.Port())
	b := a.Standby(t, a.Port())
	p := newPool(t, front.DSN())
	l, store := open(t, p)
	// Processes that only read, only write, only ask for readiness: what one of these
	// does about its connections helps no other.
	readers, writers, probes := newPool(t, front.DSN(), unasked), newPool(t, front.DSN(), unasked), newPool(t, front.DSN(), unasked)
	_, reading := open(t, readers)
	_, writing := open(t, writers)
	asked, _ := open(t, probes)
	w := start(t, store, 6, 2)
	model := project(t, store, p)
	deposits := deposit(t, store)
	readsOn := func() error {
		_, err := reading.ReadFeed(t.Context(), 0, eventstore.Filter{}, 1)
		return err
	}
	written := batch("account-alone", 1)
	writesOn := func() error {
		_, err := writing.Append(t.Context(), one(written))
		if err == nil {
			written = next(written, 1)
		}
		return err
	}
	w.working("start", time.Now())
	pings := func() error { return asked.Ping(t.Context()) }
	for _, err := range []error{l.Ping(t.Context()), pings(), readsOn(), writesOn()} {
		if err != nil {
			t.Fatal(err)
		}
	}

	a.Stop(t) // waits until the standby has everything
	down(t, "ping", probes, pings)
	down(t, "feed", readers, readsOn)
	down(t, "append", writers, writesOn)
	b.Promote(t)
	a.Follow(t, 0)
	eventually(t, "the pool meets the standby", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.failures["read-only"] > 0 && w.failures["feed: read-only"] > 0
	})
	for range 2 {
		wantKind(t, "ping of a standby", pings(), eventstore.ErrReadOnly)
		wantKind(t, "feed of a standby", readsOn(), eventstore.ErrReadOnly)
		wantKind(t, "append to a standby", writesOn(), eventstore.ErrReadOnly)
	}
	connections := front.Open()
	front.Point(b.Port())
	healed := time.Now()
	w.working("the address leads to the new primary", healed)
	if took := time.Since(healed); took > 10*time.Second {
		t.Errorf("work went on %v after it could", took)
	}
	t.Logf("%d connections were open to the standby", connections)
	for range 2 { // the one that stands on the old connection, then a new one
		_ = pings()
		_ = readsOn()
		_ = writesOn()
	}
	if err := writesOn(); err != nil {
		t.Errorf("append: %v", err)
	}
	if err := pings(); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := readsOn(); err != nil {
		t.Errorf("feed: %v", err)
	}
	there := direct(t, b)
	deposits.halt()
	w.stop(there)
	deposits.stop(there)
	model.stop(there)
}

// unasked keeps a pool from looking whether a connection is alive before it lends it,
// which by default depends on how long that was idle.
func unasked(c *pgxpool.Config) {
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
}

// down makes calls to a server that is down until the pool has met every connection that
// the server ended: what it connects to later is what the address leads to then.
func down(t *testing.T, what string, p *pgxpool.Pool, call func() error) {
	t.Helper()
	if p.Stat().TotalConns() == 0 {
		t.Fatalf("%s: no connection of before, so this proves nothing", what)
	}
	eventually(t, what+": no connection of before is left", func() bool {
		if err := call(); !outage(err) {
			t.Errorf("%s at a server that is down: %v", what, err)
		}
		return p.Stat().TotalConns() == 0
	})
	wantKind(t, what+" at a server that is down", call(), eventstore.ErrUnavailable)
}
