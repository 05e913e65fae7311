// The read model in PostgreSQL: builds, and who may write to which.

package bankpg_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// env is a migrated store with a read model beside it.
type env struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *eventstore.Store
	o     bankpg.Options
}

func newEnv(t *testing.T) *env {
	t.Helper()
	pool, schema := pgtest.Schema(t)
	log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t, pool, eventstore.New(log, nil), bankpg.Options{Schema: bankpg.SchemaBeside(schema), StoreSchema: schema}}
	t.Cleanup(func() {
		_ = e.store.Close()
		if _, err := pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+pgx.Identifier{e.o.Schema}.Sanitize()+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *env) open(rebuild bool) *bankpg.View {
	e.t.Helper()
	o := e.o
	o.Rebuild = rebuild
	v, err := bankpg.Open(e.t.Context(), e.pool, e.store, o)
	if err != nil {
		e.t.Fatal(err)
	}
	return v
}

func (e *env) service(v *bankpg.View) *bank.Service {
	e.t.Helper()
	s, err := bank.New(e.t.Context(), e.store, v)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

func generated(n int) iter.Seq2[loan.Case, error] {
	return func(yield func(loan.Case, error) bool) {
		for c := range loan.Generate(1, n) {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (e *env) replay(v *bankpg.View, n int) loan.Report {
	e.t.Helper()
	r, err := e.service(v).Replay(e.t.Context(), generated(n), nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// The first processes may start at once, and all work on one build.
func TestOpenAtOnce(t *testing.T) {
	e := newEnv(t)
	builds := make(chan int)
	for range 6 {
		go func() {
			v, err := bankpg.Open(t.Context(), e.pool, e.store, e.o)
			if err != nil {
				t.Error(err)
				builds <- 0
				return
			}
			builds <- v.Version()
		}()
	}
	for range 6 {
		if n := <-builds; n != 1 {
			t.Errorf("wanted build 1, found %d", n)
		}
	}
}

// A model that is made anew at once gives the same figures; a process that has opened the
// one before goes on with the new one, and does it no harm.
func TestRebuild(t *testing.T) {
	e := newEnv(t)
	old := e.open(false)
	want := e.replay(old, 10)
	if again := e.open(false); again.Version() != old.Version() {
		t.Errorf("wanted build %d, found %d", old.Version(), again.Version())
	}

	rebuilt := e.open(true)
	if rebuilt.Version() != old.Version()+1 {
		t.Errorf("wanted build %d, found %d", old.Version()+1, rebuilt.Version())
	}
	// What the old build held back may be trimmed.
	if holds, err := e.store.ListHolds(t.Context()); err != nil || len(holds) > 0 {
		t.Errorf("wanted no hold, found %v, %v", holds, err)
	}
	if got := e.replay(rebuilt, 10); got.Events != want.Events || got.Cases != want.Cases {
		t.Errorf("wanted %+v, found %+v", want, got)
	}

	want = e.replay(old, 12)
	if got := e.replay(rebuilt, 12); got.Cases != 12 || !reflect.DeepEqual(got, want) {
		t.Errorf("wanted 12 applications, found %+v and %+v", got, want)
	}
	if left := e.tables(); !slices.Equal(left, []string{"applications_2"}) {
		t.Errorf("wanted the old table gone, found %q", left)
	}
}

// tables of the read model.
func (e *env) tables() []string {
	e.t.Helper()
	rows, err := e.pool.Query(e.t.Context(), "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename LIKE 'applications%' ORDER BY tablename", e.o.Schema)
	if err != nil {
		e.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

func TestOpenFails(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bankpg.Open(ctx, e.pool, e.store, e.o); !errors.Is(err, context.Canceled) {
		t.Errorf("wanted it cancelled, found %v", err)
	}
	o := e.o
	o.Schema = "pg_wattle"
	if _, err := bankpg.Open(t.Context(), e.pool, e.store, o); err == nil || !strings.Contains(err.Error(), "pg_wattle") {
		t.Errorf("wanted PostgreSQL to refuse the name, found %v", err)
	}
}

func TestSchemaBeside(t *testing.T) {
	if got := bankpg.SchemaBeside("wattle"); got != "wattle_loan" {
		t.Errorf("wanted wattle_loan, found %s", got)
	}
	long := strings.Repeat("x", 62)
	a, b := bankpg.SchemaBeside(long+"a"), bankpg.SchemaBeside(long+"b")
	if a == b || len(a) > 63 || !strings.HasSuffix(a, "_loan") {
		t.Errorf("wanted two names of at most 63 bytes, found %s and %s", a, b)
	}
	if got := bankpg.SchemaBeside(strings.Repeat("é", 31)); len(got) > 63 || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("wanted whole characters, found %q", got)
	}
}
