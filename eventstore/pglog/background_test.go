// Reclaiming in the background, and its end.

package pglog_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestReclaimsInTheBackground(t *testing.T) {
	p, schema := pgtest.Schema(t)
	l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, ReclaimEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	freely(t, s, "free")
	all := fill(t, s, "free", 5, 1, 20, 100)
	table := schema + ".entries_" + strconv.FormatInt(number(t, p, "select id from "+schema+".categories"), 10)
	left := func() int64 { return number(t, p, "select count(*) from "+table) }
	for round, through := range []eventstore.Seqno{5, 18} {
		trim(t, s, all, through)
		eventually(t, "trimmed entries are gone", func() bool { return left() == int64(len(all))*int64(20-through) })
		if round == 0 {
			if got, err := s.Trim(t.Context(), all[0], 4, false); err != nil || got.Trimmed != 5 {
				t.Errorf("Trim below the watermark = %+v, %v", got, err)
			}
		}
	}
	trim(t, s, all, 19)
	if err := s.Close(); err != nil { // ends the round that is to come
		t.Fatal(err)
	}
	after := left()
	time.Sleep(100 * time.Millisecond)
	if got := left(); got != after {
		t.Errorf("%d entries when the log was closed, %d later: something went on", after, got)
	}
}

// afterOnce calls do once, when the statement sql has been carried out and before its
// caller goes on.
type afterOnce struct {
	sql atomic.Pointer[string]
	do  func()
}

func (a *afterOnce) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, a, q.SQL)
}

func (a *afterOnce) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	if sql := a.sql.Load(); sql != nil && ctx.Value(a) == *sql && q.Err == nil && a.sql.CompareAndSwap(sql, nil) {
		a.do()
	}
}

// TestReclaimsAfterARound: what is trimmed when a round has walked the table, and has
// not ended, gets a round of its own. Nothing but this trim asks for one.
func TestReclaimsAfterARound(t *testing.T) {
	p, schema := pgtest.Schema(t)
	during := &afterOnce{}
	l, err := pglog.Open(t.Context(), pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = during }),
		&pglog.Options{Schema: schema, ReclaimEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	defer s.Close()
	freely(t, s, "free")
	all := fill(t, s, "free", 1, 1, 20, 100)
	id := number(t, p, "select id from "+schema+".categories")
	table := schema + ".entries_" + strconv.FormatInt(id, 10)
	if size := number(t, p, "select pg_relation_size($1::text::regclass) / current_setting('block_size')::int", table); size != 1 {
		t.Fatalf("the table has %d blocks, want 1: a walk of several steps could still find what is trimmed behind the first", size)
	}
	trimmed := make(chan error, 1)
	during.do = func() {
		_, err := s.Trim(t.Context(), all[0], 18, false)
		trimmed <- err
	}
	sql := l.ReclaimStatement(int32(id))
	during.sql.Store(&sql)
	trim(t, s, all, 5)
	select {
	case err := <-trimmed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no round walked the table")
	}
	eventually(t, "what was trimmed during the round is gone", func() bool { return number(t, p, "select count(*) from "+table) == 2 })
}

// TestReclaimsNothingUnasked: a process that may do nothing between two calls says so.
func TestReclaimsNothingUnasked(t *testing.T) {
	p, schema, _, s := fresh(t) // ReclaimEvery -1
	freely(t, s, "free")
	trim(t, s, fill(t, s, "free", 1, 1, 20, 100), 18)
	time.Sleep(1200 * time.Millisecond) // longer than a first round waits
	table := schema + ".entries_" + strconv.FormatInt(number(t, p, "select id from "+schema+".categories where name = 'free'"), 10)
	if got := number(t, p, "select count(*) from "+table); got != 20 {
		t.Errorf("%d of 20 entries left", got)
	}
}
