// The feed under attack: who could make a reader skip, stall or see disorder.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestProbe runs the skipping-reader probe, also across the places where the low
// 32 bits of the published key change sign and wrap around.
func TestProbe(t *testing.T) {
	for _, start := range []int64{1, 1<<31 - 1500, 1<<32 - 1500, 3<<31 - 1500} {
		t.Run(fmt.Sprint("from ", start), func(t *testing.T) {
			h := harness
			h.Open = func(t testing.TB) eventstore.Log {
				s := harness.Open(t).(*store)
				if start > 1 {
					exec1(t, s.pool, "select setval('"+s.schema+".position', $1)", start)
				}
				return s
			}
			logtest.Probe(t, h, logtest.ProbeOptions{})
		})
	}
}

func exec1(t testing.TB, p execer, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// execer is a pool or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// TestSavepoints: rolling back to a savepoint takes back the lock together with the
// memory of it, so a later append in the transaction takes it again.
func TestSavepoints(t *testing.T) {
	p, _, l, s := fresh(t)
	ctx := t.Context()
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	sub, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendIn(ctx, sub, one(batch("account-undone", 1))); err != nil {
		t.Fatal(err)
	}
	if err := sub.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendIn(ctx, tx, one(batch("account-late", 1))); err != nil {
		t.Fatal(err)
	}
	must(t, s, one(batch("account-early", 1)))
	if got := feed(t, s); len(got) != 0 {
		t.Fatalf("the reader passed a position that is still held: %v", got)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := feed(t, s); len(got) != 2 || got[0].Stream != "account-late" || got[1].Stream != "account-early" {
		t.Errorf("feed %v, want late and early, in order of position", got)
	}
}

// TestManyAppendsInOneTransaction: one lock, however many appends.
func TestManyAppendsInOneTransaction(t *testing.T) {
	p, _, _, s := fresh(t)
	ctx := t.Context()
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	n := 20_000
	if testing.Short() {
		n = 500
	}
	b := batch("account-many", 1)
	start := time.Now()
	for range n {
		p, err := pglog.AppendTx(ctx, s, tx, one(b))
		if err != nil {
			t.Fatal(err)
		}
		b = next(b, p.Receipts()[0], 1)
	}
	t.Logf("%d appends in %v", n, time.Since(start).Round(time.Millisecond))
	var locks int
	if err := tx.QueryRow(ctx, "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()").Scan(&locks); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if h, err := s.Head(ctx, "account-many"); locks != 1 || err != nil || h.Last.Seqno != eventstore.Seqno(n) {
		t.Errorf("%d locks, want 1; head %v %v, want %d", locks, h.Last.Seqno, err, n)
	}
}

// TestTwoStores: a transaction open in one store holds up no reader of another.
func TestTwoStores(t *testing.T) {
	p, _, l, _ := fresh(t)
	_, _, _, other := fresh(t)
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	if _, err := l.AppendIn(t.Context(), tx, one(batch("account-held", 1))); err != nil {
		t.Fatal(err)
	}
	must(t, other, one(batch("account-free", 1)))
	if got := feed(t, other); len(got) != 1 {
		t.Errorf("%d entries, want the one of this store", len(got))
	}
}

// TestStrangerTransactions: transactions that do not append hold nothing up.
func TestStrangerTransactions(t *testing.T) {
	p, schema, _, s := fresh(t)
	tx, err := p.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	if _, err := tx.Exec(t.Context(), "select pg_current_xact_id(), pg_advisory_xact_lock_shared(1), (select count(*) from "+schema+".entries)"); err != nil {
		t.Fatal(err)
	}
	must(t, s, one(batch("account-a", 1)))
	if got := feed(t, s); len(got) != 1 {
		t.Errorf("%d entries, want 1", len(got))
	}
}

// TestAlteredSequence: a sequence that could hand out a position twice or below a
// published bound is refused at open, and by the append itself (23502).
func TestAlteredSequence(t *testing.T) {
	for name, alter := range map[string]string{
		"cached": "alter sequence %s.position cache 20", "fresh": "select setval('%s.position', 1, false)", "falling": "alter sequence %s.position increment -1 minvalue -100",
	} {
		t.Run(name, func(t *testing.T) {
			p, schema, _, s := fresh(t)
			must(t, s, one(batch("account-a", 1)))
			exec1(t, p, fmt.Sprintf(alter, schema))
			if _, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema}); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("open: %v, want ErrInvalid", err)
			}
		})
	}
	t.Run("cached behind our back", func(t *testing.T) {
		p, schema, l, s := fresh(t)
		must(t, s, one(batch("account-a", 1)))
		b := batch("account-b", 1)
		sql, args, err := l.AppendStatement(t.Context(), &b)
		if err != nil {
			t.Fatal(err)
		}
		exec1(t, p, "alter sequence "+schema+".position cache 20")
		conns := make([]*pgxpool.Conn, 2)
		for i := range conns {
			c, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Release()
			conns[i] = c
			if _, err := c.Exec(t.Context(), "select nextval('"+schema+".position')"); err != nil {
				t.Fatal(err)
			}
		}
		_, err = conns[0].Exec(t.Context(), sql, args...) // its cached values lie below the other's
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "23502" {
			t.Errorf("draw below the bound: %v, want 23502", err)
		}
	})
}

// TestOrderUnderPlans: positions follow seqnos and reads are in order whatever the
// planner may use (case R2).
func TestOrderUnderPlans(t *testing.T) {
	p, schema, _, _ := fresh(t)
	const n = 40
	var streams []eventstore.Stream
	for i, off := range []string{"nestloop", "hashjoin", "mergejoin", "sort", "material", "indexscan", "seqscan", "bitmapscan", "hashagg"} {
		_, bent := open(t, pool(t, pgtest.DSN(t), withParam("enable_"+off, "off")), schema)
		a, b := batch(eventstore.Stream(fmt.Sprint("account-a", i)), n), batch(eventstore.Stream(fmt.Sprint("account-b", i)), n)
		must(t, bent, one(a))
		must(t, bent, eventstore.Append{Batches: []eventstore.Batch{b, batch(eventstore.Stream(fmt.Sprint("account-c", i)), n)}})
		streams = append(streams, a.Stream, b.Stream)
	}
	var id int
	if err := p.QueryRow(t.Context(), "select id from "+schema+".categories where name = 'account'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	table := fmt.Sprintf("%s.entries_%d", schema, id)
	exec1(t, p, "create index backward on "+table+" (seqno desc)")
	for _, rewrite := range []string{"cluster " + table + " using backward", "vacuum full " + table,
		"cluster " + table + " using " + fmt.Sprintf("entries_%d_pkey", id), "vacuum full " + schema + ".streams"} {
		exec1(t, p, rewrite)
		for _, off := range []string{"indexscan", "seqscan"} {
			_, bent := open(t, pool(t, pgtest.DSN(t), withParam("enable_"+off, "off")), schema)
			checkOrder(t, bent, streams, n)
		}
	}
}

func checkOrder(t *testing.T, s *eventstore.Store, streams []eventstore.Stream, n int) {
	t.Helper()
	seen := map[eventstore.Stream]eventstore.Seqno{}
	for _, e := range feed(t, s) {
		if seen[e.Stream]++; e.Seqno != seen[e.Stream] {
			t.Fatalf("feed: %s %d comes as number %d of its stream", e.Stream, e.Seqno, seen[e.Stream])
		}
	}
	for _, stream := range streams {
		want := eventstore.Seqno(1)
		for e, err := range s.Read(t.Context(), stream, 0) {
			if err != nil || e.Seqno != want {
				t.Fatalf("read %s: %d %v, want %d", stream, e.Seqno, err, want)
			}
			want++
		}
		if int(want) != n+1 {
			t.Fatalf("read %s: %d entries, want %d", stream, want-1, n)
		}
	}
}

// TestCrashAfterAbortedDraw: positions drawn by a transaction that rolled back are
// handed out again after a crash; a reader that kept the horizon would skip them.
func TestCrashAfterAbortedDraw(t *testing.T) {
	srv, p := server(t, pgtest.Setting("wal_writer_delay", "10s"))
	l, s := open(t, p, "")
	create(t, s, "account")
	must(t, s, one(batch("account-a", 40)))
	resume := stopWalWriter(t, p)
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendIn(t.Context(), tx, one(batch("account-gone", 200))); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := s.ReadFeed(t.Context(), 0, eventstore.Filter{}, 0)
	if err != nil || len(page.Entries) != 40 {
		t.Fatalf("%d entries %v, want 40", len(page.Entries), err)
	}
	time.AfterFunc(200*time.Millisecond, resume) // it has its signal to quit by then
	srv.Immediate(t)
	srv.Start(t)
	eventually(t, "the server takes connections", func() bool { _, err := s.Head(t.Context(), "account-a"); return err == nil })
	done := must(t, s, one(batch("account-b", 1)))
	if done.Token.Position > page.Horizon {
		t.Errorf("the crash took no position back (%d above horizon %d), so this test proves nothing", done.Token.Position, page.Horizon)
	}
	after, err := s.ReadFeed(t.Context(), page.Through.Position, eventstore.Filter{}, 0)
	if err != nil || len(after.Entries) != 1 {
		t.Errorf("after the crash: %d entries %v behind the cursor, want 1 (position %d, horizon before %d)", len(after.Entries), err, done.Token.Position, page.Horizon)
	}
}

// stopWalWriter freezes the process that would make an aborted transaction's
// records durable soon after it.
func stopWalWriter(t *testing.T, p *pgxpool.Pool) (resume func()) {
	t.Helper()
	var pid int
	if err := p.QueryRow(t.Context(), "select pid from pg_stat_activity where backend_type = 'walwriter'").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() { syscall.Kill(pid, syscall.SIGCONT) }
}

// TestStandby: a reader of the feed on a server in recovery is refused.
func TestStandby(t *testing.T) {
	srv, p := server(t)
	_, s := open(t, p, "")
	create(t, s, "account")
	must(t, s, one(batch("account-a", 1)))
	srv.Stop(t)
	if err := os.WriteFile(filepath.Join(srv.DataDir(), "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	srv.Start(t)
	var err error
	eventually(t, "the server takes connections", func() bool { _, err = s.Head(t.Context(), "account-a"); return err == nil })
	if _, err := s.ReadFeed(t.Context(), 0, eventstore.Filter{}, 0); !errors.Is(err, eventstore.ErrReadOnly) {
		t.Errorf("feed on a standby: %v, want ErrReadOnly", err)
	}
	if _, err := s.Append(t.Context(), one(batch("account-b", 1))); !errors.Is(err, eventstore.ErrReadOnly) {
		t.Errorf("append on a standby: %v, want ErrReadOnly", err)
	}
}

// TestFrozenClient: a client that stops between Execute and Sync is under no
// time-out of the server, and holds the feed; a reader ends it after the TTL.
func TestFrozenClient(t *testing.T) {
	p, schema, l, s := fresh(t)
	b := batch("account-frozen", 1)
	sql, _, err := l.AppendStatement(t.Context(), &b)
	if err != nil {
		t.Fatal(err)
	}
	freeze(t, sql, schema)
	must(t, s, one(batch("account-free", 1)))
	eventually(t, "the frozen append holds its lock", func() bool {
		var n int
		return p.QueryRow(t.Context(), "select count(*) from pg_locks where locktype = 'advisory' and classid = ('"+schema+".position'::regclass)::oid").Scan(&n) == nil && n == 1
	})
	must(t, s, one(batch("account-free2", 1)))
	if got := feed(t, s); len(got) > 1 {
		t.Fatalf("%d entries: the frozen append does not hold the feed, so this test proves nothing", len(got))
	}
	watched, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, HolderTTL: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ws := eventstore.New(watched, nil)
	eventually(t, "the watchdog ends the frozen session", func() bool { return len(feed(t, ws)) == 2 })
}

// freeze sends an append up to Execute and Flush on a connection of its own, and
// then nothing.
func freeze(t *testing.T, sql, schema string) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Conn.Close() })
	var id string
	p := pgtest.Pool(t)
	if err := p.QueryRow(t.Context(), "select id::text from "+schema+".categories").Scan(&id); err != nil {
		t.Fatal(err)
	}
	u := eventstore.NewUUID().String()
	text := func(s ...string) (out [][]byte) {
		for _, x := range s {
			out = append(out, []byte(x))
		}
		return out
	}
	h.Frontend.Send(&pgproto3.Parse{Query: sql})
	h.Frontend.Send(&pgproto3.Bind{Parameters: text(id, "frozen", "1", "1", u, "t", "0", "00000000-0000-0000-0000-000000000000", "1", u, u,
		"{"+u+"}", "{1}", "{x}", "{x}", `{""}`, `{""}`)})
	h.Frontend.Send(&pgproto3.Execute{})
	h.Frontend.Send(&pgproto3.Flush{})
	if err := h.Frontend.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestMix: several processes' appends to the same streams, single and together,
// claims, stale epochs, guards, first appends, fences: nothing lost, nothing
// doubled, no deadlock left to the caller.
func TestMix(t *testing.T) {
	p, schema, _, _ := fresh(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const writers, names = 8, 24
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	var mu sync.Mutex
	acked := map[eventstore.UUID]int{}
	kinds := map[string]int{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			_, s := open(t, p, schema) // a log of its own, as a process of its own
			for range rounds {
				a := mixed(t, s, r, names)
				_, err := s.Append(context.Background(), a)
				mu.Lock()
				if err == nil {
					for _, b := range a.Batches {
						acked[b.ID] = len(b.Events)
					}
				}
				kinds[kindOf(err)]++
				mu.Unlock()
				if r.IntN(10) == 0 {
					if _, err := s.Fence(context.Background(), stream(r.IntN(names)), eventstore.NewUUID()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	_, s := open(t, p, schema)
	found := map[eventstore.UUID]int{}
	for _, e := range feed(t, s) {
		found[e.BatchID]++
	}
	for id, n := range acked {
		if found[id] != n {
			t.Errorf("batch %v: %d entries, acked %d", id, found[id], n)
		}
	}
	if len(found) != len(acked) {
		t.Errorf("%d batches there, %d acked", len(found), len(acked))
	}
	checkStreams(t, s, names)
	var deadlocks int
	if err := p.QueryRow(t.Context(), "select deadlocks from pg_stat_database where datname = current_database()").Scan(&deadlocks); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v; %d batches, deadlocks %d", kinds, len(found), deadlocks)
	for _, unexpected := range []error{eventstore.ErrUnknown, eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrCorrupt} {
		if kinds[unexpected.Error()] > 0 {
			t.Errorf("%d × %v", kinds[unexpected.Error()], unexpected)
		}
	}
}

func stream(i int) eventstore.Stream { return eventstore.Stream(fmt.Sprintf("account-%02d", i)) }

func kindOf(err error) string {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		return e.Kind.Error()
	}
	return fmt.Sprint(err)
}

// mixed is an append of one to three batches behind what the registry says now, a
// tenth of them with a stale epoch, a third with a guard.
func mixed(t *testing.T, s *eventstore.Store, r *rand.Rand, names int) (a eventstore.Append) {
	t.Helper()
	pick := r.Perm(names)
	n := 1 + r.IntN(3)
	for i := range n + 1 {
		h, err := s.Head(context.Background(), stream(pick[i]))
		if err != nil {
			t.Error(err)
		}
		if i == n {
			if r.IntN(3) == 0 {
				a.Guards = []eventstore.Guard{{Stream: stream(pick[i]), At: h.Last}}
			}
			break
		}
		b := batch(stream(pick[i]), 1+r.IntN(3))
		b.Epoch, b.After = h.Epoch+1, h.Last
		if r.IntN(10) == 0 {
			b.Epoch = max(h.Epoch, 1)
		}
		a.Batches = append(a.Batches, b)
	}
	return a
}

func checkStreams(t *testing.T, s *eventstore.Store, names int) {
	t.Helper()
	for i := range names {
		var last eventstore.Entry
		for e, err := range s.Read(t.Context(), stream(i), 0) {
			if err != nil || e.Seqno != last.Seqno+1 || e.Epoch < last.Epoch || e.Time.Before(last.Time) {
				t.Fatalf("%v %v behind %v", e, err, last)
			}
			last = e
		}
		if h, err := s.Head(t.Context(), stream(i)); err != nil || h.Last != last.Mark() {
			t.Errorf("%s: head %v %v, last entry %v", stream(i), h.Last, err, last.Mark())
		}
	}
}

// TestPgBouncer: transaction mode, pool of 3, 12 clients, the query modes that
// poolers allow.
func TestPgBouncer(t *testing.T) {
	pool0, schema := pgtest.Schema(t)
	pooled := pgtest.Bouncer(t, pgtest.DSN(t), 3)
	for mode, m := range map[string]pgx.QueryExecMode{"exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol, "cache describe": pgx.QueryExecModeCacheDescribe} {
		t.Run(mode, func(t *testing.T) {
			h := harness
			h.Open = func(t testing.TB) eventstore.Log {
				pl := pool(t, pooled, func(c *pgxpool.Config) {
					c.MaxConns = 12
					c.ConnConfig.DefaultQueryExecMode = m
				})
				l, s := open(t, pl, schema)
				create(t, s, eventstore.Category("c"+strings.ReplaceAll(eventstore.NewUUID().String(), "-", "")))
				return &store{l, pl, schema}
			}
			logtest.Probe(t, h, logtest.ProbeOptions{})

			mine := pool(t, pooled, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = m
			})
			name := pgtest.SchemaName(t)
			t.Cleanup(func() { pool0.Exec(context.Background(), "drop schema "+name+" cascade") })
			for range 2 {
				if err := migrations.Up(t.Context(), mine, name); err != nil {
					t.Errorf("migrating through the pooler: %v", err)
				}
			}
			_, s := open(t, mine, name)
			create(t, s, "account")
			must(t, s, one(batch("account-a", 1)))
		})
	}
}

// TestHorizonFalls: an append that read the sequence's value before others drew,
// and took its lock after they had committed, makes the horizon fall below what a
// reader has passed. What it draws still lies above that.
func TestHorizonFalls(t *testing.T) {
	p, schema, l, s := fresh(t)
	ctx := t.Context()
	var before int64
	if err := p.QueryRow(ctx, "select pg_sequence_last_value('"+schema+".position')").Scan(&before); err != nil {
		t.Fatal(err)
	}
	must(t, s, one(batch("account-a", 3)))
	page, err := s.ReadFeed(ctx, 0, eventstore.Filter{}, 0)
	if err != nil || len(page.Entries) != 3 {
		t.Fatalf("%d entries %v", len(page.Entries), err)
	}
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock_shared(('"+schema+".position'::regclass)::oid::int4, $1::int4)", before); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendIn(ctx, tx, one(batch("account-late", 1))); err != nil {
		t.Fatal(err)
	}
	held, err := s.ReadFeed(ctx, page.Through.Position, eventstore.Filter{}, 0)
	if err != nil || held.Horizon >= page.Horizon || held.Drawn < page.Drawn || len(held.Entries) != 0 {
		t.Errorf("held: horizon %d drawn %d, %d entries, %v; before: horizon %d drawn %d", held.Horizon, held.Drawn, len(held.Entries), err, page.Horizon, page.Drawn)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := s.ReadFeed(ctx, page.Through.Position, eventstore.Filter{}, 0)
	if err != nil || len(after.Entries) != 1 || after.Entries[0].Position <= page.Horizon {
		t.Errorf("after: %v %v, want the late entry above %d", after.Entries, err, page.Horizon)
	}
}
