// Documents in PostgreSQL beside a handler that writes the same rows with SQL of its own.

package pgdocuments_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
	"github.com/wattle-es/wattle/projector/pgdocuments"
)

const benchEntries = 2000

func benchStore(b *testing.B) *eventstore.Store {
	store := eventstore.New(memlog.New(nil), nil)
	if err := store.CreateCategory(b.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}); err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	marks := map[eventstore.Stream]eventstore.Mark{}
	for range benchEntries {
		s := eventstore.Stream(fmt.Sprint("account-", r.IntN(200)))
		ev, err := events.Encode(deposited{r.IntN(100)})
		if err != nil {
			b.Fatal(err)
		}
		done, err := store.Append(b.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: s, Epoch: 1, Holder: eventstore.UUID{1},
			Claim: marks[s].Seqno == 0, After: marks[s], Events: []eventstore.Event{ev}}}})
		if err != nil {
			b.Fatal(err)
		}
		marks[s] = done.Receipts[0].Last
	}
	return store
}

func BenchmarkProjection(b *testing.B) {
	pool, schema := pgtest.Schema(b)
	store := benchStore(b)
	o := &pgdocuments.Options{Checkpoints: pgcheckpoint.Options{Schema: schema}}
	if err := pgdocuments.EnsureTable(b.Context(), pool, o); err != nil {
		b.Fatal(err)
	}
	table := pgx.Identifier{schema, "counts"}.Sanitize()
	if _, err := pool.Exec(b.Context(), "CREATE TABLE "+table+" (key text PRIMARY KEY, n bigint, sum bigint)"); err != nil {
		b.Fatal(err)
	}
	docs := pgdocuments.New(pool, o)
	caller, err := handler.NewCaller(b.Context(), guest.New(counts), nil)
	if err != nil {
		b.Fatal(err)
	}
	upsert := "INSERT INTO " + table + " AS c VALUES ($1, 1, $2) ON CONFLICT (key) DO UPDATE SET n = c.n + 1, sum = c.sum + $2"
	sql := pgcheckpoint.Handler(pool, events, func(ctx context.Context, tx pgx.Tx, e projector.Event[deposited]) error {
		batch := &pgx.Batch{}
		batch.Queue(upsert, string(e.Stream), e.Value.Amount)
		batch.Queue(upsert, shared(e.Value.Amount), e.Value.Amount)
		return tx.SendBatch(ctx, batch).Close()
	}, &o.Checkpoints)
	n := 0
	for _, c := range []struct {
		name string
		h    projector.Handler
	}{{"sql", sql}, {"handler", guest.NewHandler(caller, docs, nil)}} {
		for _, batch := range []int{1, 100, 500} {
			b.Run(fmt.Sprintf("%s/batch=%d", c.name, batch), func(b *testing.B) {
				for b.Loop() {
					n++
					p := projector.New(store, fmt.Sprint("p", n), "account", c.h, &projector.Options{PageSize: batch, NoHold: true})
					if _, err := p.CatchUp(b.Context(), 0); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*benchEntries)/b.Elapsed().Seconds(), "entries/s")
			})
		}
	}
}
