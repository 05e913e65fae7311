// Store and read model in one PostgreSQL: the whole chain on the real thing.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// onPostgres puts the store beside the read model.
func onPostgres(t *testing.T) *env {
	e := newEnv(t)
	e.store = e.open()
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}))
	return e
}

func (e *env) open() *eventstore.Store {
	log, err := pglog.Open(e.t.Context(), e.pool, &pglog.Options{Schema: e.schema})
	e.ok(err)
	e.t.Cleanup(func() { _ = log.Close() })
	return eventstore.New(log, nil)
}

// P2 of the cases: transactions that have drawn positions are killed; the gaps
// hold nobody up and nothing is missed.
func TestP2KilledAppendsLeaveNothingBehind(t *testing.T) {
	e := onPostgres(t)
	p := projector.New(e.store, "p", "account", e.handler(e.pool))
	run(t, p)
	e.ok(p.Wait(within(t), e.deposit(5)))
	sequence := pgx.Identifier{e.schema, "position"}.Sanitize()
	for range 5 {
		tx, err := e.pool.Begin(t.Context())
		e.ok(err)
		_, err = tx.Exec(t.Context(), "SELECT nextval(tableoid::regclass) FROM "+sequence)
		e.ok(err)
		e.ok(e.kill(tx))
		_ = tx.Rollback(t.Context())
		e.deposit(2)
	}
	e.ok(p.Wait(within(t), e.deposit(100)))
	e.check(115)
}

// P2 of the cases, as reported: ten appends in open transactions, their sessions
// killed, a hundred more appends. There is no gap in any stream, and the projection
// reaches the head.
func TestP2KilledTransactionsOfAppends(t *testing.T) {
	e := onPostgres(t)
	p := projector.New(e.store, "p", "account", e.handler(e.pool))
	run(t, p)
	e.ok(p.Wait(within(t), e.deposit(5)))
	for i := range 10 {
		conn, err := pgx.ConnectConfig(t.Context(), e.pool.Config().ConnConfig)
		e.ok(err)
		defer conn.Close(context.Background())
		tx, err := conn.Begin(t.Context())
		e.ok(err)
		ev, err := events.Encode(Deposited{1})
		e.ok(err)
		b := eventstore.Batch{Stream: eventstore.Stream(fmt.Sprintf("account-open%d", i)), Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: []eventstore.Event{ev}}
		if i == 9 { // the last one on the stream that goes on
			b.Stream, b.Epoch, b.After = "account-a", 2, e.after
		}
		_, err = pglog.AppendTx(t.Context(), e.store, tx, eventstore.Append{Batches: []eventstore.Batch{b}})
		e.ok(err)
		defer func() {
			if err := tx.Commit(context.Background()); err == nil {
				t.Error("a killed transaction committed")
			}
		}()
		e.ok(e.kill(tx))
	}
	e.ok(p.Wait(within(t), e.deposit(100)))
	e.check(105)
	want := eventstore.Seqno(1)
	for entry, err := range e.store.Read(t.Context(), "account-a", 0) {
		e.ok(err)
		if entry.Seqno != want {
			t.Fatalf("seqno %d, want %d", entry.Seqno, want)
		}
		want++
	}
	if want != 106 {
		t.Errorf("head at %d, want 105", want-1)
	}
}

// A server has a timeline, so the checkpoint carries a digest, and is proved by it.
func TestResumeOnPostgres(t *testing.T) {
	e := onPostgres(t)
	for round := range 3 {
		e.deposit(40)
		p := projector.New(e.store, "p", "account", e.handler(e.pool), &projector.Options{PageSize: 7})
		if more, err := p.CatchUp(within(t), 0); more || err != nil {
			t.Fatalf("more %v, %v", more, err)
		}
		e.check(40 * (round + 1))
	}
	c := pgcheckpoint.NewCheckpoints(e.pool, e.options())
	key := projector.Key{Projector: "p", Version: 1}
	kept, err := c.Load(t.Context(), key)
	e.ok(err)
	if kept.Timeline == 0 || len(kept.Recent) == 0 {
		t.Fatalf("kept %+v", kept)
	}
	// As if the server had failed over since: nothing is lost, so it goes on.
	other := kept
	other.Timeline++
	e.ok(c.Save(t.Context(), projector.Step{Key: key, From: kept, To: other}))
	p := projector.New(e.store, "p", "account", e.handler(e.pool))
	e.deposit(1)
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	e.check(121)
	// And with an entry lost below the mark.
	kept, err = c.Load(t.Context(), key)
	e.ok(err)
	other = kept
	other.Timeline++
	e.ok(c.Save(t.Context(), projector.Step{Key: key, From: kept, To: other}))
	entries := pgx.Identifier{e.schema, "entries"}.Sanitize()
	_, err = e.pool.Exec(t.Context(), "DELETE FROM "+entries+" WHERE position = (SELECT min(position) + 60 FROM "+entries+")")
	e.ok(err)
	if _, err := p.CatchUp(within(t), 0); !errors.Is(err, eventstore.ErrDiverged) {
		t.Errorf("an entry is lost: %v", err)
	}
}

// R6 of the cases: the store is restored as a new incarnation under the checkpoint.
func TestR6RestoredStore(t *testing.T) {
	e := onPostgres(t)
	e.deposit(10)
	if _, err := projector.New(e.store, "p", "account", e.handler(e.pool)).CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	_, err := e.pool.Exec(t.Context(), "UPDATE "+pgx.Identifier{e.schema, "store"}.Sanitize()+" SET incarnation = gen_random_uuid()")
	e.ok(err)
	e.store = e.open()
	e.deposit(5)
	if err := projector.New(e.store, "p", "account", e.handler(e.pool)).Run(within(t)); !errors.Is(err, eventstore.ErrDiverged) {
		t.Error(err)
	}
	e.check(10)
}

// A projector keeps its hold through trims, and R4 by a new one.
func TestR4OnPostgres(t *testing.T) {
	e := onPostgres(t)
	e.deposit(50)
	p := projector.New(e.store, "p", "account", e.handler(e.pool))
	for range 2 { // the second one moves the hold to the checkpoint
		p = projector.New(e.store, "p", "account", e.handler(e.pool))
		if _, err := p.CatchUp(within(t), 0); err != nil {
			t.Fatal(err)
		}
	}
	r, err := e.store.Trim(t.Context(), "account-a", 50, false)
	if err != nil || r.Trimmed != 49 {
		t.Fatalf("%+v, %v", r, err)
	}
	e.deposit(5)
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 10} {
		var seen []eventstore.Seqno
		h := projector.Func(func(_ context.Context, batch []eventstore.Entry) error {
			for _, entry := range batch {
				seen = append(seen, entry.Seqno)
			}
			return nil
		})
		_, err := projector.New(e.store, "new", "account", h, &projector.Options{PageSize: size}).CatchUp(within(t), 0)
		trimmed, _ := errors.AsType[*eventstore.Error](err)
		if !errors.Is(err, eventstore.ErrTrimmed) || trimmed.FirstPosition == 0 || len(seen) != 0 {
			t.Fatalf("%v, seen %v", err, seen)
		}
		_, err = projector.New(e.store, "new", "account", h, &projector.Options{PageSize: size, AcceptTrimmed: true}).CatchUp(within(t), 0)
		if err != nil || len(seen) != 6 || seen[0] != 50 {
			t.Errorf("%v, seen %v", err, seen)
		}
	}
}
