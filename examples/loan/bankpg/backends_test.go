// The loan process on every backend and on every two of them at once: the same code,
// the same figures.

package bankpg_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// backends is what a bank may choose from; the mixes are made of these lines.
var backends = []struct {
	name string
	open func(t *testing.T) eventstore.Log
}{
	{"memory", func(*testing.T) eventstore.Log { return memlog.New(nil) }},
	{"postgres", openPostgres},
	{"files", openFiles},
}

func openFiles(t *testing.T) eventstore.Log {
	t.Helper()
	log, err := filelog.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func openPostgres(t *testing.T) eventstore.Log {
	t.Helper()
	pool, schema := pgtest.Schema(t)
	log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// halves are the categories that applications are divided among here.
var halves = []eventstore.Category{"application", "application_north"}

const applications = 40

func TestBackendsAndMixes(t *testing.T) {
	want := figures(t)
	for i, a := range backends {
		t.Run(a.name, func(t *testing.T) {
			wantFigures(t, eventstore.New(a.open(t), nil), want)
		})
		for j, b := range backends {
			if i == j {
				continue
			}
			t.Run(a.name+" and "+b.name, func(t *testing.T) {
				route, err := eventstore.NewRoute([]eventstore.Backend{{Name: a.name, Log: a.open(t)}, {Name: b.name, Log: b.open(t)}},
					&eventstore.RouteOptions{Table: map[eventstore.Category]string{halves[0]: a.name, halves[1]: b.name}})
				if err != nil {
					t.Fatal(err)
				}
				wantFigures(t, eventstore.New(route, nil), want)
				for _, share := range route.Backends() {
					all, err := share.Log.(eventstore.Categories).ListCategories(t.Context())
					if err != nil || len(all) != 1 {
						t.Errorf("backend %s holds %v, %v, wanted one category", share.Name, all, err)
					}
				}
			})
		}
	}
}

// figures is the report without any store.
func figures(t *testing.T) loan.Report {
	t.Helper()
	return loan.Summarize(func(yield func(loan.Application) bool) {
		for c := range loan.Generate(1, applications) {
			state, a := loan.Initial(), loan.Application{}
			for i := range c.Events {
				command, err := loan.CommandFor(c, i)
				if err != nil {
					t.Fatal(err)
				}
				events, err := loan.Decide(state, command)
				if err != nil {
					t.Fatal(err)
				}
				state, a = loan.Evolve(state, events[0]), loan.Apply(a, events[0])
			}
			if !yield(a) {
				return
			}
		}
	})
}

// wantFigures runs the process on a store, with the report in memory and in PostgreSQL.
func wantFigures(t *testing.T, store *eventstore.Store, want loan.Report) {
	t.Helper()
	t.Cleanup(func() { _ = store.Close() })
	o := &bank.Options{Categories: halves}
	for name, view := range map[string]bank.View{"memory": &bank.MemoryView{}, "postgres": pgView(t, store)} {
		s, err := bank.New(t.Context(), store, view, o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time everything is there
			got, err := s.Replay(t.Context(), generated(applications), nil)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("read model in %s: report %+v, %v, wanted %+v", name, got, err, want)
			}
		}
	}
	for _, c := range halves {
		n := 0
		for _, err := range store.Feed(t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{c}}) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if n < want.Events/4 {
			t.Errorf("%d of %d events in %s: the applications are not divided", n, want.Events, c)
		}
	}
	readsItsWrites(t, store, o)
}

// readsItsWrites lets a reader wait for its own write in each half.
func readsItsWrites(t *testing.T, store *eventstore.Store, o *bank.Options) {
	t.Helper()
	s, err := bank.New(t.Context(), store, &bank.MemoryView{}, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replay(t.Context(), generated(applications), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Project(ctx) }()
	for i := range 6 {
		order := loan.Order{At: time.Date(2012, 6, 1, 12, 0, 0, 0, time.UTC)}
		res, err := s.Execute(ctx, fmt.Sprint("new", i), loan.Submit{Order: order, Amount: 5000})
		if err == nil {
			err = s.Wait(ctx, res.Token)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Report(ctx); err != nil || r.Cases != applications+i+1 {
			t.Errorf("%d applications, %v, wanted %d", r.Cases, err, applications+i+1)
		}
	}
	cancel()
	<-done
}

// pgView is a read model in PostgreSQL of a store that lies wherever it does.
func pgView(t *testing.T, store *eventstore.Store) *bankpg.View {
	t.Helper()
	pool, schema := pgtest.Schema(t)
	o := bankpg.Options{Schema: bankpg.SchemaBeside(schema), StoreSchema: schema, Categories: halves}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+pgx.Identifier{o.Schema}.Sanitize()+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	v, err := bankpg.Open(t.Context(), pool, store, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
