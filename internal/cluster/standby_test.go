// A server that takes no writes, under connections that were made to a primary.

package cluster

import (
	"errors"
	"testing"
	"time"

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
	_, reading := open(t, newPool(t, front.DSN()))
	_, writing := open(t, newPool(t, front.DSN()))
	asked, _ := open(t, newPool(t, front.DSN()))
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
	for _, err := range []error{l.Ping(t.Context()), asked.Ping(t.Context()), readsOn(), writesOn()} {
		if err != nil {
			t.Fatal(err)
		}
	}

	a.Stop(t) // waits until the standby has everything
	wantKind(t, "ping of a server that is down", asked.Ping(t.Context()), eventstore.ErrUnavailable)
	b.Promote(t)
	a.Follow(t, 0)
	eventually(t, "the pool meets the standby", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.failures["read-only"] > 0 && w.failures["feed: read-only"] > 0
	})
	for range 2 {
		wantKind(t, "ping of a standby", asked.Ping(t.Context()), eventstore.ErrReadOnly)
		wantKind(t, "feed of a standby", readsOn(), eventstore.ErrReadOnly)
		err := writesOn() // the connection of before may be found broken first
		for outage(err) && !errors.Is(err, eventstore.ErrReadOnly) {
			err = writesOn()
		}
		wantKind(t, "append to a standby", err, eventstore.ErrReadOnly)
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
		_ = asked.Ping(t.Context())
		_ = readsOn()
		_ = writesOn()
	}
	if err := writesOn(); err != nil {
		t.Errorf("append: %v", err)
	}
	if err := asked.Ping(t.Context()); err != nil {
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
