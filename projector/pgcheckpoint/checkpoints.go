// Checkpoints: the table, for handlers whose effects live elsewhere, and as a
// part of those whose effects live beside it.

package pgcheckpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Checkpoints implements projector.Control in PostgreSQL. It may be used from several
// goroutines at once.
type Checkpoints struct {
	pool       *pgxpool.Pool
	sql        statements
	control    controlStatements
	ttl        time.Duration
	invalidate func(projector.Key)
	mistake    error // in the options; every method returns it
}

// NewCheckpoints returns the checkpoints in a database. The pool stays the
// caller's. Mistakes in the options are the ErrInvalid of every method.
func NewCheckpoints(pool *pgxpool.Pool, o *Options) *Checkpoints {
	if o == nil {
		o = &Options{}
	}
	schema := o.Schema
	if schema == "" {
		schema = DefaultSchema
	}
	c := &Checkpoints{pool: pool, ttl: o.TTL, invalidate: o.Invalidate, sql: newStatements(schema), control: newControlStatements(schema)}
	if c.ttl == 0 {
		c.ttl = eventstore.DefaultLeaseTTL
	}
	if c.invalidate == nil {
		c.invalidate = func(projector.Key) {}
	}
	switch {
	case pool == nil:
		c.mistake = invalid("a pool", "nil")
	case c.ttl < eventstore.MinLeaseTTL || c.ttl > eventstore.MaxLeaseTTL:
		c.mistake = invalid(fmt.Sprintf("a TTL of %v to %v", eventstore.MinLeaseTTL, eventstore.MaxLeaseTTL), c.ttl.String())
	}
	return c
}

func invalid(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "checkpoint", Wanted: wanted, Found: found}
}

// Load returns the checkpoint of a key, the zero Checkpoint if there is none.
func (c *Checkpoints) Load(ctx context.Context, key projector.Key) (found projector.Checkpoint, err error) {
	if c.mistake != nil {
		return projector.Checkpoint{}, c.mistake
	}
	// Where SERIALIZABLE is the default a read, too, may lose against others.
	err = c.again(ctx, func() error {
		found, err = c.load(ctx, key)
		return err
	})
	return found, err
}

func (c *Checkpoints) load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return projector.Checkpoint{}, translate("load checkpoint", err, connecting)
	}
	defer conn.Release()
	found, err := c.read(ctx, conn, key)
	err = translate("load checkpoint", err, reading)
	return found, drop(ctx, conn.Conn(), err)
}

// Save replaces a checkpoint, or answers ErrFenced. What the step parks, unparks or
// skips goes into the same transaction.
func (c *Checkpoints) Save(ctx context.Context, s projector.Step) error {
	if c.mistake != nil {
		return c.mistake
	}
	return c.again(ctx, c.confirmed(s.Key, func() error {
		if len(s.Park) > 0 || len(s.Unpark) > 0 || len(s.Skipped) > 0 {
			return c.transact(ctx, s, func(context.Context, pgx.Tx) error { return nil })
		}
		return c.save(ctx, s)
	}))
}

// save moves the checkpoint alone: one statement.
func (c *Checkpoints) save(ctx context.Context, s projector.Step) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return translate("save checkpoint", err, connecting)
	}
	defer conn.Release()
	update, args := c.sql.swap(s)
	bounded, cancel := context.WithTimeout(ctx, c.ttl) // it commits itself: see commit
	defer cancel()
	tag, err := conn.Exec(bounded, update, args...)
	if err != nil {
		return drop(ctx, conn.Conn(), translate("save checkpoint", err, writing))
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	found, err := c.read(ctx, conn, s.Key)
	if err != nil {
		return translate("save checkpoint", err, reading)
	}
	return projector.FencedError(s.Key, s.From, found)
}

// confirmed wraps an attempt: unless it returns nil, Options.Invalidate is called when
// it has ended, however it ends.
func (c *Checkpoints) confirmed(key projector.Key, attempt func() error) func() error {
	return func() (err error) {
		err = errNotYours // stands if the attempt does not return
		defer func() {
			if err != nil {
				c.invalidate(key)
			}
		}()
		err = attempt()
		return err
	}
}

// again makes attempts until one ends otherwise than by losing against other
// transactions.
func (c *Checkpoints) again(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		lost, ok := errors.AsType[*lostError](err)
		if !ok {
			return err
		}
		if n == maxAttempts {
			return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "project", Err: lost.err,
				Wanted: "to commit", Found: fmt.Sprintf("%d attempts lost against other transactions", n)}
		}
		pause := min(attemptPause<<n, longestPause)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (c *Checkpoints) read(ctx context.Context, q querier, key projector.Key) (projector.Checkpoint, error) {
	var standby bool
	var row checkpointRow
	err := q.QueryRow(ctx, c.sql.load, key.Projector, int64(key.Version), int64(key.Lane)).
		Scan(append([]any{&standby}, row.fields()...)...)
	if err == nil && standby {
		err = errStandby("load checkpoint")
	}
	if err != nil {
		return projector.Checkpoint{}, err
	}
	return row.checkpoint(), nil
}

// errStandby: it may lag, or have been the primary once.
func errStandby(op string) error {
	return &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: op, Wanted: "the primary", Found: "a server in recovery", Hint: "connect to the primary"}
}

// checkpointRow is scanned from the columns checkpointColumns.
type checkpointRow struct {
	epoch, timeline, position, markPosition, seqno int64
	holder, incarnation, markID                    pgtype.UUID
	recent                                         []byte
}

// checkpointColumns may be NULL of a row that is missing.
const checkpointColumns = "coalesce(c.epoch, 0), c.holder, c.incarnation, coalesce(c.timeline, 0), coalesce(c.position, 0)," +
	" coalesce(c.mark_position, 0), c.mark_id, coalesce(c.seqno, 0), "

func (r *checkpointRow) fields() []any {
	return []any{&r.epoch, &r.holder, &r.incarnation, &r.timeline, &r.position, &r.markPosition, &r.markID, &r.seqno, &r.recent}
}

func (r *checkpointRow) checkpoint() projector.Checkpoint {
	return projector.Checkpoint{
		Epoch: eventstore.Epoch(r.epoch), Holder: r.holder.Bytes, Incarnation: r.incarnation.Bytes, Timeline: uint64(r.timeline),
		Position: eventstore.Position(r.position),
		Mark:     eventstore.PositionMark{Position: eventstore.Position(r.markPosition), ID: r.markID.Bytes},
		Seqno:    eventstore.Seqno(r.seqno), Recent: r.recent,
	}
}

// setTimeout bounds how long the transaction may idle, for this transaction only.
const setTimeout = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)"

// statements are the texts for one schema.
type statements struct{ load, insert, update string }

func newStatements(schema string) statements {
	table := pgx.Identifier{schema, "checkpoints"}.Sanitize()
	const columns = " (projector, version, lane, epoch, holder, incarnation, timeline, position, mark_position, mark_id, seqno, recent)"
	return statements{
		load: "SELECT pg_is_in_recovery(), " + checkpointColumns + "c.recent FROM (SELECT 1) AS one LEFT JOIN " + table +
			" AS c ON c.projector = $1 AND c.version = $2 AND c.lane = $3",
		// A version that is registered has its lanes, all of them, and no others: a worker
		// that knows of another number is too late. The row lock, taken before that of the
		// checkpoint as Update does, makes it wait for an Update and see what it has done.
		insert: "WITH registered AS MATERIALIZED (SELECT lanes FROM " + pgx.Identifier{schema, "projectors"}.Sanitize() +
			" WHERE projector = $1 AND version = $2 FOR SHARE)" +
			" INSERT INTO " + table + " AS c" + columns +
			" SELECT $1::text, $2::int, $3::int, $4::bigint, $5::uuid, $6::uuid, $7::bigint, $8::bigint, $9::bigint, $10::uuid, $11::bigint, $12::bytea" +
			" WHERE NOT EXISTS (SELECT FROM registered WHERE lanes <= $3)" +
			" ON CONFLICT (projector, version, lane) DO UPDATE SET " + setCheckpoint +
			" WHERE c.epoch = 0 AND c.holder = '00000000-0000-0000-0000-000000000000' AND c.position = 0 AND c.seqno = 0",
		update: "UPDATE " + table + " SET epoch = $4, holder = $5, incarnation = $6, timeline = $7, position = $8," +
			" mark_position = $9, mark_id = $10, seqno = $11, recent = $12, updated = now()" +
			" WHERE projector = $1 AND version = $2 AND lane = $3" +
			" AND epoch = $13 AND holder = $14 AND position = $15 AND seqno = $16",
	}
}

const setCheckpoint = "epoch = excluded.epoch, holder = excluded.holder, incarnation = excluded.incarnation, timeline = excluded.timeline," +
	" position = excluded.position, mark_position = excluded.mark_position, mark_id = excluded.mark_id, seqno = excluded.seqno," +
	" recent = excluded.recent, updated = now()"

// swap returns the statement that replaces one checkpoint by another, and moves
// one row if the kept one is the one expected. The zero checkpoint stands for "none
// yet", be there a row that nobody has claimed or not.
func (q *statements) swap(s projector.Step) (string, []any) {
	from := s.From
	args := checkpointArgs(s.Key, s.To)
	if from.Same(projector.Checkpoint{}) {
		return q.insert, args
	}
	return q.update, append(args, int64(from.Epoch), uuid(from.Holder), int64(from.Position), int64(from.Seqno))
}

// checkpointArgs are $1 to $12 of the statements that write a checkpoint.
func checkpointArgs(key projector.Key, to projector.Checkpoint) []any {
	return []any{key.Projector, int64(key.Version), int64(key.Lane),
		int64(to.Epoch), uuid(to.Holder), uuid(to.Incarnation), int64(to.Timeline), int64(to.Position),
		int64(to.Mark.Position), uuid(to.Mark.ID), int64(to.Seqno), append([]byte{}, to.Recent...)}
}

func uuid(u eventstore.UUID) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }
