// Deadlocks: appends lock in one order and have none among themselves; with somebody
// else's transaction they may.

package pglog_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestDeadlock: an append that the server takes back to end a deadlock (40P01) is sent
// again and written once.
func TestDeadlock(t *testing.T) {
	p, schema, _, plain := fresh(t)
	// The append looks for a deadlock, not the other side: so it is the one taken back.
	_, s := open(t, pool(t, pgtest.DSN(t), withParam("deadlock_timeout", "2s")), schema)
	var a eventstore.Append
	for _, name := range []eventstore.Stream{"account-a", "account-b"} {
		b := batch(name, 1)
		a.Batches = append(a.Batches, next(b, must(t, plain, one(b)).Receipts[0], 1))
	}
	other := begin(t, pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { withParam("deadlock_timeout", "60s")(c) }))
	lock := func(key string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), "select from "+schema+".streams where key = $1 for update", key); err != nil {
			t.Fatal(err)
		}
	}
	seen := func() int64 {
		return number(t, p, "select deadlocks from pg_stat_database where datname = current_database()")
	}
	before := seen()
	lock("b")
	type answer struct {
		done eventstore.Appended
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		done, err := s.Append(t.Context(), a)
		answered <- answer{done, err}
	}()
	eventually(t, "the append holds a and waits for b", func() bool { return waitingForLocks(t, p) == 1 })
	lock("a") // granted once the append has been taken back
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-answered
	if got.err != nil || len(got.done.Receipts) != 2 || got.done.Receipts[0].Replays {
		t.Errorf("append through a deadlock: %+v %v, want it written", got.done, got.err)
	}
	for _, b := range a.Batches {
		if h, err := plain.Head(t.Context(), b.Stream); err != nil || h.Last.Seqno != 2 {
			t.Errorf("%s: head %+v %v, want 2", b.Stream, h, err)
		}
	}
	// The session tells of it when it has been idle for a second, or ends.
	eventually(t, "the server counts a deadlock, else this proves nothing", func() bool { return seen() > before })
}

// TestLockOrder: an append of several streams locks them in the store's order, not the
// caller's: while it waits for the first it holds none.
func TestLockOrder(t *testing.T) {
	p, schema, _, s := fresh(t)
	var a eventstore.Append
	for _, name := range []eventstore.Stream{"account-b", "account-a"} {
		b := batch(name, 1)
		a.Batches = append(a.Batches, next(b, must(t, s, one(b)).Receipts[0], 1))
	}
	lock := "select from " + schema + ".streams where key = $1 for update nowait"
	first, second := begin(t, p), begin(t, p)
	if _, err := first.Exec(t.Context(), lock, "a"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.Append(t.Context(), a)
		answered <- err
	}()
	eventually(t, "the append waits for a", func() bool { return waitingForLocks(t, p) == 1 })
	if _, err := second.Exec(t.Context(), lock, "b"); err != nil {
		t.Errorf("the append waits for a, and holds b: %v", err)
	}
	for _, tx := range []pgx.Tx{second, first} {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
