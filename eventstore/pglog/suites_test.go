// The whole conformance suite where connections are few: behind PgBouncer with two to
// the server, and on pools of one.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestSuiteOnFewConnections runs the whole suite. Case C1: through a pooler in
// transaction mode with two connections to the server and eight callers, in the query
// mode that is advised; in a soak also in the others that such poolers allow, and on
// pools of one, where nothing may take a second connection while it holds one.
func TestSuiteOnFewConnections(t *testing.T) {
	pooler := pgtest.Bouncer(t, pgtest.DSN(t), 2)
	behind := func(mode pgx.QueryExecMode) func(t testing.TB, server *pgx.ConnConfig) *pgxpool.Pool {
		return func(t testing.TB, _ *pgx.ConnConfig) *pgxpool.Pool { return pooled(t, pooler, mode, 8) }
	}
	suites := map[string]func(t testing.TB, server *pgx.ConnConfig) *pgxpool.Pool{"C1 exec": behind(pgx.QueryExecModeExec)}
	if soak() {
		suites["C1 simple"] = behind(pgx.QueryExecModeSimpleProtocol)
		suites["C1 cache describe"] = behind(pgx.QueryExecModeCacheDescribe)
		suites["pool of one"] = func(t testing.TB, server *pgx.ConnConfig) *pgxpool.Pool {
			return pool(t, server.ConnString(), func(c *pgxpool.Config) { c.MaxConns = 1 })
		}
	}
	for name, connect := range suites {
		t.Run(name, func(t *testing.T) { logtest.Run(t, fewConnections(connect)) })
	}
}

// fewConnections is the harness; the other process and the long transaction have a pool
// of one of their own.
func fewConnections(connect func(t testing.TB, server *pgx.ConnConfig) *pgxpool.Pool) logtest.Harness {
	another := func(ctx context.Context, s *store) (*pgxpool.Pool, error) {
		config := s.pool.Config()
		config.MaxConns, config.MinConns = 1, 0
		return pgxpool.NewWithConfig(ctx, config)
	}
	var alone sync.Mutex // two long transactions would keep both connections from those they wait for
	return logtest.Harness{
		Open: func(t testing.TB) eventstore.Log {
			direct, schema := pgtest.Schema(t)
			p := connect(t, direct.Config().ConnConfig)
			l, _ := open(t, p, schema)
			return &store{l, p, schema}
		},
		Reopen: func(t testing.TB, log eventstore.Log) eventstore.Log {
			s := log.(*store)
			p, err := another(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			l, _ := open(t, p, s.schema)
			return &store{l, p, s.schema}
		},
		LongTx: func(ctx context.Context, log eventstore.Log, a eventstore.Append, meanwhile func(), commit bool) error {
			alone.Lock()
			defer alone.Unlock()
			s := log.(*store)
			p, err := another(ctx, s)
			if err != nil {
				return err
			}
			defer p.Close()
			return harness.LongTx(ctx, &store{s.Log, p, s.schema}, a, meanwhile, commit)
		},
	}
}

// pooled returns a pool of n connections to a pooler.
func pooled(t testing.TB, pooler string, mode pgx.QueryExecMode, n int32) *pgxpool.Pool {
	t.Helper()
	return pool(t, pooler, func(c *pgxpool.Config) {
		c.MaxConns = n
		c.ConnConfig.DefaultQueryExecMode = mode
	})
}

// TestPoolOfOneTogether: everything at once on one connection: group commit, Within,
// AppendTx, readers, snapshots, trims. All of it ends.
func TestPoolOfOneTogether(t *testing.T) {
	for _, n := range []int32{1, 3} {
		c := freshCounted(t)
		p := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.MaxConns = n })
		_, s := open(t, p, c.schema)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		rounds := 10
		if testing.Short() {
			rounds = 3
		}
		var wg sync.WaitGroup
		for i := range 2*n + 1 { // more callers than connections, of each kind
			wg.Go(func() {
				b := batch(newStream(), 1)
				for range rounds {
					done, err := s.Append(ctx, one(b))
					if err != nil {
						t.Errorf("pool of %d: append: %v", n, err)
						return
					}
					b = next(b, done.Receipts[0], 1)
				}
				last := eventstore.Mark{Seqno: b.After.Seqno, ID: b.After.ID}
				if err := s.SaveSnapshot(ctx, eventstore.Snapshot{Stream: b.Stream, At: last, Fingerprint: "v"}); err != nil {
					t.Errorf("pool of %d: snapshot: %v", n, err)
				}
				if _, err := s.Trim(ctx, b.Stream, last.Seqno-1, false); err != nil {
					t.Errorf("pool of %d: trim: %v", n, err)
				}
				if _, err := s.Load(ctx, b.Stream, "v"); err != nil {
					t.Errorf("pool of %d: load: %v", n, err)
				}
			})
			wg.Go(func() {
				for range rounds {
					if _, err := c.within(ctx, s, one(batch(newStream(), 1)), func() {}); err != nil {
						t.Errorf("pool of %d: within: %v", n, err)
					}
				}
			})
			wg.Go(func() {
				for range rounds {
					if err := pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
						_, err := pglog.AppendTx(ctx, s, tx, one(batch(newStream(), 1)))
						return err
					}); err != nil {
						t.Errorf("pool of %d: AppendTx: %v", n, err)
					}
				}
			})
			wg.Go(func() {
				for range rounds {
					if _, err := s.ReadFeed(ctx, 0, eventstore.Filter{AcceptTrimmed: true}, 5); err != nil {
						t.Errorf("pool of %d: feed: %v", n, err)
					}
					if _, _, err := s.AcquireLease(ctx, fmt.Sprint("l", i), eventstore.NewUUID(), 0); err != nil {
						t.Errorf("pool of %d: lease: %v", n, err)
					}
				}
			})
		}
		wg.Wait()
		got, want := 0, (2*rounds+1)*int(2*n+1)
		for _, err := range c.store.Feed(t.Context(), 0, eventstore.Filter{AcceptTrimmed: true}) {
			if got++; err != nil {
				t.Fatal(err)
			}
		}
		if got < want {
			t.Errorf("pool of %d: %d entries in the feed, want at least %d", n, got, want)
		}
	}
}

// TestC1PreparedBehindPgBouncer: pgx's default, named prepared statements, does not
// work through a pooler in transaction mode that does not know them. Open says so in
// the log, and what fails is ErrInvalid with the way out, with nothing written.
func TestC1PreparedBehindPgBouncer(t *testing.T) {
	direct, schema := pgtest.Schema(t)
	_, straight := open(t, direct, schema)
	create(t, straight, "account")
	p := pooled(t, pgtest.Bouncer(t, pgtest.DSN(t), 2), pgx.QueryExecModeCacheStatement, 8)
	var said lines
	l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		wantPreparedHint(t, err)
		return
	}
	if !strings.Contains(said.String(), "default_query_exec_mode=exec") {
		t.Errorf("Open said %q, want the way out", said.String())
	}
	s := eventstore.New(l, nil)
	var mu sync.Mutex
	acked, refused := 0, 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_, err := s.Append(t.Context(), one(batch(newStream(), 1)))
				mu.Lock()
				if err == nil {
					acked++
				} else {
					refused++
					wantPreparedHint(t, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d acked, %d refused", acked, refused)
	if n := len(feed(t, straight)); n != acked {
		t.Errorf("%d entries, %d appends acked", n, acked)
	}
	if refused == 0 {
		t.Error("nothing was refused, so this proves nothing")
	}
}

func wantPreparedHint(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Kind != eventstore.ErrInvalid || !strings.Contains(e.Hint, "default_query_exec_mode=exec") {
		t.Errorf("%v, want ErrInvalid with the way out", err)
	}
}

// lines keeps what is written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
