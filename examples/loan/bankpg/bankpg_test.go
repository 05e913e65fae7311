// The read model in PostgreSQL: builds, and who may write to which.

package bankpg_test

import (
	"context"
	"errors"
	"iter"
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

// A rebuild gives the same figures; a process that still works on the build before
// stops, and has done no harm to the new one.
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

	// The old build's process sees more events, and has no table for them.
	_, err := e.service(old).Replay(t.Context(), generated(12), nil)
	if err == nil || !strings.Contains(err.Error(), "applications_1") {
		t.Errorf("wanted an error about the old table, found %v", err)
	}
	want = loan.Summarize(func(yield func(loan.Application) bool) {
		for a, err := range rebuilt.Applications(t.Context()) {
			if err != nil || !yield(a) {
				return
			}
		}
	})
	if want.Cases != 10 {
		t.Errorf("wanted the new build as it was, found %+v", want)
	}
	if got := e.replay(rebuilt, 12); got.Cases != 12 {
		t.Errorf("wanted 12 applications, found %d", got.Cases)
	}
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
