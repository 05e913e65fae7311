// The documents in PostgreSQL, held against the suite, and what only a database can do.

package pgdocuments_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/guest/documentstest"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
	"github.com/wattle-es/wattle/projector/pgdocuments"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func options(schema string) *pgdocuments.Options {
	return &pgdocuments.Options{Checkpoints: pgcheckpoint.Options{Schema: schema}, Table: `odd "table"`}
}

// moded is a pool like another one, in another mode of query execution.
func moded(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestDocuments(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			_, schema := pgtest.Schema(t)
			pool := moded(t, mode)
			if err := pgdocuments.EnsureTable(t.Context(), pool, options(schema)); err != nil {
				t.Fatal(err)
			}
			documentstest.Run(t, func(t *testing.T) guest.Documents {
				for _, table := range []string{"checkpoints", "projectors", "parked", "skipped", options(schema).Table} {
					if _, err := pool.Exec(t.Context(), "DELETE FROM "+pgx.Identifier{schema, table}.Sanitize()); err != nil {
						t.Fatal(err)
					}
				}
				t.Cleanup(func() { noEmptyRows(t, pool, schema) })
				return pgdocuments.New(pool, options(schema))
			})
		})
	}
}

// noEmptyRows wants nothing left of the locks on documents that are not there.
func noEmptyRows(t *testing.T, pool *pgxpool.Pool, schema string) {
	var left int
	err := pool.QueryRow(context.Background(), "SELECT count(*) FROM "+pgx.Identifier{schema, options(schema).Table}.Sanitize()+" WHERE data IS NULL").Scan(&left)
	if err != nil || left > 0 {
		t.Errorf("%d rows without data left, %v", left, err)
	}
}

func TestEnsureTableAtOnce(t *testing.T) {
	pool, schema := pgtest.Schema(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := pgdocuments.EnsureTable(t.Context(), pool, options(schema)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// Without the table nothing is blamed on an entry.
func TestNoTable(t *testing.T) {
	pool, schema := pgtest.Schema(t)
	d := pgdocuments.New(pool, options(schema))
	key := projector.Key{Projector: "p", Version: 1}
	s := projector.Step{Key: key, To: projector.Checkpoint{Epoch: 1, Holder: eventstore.UUID{1}, Position: 1}, Batch: []eventstore.Entry{{Stream: "a-1"}}}
	err := d.Step(t.Context(), s, func(ctx context.Context, tx guest.Tx) error {
		_, err := tx.Read(ctx, []string{"a"})
		return err
	})
	if _, blamed := errors.AsType[*projector.EntryError](err); blamed || !errors.Is(err, eventstore.ErrNotMigrated) {
		t.Error(err)
	}
	if _, _, err := d.Get(t.Context(), "p", 1, "a"); !errors.Is(err, eventstore.ErrNotMigrated) {
		t.Error(err)
	}
}

// A reset takes the documents with it, in the transaction that moves the checkpoint; but
// not where they could not be made again.
func TestReset(t *testing.T) {
	pool, schema := pgtest.Schema(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(pgdocuments.EnsureTable(t.Context(), pool, options(schema)))
	d := pgdocuments.New(pool, options(schema))
	store := eventstore.New(memlog.New(nil), nil)
	ok(store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}))
	if err := d.Reset(t.Context(), store, "counts", 1, false); !errors.Is(err, projector.ErrNotRegistered) {
		t.Error(err)
	}
	caller, err := handler.NewCaller(t.Context(), guest.New(counts), nil)
	ok(err)
	up := func() {
		t.Helper()
		_, err := guest.NewProjector(store, "counts", caller, d, nil).CatchUp(t.Context(), 0)
		ok(err)
	}
	w := &writer{t: t, store: store, marks: map[eventstore.Stream]eventstore.Mark{}, want: map[string]count{}}
	w.deposit(rand.New(rand.NewPCG(1, 1)), 60)
	key := projector.Key{Projector: "counts", Version: 1}
	// there returns how many documents there are, and the checkpoint.
	there := func() (n int, kept projector.Checkpoint) {
		t.Helper()
		for _, err := range d.All(t.Context(), "counts", 1) {
			ok(err)
			n++
		}
		kept, err := d.Keeps().Load(t.Context(), key)
		ok(err)
		return n, kept
	}
	up()
	all, kept := there()
	for _, version := range []int{1, 0} { // 0 is the live one
		ok(d.Reset(t.Context(), store, "counts", version, false))
		if n, c := there(); n != 0 || c.Position != 0 || c.Epoch <= kept.Epoch {
			t.Errorf("behind a reset %d documents, checkpoint %v", n, c)
		}
		up()
		if n, c := there(); n != all || c.Position != kept.Position {
			t.Errorf("handled again: %d documents of %d, checkpoint %v", n, all, c)
		}
	}
	ok(store.ReleaseHold(t.Context(), "projector/counts/1/0", "account", ""))
	for s, mark := range w.marks {
		_, err := store.Trim(t.Context(), s, mark.Seqno, false)
		ok(err)
	}
	if err := d.Reset(t.Context(), store, "counts", 1, false); !errors.Is(err, eventstore.ErrTrimmed) {
		t.Errorf("what is gone cannot be handled again: %v", err)
	}
	if n, c := there(); n != all || c.Position != kept.Position {
		t.Errorf("a reset that was refused left %d documents of %d, checkpoint %v", n, all, c)
	}
	ok(d.Reset(t.Context(), store, "counts", 1, true))
	if n, c := there(); n != 0 || c.Position != 0 {
		t.Errorf("behind a reset that was told so %d documents, checkpoint %v", n, c)
	}
}
