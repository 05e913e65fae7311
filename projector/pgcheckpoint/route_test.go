// A read model in PostgreSQL of a store that lies in memory and in PostgreSQL: a
// checkpoint for each, each effect once.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

func TestSeveralBackends(t *testing.T) {
	e := newEnv(t)
	route, err := eventstore.NewRoute([]eventstore.Backend{{Name: "pg", Log: e.open().Log()}, {Name: "mem", Log: memlog.New(nil)}},
		&eventstore.RouteOptions{Default: "pg", Table: map[eventstore.Category]string{"order": "mem"}})
	e.ok(err)
	e.store = eventstore.New(route, nil)
	for _, c := range []eventstore.Category{"account", "order"} {
		e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}))
	}
	// One in seven steps fails behind its effects, and the whole step is undone.
	var n atomic.Int64
	h := pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+e.table+" (position) VALUES ($1)", place(ev.Entry))
		if n.Add(1)%7 == 0 {
			err = errors.New("boom")
		}
		return err
	}, e.options())
	newProjector := func() *projector.Projector {
		return projector.New(e.store, "p", "account", h, &projector.Options{Categories: []eventstore.Category{"order"}, PageSize: 5})
	}
	p := newProjector()
	stop := run(t, p)
	var account, order eventstore.Token
	marks := map[eventstore.Stream]eventstore.Mark{}
	for i := range 60 {
		account = e.appendTo(marks, eventstore.Stream(fmt.Sprintf("account-%d", i%3)))
		for range i % 3 {
			order = e.appendTo(marks, eventstore.Stream(fmt.Sprintf("order-%d", i%2)))
		}
		if i == 30 {
			_ = stop()
			p = newProjector() // as another process
			stop = run(t, p)
		}
	}
	for _, token := range []eventstore.Token{account, order} {
		e.ok(p.Wait(within(t), token))
	}
	_ = stop()
	rows, err := e.pool.Query(t.Context(), "SELECT projector || ' ' || version || ' ' || lane || ' ' || incarnation || ' ' || position FROM "+
		pgx.Identifier{e.schema, "checkpoints"}.Sanitize()+" ORDER BY projector")
	e.ok(err)
	kept, err := pgx.CollectRows(rows, pgx.RowTo[string])
	e.ok(err)
	want := []string{fmt.Sprint("p 1 0 ", account.Incarnation, " ", account.Position), fmt.Sprint("p/mem 1 0 ", order.Incarnation, " ", order.Position)}
	if fmt.Sprint(kept) != fmt.Sprint(want) {
		t.Errorf("checkpoints %q, want %q", kept, want)
	}
	e.once("account", 60)
	e.once("order", 60)
}

// place tells entries of both backends apart: those of orders are negative.
func place(e eventstore.Entry) int64 {
	if e.Stream.Category() == "order" {
		return -int64(e.Position)
	}
	return int64(e.Position)
}

// once demands the effects of a category: n, each once, in the order of the feed.
func (e *env) once(c eventstore.Category, n int) {
	e.t.Helper()
	var want []int64
	for entry, err := range e.store.Feed(e.t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{c}}) {
		e.ok(err)
		want = append(want, place(entry))
	}
	rows, err := e.pool.Query(e.t.Context(), "SELECT position FROM "+e.table+" WHERE (position < 0) = $1 ORDER BY n", c == "order")
	e.ok(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	e.ok(err)
	if len(got) != n || fmt.Sprint(got) != fmt.Sprint(want) {
		e.t.Errorf("effects of %s: %v, want %v", c, got, want)
	}
}

func (e *env) appendTo(marks map[eventstore.Stream]eventstore.Mark, s eventstore.Stream) eventstore.Token {
	e.t.Helper()
	ev, err := events.Encode(Deposited{1})
	e.ok(err)
	done, err := e.store.Append(e.t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: s, Epoch: 1,
		Holder: eventstore.UUID{1}, Claim: marks[s].Seqno == 0, After: marks[s], Events: []eventstore.Event{ev}}}})
	e.ok(err)
	marks[s] = done.Receipts[0].Last
	return done.Token
}
