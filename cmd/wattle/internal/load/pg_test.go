// Runs on PostgreSQL: what was acknowledged is there, a locked row is charged to all
// that waited, round trips and WAL are those of the appends.

package load

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// store is an empty one on the shared server, and a run on it.
func store(t *testing.T) (*open.Store, Config) {
	t.Helper()
	_, schema := pgtest.Schema(t)
	return opened(t, pgtest.DSN(t), schema)
}

func opened(t *testing.T, dsn, schema string) (*open.Store, Config) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("schema", schema)
	u.RawQuery = q.Encode()
	target, err := open.Parse(u.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := target.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	trips := &open.Trips{}
	s, err := target.Open(t.Context(), &open.Options{Trips: trips})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := config(s.Store)
	c.Aside, c.Reclaim, c.Trips, c.WAL, c.Duration = s.Aside, s.Reclaim, trips.Count, s.WAL, 300*time.Millisecond
	c.Grace = 30 * time.Second // however slow the machine is
	return s, c
}

// Both loops, over several logs: every acknowledged entry is there, and the second
// run goes on where the first has ended.
func TestPostgres(t *testing.T) {
	t.Parallel()
	s, c := store(t)
	c.Logs, c.Batch, c.Sizes = 4, 3, Sizes{{900, 3}, {9000, 1}}
	loop := must(t, c)
	c.RPS = 100
	paced := must(t, c)
	balanced(t, paced)
	if loop.Appends == 0 || loop.Failed != 0 || paced.Scheduled != 30 || paced.Appends != 30 || paced.Epoch != 2 {
		t.Errorf("found %+v and %+v", loop, paced)
	}
	entries, bytes := int64(0), int64(0)
	for log := 1; log <= 4; log++ {
		for _, e := range kept(t, s.Store, log) {
			entries++
			bytes += int64(len(e.Data))
		}
	}
	if entries != loop.Entries+paced.Entries || entries != 3*(loop.Appends+paced.Appends) || bytes != loop.Bytes+paced.Bytes {
		t.Errorf("wanted %d entries of %d bytes, found %d of %d", loop.Entries+paced.Entries, loop.Bytes+paced.Bytes, entries, bytes)
	}
}

// With one log and its statements prepared an append is one round trip, also while
// trims go on beside it. (A first run opens the connection.)
func TestRoundTripsAndWAL(t *testing.T) {
	t.Parallel()
	s, c := store(t)
	c.Retain, c.RPS, c.Duration = 10, 1000, 100*time.Millisecond // late at once, and made up for
	first, second := must(t, c), must(t, c)
	if first.TripsPerAppend == nil || *first.TripsPerAppend <= 1 { // it prepared its statements
		t.Errorf("wanted over 1 round trip an append at first, found %+v", first)
	}
	if second.Appends != 100 || second.Trims == 0 || second.TrimsFailed != 0 || *second.TripsPerAppend != 1 {
		t.Errorf("wanted 1 round trip an append beside trims, found %v: %+v", *second.TripsPerAppend, second)
	}
	if w := *second.WALPerAppend; w < 100 { // the payload alone
		t.Errorf("wanted more WAL than payload, found %v bytes an append", w)
	}
	if got := len(kept(t, s.Store, 1)); got != 10 {
		t.Errorf("wanted 10 entries kept, found %d", got)
	}
}

// The row of the log is locked for 300 ms with one append in flight: those that were
// due meanwhile are charged too, not that one alone.
func TestStall(t *testing.T) {
	t.Parallel()
	s, c := store(t)
	log := &stalled{Log: s.Log(), Categories: s.Log().(eventstore.Categories), t: t, store: s}
	c.Store = eventstore.New(log, nil)
	c.RPS, c.Duration = 200, time.Second
	f := must(t, c)
	log.released.Wait()
	balanced(t, f)
	// 60 of 200 were due in the stall, 20 of them with 200 ms of it ahead.
	if f.Appends != 200 || f.Max < 299_000 || f.P99 < 200_000 {
		t.Errorf("wanted a stall of 300 ms in max and p99, found %+v", f)
	}
}

// stalled locks the row of the one stream there is before the 50th append.
type stalled struct {
	eventstore.Log
	eventstore.Categories
	t        *testing.T
	store    *open.Store
	n        int
	released sync.WaitGroup
}

func (l *stalled) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if l.n++; l.n == 50 {
		if err := l.lock(ctx, 300*time.Millisecond); err != nil {
			l.t.Error(err)
		}
	}
	return l.Log.Append(ctx, a)
}

func (l *stalled) lock(ctx context.Context, d time.Duration) error {
	tx, err := l.store.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "SELECT 1 FROM "+pgx.Identifier{l.store.Schema, "streams"}.Sanitize()+" FOR UPDATE")
	l.released.Go(func() {
		time.Sleep(d)
		if err := tx.Rollback(context.WithoutCancel(ctx)); err != nil {
			l.t.Error(err)
		}
	})
	return err
}

// A second run with a higher epoch takes the logs over. They are whole afterwards.
func TestTakenOverInPostgres(t *testing.T) {
	t.Parallel()
	s, c := store(t)
	c.Logs, c.Epoch, c.Duration = 3, 5, time.Minute
	began := make(chan struct{})
	var once sync.Once
	c.Interval, c.Live = MinInterval, func(i Interval) {
		if i.PerSec > 0 {
			once.Do(func() { close(began) })
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var first *Figures
	var err error
	var done sync.WaitGroup
	done.Go(func() { first, err = Run(ctx, c) })
	select {
	case <-began:
	case <-ctx.Done():
		t.Fatal("nothing is appended")
	}
	higher := c
	higher.Epoch, higher.Duration, higher.Live = 6, 300*time.Millisecond, nil
	second := must(t, higher)
	done.Wait()
	if !errors.Is(err, eventstore.ErrFenced) || first == nil || first.Ended != EndedByRefusal || first.Failed < 1 || first.Failed > 3 {
		t.Fatalf("wanted the first run to end fenced, found %+v (%v)", first, err)
	}
	all := 0
	for log := 1; log <= 3; log++ {
		all += len(kept(t, s.Store, log))
	}
	if int64(all) != first.Entries+second.Entries {
		t.Errorf("wanted %d and %d entries, found %d", first.Entries, second.Entries, all)
	}
}

// The server is killed and started again while a schedule is sent: every send is
// accounted for, and what was acknowledged is there, once.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	s, c := opened(t, server.DSN(), "wattle")
	c.Logs, c.RPS, c.Duration, c.Batch = 4, 100, 2*time.Second, 2
	under := make(chan struct{})
	var once sync.Once
	c.Interval, c.Live = MinInterval, func(i Interval) {
		if i.PerSec > 0 && i.Elapsed > 300*time.Millisecond {
			once.Do(func() { close(under) })
		}
	}
	var f *Figures
	var err error
	var done sync.WaitGroup
	done.Go(func() { f, err = Run(t.Context(), c) })
	select {
	case <-under:
		server.KillPostmaster(t)
		server.Start(t)
	case <-time.After(40 * time.Second):
		t.Error("nothing is appended")
	}
	done.Wait()
	if err != nil {
		t.Fatal(err)
	}
	balanced(t, f)
	all := 0
	for log := 1; log <= 4; log++ {
		all += len(kept(t, s.Store, log))
	}
	if f.Scheduled != 200 || f.Skipped != 0 || f.Ended != EndedByTime || f.Appends == 0 || f.Entries != 2*f.Appends || int64(all) != f.Entries {
		t.Errorf("wanted %d entries, found %d: %+v", f.Entries, all, f)
	}
	if f.Failed+f.Resends == 0 || f.LastError == "" && f.Failed > 0 {
		t.Errorf("wanted the outage to show, found %+v", f)
	}
	t.Logf("%d appended, %d failed, %d resent, last error: %s", f.Appends, f.Failed, f.Resends, f.LastError)
}
