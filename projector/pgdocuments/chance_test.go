// Exactness on PostgreSQL: backends killed between a call and the commit, workers that
// share documents, a rebuild that is switched to.

package pgdocuments_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
	"github.com/wattle-es/wattle/projector/pgdocuments"
)

type deposited struct{ Amount int }

var events = schema.New[deposited](schema.Wire[deposited]("deposited", 1))

// count is a document; there is one a stream and two that all streams share.
type count struct{ N, Sum int }

func shared(amount int) string { return fmt.Sprint("shared ", amount%2) }

var counts = guest.Projection[deposited]{
	Name: "counts", Category: "account", Events: events,
	Keys: func(e projector.Event[deposited]) []string { return []string{string(e.Stream), shared(e.Value.Amount)} },
	Apply: func(e projector.Event[deposited], docs *guest.Docs) error {
		for _, key := range []string{string(e.Stream), shared(e.Value.Amount)} {
			var c count
			docs.Get(key, &c)
			docs.Put(key, count{c.N + 1, c.Sum + e.Value.Amount})
		}
		return nil
	},
}

// killer is a handler after whose answer, now and then, every connection that waits inside
// a transaction is killed.
type killer struct {
	handler.Handler
	admin  *pgxpool.Pool
	name   string // of the application
	mu     sync.Mutex
	r      *rand.Rand
	healed atomic.Bool
	killed atomic.Int64
}

func (k *killer) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	reply, err := k.Handler.Handle(ctx, r)
	k.mu.Lock()
	dead := r.Op == handler.Project && !k.healed.Load() && k.r.IntN(5) == 0
	k.mu.Unlock()
	if !dead {
		return reply, err
	}
	const kill = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = $1 AND state = 'idle in transaction'"
	var n int64
	if err := k.admin.QueryRow(ctx, kill, k.name).Scan(&n); err != nil {
		return nil, err
	}
	k.killed.Add(n)
	return reply, err
}

func TestKilledBackends(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	admin, schema := pgtest.Schema(t)
	o := &pgdocuments.Options{Checkpoints: pgcheckpoint.Options{Schema: schema}}
	if err := pgdocuments.EnsureTable(t.Context(), admin, o); err != nil {
		t.Fatal(err)
	}
	docs := pgdocuments.New(named(t, schema), o)
	k := &killer{Handler: guest.New(counts), admin: admin, name: schema, r: rand.New(rand.NewPCG(seed, 2))}
	store := eventstore.New(memlog.New(nil), nil)
	if err := store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, store: store, marks: map[eventstore.Stream]eventstore.Mark{}, want: map[string]count{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var reader *projector.Reader
	for range 3 {
		v, err := guest.NewVersioned(t.Context(), store, "counts", docs, func(ctx context.Context, _ int) (*handler.Caller, error) {
			return handler.NewCaller(ctx, k, &handler.Options{Limits: handler.Limits{Batch: 7}})
		}, &guest.Options{Projector: projector.Options{Lanes: 4, PageSize: 20, LeaseTTL: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		reader = v.Reader()
		running.Go(func() {
			if err := v.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	within, done := context.WithTimeout(t.Context(), 2*time.Minute)
	defer done()
	for _, err := reader.Live(within); err != nil; _, err = reader.Live(within) { // until a worker has registered it
		if !errors.Is(err, projector.ErrNotRegistered) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	control := projector.NewAdmin(store, docs.Keeps().(projector.Control))
	for round := range 6 {
		token := w.deposit(r, 60)
		if round == 2 {
			if _, err := control.Rebuild(within, "counts", false); err != nil {
				t.Fatal(err)
			}
		}
		if round == 4 {
			if err := control.Switch(within, "counts", 2, &projector.SwitchOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
		}
		if round%2 == 1 {
			if _, err := reader.Wait(within, token); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.healed.Store(true)
	live, err := reader.Wait(within, w.deposit(r, 1))
	if err != nil || live != 2 {
		t.Fatalf("version %d live, %v", live, err)
	}
	w.check(docs, live)
	if k.killed.Load() == 0 {
		t.Error("nothing was killed")
	}
	t.Logf("%d connections killed inside a transaction", k.killed.Load())
}

// named is a pool whose connections can be told from others.
func named(t *testing.T, name string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 10
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// writer appends, and folds what it appends.
type writer struct {
	t     *testing.T
	store *eventstore.Store
	marks map[eventstore.Stream]eventstore.Mark
	want  map[string]count
}

func (w *writer) deposit(r *rand.Rand, n int) (token eventstore.Token) {
	for range n {
		s := eventstore.Stream(fmt.Sprint("account-", r.IntN(20)))
		amount := r.IntN(100)
		ev, err := events.Encode(deposited{amount})
		if err != nil {
			w.t.Fatal(err)
		}
		done, err := w.store.Append(w.t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: s, Epoch: 1, Holder: eventstore.UUID{1},
			Claim: w.marks[s].Seqno == 0, After: w.marks[s], Events: []eventstore.Event{ev}}}})
		if err != nil {
			w.t.Fatal(err)
		}
		w.marks[s], token = done.Receipts[0].Last, done.Token
		for _, key := range []string{string(s), shared(amount)} {
			c := w.want[key]
			w.want[key] = count{c.N + 1, c.Sum + amount}
		}
	}
	return token
}

func (w *writer) check(docs guest.Documents, version int) {
	w.t.Helper()
	got := map[string]count{}
	for d, err := range docs.All(context.Background(), "counts", version) {
		if err != nil {
			w.t.Fatal(err)
		}
		var c count
		if err := json.Unmarshal(d.Data, &c); err != nil {
			w.t.Fatal(err)
		}
		got[d.Key] = c
	}
	if !maps.Equal(got, w.want) {
		w.t.Errorf("documents\n%v\nwant\n%v", got, w.want)
	}
}
