// The dedicated layout: its tables, what it costs, how its space comes back.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// freshLogs returns a store with dedicated category "log" and n streams in it.
func freshLogs(t testing.TB, n int) (*pgxpool.Pool, string, *pglog.Log, *eventstore.Store, []eventstore.Stream) {
	t.Helper()
	p, schema, l, s := fresh(t)
	return p, schema, l, s, createLogs(t, s, n)
}

func createLogs(t testing.TB, s *eventstore.Store, n int) (all []eventstore.Stream) {
	t.Helper()
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "log", Layout: eventstore.Dedicated, TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		all = append(all, eventstore.Stream(fmt.Sprintf("log-%d", i)))
	}
	if err := s.CreateStreams(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	return all
}

// grow appends batches of each entries of size bytes to a stream, and returns the last
// batch.
func grow(t testing.TB, s *eventstore.Store, last eventstore.Batch, batches, each, size int) eventstore.Batch {
	t.Helper()
	for range batches {
		b := batch(last.Stream, each)
		if last.Epoch > 0 {
			b = next(last, last.Written(), each)
		}
		for i := range b.Events {
			b.Events[i].Data = []byte(strings.Repeat("x", size))
		}
		must(t, s, one(b))
		last = b
	}
	return last
}

func TestLogTables(t *testing.T) {
	p, schema, l, _, logs := freshLogs(t, 1)
	tables, err := l.LogTables(t.Context(), logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		for what, sql := range map[string]string{
			"TOAST tables":        "select count(*) from pg_class where oid = $1::text::regclass and reltoastrelid <> 0",
			"columns not PLAIN":   "select count(*) from pg_attribute where attrelid = $1::text::regclass and attnum > 0 and attstorage <> 'p'",
			"unique indexes":      "select count(*) from pg_index where indrelid = $1::text::regclass and indisunique",
			"indexes beside BRIN": "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam where i.indrelid = $1::text::regclass and a.amname <> 'brin'",
		} {
			var n int
			if err := p.QueryRow(t.Context(), sql, table).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s has %d %s, %v, want none", table, n, what, err)
			}
		}
	}
	// For what is there no DDL is run: one look at the category, one transaction.
	var ddl wire
	_, other := open(t, pool(t, pgtest.DSN(t), ddl.config), schema)
	if err := other.CreateStreams(t.Context(), logs...); err != nil {
		t.Fatal(err)
	}
	ddl.reset()
	if err := other.CreateStreams(t.Context(), logs...); err != nil || ddl.syncs.Load() > 6 {
		t.Errorf("creating what is there: %v, %d round trips", err, ddl.syncs.Load())
	}
}

// TestLogCost: one statement and one round trip for an append to any of many logs,
// more than a session's cache of statements has room for, and for a read.
func TestLogCost(t *testing.T) {
	n, cache := 12, 8
	if soak() {
		n, cache = 2000, 512
	}
	_, schema, _, _, logs := freshLogs(t, n)
	var w wire
	_, s := open(t, pool(t, pgtest.DSN(t), func(c *pgxpool.Config) {
		w.config(c)
		c.MaxConns, c.ConnConfig.StatementCacheCapacity = 1, cache
	}), schema)
	last := map[eventstore.Stream]*eventstore.Batch{}
	cost := func(what string, statements int64, f func() error) {
		t.Helper()
		w.reset()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, trips := w.statements.Load(), w.syncs.Load(); got != statements || trips != 1 {
			t.Errorf("%s: %d statements in %d round trips, want %d in 1", what, got, trips, statements)
		}
	}
	for i, log := range logs {
		b := batch(log, 1)
		appending := func() error { _, err := s.Append(t.Context(), one(b)); return err }
		if i == 0 {
			if err := appending(); err != nil { // prepares
				t.Fatal(err)
			}
		} else {
			cost("first append to "+string(log), 1, appending)
		}
		last[log] = &b
	}
	for _, log := range logs {
		b := next(*last[log], last[log].Written(), 3)
		cost("append to "+string(log), 1, func() error { _, err := s.Append(t.Context(), one(b)); return err })
	}
	for _, log := range logs {
		reading := func() error { _, err := s.ReadFrom(t.Context(), log, 1, 10); return err }
		if err := reading(); err != nil { // looks the ordinal up
			t.Fatal(err)
		}
		cost("read of "+string(log), 4, reading) // begin, plan, page, commit
		loading := func() error { _, err := s.Load(t.Context(), log, "v1"); return err }
		cost("load of "+string(log), 5, loading)
	}
	two := eventstore.Append{Batches: []eventstore.Batch{batch("account-x", 1), next(*last[logs[1]], eventstore.Receipt{Last: eventstore.Mark{Seqno: 4}}, 1)}}
	must(t, s, two) // prepares
	two = eventstore.Append{Batches: []eventstore.Batch{batch("account-y", 1), next(*last[logs[1]], eventstore.Receipt{Last: eventstore.Mark{Seqno: 5}}, 1)}}
	cost("append to both layouts", 1, func() error { _, err := s.Append(t.Context(), two); return err })
}

// TestLogReadsTouchLittle: a read looks at the pages of what it returns, and at the
// index, however large the log is and whatever the planner knows of it.
func TestLogReadsTouchLittle(t *testing.T) {
	p, _, l, s, logs := freshLogs(t, 1)
	grow(t, s, eventstore.Batch{Stream: logs[0]}, 60, 200, 900) // 12 MB
	l.Indexed()
	for _, analyze := range []bool{false, true} {
		if analyze {
			tables, _ := l.LogTables(t.Context(), logs[0])
			exec1(t, p, "analyze "+tables[0])
		}
		statements, err := l.LogStatements(t.Context(), logs[0], 6000, 20)
		if err != nil {
			t.Fatal(err)
		}
		for name, sql := range statements {
			tx := begin(t, p)
			exec1(t, tx, pglog.IndexOnly)
			rows, err := tx.Query(t.Context(), "explain (analyze, buffers, timing off) "+sql)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			tx.Rollback(t.Context())
			// 20 entries lie on 3 pages; two ranges of 32 pages hold them, the newest range
			// may not be in the index yet.
			if n := buffers(lines); n == 0 || n > 260 {
				t.Errorf("%s, analyzed %v: %d pages looked at\n%s", name, analyze, n, strings.Join(lines, "\n"))
			}
		}
	}
}

var buffersLine = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

// buffers is what the top node of a plan looked at.
func buffers(plan []string) (n int) {
	for _, line := range plan {
		if m := buffersLine.FindStringSubmatch(line); m != nil {
			hit, _ := strconv.Atoi(m[1])
			read, _ := strconv.Atoi(m[2])
			return hit + read
		}
	}
	return 0
}

// TestLogSpaceComesBack: a trim empties the half that it has passed; one that somebody
// reads is left and emptied later.
func TestLogSpaceComesBack(t *testing.T) {
	p, _, l, s, logs := freshLogs(t, 1)
	tables, err := l.LogTables(t.Context(), logs[0])
	if err != nil {
		t.Fatal(err)
	}
	size := func() (all int64) {
		for _, table := range tables {
			var n int64
			if err := p.QueryRow(t.Context(), "select pg_relation_size($1::text::regclass)", table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			all += n
		}
		return all
	}
	trimTo := func(n eventstore.Seqno) {
		t.Helper()
		if r, err := s.Trim(t.Context(), logs[0], n, false); err != nil || r.Trimmed != n {
			t.Fatalf("Trim(%d) = %+v, %v", n, r, err)
		}
	}
	last := eventstore.Batch{Stream: logs[0]}
	most := int64(0)
	for range 8 { // keeps 100 of what is 1,600 in all
		last = grow(t, s, last, 2, 100, 900)
		trimTo(last.Last() - 100)
		most = max(most, size())
	}
	if most > 700<<10 {
		t.Errorf("a log of 100 to 300 entries of 900 bytes has taken %d bytes", most)
	}
	reader := begin(t, p)
	for _, table := range tables {
		exec1(t, reader, "lock table "+table+" in access share mode")
	}
	last = grow(t, s, last, 2, 100, 900)
	trimTo(last.Last()) // does not wait for the reader, and cannot empty what he reads
	before := size()
	if before == 0 {
		t.Fatal("emptied under a reader")
	}
	last = grow(t, s, last, 1, 10, 900) // appends go on
	if r, err := l.Reclaim(t.Context(), 0); err != nil || !r.More || r.Halves != 0 {
		t.Errorf("Reclaim beside the reader = %+v, %v, want More and nothing emptied", r, err)
	}
	reader.Rollback(t.Context())
	trimTo(last.Last())
	for range 3 {
		if _, err := l.Reclaim(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if after := size(); after > 0 {
		t.Errorf("%d bytes before, %d after everything was trimmed and reclaimed, want none", before, after)
	}
	b := next(last, last.Written(), 1)
	if r := must(t, s, one(b)).Receipts[0]; r.First != last.Last()+1 {
		t.Errorf("the emptied log goes on at %d, want %d", r.First, last.Last()+1)
	}
}

// TestLogEmptiedByMany: many trim and reclaim at once while the owner appends and a
// reader follows; nothing that was not trimmed is ever missing.
func TestLogEmptiedByMany(t *testing.T) {
	p, schema, _, s, logs := freshLogs(t, 1)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			l, s := open(t, p, schema)
			for {
				select {
				case <-stop:
					return
				default:
				}
				h, err := s.Head(context.Background(), logs[0])
				if err == nil && h.Last.Seqno > 20 {
					_, err = s.Trim(context.Background(), logs[0], h.Last.Seqno-20, false)
				}
				if err == nil {
					_, err = l.Reclaim(context.Background(), 0)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	others.Go(func() {
		after := eventstore.Seqno(0)
		for {
			page, err := s.ReadFrom(context.Background(), logs[0], after, 7)
			var e *eventstore.Error
			switch {
			case errors.As(err, &e) && e.Kind == eventstore.ErrTrimmed:
				after = e.First - 1
			case err != nil:
				t.Error(err)
				return
			default:
				after += eventstore.Seqno(len(page.Entries))
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	last := eventstore.Batch{Stream: logs[0]}
	for range 60 {
		last = grow(t, s, last, 1, 5, 100)
	}
	close(stop)
	others.Wait()
	h, err := s.Head(t.Context(), logs[0])
	if err != nil || h.Last.Seqno != 300 || h.Trimmed < 100 {
		t.Fatalf("head %+v, %v, want 300 entries, most of them trimmed", h, err)
	}
	page, err := s.ReadFrom(t.Context(), logs[0], h.Trimmed, 100)
	if err != nil || len(page.Entries) != int(h.Last.Seqno-h.Trimmed) {
		t.Errorf("%d entries behind %d, %v, want all through %d", len(page.Entries), h.Trimmed, err, h.Last.Seqno)
	}
}

// TestLogDropped: what we own goes, the schema and what others keep in it stay.
func TestLogDropped(t *testing.T) {
	p, schema, l, s, logs := freshLogs(t, 3)
	exec1(t, p, "create table "+schema+".theirs (n int)")
	tables := func() (n int) {
		if err := p.QueryRow(t.Context(), "select count(*) from pg_class where relnamespace = $1::text::regnamespace and relname like 'log\\_%' and relkind = 'r'", schema).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	grow(t, s, eventstore.Batch{Stream: logs[0]}, 1, 3, 10)
	if err := s.DropStream(t.Context(), logs[0]); err != nil || tables() != 4 {
		t.Errorf("DropStream: %v, %d tables left, want 4", err, tables())
	}
	reader := begin(t, p)
	kept, err := l.LogTables(t.Context(), logs[1])
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, reader, "lock table "+kept[0]+" in access share mode")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // DropStream would wait for the reader for some seconds
		eventually(t, "the stream is out of the registry", func() bool {
			_, err := s.Head(context.Background(), logs[1])
			return errors.Is(err, eventstore.ErrNoSuchStream)
		})
		cancel()
	}()
	if err := s.DropStream(ctx, logs[1]); err != nil {
		t.Errorf("DropStream beside a reader = %v, want nil: it is gone", err)
	}
	reader.Rollback(t.Context())
	if r, err := l.Reclaim(t.Context(), 0); err != nil || r.Halves != 2 || tables() != 2 {
		t.Errorf("Reclaim = %+v, %v, %d tables left, want the 2 of the last stream", r, err, tables())
	}
	if err := s.DeleteCategory(t.Context(), "log"); err != nil || tables() != 0 {
		t.Errorf("DeleteCategory: %v, %d tables left, want none", err, tables())
	}
	if err := migrations.Down(t.Context(), p, schema); err != nil {
		t.Fatal(err)
	}
	exec1(t, p, "insert into "+schema+".theirs values (1)")
}

// TestLogWithOwnSQL: Within and AppendTx on dedicated streams, alone and with shared ones.
func TestLogWithOwnSQL(t *testing.T) {
	c := freshCounted(t)
	logs := createLogs(t, c.store, 2)
	both := func(log eventstore.Stream, account eventstore.Stream) eventstore.Append {
		return eventstore.Append{Batches: []eventstore.Batch{batch(log, 2), batch(account, 1)}}
	}
	for name, a := range map[string]eventstore.Append{"alone": one(batch(logs[0], 2)), "with": both(logs[1], "account-a")} {
		refused := a
		refused.Batches = []eventstore.Batch{batch(a.Batches[0].Stream, 1)}
		refused.Batches[0].After = eventstore.Mark{Seqno: 9}
		for range 2 {
			done, err := pglog.Within(t.Context(), c.store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
				return a, c.effect(ctx, tx, name)
			})
			if err != nil || len(done.Receipts) != len(a.Batches) || (done.Token.Position > 0) != (name == "with") {
				t.Fatalf("%s: Within = %+v, %v", name, done, err)
			}
		}
		_, err := pglog.Within(t.Context(), c.store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
			return refused, c.effect(ctx, tx, name)
		})
		if !errors.Is(err, eventstore.ErrFenced) {
			t.Errorf("%s: refused Within = %v, want fenced", name, err)
		}
		c.want(t, name, name, a.Batches[0].Stream, 1, 2)
		for _, commit := range []bool{false, true} {
			tx := begin(t, c.pool)
			b := next(a.Batches[0], a.Batches[0].Written(), 3)
			if _, err := pglog.AppendTx(t.Context(), c.store, tx, one(refused.Batches[0])); !errors.Is(err, eventstore.ErrFenced) {
				t.Errorf("%s: refused AppendTx = %v, want fenced", name, err)
			}
			if _, err := pglog.AppendTx(t.Context(), c.store, tx, one(b)); err != nil {
				t.Fatal(err)
			}
			if err := c.effect(t.Context(), tx, name+" tx"); err != nil {
				t.Fatal(err)
			}
			if !commit {
				tx.Rollback(t.Context())
				continue
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.want(t, name, name+" tx", b.Stream, 1, 5)
		}
	}
}

// TestLogGroups: owners of dedicated and shared streams append at once; each has its
// own outcome and statements are fewer than appends.
func TestLogGroups(t *testing.T) {
	_, schema, _, _, logs := freshLogs(t, 12)
	var w wire
	p := pool(t, pgtest.DSN(t), w.config)
	l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, Senders: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	const appends = 20
	streams := append([]eventstore.Stream{"account-a", "account-b", "account-c"}, logs...)
	w.reset()
	var owners sync.WaitGroup
	for i, stream := range streams {
		owners.Go(func() {
			last := batch(stream, 1)
			if _, err := s.Append(context.Background(), one(last)); err != nil {
				t.Error(err)
				return
			}
			for n := range appends {
				b := next(last, last.Written(), 1+n%2)
				stale := b
				stale.ID, stale.Epoch = eventstore.NewUUID(), 9
				if i%4 == 0 && n == 7 { // finding out why takes more statements
					if _, err := s.Append(context.Background(), one(stale)); !errors.Is(err, eventstore.ErrFenced) {
						t.Errorf("%s: epoch from nowhere = %v, want fenced", stream, err)
					}
				}
				if _, err := s.Append(context.Background(), one(b)); err != nil {
					t.Errorf("%s: %v", stream, err)
					return
				}
				last = b
			}
		})
	}
	owners.Wait()
	sent := w.statements.Load()
	for _, stream := range streams {
		page, err := s.ReadFrom(t.Context(), stream, 0, 100)
		if err != nil || len(page.Entries) != 1+appends*3/2 {
			t.Errorf("%s has %d entries, %v, want %d", stream, len(page.Entries), err, 1+appends*3/2)
		}
	}
	t.Logf("%d appends in %d statements", len(streams)*(appends+1), sent)
	if sent > int64(len(streams)*appends) {
		t.Errorf("%d statements for %d appends, want groups", sent, len(streams)*appends)
	}
}
