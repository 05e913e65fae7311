// Package cluster tests what happens to whole PostgreSQL servers under a store: kills,
// crashes, failovers, restores, jumps of the clock. The parts above and below the log
// go through them together, as they do in production.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// resumes is the time within which everything must go on by itself once the server
// does; the lease TTL and five seconds are promised.
const resumes = eventstore.DefaultLeaseTTL + 5*time.Second

func newPool(t testing.TB, dsn string, bend ...func(c *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 10
	c.ConnConfig.ConnectTimeout = 2 * time.Second
	for _, b := range bend {
		b(c)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func migrated(t testing.TB, s *pgtest.Server) {
	t.Helper()
	p := newPool(t, s.DSN())
	up(t, p)
	p.Close()
}

func up(t testing.TB, p *pgxpool.Pool) {
	t.Helper()
	if err := migrations.Up(t.Context(), p, ""); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, p *pgxpool.Pool) (*pglog.Log, *eventstore.Store) {
	t.Helper()
	l, err := pglog.Open(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	pools.Store(s, p)
	return l, s
}

// direct is a store that talks to a server past any proxy, and creates the category.
func direct(t testing.TB, s *pgtest.Server) *eventstore.Store {
	t.Helper()
	_, store := open(t, newPool(t, s.DSN()))
	create(t, store, "account")
	return store
}

func create(t testing.TB, s *eventstore.Store, c eventstore.Category) {
	t.Helper()
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}); err != nil {
		t.Fatal(err)
	}
}

func exec(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// batch is a complete batch of n events that claims epoch 1 of a stream.
func batch(s eventstore.Stream, n int) eventstore.Batch {
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: 1, Holder: eventstore.NewUUID(), Claim: true}
	for i := range n {
		b.Events = append(b.Events, eventstore.Event{ID: eventstore.DeriveUUID(b.ID, i), Type: "deposited", Version: 1,
			ContentType: "application/json", Data: fmt.Appendf(nil, `{"Amount":%d}`, i)})
	}
	return b
}

// next is the owner's batch behind b.
func next(b eventstore.Batch, n int) eventstore.Batch {
	nb := batch(b.Stream, n)
	nb.Epoch, nb.Holder, nb.Claim = b.Epoch, b.Holder, false
	nb.After = eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}
	return nb
}

func one(b ...eventstore.Batch) eventstore.Append { return eventstore.Append{Batches: b} }

func must(t testing.TB, s *eventstore.Store, b ...eventstore.Batch) eventstore.Appended {
	t.Helper()
	done, err := s.Append(t.Context(), one(b...))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func feed(t testing.TB, s *eventstore.Store) (all []eventstore.Entry) {
	t.Helper()
	for e, err := range s.Feed(t.Context(), 0, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("gave up waiting: " + what)
}

func wantKind(t testing.TB, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// outage says if an error is of the kind that passes by itself; a caller sends the
// same batch again.
func outage(err error) bool {
	return slices.ContainsFunc([]error{eventstore.ErrUnknown, eventstore.ErrUnavailable, eventstore.ErrReadOnly, eventstore.ErrOverloaded,
		context.DeadlineExceeded}, func(kind error) bool { return errors.Is(err, kind) })
}

// load is writers that append without end and a reader that follows the feed, all of
// one Log, as a process has them. Whatever fails with an outage they send again,
// unchanged.
type load struct {
	t      testing.TB
	store  *eventstore.Store
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	acked    map[eventstore.UUID]eventstore.Batch
	answered []time.Time    // of each writer: its last ack
	failures map[string]int // by kind
	replays  int            // resent appends that were there already
	absent   int            // and that were not
	passed   []eventstore.Entry
	readAt   time.Time // when the reader last read something
}

// patience bounds one attempt: a network that drops everything gives no error.
const patience = 3 * time.Second

// start begins singles writers of one stream each, which share group commits, and
// multis that append to two streams at once.
func start(t testing.TB, s *eventstore.Store, singles, multis int) *load {
	w := &load{t: t, store: s, acked: map[eventstore.UUID]eventstore.Batch{}, failures: map[string]int{}, answered: make([]time.Time, singles+multis)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { w.cancel(); w.wg.Wait() })
	run := eventstore.NewUUID().String()
	for i := range singles + multis {
		streams := []eventstore.Stream{eventstore.Stream(fmt.Sprintf("account-%s-%d", run, i))}
		if i >= singles {
			streams = append(streams, streams[0]+"b")
		}
		w.wg.Go(func() { w.write(i, streams) })
	}
	w.wg.Go(w.follow)
	return w
}

func (w *load) write(i int, streams []eventstore.Stream) {
	a := eventstore.Append{}
	for n, s := range streams {
		a.Batches = append(a.Batches, batch(s, 1+(i+n)%3))
	}
	for w.ctx.Err() == nil {
		if !w.settle(i, a) {
			return
		}
		time.Sleep(2 * time.Millisecond) // the figures are not about speed
		for n := range a.Batches {
			a.Batches[n] = next(a.Batches[n], 1+(i+n)%3)
		}
	}
}

// settle sends an append until it is answered. It returns false at the end, which
// leaves the outcome of the last append open.
func (w *load) settle(i int, a eventstore.Append) bool {
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		done, err := w.store.Append(ctx, a)
		cancel()
		w.mu.Lock()
		switch {
		case err == nil:
			for n, r := range done.Receipts {
				w.acked[a.Batches[n].ID] = a.Batches[n]
				if tries > 0 && r.Replays {
					w.replays++
				} else if tries > 0 {
					w.absent++
				}
			}
			w.answered[i] = time.Now()
		case outage(err):
			w.failures[kindOf(err)]++
		default:
			w.t.Errorf("append: %v", err)
			w.cancel()
		}
		w.mu.Unlock()
		if err == nil || w.ctx.Err() != nil {
			return err == nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func kindOf(err error) string {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		return e.Kind.Error()
	}
	return fmt.Sprint(err)
}

// follow keeps the mark of the last entry that it has read, as a projector does.
func (w *load) follow() {
	var at eventstore.Position
	for w.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		p, err := w.store.ReadFeed(ctx, at, eventstore.Filter{Categories: []eventstore.Category{"account"}}, 0)
		cancel()
		w.mu.Lock()
		switch {
		case err == nil:
			w.passed = append(w.passed, p.Entries...)
			at = max(at, p.Through.Position)
			if len(p.Entries) > 0 {
				w.readAt = time.Now()
			}
		case outage(err):
			w.failures["feed: "+kindOf(err)]++
		default:
			w.t.Errorf("feed: %v", err)
			w.cancel()
		}
		w.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// working waits until every writer and the reader have got through since a moment.
func (w *load) working(what string, since time.Time) {
	w.t.Helper()
	for w.ctx.Err() == nil {
		w.mu.Lock()
		behind := slices.ContainsFunc(append([]time.Time{w.readAt}, w.answered...), func(a time.Time) bool { return a.Before(since) })
		w.mu.Unlock()
		if !behind {
			w.t.Logf("%s: all work %v later", what, time.Since(since).Round(time.Millisecond))
			return
		}
		if time.Since(since) > resumes {
			w.t.Fatalf("%s: %v later some do not work yet (failures %v)", what, resumes, w.failures)
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.FailNow()
}

// stop ends the load and holds everything that was said against what is there.
func (w *load) stop(there *eventstore.Store) {
	w.t.Helper()
	w.cancel()
	w.wg.Wait()
	all := feed(w.t, there)
	w.checkAcked(all)
	w.checkFeed(all)
	checkStreams(w.t, there, all)
	w.t.Logf("%d batches acked, %d entries, %d read meanwhile; failures %v; resent: %d were there, %d were not",
		len(w.acked), len(all), len(w.passed), w.failures, w.replays, w.absent)
}

// checkAcked: every acked batch is there once, whole; any other is whole or absent.
func (w *load) checkAcked(all []eventstore.Entry) {
	w.t.Helper()
	found := map[eventstore.UUID][]eventstore.Entry{}
	for _, e := range all {
		found[e.BatchID] = append(found[e.BatchID], e)
	}
	for id, b := range w.acked {
		entries := found[id]
		if len(entries) != len(b.Events) {
			w.t.Errorf("batch %v of %s was acked: %d of its %d entries are there", id, b.Stream, len(entries), len(b.Events))
			continue
		}
		for i, e := range entries {
			if e.ID != b.Events[i].ID || e.Stream != b.Stream || e.Seqno != b.After.Seqno+eventstore.Seqno(i)+1 || string(e.Data) != string(b.Events[i].Data) {
				w.t.Errorf("batch %v: entry %d is %+v", id, i, e)
			}
		}
	}
}

// checkFeed: the reader got a prefix of what is there, each entry once, in order.
func (w *load) checkFeed(all []eventstore.Entry) {
	w.t.Helper()
	if len(w.passed) > len(all) {
		w.t.Fatalf("the reader got %d entries, %d are there", len(w.passed), len(all))
	}
	for i, e := range w.passed {
		if e.Position != all[i].Position || e.ID != all[i].ID {
			w.t.Fatalf("the reader's entry %d is %v of %s at %d, there it is %v of %s at %d", i, e.ID, e.Stream, e.Position, all[i].ID, all[i].Stream, all[i].Position)
		}
	}
}

// checkStreams: no gap, no repeat, time and epochs never fall, the head is the last entry.
func checkStreams(t testing.TB, s *eventstore.Store, all []eventstore.Entry) {
	t.Helper()
	last := map[eventstore.Stream]eventstore.Entry{}
	for _, e := range all {
		if p := last[e.Stream]; e.Seqno != p.Seqno+1 || e.Epoch < p.Epoch || e.Time.Before(p.Time) {
			t.Errorf("%s: entry %d (epoch %d, %v) behind %d (epoch %d, %v)", e.Stream, e.Seqno, e.Epoch, e.Time, p.Seqno, p.Epoch, p.Time)
		}
		last[e.Stream] = e
	}
	for stream, e := range last {
		if h, err := s.Head(t.Context(), stream); err != nil || h.Last != e.Mark() {
			t.Errorf("%s: head %v %v, last entry %v", stream, h.Last, err, e.Mark())
		}
	}
}

// pools remembers whose pool a store has: tests look past the store.
var pools sync.Map

func poolOf(t testing.TB, s *eventstore.Store) *pgxpool.Pool {
	t.Helper()
	p, ok := pools.Load(s)
	if !ok {
		t.Fatal("a store of another maker")
	}
	return p.(*pgxpool.Pool)
}
