// Group commit: what goes together, and what of a neighbour an append must not feel.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// oneSender is a store whose log has one sender, with its wire and a way to block that
// sender: a row that a transaction of the test's has locked.
type oneSender struct {
	t    *testing.T
	s    *eventstore.Store
	l    *pglog.Log
	wire wire
	tx   pgx.Tx
	sql  func(sql string)                       // carried out beside it, with {s} for the schema
	own  map[eventstore.Stream]eventstore.Batch // the owner's next batch
	wg   sync.WaitGroup

	other *eventstore.Store // another process's, of which the wire sees nothing
}

// newOneSender returns it with n warm streams, account-00…, and the sender blocked by
// an append to account-blocker.
func newOneSender(t *testing.T, n int) *oneSender { return newOneSenderAfter(t, n, nil) }

// newOneSenderAfter calls prepare before it blocks.
func newOneSenderAfter(t *testing.T, n int, prepare func(o *oneSender)) *oneSender {
	t.Helper()
	p, schema, _, other := fresh(t)
	o := &oneSender{t: t, other: other, own: map[eventstore.Stream]eventstore.Batch{}}
	o.sql = func(sql string) { t.Helper(); exec1(t, p, strings.ReplaceAll(sql, "{s}", schema)) }
	bent := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.MaxConns = 20; o.wire.config(c) })
	var err error
	if o.l, err = pglog.Open(t.Context(), bent, &pglog.Options{Schema: schema, Senders: 1}); err != nil {
		t.Fatal(err)
	}
	o.s = eventstore.New(o.l, nil)
	for i := range n {
		o.warm(stream(i))
	}
	o.warm("account-blocker")
	if prepare != nil {
		prepare(o)
	}
	if o.tx, err = p.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	rollback(t, o.tx)
	o.lock(p, schema, "blocker")
	o.background("account-blocker", nil)
	eventually(t, "the blocker waits in its sender", func() bool { return waitingForLocks(t, p) == 1 })
	t.Cleanup(o.wg.Wait)
	return o
}

func waitingForLocks(t *testing.T, p *pgxpool.Pool) (n int) {
	if err := p.QueryRow(t.Context(), "select count(*) from pg_locks where not granted").Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}

func (o *oneSender) warm(s eventstore.Stream) {
	o.t.Helper()
	b := batch(s, 1)
	o.own[s] = next(b, must(o.t, o.s, one(b)).Receipts[0], 2)
}

func (o *oneSender) lock(p *pgxpool.Pool, schema, key string) {
	o.t.Helper()
	if _, err := o.tx.Exec(o.t.Context(), "select from "+schema+".streams where key = $1 for update", key); err != nil {
		o.t.Fatal(err)
	}
}

// background appends the owner's next batch and hands the outcome to then.
func (o *oneSender) background(s eventstore.Stream, then func(eventstore.Appended, error)) {
	b := o.own[s]
	o.wg.Go(func() {
		done, err := o.s.Append(context.Background(), one(b))
		if then != nil {
			then(done, err)
		} else if err != nil {
			o.t.Errorf("%s: %v", s, err)
		}
	})
}

func (o *oneSender) queued(n int) {
	o.t.Helper()
	eventually(o.t, fmt.Sprint(n, " appends are queued"), func() bool { return o.l.Queued() == n })
}

func (o *oneSender) unblock() {
	o.t.Helper()
	if err := o.tx.Rollback(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// committed waits until the group is there. It asks beside the wire: to mute the next
// statement must not meet this one.
func (o *oneSender) committed() {
	o.t.Helper()
	eventually(o.t, "the group is committed", func() bool {
		h, err := o.other.Head(o.t.Context(), stream(0))
		return err == nil && h.Last.Seqno == 3
	})
}

// TestGroup: what waits goes together in one statement, each with its outcome.
func TestGroup(t *testing.T) {
	const n = 30
	o := newOneSender(t, n)
	stale := o.own[stream(7)] // its place will be taken before the group goes
	stale.ID, stale.After = eventstore.NewUUID(), eventstore.Mark{Seqno: 1, ID: eventstore.NewUUID()}
	o.own[stream(7)] = stale
	o.wire.reset()
	for i := range n {
		o.background(stream(i), func(done eventstore.Appended, err error) {
			if i == 7 {
				if !errors.Is(err, eventstore.ErrDiverged) {
					t.Errorf("the one with another history: %v, want ErrDiverged", err)
				}
				return
			}
			if err != nil || done.Receipts[0].Last.Seqno != 3 || done.Receipts[0].Replays || done.Token.Position == 0 {
				t.Errorf("%s: %+v %v", stream(i), done, err)
			}
		})
	}
	o.queued(n)
	o.unblock()
	o.wg.Wait()
	// One for the group; append, begin, see and commit for the one that did not pass.
	if got := o.wire.statements.Load(); got > 1+5 {
		t.Errorf("%d statements for %d appends, want the group's and those of the one refused", got, n)
	}
	checkStreams(t, o.s, n)
	last := map[eventstore.Stream]eventstore.Seqno{}
	for _, e := range feed(t, o.s) {
		if last[e.Stream]++; e.Seqno != last[e.Stream] {
			t.Errorf("feed: %s %d comes as number %d", e.Stream, e.Seqno, last[e.Stream])
		}
	}
}

// TestGroupPipelined: an owner's batches sent one behind the other go in one group;
// each gets its own receipt and position.
func TestGroupPipelined(t *testing.T) {
	o := newOneSender(t, 2)
	var mu sync.Mutex
	positions := map[eventstore.Seqno]eventstore.Position{}
	b := o.own[stream(0)]
	for i := range 3 {
		o.own[stream(0)] = b
		want := b.Last()
		o.background(stream(0), func(done eventstore.Appended, err error) {
			if err != nil || done.Receipts[0].Last.Seqno != want {
				t.Errorf("batch %d: %+v %v, want last %d", i, done, err, want)
				return
			}
			mu.Lock()
			positions[want] = done.Token.Position
			mu.Unlock()
		})
		o.queued(2*i + 1)
		o.background(stream(1), func(_ eventstore.Appended, err error) { // the same again and again: one wins
			if err != nil {
				t.Errorf("%s: %v", stream(1), err)
			}
		})
		o.queued(2*i + 2)
		n := batch(b.Stream, 2)
		n.Epoch, n.Holder, n.Claim, n.After = b.Epoch, b.Holder, false, eventstore.Mark{Seqno: b.Last()}
		b = n
	}
	o.unblock()
	o.wg.Wait()
	for e, err := range o.s.Read(t.Context(), stream(0), 1) {
		if err != nil {
			t.Fatal(err)
		}
		if want, last := positions[e.Seqno]; last && want != e.Position {
			t.Errorf("entry %d has position %d, its token says %d", e.Seqno, e.Position, want)
		}
	}
	checkStreams(t, o.s, 2)
}

// TestGroupLockedNeighbour: a stream locked by somebody else holds up its own
// append only.
func TestGroupLockedNeighbour(t *testing.T) {
	const n = 5
	p, schema, _, _ := fresh(t)
	l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, Senders: 1})
	if err != nil {
		t.Fatal(err)
	}
	o := &oneSender{t: t, s: eventstore.New(l, nil), l: l, own: map[eventstore.Stream]eventstore.Batch{}}
	for i := range n {
		o.warm(stream(i))
	}
	o.warm("account-blocker")
	first, second := o.begin(p), o.begin(p)
	o.tx = first
	o.lock(p, schema, "blocker")
	o.tx = second
	o.lock(p, schema, "03")
	o.background("account-blocker", nil)
	eventually(t, "the blocker waits in its sender", func() bool { return waitingForLocks(t, p) == 1 })
	var written atomic.Int64
	for i := range n {
		o.background(stream(i), func(_ eventstore.Appended, err error) {
			if err != nil {
				t.Errorf("%s: %v", stream(i), err)
			}
			if i != 3 {
				written.Add(1)
			}
		})
	}
	o.queued(n)
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the neighbours of the locked stream are written", func() bool { return written.Load() == n-1 })
	if h, err := o.s.Head(t.Context(), stream(3)); err != nil || h.Last.Seqno != 1 {
		t.Errorf("the locked stream: %+v %v, want it unmoved", h, err)
	}
	if err := second.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.wg.Wait()
	checkStreams(t, o.s, n)
}

func (o *oneSender) begin(p *pgxpool.Pool) pgx.Tx {
	o.t.Helper()
	tx, err := p.Begin(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	rollback(o.t, tx)
	return tx
}

// TestGroupCancelled: a caller who leaves the queue has written nothing; its
// neighbours do not notice.
func TestGroupCancelled(t *testing.T) {
	o := newOneSender(t, 4)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	b := o.own[stream(2)]
	go func() {
		_, err := o.s.Append(ctx, one(b))
		gone <- err
	}()
	o.queued(1)
	for i := range 4 {
		if i != 2 {
			o.background(stream(i), nil)
		}
	}
	o.queued(4)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("cancelled in the queue: %v, want the context's error and nothing unknown", err)
	}
	o.queued(3)
	o.unblock()
	o.wg.Wait()
	if h, err := o.s.Head(t.Context(), stream(2)); err != nil || h.Last.Seqno != 1 {
		t.Errorf("the cancelled append: head %+v %v, want it unmoved", h, err)
	}
	if done := must(t, o.s, one(b)); done.Receipts[0].Replays {
		t.Error("it was written after all")
	}
}

// TestGroupLostAnswer: the answer to a group is lost: unknown for each, and each
// learns by resending that it is there once.
func TestGroupLostAnswer(t *testing.T) {
	const n = 6
	o := newOneSender(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent sync.WaitGroup
	for i := range n {
		b := o.own[stream(i)]
		sent.Go(func() {
			_, err := o.s.Append(ctx, one(b))
			if !errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("%s: %v, want ErrUnknown", b.Stream, err)
			}
		})
	}
	o.queued(n)
	o.wire.muteNext.Store(true)
	o.unblock()
	o.committed()
	cancel()
	sent.Wait()
	for i := range n {
		done, err := o.s.Append(t.Context(), one(o.own[stream(i)]))
		if err != nil || done.Receipts[0].Last.Seqno != 3 {
			t.Errorf("%s resent: %+v %v", stream(i), done, err)
		}
	}
	checkStreams(t, o.s, n)
}

// TestGroupTakenBack: one member's category was deleted by another process, up to
// its registry, which makes the server take the whole group back: its neighbours are
// written.
func TestGroupTakenBack(t *testing.T) {
	o := newOneSenderAfter(t, 3, func(o *oneSender) {
		create(t, o.s, "doomed")
		o.warm("doomed-a")
		o.sql("do $$ begin execute format('drop table {s}.entries_%s', (select id from {s}.categories where name = 'doomed')); end $$")
		o.sql("delete from {s}.categories where name = 'doomed'")
	})
	for i := range 3 {
		o.background(stream(i), nil)
	}
	o.background("doomed-a", func(_ eventstore.Appended, err error) {
		if !errors.Is(err, eventstore.ErrNoSuchCategory) {
			t.Errorf("append to a deleted category: %v, want ErrNoSuchCategory", err)
		}
	})
	o.queued(4)
	o.unblock()
	o.wg.Wait()
	checkStreams(t, o.s, 3)
}

// TestOwners: many owners of streams of their own, through two logs: everything
// acked is there once, in fewer statements than appends.
func TestOwners(t *testing.T) {
	_, schema, _, _ := fresh(t)
	var w wire
	bent := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.MaxConns = 8; w.config(c) })
	const owners, each = 32, 20
	stores := make([]*eventstore.Store, 2)
	for i := range stores {
		l, err := pglog.Open(t.Context(), bent, &pglog.Options{Schema: schema, Senders: 2})
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = eventstore.New(l, nil)
	}
	w.reset()
	var wg sync.WaitGroup
	for i := range owners {
		wg.Go(func() {
			b := batch(stream(i), 1)
			for range each {
				done, err := stores[i%2].Append(context.Background(), one(b))
				if err != nil {
					t.Error(err)
					return
				}
				b = next(b, done.Receipts[0], 1)
			}
		})
	}
	wg.Wait()
	t.Logf("%d appends in %d statements", owners*each, w.statements.Load())
	if w.statements.Load() >= owners*each {
		t.Error("nothing went together")
	}
	checkStreams(t, stores[0], owners)
	if n := len(feed(t, stores[0])); n != owners*each {
		t.Errorf("%d entries, want %d", n, owners*each)
	}
}
