// An append inside the caller's transaction: announcements, refusals, lost races.

package pglog_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
)

// announced keeps hints.
type announced struct {
	mu    sync.Mutex
	hints []eventstore.Announcement
	look  func(eventstore.Announcement)
}

func (a *announced) Announce(_ context.Context, hints []eventstore.Announcement) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hints = append(a.hints, hints...)
	for _, h := range hints {
		a.look(h)
	}
	return nil
}

func (a *announced) Subscribe(context.Context, []eventstore.Category, func(eventstore.Announcement)) (func(), error) {
	return func() {}, nil
}

func (a *announced) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.hints)
}

// TestAnnouncedBehindCommit: nobody is told of entries before others can read them.
func TestAnnouncedBehindCommit(t *testing.T) {
	c := freshCounted(t)
	a := &announced{look: func(h eventstore.Announcement) {
		if got, err := c.store.Head(context.Background(), h.Stream); err != nil || got.Last.Seqno != h.Seqno {
			t.Errorf("told of %s %d, which stands at %d, %v", h.Stream, h.Seqno, got.Last.Seqno, err)
		}
	}}
	l, err := pglog.Open(t.Context(), c.pool, &pglog.Options{Schema: c.schema})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, &eventstore.Options{Announcer: a})
	within := func(st eventstore.Stream) error {
		_, err := pglog.Within(t.Context(), s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
			return one(batch(st, 2)), c.effect(ctx, tx, "told")
		})
		return err
	}
	if err := within("account-a"); err != nil || a.count() != 1 {
		t.Errorf("%v, %d announcements, want 1", err, a.count())
	}
	if err := within("account-a"); !errors.Is(err, eventstore.ErrFenced) || a.count() != 1 {
		t.Errorf("%v, %d announcements after a refusal, want 1", err, a.count())
	}

	tx := begin(t, c.pool)
	p, err := pglog.AppendTx(t.Context(), s, tx, eventstore.Append{Batches: []eventstore.Batch{batch("account-b", 1), batch("account-c", 2)}})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Receipts(); len(r) != 2 || r[1].Last.Seqno != 2 || a.count() != 1 {
		t.Errorf("receipts %+v, %d announcements", r, a.count())
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.count() != 1 {
		t.Error("announced before it was said that the transaction has committed")
	}
	done := p.Committed(t.Context())
	if again := p.Committed(t.Context()); again.Token != done.Token || done.Token.Position == 0 || a.count() != 3 {
		t.Errorf("%+v, then %+v, %d announcements, want 3", done, again, a.count())
	}
}

// TestAppendTxRefused: a refusal of any kind leaves the transaction usable, and what
// comes behind it commits.
func TestAppendTxRefused(t *testing.T) {
	c := freshCounted(t)
	b := batch("account-taken", 2)
	last := must(t, c.store, one(b)).Receipts[0]
	gap := batch("account-gap", 1)
	gap.After.Seqno = 3
	written := next(b, last, 1)
	written.After = eventstore.Mark{Seqno: 1, ID: b.Events[0].ID}
	reused := batch("account-taken", 2)
	reused.ID = b.ID
	tx := begin(t, c.pool)
	ctx := t.Context()
	for i, x := range []struct {
		a    eventstore.Append
		want error
	}{
		{one(batch("account-taken", 1)), eventstore.ErrFenced},
		{one(gap), eventstore.ErrGap},
		{one(written), eventstore.ErrAlreadyWritten},
		{one(reused), eventstore.ErrBatchIDReused},
		{one(batch("nowhere-x", 1)), eventstore.ErrNoSuchCategory},
		{eventstore.Append{Batches: []eventstore.Batch{batch("account-new", 1), batch("account-taken", 1)}}, eventstore.ErrFenced},
		{eventstore.Append{Batches: []eventstore.Batch{batch("account-new", 1), b}}, eventstore.ErrBatchIDReused},
		{eventstore.Append{Batches: []eventstore.Batch{batch("account-new", 1)}, Guards: []eventstore.Guard{{Stream: "account-taken"}}}, eventstore.ErrGuard},
		{eventstore.Append{}, eventstore.ErrInvalid},
	} {
		if _, err := pglog.AppendTx(ctx, c.store, tx, x.a); !errors.Is(err, x.want) {
			t.Errorf("%d: %v, want %v", i, err, x.want)
		}
		if err := c.effect(ctx, tx, "survived"); err != nil {
			t.Fatalf("%d: the transaction is not usable: %v", i, err)
		}
	}
	p, err := pglog.AppendTx(ctx, c.store, tx, one(b))
	if err != nil || !p.Receipts()[0].Replays {
		t.Errorf("resent: %v, want it proved", err)
	}
	nb := next(b, last, 1)
	for i := range 2 { // the second time it is proved by what this transaction wrote
		p, err = pglog.AppendTx(ctx, c.store, tx, one(nb))
		if err != nil || p.Receipts()[0].Replays != (i == 1) {
			t.Errorf("behind the refusals: %+v %v", p, err)
		}
	}
	if _, err := tx.Exec(ctx, "select 1/0"); err == nil {
		t.Fatal("no error")
	}
	tx.Rollback(ctx)
	c.want(t, "rolled back", "survived", "account-taken", 0, 2)

	tx = begin(t, c.pool)
	if _, err := tx.Exec(ctx, "select 1/0"); err == nil {
		t.Fatal("no error")
	}
	if _, err := pglog.AppendTx(ctx, c.store, tx, one(nb)); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("in a failed transaction: %v, want ErrInvalid", err)
	}
	tx.Rollback(ctx)
	if _, err := pglog.AppendTx(ctx, c.store, tx, one(nb)); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("in an ended transaction: %v, want ErrInvalid", err)
	}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := c.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		rollback(t, tx)
		for _, a := range []eventstore.Append{one(nb), {Batches: []eventstore.Batch{nb, batch("account-new", 1)}}} {
			if _, err := pglog.AppendTx(ctx, c.store, tx, a); !errors.Is(err, eventstore.ErrIsolation) {
				t.Errorf("under %s: %v, want ErrIsolation", level, err)
			}
		}
		if err := c.effect(ctx, tx, "stricter"); err != nil {
			t.Errorf("under %s the refusal left the transaction failed: %v", level, err)
		}
		tx.Rollback(ctx)
	}
	c.want(t, "stricter", "stricter", "account-taken", 0, 2)
}

// TestAppendTxLosesRace: somebody else creates one of the streams while the append
// waits for it; the statement fails, the transaction does not.
func TestAppendTxLosesRace(t *testing.T) {
	c := freshCounted(t)
	ctx := t.Context()
	for name, commits := range map[string]bool{"lost": true, "won": false} {
		mine, theirs := eventstore.Stream("account-mine"+name), eventstore.Stream("account-theirs"+name)
		other := begin(t, c.pool)
		if _, err := pglog.AppendTx(ctx, c.store, other, one(batch(theirs, 1))); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, c.pool)
		if err := c.effect(ctx, tx, name); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			_, err := pglog.AppendTx(ctx, c.store, tx, eventstore.Append{Batches: []eventstore.Batch{batch(mine, 1), batch(theirs, 1)}})
			got <- err
		}()
		eventually(t, "the append waits", func() bool {
			var n int
			return c.pool.QueryRow(ctx, "select count(*) from pg_locks where not granted and locktype = 'transactionid'").Scan(&n) == nil && n > 0
		})
		var want error
		if commits {
			want = eventstore.ErrFenced
			if err := other.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		} else if err := other.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Errorf("%s: the transaction did not survive: %v", name, err)
		}
		if n := c.effects(t, name); n != 1 || (c.head(t, mine) == 1) == commits || c.head(t, theirs) != 1 {
			t.Errorf("%s: effect %d times, heads %d and %d", name, n, c.head(t, mine), c.head(t, theirs))
		}
	}
}
