// Kills and crashes of one server, with writers and a reader at work.

package cluster

import (
	"testing"
	"time"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestCrash: a session's process killed (the server begins anew), the postmaster
// killed, an immediate stop. What was acked is there; what was unknown is learned by
// resending; the feed goes on where it was; nobody opens anything again.
func TestCrash(t *testing.T) {
	srv := pgtest.NewServer(t)
	migrated(t, srv)
	direct(t, srv).Close()
	p := newPool(t, srv.DSN())
	_, store := open(t, p)
	victim := newPool(t, srv.DSN())

	w := start(t, store, 10, 2)
	begun := time.Now()
	w.working("start", begun)
	type fault struct {
		name string
		do   func()
	}
	faults, rounds := []fault{
		{"kill -9 of a session", func() {
			c, err := victim.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Release()
			srv.KillBackend(t, c.Conn().PgConn().PID())
		}},
		{"kill -9 of the postmaster", func() { srv.KillPostmaster(t); srv.Start(t) }},
		{"immediate stop", func() { srv.Immediate(t); srv.Start(t) }},
	}, 1
	if soak() {
		faults, rounds = append(faults, fault{"fast stop", func() { srv.Stop(t); srv.Start(t) }}), 10
	}
	for range rounds {
		for _, f := range faults {
			f.do()
			w.working(f.name, time.Now())
		}
	}
	w.stop(direct(t, srv))
	if w.failures["outcome unknown"] == 0 {
		t.Error("no outcome was unknown, so this proves little")
	}
}
