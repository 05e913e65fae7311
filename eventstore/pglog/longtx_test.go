// Transactions that stay open: what they hold up, and what ends them.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// TestForgotten: transactions that are left open end by themselves: idling, by the
// time-out that the append set; busy, by a reader of the feed.
func TestForgotten(t *testing.T) {
	c := freshCounted(t)
	l, err := pglog.Open(t.Context(), c.pool, &pglog.Options{Schema: c.schema, HolderTTL: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	ctx := t.Context()

	_, err = pglog.Within(ctx, s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
		err := c.effect(ctx, tx, "idle")
		time.Sleep(900 * time.Millisecond)
		return one(batch("account-idle", 1)), err
	})
	if !errors.Is(err, eventstore.ErrOverloaded) {
		t.Errorf("within: a function that idles for longer than the TTL: %v, want ErrOverloaded", err)
	}
	c.want(t, "within, idle", "idle", "account-idle", 0, 0)

	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		conn, err := pgx.Connect(ctx, pgtest.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pglog.AppendTx(ctx, s, tx, one(batch(eventstore.Stream("account-"+name), 1))); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		if busy {
			wg.Go(func() { tx.Exec(ctx, "select pg_sleep(60)") })
		}
		free := eventstore.Stream("account-" + name + "free")
		must(t, s, one(batch(free, 1)))
		seen := func() bool {
			return slices.ContainsFunc(feed(t, s), func(e eventstore.Entry) bool { return e.Stream == free })
		}
		if seen() {
			t.Fatalf("%s: the feed is not held, so this proves nothing", name)
		}
		since := time.Now()
		if !busy { // nobody reads: the server itself ends it
			pid := conn.PgConn().PID()
			eventually(t, "the session is gone", func() bool {
				return number(t, c.pool, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
			})
		}
		eventually(t, name+": the feed goes on", seen)
		t.Logf("%s: the feed went on after %v", name, time.Since(since).Round(time.Millisecond))
		wg.Wait()
		if err := tx.Commit(ctx); err == nil {
			t.Errorf("%s: the forgotten transaction committed", name)
		}
		conn.Close(ctx)
		if n := c.head(t, eventstore.Stream("account-"+name)); n != 0 {
			t.Errorf("%s: head at %d", name, n)
		}
	}
}

// TestLongTransaction measures what a transaction that stays open does to others:
// their appends go on, also to the feed's head, and the feed waits for AppendTx, not
// for Within.
func TestLongTransaction(t *testing.T) {
	c := freshCounted(t)
	open := 3 * time.Second
	if testing.Short() {
		open = 1500 * time.Millisecond
	}
	for _, x := range []struct {
		name  string
		holds bool // the feed
		run   func(ctx context.Context, meanwhile func()) error
	}{
		{"AppendTx", true, func(ctx context.Context, meanwhile func()) error {
			tx := begin(t, c.pool)
			if _, err := pglog.AppendTx(ctx, c.store, tx, one(batch("account-long1", 1))); err != nil {
				return err
			}
			meanwhile()
			return tx.Commit(ctx)
		}},
		{"Within", false, func(ctx context.Context, meanwhile func()) error {
			_, err := pglog.Within(ctx, c.store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
				err := c.effect(ctx, tx, "long")
				meanwhile()
				return one(batch("account-long2", 1)), err
			})
			return err
		}},
	} {
		w := &writers{store: c.store, schema: c.schema, pool: c.pool}
		w.start(t, 4)
		before := w.during(open / 2)
		var during rate
		var lag time.Duration
		err := x.run(t.Context(), func() {
			w.feedLag.Store(0)
			during = w.during(open)
			lag = time.Duration(w.feedLag.Load())
		})
		if err != nil {
			t.Error(err)
		}
		after := w.during(open / 2)
		w.stop()
		t.Logf("%s open for %v: appends/s before %v, meanwhile %v, after %v; the feed was %v behind at most",
			x.name, open, before, during, after, lag.Round(time.Millisecond))
		if during.perSecond < before.perSecond/10 || during.p99 > open/2 { // held up, it would be none
			t.Errorf("%s: others' appends fell from %v to %v", x.name, before, during)
		}
		if held := lag > open/2; held != x.holds {
			t.Errorf("%s: the feed was %v behind, want it held: %v", x.name, lag, x.holds)
		}
	}
}

// writers append, each to a stream of its own, while a reader follows the feed.
type writers struct {
	store   *eventstore.Store
	pool    *pgxpool.Pool
	schema  string
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	took    []time.Duration
	sent    sync.Map     // event ID to when its append was answered
	feedLag atomic.Int64 // the longest time from answer to reader
}

func (w *writers) start(t testing.TB, n int) {
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(t.Context())
	for i := range n {
		w.wg.Go(func() {
			b := batch(eventstore.Stream(fmt.Sprintf("account-w%d-%s", i, eventstore.NewUUID())), 1)
			for ctx.Err() == nil {
				start := time.Now()
				done, err := w.store.Append(context.WithoutCancel(ctx), one(b))
				if err != nil {
					t.Errorf("append beside: %v", err)
					return
				}
				w.sent.Store(b.Events[0].ID, time.Now())
				w.mu.Lock()
				w.took = append(w.took, time.Since(start))
				w.mu.Unlock()
				b = next(b, done.Receipts[0], 1)
			}
		})
	}
	w.wg.Go(func() {
		var at eventstore.Position
		for ctx.Err() == nil {
			page, err := w.store.ReadFeed(context.WithoutCancel(ctx), at, eventstore.Filter{}, 0)
			if err != nil {
				t.Errorf("feed beside: %v", err)
				return
			}
			at = max(at, page.Through.Position)
			for _, e := range page.Entries {
				if sent, ok := w.sent.Load(e.ID); ok {
					w.feedLag.Store(max(w.feedLag.Load(), int64(time.Since(sent.(time.Time)))))
				}
			}
			if len(page.Entries) == 0 {
				w.feedLag.Store(max(w.feedLag.Load(), int64(w.oldestUnread(at))))
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
}

// oldestUnread is how long the oldest entry behind a position has been there.
func (w *writers) oldestUnread(at eventstore.Position) (age time.Duration) {
	var seconds float64
	err := w.pool.QueryRow(context.Background(), "select coalesce(extract(epoch from clock_timestamp() - (select time from "+w.schema+".entries where position > $1 order by position limit 1)), 0)::float8", int64(at)).Scan(&seconds)
	if err != nil {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

func (w *writers) stop() { w.cancel(); w.wg.Wait() }

type rate struct {
	perSecond float64
	p50, p99  time.Duration
}

func (r rate) String() string {
	return fmt.Sprintf("%.0f (p50 %v, p99 %v)", r.perSecond, r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond))
}

// during waits for d and says what was appended in it.
func (w *writers) during(d time.Duration) rate {
	w.mu.Lock()
	w.took = nil
	w.mu.Unlock()
	time.Sleep(d)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.took) == 0 {
		return rate{}
	}
	slices.Sort(w.took)
	return rate{float64(len(w.took)) / d.Seconds(), w.took[len(w.took)/2], w.took[len(w.took)*99/100]}
}
