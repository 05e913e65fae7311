// Helpers of this package's tests: stores, batches, connections that are bent.

package pglog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// open returns a log in the schema and a store around it. Nothing is reclaimed unless
// the test says so.
func open(t testing.TB, pool *pgxpool.Pool, schema string) (*pglog.Log, *eventstore.Store) {
	t.Helper()
	l, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema, ReclaimEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	return l, eventstore.New(l, nil)
}

// fresh returns a store in an empty schema with category "account".
func fresh(t testing.TB) (*pgxpool.Pool, string, *pglog.Log, *eventstore.Store) {
	t.Helper()
	pool, schema := pgtest.Schema(t)
	l, s := open(t, pool, schema)
	create(t, s, "account")
	return pool, schema, l, s
}

func create(t testing.TB, s *eventstore.Store, c eventstore.Category) {
	t.Helper()
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}); err != nil {
		t.Fatal(err)
	}
}

// pool returns a pool on dsn with the config changed by bend.
func pool(t testing.TB, dsn string, bend func(c *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if bend != nil {
		bend(c)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// server returns a migrated server of the test's own.
func server(t testing.TB, options ...pgtest.Option) (*pgtest.Server, *pgxpool.Pool) {
	t.Helper()
	srv := pgtest.NewServer(t, options...)
	p := pool(t, srv.DSN(), nil)
	if err := migrations.Up(t.Context(), p, ""); err != nil {
		t.Fatal(err)
	}
	return srv, p
}

// batch is a complete batch of n events, as Store makes them, that claims epoch 1.
func batch(s eventstore.Stream, n int) eventstore.Batch {
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: 1, Holder: eventstore.NewUUID(), Claim: true}
	for i := range n {
		b.Events = append(b.Events, eventstore.Event{ID: eventstore.DeriveUUID(b.ID, i), Type: "happened", Version: 1,
			ContentType: "application/json", Data: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	return b
}

// next is the owner's batch behind a receipt.
func next(b eventstore.Batch, r eventstore.Receipt, n int) eventstore.Batch {
	nb := batch(b.Stream, n)
	nb.Epoch, nb.Holder, nb.Claim, nb.After = b.Epoch, b.Holder, false, r.Last
	return nb
}

func one(b eventstore.Batch) eventstore.Append {
	return eventstore.Append{Batches: []eventstore.Batch{b}}
}

// must appends and fails the test if that fails.
func must(t testing.TB, s *eventstore.Store, a eventstore.Append) eventstore.Appended {
	t.Helper()
	done, err := s.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// feed reads the whole feed.
func feed(t testing.TB, s *eventstore.Store) (all []eventstore.Entry) {
	t.Helper()
	for e, err := range s.Feed(t.Context(), 0, eventstore.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// eventually waits for a condition on another process, which no channel tells.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("gave up waiting: " + what)
}

// wire counts what a client sends and can swallow what it should receive.
type wire struct {
	statements, syncs atomic.Int64
	mute              atomic.Bool // swallow every answer
	muteNext          atomic.Bool // swallow the answers on the connection of the next statement
	deaf              atomic.Bool // send nothing on
	freezeNext        atomic.Bool // keep the next Sync behind a statement back
}

func (w *wire) config(c *pgxpool.Config) {
	var d net.Dialer
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wiredConn{Conn: conn, wire: w, startup: true}, nil
	}
}

func (w *wire) reset() { w.statements.Store(0); w.syncs.Store(0) }

// wiredConn reads the frontend's messages as they pass: Execute and Query are
// statements; Sync and Query end a round trip.
type wiredConn struct {
	net.Conn
	wire    *wire
	mu      sync.Mutex
	rest    []byte
	startup bool
	muted   atomic.Bool
}

func (c *wiredConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.rest = append(c.rest, b...)
	before := c.wire.statements.Load()
	for c.step() {
	}
	executes := c.wire.statements.Load() > before
	c.mu.Unlock()
	if c.wire.deaf.Load() {
		return len(b), nil
	}
	if rest, ok := bytes.CutSuffix(b, []byte("S\x00\x00\x00\x04")); ok && executes && c.wire.freezeNext.CompareAndSwap(true, false) {
		n, err := c.Conn.Write(rest)
		return n + 5, err
	}
	return c.Conn.Write(b)
}

// step takes one whole message off rest: type, length of what follows, body; the
// first message of a connection has no type.
func (c *wiredConn) step() bool {
	head := 1
	if c.startup {
		head = 0
	}
	if len(c.rest) < head+4 {
		return false
	}
	n := head + int(binary.BigEndian.Uint32(c.rest[head:]))
	if len(c.rest) < n {
		return false
	}
	if !c.startup {
		switch c.rest[0] {
		case 'E':
			c.wire.statements.Add(1)
			if c.wire.muteNext.CompareAndSwap(true, false) {
				c.muted.Store(true)
			}
		case 'S':
			c.wire.syncs.Add(1)
		case 'Q':
			c.wire.statements.Add(1)
			c.wire.syncs.Add(1)
		}
	}
	c.startup = false
	c.rest = c.rest[n:]
	return true
}

func (c *wiredConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.wire.mute.Load() && !c.muted.Load() {
			return n, err
		}
	}
}

// rollback ends a transaction of a test.
func rollback(t testing.TB, tx pgx.Tx) {
	t.Cleanup(func() { tx.Rollback(context.Background()) })
}

// counted is a store beside a table of the caller's: how often an effect happened.
type counted struct {
	pool   *pgxpool.Pool
	schema string
	log    *pglog.Log
	store  *eventstore.Store
}

func freshCounted(t testing.TB) counted {
	t.Helper()
	p, schema, l, s := fresh(t)
	exec1(t, p, "create table "+schema+".effects (name text primary key, n int not null)")
	return counted{p, schema, l, s}
}

// effect notes in tx that name happened once more.
func (c counted) effect(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "insert into "+c.schema+".effects as e values ($1, 1) on conflict (name) do update set n = e.n + 1", name)
	return err
}

func (c counted) effects(t testing.TB, name string) (n int) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(), "select coalesce((select n from "+c.schema+".effects where name = $1), 0)", name).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (c counted) head(t testing.TB, s eventstore.Stream) eventstore.Seqno {
	t.Helper()
	h, err := c.store.Head(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return h.Last.Seqno
}

// want checks that an effect and the entries of a stream are there n times each.
func (c counted) want(t testing.TB, what, effect string, s eventstore.Stream, n int, seqno eventstore.Seqno) {
	t.Helper()
	if got, at := c.effects(t, effect), c.head(t, s); got != n || at != seqno {
		t.Errorf("%s: the effect happened %d times, want %d; head at %d, want %d", what, got, n, at, seqno)
	}
}

// begin begins a transaction that ends with the test at the latest.
func begin(t testing.TB, p *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rollback(t, tx)
	return tx
}
