// What the tests of this package share: a store, a read model in a schema of its
// own, and a connection that can be cut at a chosen moment.

package pgcheckpoint_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type Event interface{ event() }

type Deposited struct{ Amount int64 }

func (Deposited) event() {}

var events = schema.New[Event](schema.Wire[Deposited]("deposited", 1))

// env is a store in memory and a read model in PostgreSQL: a table of the
// positions handled, without a key, so that a double effect is seen.
type env struct {
	t      *testing.T
	store  *eventstore.Store
	after  eventstore.Mark
	pool   *pgxpool.Pool
	schema string
	table  string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	// Registered first, so checked last: after pool, server connection and schema are gone.
	ignore := goleak.IgnoreCurrent()
	pgtest.DSN(t) // starts the server, whose goroutines stay
	ignore = goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	pool, schema := pgtest.Schema(t)
	e := &env{t: t, store: eventstore.New(memlog.New(nil), nil), pool: pool, schema: schema,
		table: pgx.Identifier{schema, "model"}.Sanitize()}
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}))
	_, err := pool.Exec(t.Context(), "CREATE TABLE "+e.table+" (n int GENERATED ALWAYS AS IDENTITY, position bigint)")
	e.ok(err)
	return e
}

// second is another table's name.
func (e *env) second() string { return pgx.Identifier{e.schema, "second"}.Sanitize() }

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) deposit(n int) (t eventstore.Token) {
	e.t.Helper()
	for range n {
		ev, err := events.Encode(Deposited{1})
		e.ok(err)
		t = e.append(ev)
	}
	return t
}

func (e *env) append(ev eventstore.Event) eventstore.Token {
	e.t.Helper()
	done, err := e.store.Append(e.t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: "account-a", Epoch: 1,
		Holder: eventstore.UUID{1}, Claim: e.after.Seqno == 0, After: e.after, Events: []eventstore.Event{ev}}}})
	e.ok(err)
	e.after = done.Receipts[0].Last
	return done.Token
}

// insert is the effect of one event.
func (e *env) insert(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+e.table+" (position) VALUES ($1)", int64(ev.Position))
	return err
}

func (e *env) options() *pgcheckpoint.Options { return &pgcheckpoint.Options{Schema: e.schema} }

func (e *env) handler(pool *pgxpool.Pool) projector.Handler {
	return pgcheckpoint.Handler(pool, events, e.insert, e.options())
}

// check holds model and checkpoint against the log: model = fold(entries ≤
// checkpoint), each effect once, in order.
func (e *env) check(handled int) {
	e.t.Helper()
	kept, err := pgcheckpoint.NewCheckpoints(e.pool, e.options()).Load(context.Background(), projector.Key{Projector: "p", Version: 1})
	e.ok(err)
	rows, err := e.pool.Query(context.Background(), "SELECT position FROM "+e.table+" ORDER BY n")
	e.ok(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	e.ok(err)
	var want []int64
	for entry, err := range e.store.Feed(context.Background(), 0, eventstore.Filter{AcceptTrimmed: true}) {
		e.ok(err)
		if entry.Position <= kept.Position {
			want = append(want, int64(entry.Position))
		}
	}
	if !slices.Equal(got, want) || len(got) != handled {
		e.t.Fatalf("checkpoint %v: model %v, want %v, %d of them", kept, got, want, handled)
	}
}

// cutter is a dialer whose connections are watched and cut by a test.
type cutter struct {
	mu      sync.Mutex
	onWrite func(c *cutConn, b []byte) error // before b is sent
	writes  int
}

func (c *cutter) set(f func(c *cutConn, b []byte) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWrite, c.writes = f, 0
}

// pool returns a pool of connections that c watches.
func (c *cutter) pool(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	config.ConnConfig.DefaultQueryExecMode = mode
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &cutConn{Conn: conn, c: c}, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

type cutConn struct {
	net.Conn
	c *cutter

	mu    sync.Mutex
	blind bool // what arrives is read and thrown away, then the connection ends
}

var errCut = errors.New("cut")

func (c *cutConn) Write(b []byte) (int, error) {
	c.c.mu.Lock()
	f := c.c.onWrite
	c.c.writes++
	c.c.mu.Unlock()
	if f != nil {
		if err := f(c, b); err != nil {
			c.Close()
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	blind := c.blind
	c.mu.Unlock()
	if blind && err == nil {
		c.Close()
		return 0, errCut
	}
	return n, err
}

// loseAnswer lets the server work and loses its answer.
func (c *cutConn) loseAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind = true
}

func isCommit(b []byte) bool { return bytes.Contains(b, []byte("commit\x00")) }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// run starts p.Run until the test or stop ends it.
func run(t *testing.T, p *projector.Projector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}
