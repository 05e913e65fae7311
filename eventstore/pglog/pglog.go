// Package pglog is a Log in PostgreSQL 14–18, stock: no extension, no server-side
// function, nothing that a pooler in transaction mode would lose.
//
// # Appending
//
// The registry has one row a stream. An append is one statement and one round
// trip: an UPDATE of that row whose WHERE is at once the fencing, gap,
// already-written and same-history check, and the entries inserted by the same
// statement. The first append of a stream creates its row in that statement. If
// no row passes, a second round trip finds out why and proves a resent batch.
//
// Appends that arrive while others are in flight go together as the next statement,
// each decided by its own predicate (see group.go).
//
// # The feed
//
// Positions come from one sequence. Before it draws, an append takes a shared
// advisory lock whose key is the sequence's current value, a lower bound of what
// it will draw, and holds it to its commit. The reader asks, in one pipelined
// batch of statements, for the sequence's value, the lowest key held, the entries,
// and how far categories are trimmed; it keeps the entries up to the lower of the
// first two. So it never skips one that commits late, and writers of different streams wait for nothing
// of each other. The lock's class is the sequence's OID: two stores in one
// database do not hold each other up. The key holds the low 32 bits of the value;
// a lock would have to be held over 2^31 draws to be misread.
//
// # Dedicated streams
//
// A stream of a dedicated category has two tables of its own, a ring that TRUNCATE
// empties (see ring.go), and no place in the feed. Appends to all of them are one text
// through a partitioned parent; reads name the two tables and go unprepared.
//
// # Sessions
//
// All names are qualified by the schema, search_path is never used. READ
// COMMITTED is checked inside every append, fence and feed read; under another
// level they answer ErrIsolation. synchronous_commit is raised to "on" inside
// every writing statement where the session has less; where the server waits for a
// synchronous standby the pool should be made with [Configure]. Behind PgBouncer in
// transaction mode set the pool's DefaultQueryExecMode to QueryExecModeExec: prepared
// statements, pgx's default, fail there with ErrInvalid.
//
// # Your own SQL, and space
//
// [Within] makes SQL of the caller's and an append one transaction; [AppendTx] appends
// inside one that the caller holds. What has been trimmed is removed in the background,
// in small steps; see Options.ReclaimEvery and [Log.Reclaim].
//
// # Outcomes
//
// A connection that breaks after a writing statement was sent gives ErrUnknown:
// send the same batch again. Errors that the server sends for a statement that it
// rolled back are never ErrUnknown.
package pglog

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// SchemaVersion is the version of the schema that this package works with: that
// of the newest file in package migrations (a test compares them).
const SchemaVersion = 3

// Options of a Log; nil and the zero value are the defaults.
type Options struct {
	// Schema holds the store's tables. Empty: "wattle".
	Schema string
	// HolderTTL is how long a transaction that has appended may hold the feed back
	// before a reader ends its session (a client frozen inside an append does so
	// without limit before PostgreSQL 17's transaction_timeout). Needs the same role
	// or pg_signal_backend. 0: eventstore.DefaultLeaseTTL; negative: never.
	HolderTTL time.Duration
	// Senders is how many statements of appends are in flight; what comes meanwhile goes
	// together as the next one. 0: DefaultSenders; negative: no group commit. It is never
	// more than the connections of the pool.
	Senders int
	// ReclaimEvery is how long a Log that trims rests between two rounds of Reclaim, which
	// it makes in the background on a connection of the pool. 0: DefaultReclaimEvery;
	// negative: never, for processes that may do nothing between two calls: then somebody
	// has to call Reclaim now and then.
	ReclaimEvery time.Duration
	// Logger is told of sessions ended, and by Open of a pool that may break a promise:
	// see [Configure], and "Sessions" above. Nil: nobody.
	Logger *slog.Logger
}

// Log implements eventstore.Log and all its extensions in PostgreSQL. It may be
// used by any number of goroutines; each call takes one connection of the pool.
type Log struct {
	pool        *pgxpool.Pool
	schema      string // quoted
	sql         statements
	holderTTL   time.Duration
	logger      *slog.Logger
	incarnation eventstore.UUID
	categories  categoryCache
	watch       watchdog
	pace        pace
	senders     senders
	reclaimer   reclaimer
	indexer     indexer
	background  background

	mu     sync.RWMutex // held for reading through every call
	closed bool
}

// Open returns a Log in a migrated schema. The pool stays the caller's: Close
// waits for calls in flight and leaves it open.
//
// It answers ErrNotMigrated if the schema is absent or of another version, and
// ErrInvalid if the position sequence was altered so that the feed could skip or the
// session's client_encoding is not UTF8.
func Open(ctx context.Context, pool *pgxpool.Pool, o *Options) (*Log, error) {
	if o == nil {
		o = &Options{}
	}
	name := o.Schema
	if name == "" {
		name = "wattle"
	}
	if strings.ContainsRune(name, 0) {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open", Wanted: "a schema name without NUL", Found: "one with NUL"}
	}
	l := &Log{pool: pool, schema: pgx.Identifier{name}.Sanitize(), holderTTL: o.HolderTTL, logger: o.Logger}
	if l.holderTTL == 0 {
		l.holderTTL = eventstore.DefaultLeaseTTL
	}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	l.sql = newStatements(l.schema, l.holderTTL)
	if l.senders.most = o.Senders; o.Senders == 0 {
		l.senders.most = DefaultSenders
	}
	if l.background.every = o.ReclaimEvery; o.ReclaimEvery == 0 {
		l.background.every = DefaultReclaimEvery
	}
	l.senders.most = min(l.senders.most, int(pool.Config().MaxConns))
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// check looks, in one round trip, whether the schema is one to work with.
func (l *Log) check(ctx context.Context) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return l.translate("open", "", err, connecting)
	}
	defer conn.Release()
	if err := readable("open", "", conn.Conn()); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(l.sql.version)
	b.Queue(l.sql.sequence)
	b.Queue(l.sql.session)
	res := conn.SendBatch(ctx, b)
	defer res.Close()
	var version int64
	var incarnation uuid
	if err := res.QueryRow().Scan(&version, &incarnation); err != nil {
		return l.translate("open", "", err, reading)
	}
	if version != SchemaVersion {
		return &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: "open", Wanted: "schema " + l.schema + " at version " + itoa(SchemaVersion),
			Found: "version " + itoa(version), Hint: "run: wattle migrate up (an older wattle cannot use a newer schema)"}
	}
	l.incarnation = eventstore.UUID(incarnation.Bytes)
	var ok, usable bool
	if err := res.QueryRow().Scan(&ok, &usable); err != nil {
		return l.translate("open", "", err, reading)
	}
	if !ok || !usable {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open",
			Wanted: "sequence " + l.schema + ".position with INCREMENT 1, CACHE 1, NO CYCLE, drawn from once, and USAGE on it",
			Found:  "another setting or no privilege", Hint: "restore its settings: without them the feed could skip entries"}
	}
	var pid int64
	var standbys bool
	if err := res.QueryRow().Scan(&pid, &standbys); err != nil {
		return l.translate("open", "", err, reading)
	}
	l.warn(ctx, conn.Conn(), pid, standbys)
	return nil
}

// Close makes every later call answer ErrClosed, after those in flight have ended, and
// ends what runs beside them.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.background.end()
	l.indexer.running.Wait()
	return nil
}

// enter refuses a call whose context has ended or whose log is closed. The caller
// must call leave when it is done.
func (l *Log) enter(ctx context.Context, op string, s eventstore.Stream) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.RLock()
	if l.closed {
		l.mu.RUnlock()
		return nil, &eventstore.Error{Kind: eventstore.ErrClosed, Op: op, Stream: s}
	}
	return l.mu.RUnlock, nil
}

// querier is what a statement runs on: the pool or the caller's transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}
