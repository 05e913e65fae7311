// Reclaiming: what it removes, that nobody notices, what it costs.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// freely creates a category that may be trimmed without a snapshot.
func freely(t testing.TB, s *eventstore.Store, c eventstore.Category) {
	t.Helper()
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
}

// fill appends entries of size bytes to streams of a category, a few to each in turn,
// so that a stream's entries lie scattered.
func fill(t testing.TB, s *eventstore.Store, c eventstore.Category, streams, rounds, each, size int) (all []eventstore.Stream) {
	t.Helper()
	last := make([]eventstore.Batch, streams)
	for r := range rounds {
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := part; i < streams; i += 4 {
					b := batch(eventstore.Stream(fmt.Sprintf("%s-%04d", c, i)), each)
					if r > 0 {
						l := &last[i]
						b.Epoch, b.Holder, b.Claim, b.After = l.Epoch, l.Holder, false, l.Written().Last
					}
					for j := range b.Events {
						b.Events[j].Data = []byte(strings.Repeat("x", size))
					}
					if _, err := s.Append(context.Background(), one(b)); err != nil {
						t.Error(err)
						return
					}
					last[i] = b
				}
			})
		}
		wg.Wait()
	}
	for i := range last {
		all = append(all, last[i].Stream)
	}
	return all
}

func trim(t testing.TB, s *eventstore.Store, streams []eventstore.Stream, through eventstore.Seqno) {
	t.Helper()
	for _, st := range streams {
		if r, err := s.Trim(t.Context(), st, through, false); err != nil || r.Trimmed < through {
			t.Fatalf("trim %s: %+v %v", st, r, err)
		}
	}
}

// reclaimAll calls Reclaim with the budget until nothing is left.
func reclaimAll(t testing.TB, l *pglog.Log, budget time.Duration) (sum pglog.Reclaimed, calls int) {
	t.Helper()
	for {
		calls++
		r, err := l.Reclaim(t.Context(), budget)
		if err != nil {
			t.Fatal(err)
		}
		sum.Entries += r.Entries
		sum.Streams += r.Streams
		sum.Snapshots += r.Snapshots
		if !r.More {
			return sum, calls
		}
	}
}

func number(t testing.TB, p *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	if err := p.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// views is everything that readers see of the streams and of the feed.
func views(t testing.TB, s *eventstore.Store, streams []eventstore.Stream) (all []any) {
	t.Helper()
	note := func(v any, err error) {
		if e, ok := errors.AsType[*eventstore.Error](err); ok {
			err = errors.New(e.Error())
		}
		all = append(all, v, err)
	}
	ctx := t.Context()
	for _, st := range streams {
		h, err := s.Head(ctx, st)
		note(h, err)
		for _, after := range []eventstore.Seqno{0, h.Trimmed, h.Trimmed + 1} {
			p, err := s.ReadFrom(ctx, st, after, 5)
			note(p, err)
		}
		p, err := s.ReadBackwardPage(ctx, st, 0, 7)
		note(p, err)
		loaded, err := s.Log().(*pglog.Log).Load(ctx, st, "v1", 100)
		note(loaded, err)
		dry, err := s.Trim(ctx, st, h.Trimmed+2, true)
		note(dry, err)
	}
	for _, f := range []eventstore.Filter{{}, {AcceptTrimmed: true}, {Categories: []eventstore.Category{"free"}, AcceptTrimmed: true}} {
		for at, more := eventstore.Position(0), true; more; {
			p, err := s.ReadFeed(ctx, at, f, 50)
			p.Drawn, p.Horizon = 0, 0
			note(p, err)
			at, more = p.Through.Position, err == nil && !p.End
		}
	}
	return all
}

// TestReclaim: trimmed entries are gone from the tables, those above stay, no reader
// sees a difference, and the space is used again.
func TestReclaim(t *testing.T) {
	p, schema, l, s := fresh(t) // account demands snapshots
	freely(t, s, "free")
	freely(t, s, "whole")
	streams := fill(t, s, "free", 40, 10, 5, 900)
	kept := fill(t, s, "whole", 5, 2, 5, 100)
	b := batch("account-a", 6)
	last := must(t, s, one(b)).Receipts[0]
	if err := s.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: b.Stream, At: eventstore.Mark{Seqno: 4, ID: b.Events[3].ID}, Fingerprint: "v1"}); err != nil {
		t.Fatal(err)
	}
	trim(t, s, []eventstore.Stream{b.Stream}, 4)
	trim(t, s, streams[:30], 45)
	trim(t, s, streams[30:35], 50) // to the head
	all := append(append([]eventstore.Stream{b.Stream}, streams...), kept...)

	before := views(t, s, all)
	sum, _ := reclaimAll(t, l, 0)
	if want := int64(4 + 30*45 + 5*50); sum != (pglog.Reclaimed{Entries: want}) {
		t.Errorf("%+v, want %d entries", sum, want)
	}
	if n := number(t, p, "select count(*) from "+schema+".entries"); n != 2+30*5+5*50+50 {
		t.Errorf("%d rows left, want those above the watermarks", n)
	}
	after := views(t, s, all)
	for i := range before {
		if !reflect.DeepEqual(before[i], after[i]) {
			t.Fatalf("a reader sees a difference:\n%+v\n%+v", before[i], after[i])
		}
	}
	nb := next(b, last, 1)
	for i := range 2 { // the stream goes on, and the batch is proved
		if r := must(t, s, one(nb)).Receipts[0]; r.Last.Seqno != 7 || r.Replays != (i == 1) {
			t.Errorf("behind what was removed: %+v", r)
		}
	}

	id := number(t, p, "select id from "+schema+".categories where name = 'free'")
	table := fmt.Sprintf("%s.entries_%d", schema, id)
	size := number(t, p, "select pg_relation_size($1::text::regclass)", table)
	exec1(t, p, "vacuum (truncate false) "+table)
	for i := range 32 {
		nb := batch(eventstore.Stream(fmt.Sprintf("free-again%d", i)), 40)
		for j := range nb.Events {
			nb.Events[j].Data = []byte(strings.Repeat("x", 900))
		}
		must(t, s, one(nb))
	}
	if now := number(t, p, "select pg_relation_size($1::text::regclass)", table); now > size+size/20 {
		t.Errorf("the table grew from %d to %d bytes, though most of it was free", size, now)
	}
}

// TestReclaimIsIdle: when nothing was trimmed since, a call costs three queries; a new
// trim is noticed, by another Log too.
func TestReclaimIsIdle(t *testing.T) {
	_, schema, _, plain := fresh(t)
	freely(t, plain, "free")
	streams := fill(t, plain, "free", 3, 1, 20, 100)
	fill(t, plain, "account", 3, 1, 20, 100) // never trimmed: never walked
	var w wire
	l, _ := open(t, pool(t, pgtest.DSN(t), w.config), schema)
	for i, x := range []struct {
		trim    eventstore.Seqno
		entries int64
		idle    bool
	}{{5, 15, false}, {0, 0, true}, {9, 12, false}, {0, 0, true}} {
		if x.trim > 0 {
			trim(t, plain, streams, x.trim)
		}
		for range 2 { // the second call has its statements prepared
			w.reset()
			r, err := l.Reclaim(t.Context(), 0)
			if err != nil || r.More || r.Entries != x.entries {
				t.Errorf("%d: %+v %v, want %d entries", i, r, err, x.entries)
			}
			if n := w.statements.Load(); x.idle && n != 3 {
				t.Errorf("%d: an idle call made %d statements, want 3", i, n)
			}
			if !x.idle {
				break
			}
		}
	}
}

// TestReclaimInSteps: a budget bounds a call, calls go on where the last one ended,
// for every category in turn, and a new process starts over.
func TestReclaimInSteps(t *testing.T) {
	p, schema, l, s := fresh(t)
	var want int64
	for _, c := range []eventstore.Category{"one", "two", "three"} {
		freely(t, s, c)
		trim(t, s, fill(t, s, c, 10, 4, 10, 900), 36)
		want += 10 * 36
	}
	sum, calls := reclaimAll(t, l, time.Nanosecond)
	if sum.Entries != want || calls < 6 {
		t.Errorf("%+v in %d calls, want %d entries in some steps", sum, calls, want)
	}
	if r, err := l.Reclaim(t.Context(), 0); err != nil || r.Entries != 0 || r.More {
		t.Errorf("once more: %+v %v", r, err)
	}
	other, _ := open(t, p, schema)
	if r, err := other.Reclaim(t.Context(), 0); err != nil || r.Entries != 0 || r.More {
		t.Errorf("another log: %+v %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Reclaim(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reclaim(t.Context(), 0); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

// TestReclaimOneAtATime: while a step is being made, others leave it alone and say
// that there is more.
func TestReclaimOneAtATime(t *testing.T) {
	p, schema, l, s := fresh(t)
	freely(t, s, "free")
	trim(t, s, fill(t, s, "free", 2, 1, 20, 100), 10)
	tx := begin(t, p)
	id := int32(number(t, p, "select id from "+schema+".categories where name = 'free'"))
	if _, err := tx.Exec(t.Context(), l.ReclaimStatement(id), int64(0), int64(1), id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if r, err := l.Reclaim(ctx, 0); err != nil || !r.More || r.Entries != 0 {
		t.Errorf("beside another one: %+v %v, want nothing done and more", r, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum, _ := reclaimAll(t, l, 0); sum.Entries != 20 {
		t.Errorf("%+v, want 20", sum)
	}
}

// TestReclaimPlan: a step reads its blocks and looks streams up by key, never a table
// from end to end, however little the planner knows.
func TestReclaimPlan(t *testing.T) {
	p, schema, l, s := fresh(t)
	freely(t, s, "free")
	trim(t, s, fill(t, s, "free", 50, 1, 20, 900), 18)
	// A registry that is worth an index, of a category that nobody sees.
	exec1(t, p, `insert into `+schema+`.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
select 99, g::text, 0, 1, gen_random_uuid(), 1, gen_random_uuid(), now() from generate_series(1, 20000) g`)
	id := int32(number(t, p, "select id from "+schema+".categories where name = 'free'"))
	for _, analyze := range []string{"", "analyze " + schema + ".streams, " + schema + ".entries"} {
		if analyze != "" {
			exec1(t, p, analyze)
		}
		for _, generic := range []string{"force_generic_plan", "force_custom_plan"} {
			conn := pool(t, pgtest.DSN(t), withParam("plan_cache_mode", generic))
			tx := begin(t, conn)
			rows, err := tx.Query(t.Context(), "explain (analyze, buffers) "+l.ReclaimStatement(id), int64(100), int64(108), id)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			if !strings.Contains(plan, "Tid Range Scan on entries_") || strings.Contains(plan, "Seq Scan on entries") || strings.Contains(plan, "Seq Scan on streams") {
				t.Errorf("%s:\n%s", generic, plan)
			}
			tx.Rollback(t.Context())
		}
	}
}

// TestReclaimHoldsNobodyUp: appends, reads, trims and holds go on beside it, none of
// them waiting for a lock.
func TestReclaimHoldsNobodyUp(t *testing.T) {
	p, schema, l, s := fresh(t)
	freely(t, s, "free")
	n := 60
	if testing.Short() {
		n = 20
	}
	streams := fill(t, s, "free", n, 8, 10, 900)
	w := &writers{store: s, pool: p, schema: schema}
	w.start(t, 3)
	alone := w.during(500 * time.Millisecond)

	_, impatient := open(t, pool(t, pgtest.DSN(t), withParam("lock_timeout", "250ms")), schema)
	var reclaimed atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for end := false; !end; {
			select {
			case <-done:
				end = true
			default:
			}
			r, err := l.Reclaim(t.Context(), 0)
			if err != nil {
				t.Errorf("reclaim: %v", err)
			}
			reclaimed.Add(r.Entries)
		}
	})
	var beside rate
	var measured sync.WaitGroup
	measured.Go(func() { beside = w.during(time.Second) })
	want := int64(0)
	for through := eventstore.Seqno(8); through <= 72; through += 8 {
		for i, st := range streams {
			must := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s beside: %v", what, err)
				}
			}
			_, err := impatient.Trim(t.Context(), st, through, false)
			must("trim", err)
			if i%10 == 0 {
				_, err = impatient.ReadFrom(t.Context(), st, through, 0)
				must("read", err)
				_, err = impatient.Append(t.Context(), one(batch(eventstore.Stream("free-"+eventstore.NewUUID().String()), 2)))
				must("append", err)
				must("hold", impatient.SetHold(t.Context(), eventstore.Hold{Name: "h", Category: "free", Stream: st, Seqno: 79}))
				must("release", impatient.ReleaseHold(t.Context(), "h", "free", st))
				_, err = impatient.Fence(t.Context(), st, eventstore.NewUUID())
				must("fence", err)
			}
		}
		want += int64(8 * len(streams))
	}
	measured.Wait()
	close(done)
	wg.Wait()
	w.stop()
	if n := reclaimed.Load(); n != want {
		t.Errorf("%d entries reclaimed, want %d", n, want)
	}
	t.Logf("appends/s %v, beside trims and reclaiming %v", alone, beside)
}

// TestReclaimKilled: its session is ended in the middle, again and again, and the
// server crashes: it goes on, and nothing but trimmed entries is gone.
func TestReclaimKilled(t *testing.T) {
	srv, p := server(t)
	_, s := open(t, p, "")
	freely(t, s, "free")
	streams := fill(t, s, "free", 30, 8, 20, 900)
	trim(t, s, streams, 144)
	mine := pool(t, srv.DSN(), withParam("application_name", "reclaimer"))
	l, _ := open(t, mine, "")
	killed := 0
	for range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				var n int
				if p.QueryRow(ctx, "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'reclaimer' and state = 'active' and query like '%pg_try_advisory_xact_lock%'").Scan(&n) == nil && n > 0 {
					killed++
					return
				}
			}
		})
		_, err := l.Reclaim(t.Context(), 100*time.Millisecond)
		cancel()
		wg.Wait()
		if err != nil && !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("killed: %v", err)
		}
	}
	srv.Immediate(t)
	srv.Start(t)
	eventually(t, "the server takes connections", func() bool { _, err := s.Head(t.Context(), streams[0]); return err == nil })
	l, _ = open(t, p, "")
	sum, _ := reclaimAll(t, l, 0)
	t.Logf("killed %d times; %d entries left for the last call", killed, sum.Entries)
	if n := number(t, p, "select count(*) from wattle.entries"); n != 30*16 {
		t.Errorf("%d rows left, want %d", n, 30*16)
	}
	for _, st := range streams {
		page, err := s.ReadFrom(t.Context(), st, 144, 0)
		if err != nil || len(page.Entries) != 16 {
			t.Fatalf("%s: %d entries %v, want 16", st, len(page.Entries), err)
		}
	}
}

// TestReclaimDeletedCategories: registry rows and snapshots left behind go; those of
// categories that are there stay.
func TestReclaimDeletedCategories(t *testing.T) {
	p, schema, l, s := fresh(t)
	b := batch("account-a", 1)
	last := must(t, s, one(b)).Receipts[0].Last
	save := func(at eventstore.Mark, st eventstore.Stream) {
		t.Helper()
		if err := s.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: st, At: at, Fingerprint: "v1"}); err != nil {
			t.Fatal(err)
		}
	}
	save(last, b.Stream)
	create(t, s, "gone")
	g := batch("gone-a", 1)
	save(must(t, s, one(g)).Receipts[0].Last, g.Stream)
	id := number(t, p, "select id from "+schema+".categories where name = 'gone'")
	// As if the process had died behind the drop: rows stay. A snapshot comes late.
	exec1(t, p, fmt.Sprintf(`create table %[1]s.kept as select * from %[1]s.snapshots where stream in (select ordinal from %[1]s.streams where category = %[2]d)`, schema, id))
	exec1(t, p, fmt.Sprintf("delete from %[1]s.categories where id = %[2]d", schema, id))
	exec1(t, p, fmt.Sprintf("drop table %s.entries_%d", schema, id))
	if r, err := l.Reclaim(t.Context(), 0); err != nil || r != (pglog.Reclaimed{Streams: 1}) {
		t.Errorf("%+v %v, want the registry row (and its snapshot with it)", r, err)
	}
	exec1(t, p, fmt.Sprintf("insert into %[1]s.snapshots select * from %[1]s.kept", schema))
	fresh, _ := open(t, p, schema)
	if r, err := fresh.Reclaim(t.Context(), 0); err != nil || r != (pglog.Reclaimed{Snapshots: 1}) {
		t.Errorf("%+v %v, want the late snapshot", r, err)
	}
	if r, err := fresh.Reclaim(t.Context(), 0); err != nil || r != (pglog.Reclaimed{}) {
		t.Errorf("%+v %v, want nothing left", r, err)
	}
	loaded, err := s.Load(t.Context(), b.Stream, "v1")
	if err != nil || loaded.Snapshot == nil || loaded.Head.Last != last {
		t.Errorf("%+v %v, want account-a with its snapshot", loaded, err)
	}
}

// TestReclaimFigures prints what giving back 90 % costs, in time and WAL.
func TestReclaimFigures(t *testing.T) {
	streams, rounds := 500, 5 // of 40 entries
	if testing.Short() {
		streams, rounds = 50, 1
	}
	_, p := server(t, pgtest.Setting("autovacuum", "off"), pgtest.Setting("max_wal_size", "4GB"))
	l, s := open(t, p, "")
	freely(t, s, "free")
	all := fill(t, s, "free", streams, rounds, 40, 900)
	entries := streams * rounds * 40
	id := number(t, p, "select id from wattle.categories")
	table := fmt.Sprintf("wattle.entries_%d", id)
	exec1(t, p, "vacuum analyze wattle.streams")
	exec1(t, p, "vacuum analyze "+table)
	wal := func(what string, f func()) {
		exec1(t, p, "checkpoint")
		from := number(t, p, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
		start := time.Now()
		f()
		took := time.Since(start)
		to := number(t, p, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
		t.Logf("%s: %v, %.1f MB of WAL; table %.1f MB, indexes %.1f MB", what, took.Round(time.Millisecond), float64(to-from)/1e6,
			float64(number(t, p, "select pg_relation_size($1::text::regclass)", table))/1e6, float64(number(t, p, "select pg_indexes_size($1::text::regclass)", table))/1e6)
	}
	t.Logf("%d entries of 900 bytes, %d streams; 90 %% of each go", entries, streams)
	wal("trim", func() { trim(t, s, all, eventstore.Seqno(rounds*36)) })
	var sum pglog.Reclaimed
	wal("reclaim", func() { sum, _ = reclaimAll(t, l, 0) })
	wal("vacuum", func() { exec1(t, p, "vacuum "+table) })
	wal("a full walk that finds nothing", func() {
		trim(t, s, all[:1], eventstore.Seqno(rounds*36+1))
		reclaimAll(t, l, 0)
	})
	if want := int64(entries) * 9 / 10; sum.Entries != want {
		t.Errorf("%d entries reclaimed, want %d", sum.Entries, want)
	}
}
