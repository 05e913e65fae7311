// Hostile sessions: isolation levels, synchronous_commit, read-only, poolers.

package pglog_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func withParam(name, value string) func(c *pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// TestIsolation: under any level but READ COMMITTED appends, fences, snapshots,
// leases and feed reads are refused by name and write nothing.
func TestIsolation(t *testing.T) {
	_, schema, _, plain := fresh(t)
	done := must(t, plain, one(batch("account-a", 3)))
	for _, level := range []string{"repeatable read", "serializable"} {
		_, s := open(t, pool(t, pgtest.DSN(t), withParam("default_transaction_isolation", level)), schema)
		want := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, eventstore.ErrIsolation) {
				t.Errorf("%s under %s: %v, want ErrIsolation", what, level, err)
			}
		}
		ctx, h := t.Context(), eventstore.NewUUID()
		_, err := s.Append(ctx, one(batch("account-b", 1)))
		want("append", err)
		_, err = s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{batch("account-b", 1), batch("account-c", 1)}})
		want("append to two streams", err)
		_, err = s.Fence(ctx, "account-a", h)
		want("fence", err)
		_, _, err = s.AcquireLease(ctx, "l", h, 0)
		want("lease", err)
		_, err = s.ReadFeed(ctx, 0, eventstore.Filter{}, 0)
		want("feed", err)
		want("snapshot", s.SaveSnapshot(ctx, eventstore.Snapshot{Stream: "account-a", At: done.Receipts[0].Last, Fingerprint: "v"}))

		// A2: two appends after 3 at once: refused by name, never a raw 40001.
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				b := batch("account-a", 1)
				b.Epoch, b.After = 2, done.Receipts[0].Last
				_, err := s.Append(ctx, one(b))
				want("racing append", err)
			})
		}
		wg.Wait()
	}
	if h, err := plain.Head(t.Context(), "account-a"); err != nil || h.Last.Seqno != 3 || h.Epoch != 1 {
		t.Errorf("head %+v %v, want it unmoved at 3", h, err)
	}
	if n := len(feed(t, plain)); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
}

// TestSynchronousCommit: it is raised inside the statement, for its transaction
// only, and never lowered.
func TestSynchronousCommit(t *testing.T) {
	_, schema, _, _ := fresh(t)
	for from, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		p := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.MaxConns = 1; withParam("synchronous_commit", from)(c) })
		l, s := open(t, p, schema)
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rollback(t, tx)
		var inside, after string
		if _, err := l.AppendIn(t.Context(), tx, one(batch("account-x", 1))); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), "show synchronous_commit").Scan(&inside); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		must(t, s, one(batch(eventstore.Stream("account-"+from), 1)))
		if err := p.QueryRow(t.Context(), "show synchronous_commit").Scan(&after); err != nil {
			t.Fatal(err)
		}
		if inside != want || after != from {
			t.Errorf("session at %s: %s inside the append (want %s), %s after it", from, inside, want, after)
		}
	}
}

// TestOddSessions: settings of the role that change nothing.
func TestOddSessions(t *testing.T) {
	_, schema, _, _ := fresh(t)
	for name, value := range map[string]string{"search_path": "nowhere", "datestyle": "German, DMY", "timezone": "Asia/Kathmandu",
		"intervalstyle": "sql_standard", "bytea_output": "escape", "extra_float_digits": "0", "standard_conforming_strings": "on"} {
		_, s := open(t, pool(t, pgtest.DSN(t), withParam(name, value)), schema)
		b := batch(eventstore.Stream("account-"+name), 2)
		must(t, s, one(b))
		p, err := s.ReadFrom(t.Context(), b.Stream, 0, 0)
		if err != nil || len(p.Entries) != 2 || string(p.Entries[1].Data) != string(b.Events[1].Data) || p.Entries[0].Time.Location().String() != "UTC" {
			t.Errorf("%s=%s: %+v %v", name, value, p, err)
		}
	}
}

// TestUnusable: what a server that cannot serve answers, by kind.
func TestUnusable(t *testing.T) {
	_, schema, _, plain := fresh(t)
	first := must(t, plain, one(batch("account-a", 1))).Receipts[0]

	t.Run("not migrated", func(t *testing.T) {
		_, err := pglog.Open(t.Context(), pgtest.Pool(t), &pglog.Options{Schema: "nothing_here"})
		if !errors.Is(err, eventstore.ErrNotMigrated) {
			t.Errorf("%v, want ErrNotMigrated", err)
		}
	})
	t.Run("migrated away", func(t *testing.T) {
		p, schema := pgtest.Schema(t)
		_, s := open(t, p, schema)
		create(t, s, "account")
		if _, err := p.Exec(t.Context(), "drop schema "+schema+" cascade"); err != nil {
			t.Fatal(err)
		}
		_, err := s.Append(t.Context(), one(batch("account-a", 1)))
		if !errors.Is(err, eventstore.ErrNotMigrated) {
			t.Errorf("append: %v, want ErrNotMigrated", err)
		}
		if _, err := s.ReadFeed(t.Context(), 0, eventstore.Filter{}, 0); !errors.Is(err, eventstore.ErrNotMigrated) {
			t.Errorf("feed: %v, want ErrNotMigrated", err)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		_, s := open(t, pool(t, pgtest.DSN(t), withParam("default_transaction_read_only", "on")), schema)
		if _, err := s.Append(t.Context(), one(batch("account-b", 1))); !errors.Is(err, eventstore.ErrReadOnly) {
			t.Errorf("append: %v, want ErrReadOnly", err)
		}
		if _, err := s.ReadFrom(t.Context(), "account-a", 0, 0); err != nil {
			t.Errorf("read: %v, want it to work", err)
		}
	})
	t.Run("down", func(t *testing.T) {
		srv, p := server(t)
		_, s := open(t, p, "")
		create(t, s, "account")
		srv.Stop(t)
		for range 2 { // the first call may meet a broken connection, the second finds nobody
			_, err := s.Append(t.Context(), one(batch("account-a", 1)))
			if !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("append: %v, want ErrUnavailable", err)
			}
			if _, err := s.Head(t.Context(), "account-a"); !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("head: %v, want ErrUnavailable", err)
			}
		}
	})
	t.Run("out of connections", func(t *testing.T) {
		srv, p := server(t, pgtest.Setting("max_connections", "5"), pgtest.Setting("superuser_reserved_connections", "0"))
		_, s := open(t, p, "")
		create(t, s, "account")
		p.Reset()
		hog := pool(t, srv.DSN(), func(c *pgxpool.Config) { c.MaxConns = 10 })
		var held []*pgxpool.Conn
		for range 5 {
			c, err := hog.Acquire(t.Context())
			if err != nil {
				break
			}
			held = append(held, c)
		}
		_, err := s.Append(t.Context(), one(batch("account-a", 1)))
		if !errors.Is(err, eventstore.ErrOverloaded) {
			t.Errorf("append: %v, want ErrOverloaded", err)
		}
		for _, c := range held {
			c.Conn().Close(context.Background())
			c.Release()
		}
		eventually(t, "appends go on", func() bool { _, err := s.Append(t.Context(), one(batch("account-a", 1))); return err == nil })
	})
	t.Run("statement timeout", func(t *testing.T) {
		p := pgtest.Pool(t)
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rollback(t, tx)
		if _, err := tx.Exec(t.Context(), "select from "+schema+".streams where key = 'a' for update"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"statement_timeout", "lock_timeout"} {
			_, s := open(t, pool(t, pgtest.DSN(t), withParam(name, "200ms")), schema)
			b := batch("account-a", 1)
			b.Epoch, b.After = 2, first.Last
			_, err = s.Append(t.Context(), one(b))
			if !errors.Is(err, eventstore.ErrOverloaded) {
				t.Errorf("append under %s: %v, want ErrOverloaded", name, err)
			}
		}
	})
}
