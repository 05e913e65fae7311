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

const (
	// maxAttempts of one batch that meets serialization failures or deadlocks; the
	// projector tries again after that, with longer pauses.
	maxAttempts     = 10
	attemptPause    = 5 * time.Millisecond // doubles with each attempt up to the longest, half of it random
	longestPause    = 100 * time.Millisecond
	rollbackTimeout = time.Second
)

// Checkpoints implements projector.Checkpoints in PostgreSQL.
type Checkpoints struct {
	pool    *pgxpool.Pool
	sql     statements
	ttl     time.Duration
	mistake error // in the options; every method returns it
}

// NewCheckpoints returns the checkpoints in a database. The pool stays the
// caller's. Mistakes in the options are the ErrInvalid of every method.
func NewCheckpoints(pool *pgxpool.Pool, o *Options) *Checkpoints {
	if o == nil {
		o = &Options{}
	}
	c := &Checkpoints{pool: pool, ttl: o.TTL, sql: newStatements(o.Schema)}
	if c.ttl == 0 {
		c.ttl = eventstore.DefaultLeaseTTL
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
func (c *Checkpoints) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	if c.mistake != nil {
		return projector.Checkpoint{}, c.mistake
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return projector.Checkpoint{}, translate("load checkpoint", err, connecting)
	}
	defer conn.Release()
	found, err := c.read(ctx, conn, key)
	err = translate("load checkpoint", err, reading)
	return found, drop(ctx, conn.Conn(), err)
}

// Save replaces a checkpoint, or answers ErrFenced.
func (c *Checkpoints) Save(ctx context.Context, key projector.Key, from, to projector.Checkpoint) error {
	if c.mistake != nil {
		return c.mistake
	}
	return c.again(ctx, func() error { return c.save(ctx, step{key: key, from: from, to: to}) })
}

func (c *Checkpoints) save(ctx context.Context, s step) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return translate("save checkpoint", err, connecting)
	}
	defer conn.Release()
	update, args := c.sql.swap(s)
	tag, err := conn.Exec(ctx, update, args...)
	if err != nil {
		return drop(ctx, conn.Conn(), translate("save checkpoint", err, writing))
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	found, err := c.read(ctx, conn, s.key)
	if err != nil {
		return translate("save checkpoint", err, reading)
	}
	return projector.FencedError(s.key, s.from, found)
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
				Wanted: "to commit a batch", Found: fmt.Sprintf("%d attempts lost against other transactions", n)}
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
	var (
		standby                                        bool
		epoch, timeline, position, markPosition, seqno int64
		holder, incarnation, markID                    pgtype.UUID
		recent                                         []byte
	)
	err := q.QueryRow(ctx, c.sql.load, key.Projector, int64(key.Version), int64(key.Lane)).
		Scan(&standby, &epoch, &holder, &incarnation, &timeline, &position, &markPosition, &markID, &seqno, &recent)
	if err == nil && standby { // it may lag, or have been the primary once
		err = &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: "load checkpoint", Wanted: "the primary", Found: "a server in recovery", Hint: "connect to the primary"}
	}
	if err != nil || epoch == 0 {
		return projector.Checkpoint{}, err
	}
	return projector.Checkpoint{
		Epoch: eventstore.Epoch(epoch), Holder: holder.Bytes, Incarnation: incarnation.Bytes, Timeline: uint64(timeline),
		Position: eventstore.Position(position),
		Mark:     eventstore.PositionMark{Position: eventstore.Position(markPosition), ID: markID.Bytes},
		Seqno:    eventstore.Seqno(seqno), Recent: recent,
	}, nil
}

// setTimeout bounds how long the transaction may idle, for this transaction only.
const setTimeout = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)"

// statements are the texts for one schema.
type statements struct{ load, insert, update string }

func newStatements(schema string) statements {
	if schema == "" {
		schema = DefaultSchema
	}
	table := pgx.Identifier{schema, "checkpoints"}.Sanitize()
	return statements{
		load: "SELECT pg_is_in_recovery(), coalesce(epoch, 0), holder, incarnation, coalesce(timeline, 0), coalesce(position, 0)," +
			" coalesce(mark_position, 0), mark_id, coalesce(seqno, 0), recent FROM (SELECT 1) AS one LEFT JOIN " + table +
			" ON projector = $1 AND version = $2 AND lane = $3",
		insert: "INSERT INTO " + table +
			" (projector, version, lane, epoch, holder, incarnation, timeline, position, mark_position, mark_id, seqno, recent)" +
			" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING",
		update: "UPDATE " + table + " SET epoch = $4, holder = $5, incarnation = $6, timeline = $7, position = $8," +
			" mark_position = $9, mark_id = $10, seqno = $11, recent = $12, updated = now()" +
			" WHERE projector = $1 AND version = $2 AND lane = $3" +
			" AND epoch = $13 AND holder = $14 AND position = $15 AND seqno = $16",
	}
}

// swap returns the statement that replaces one checkpoint by another, and moves
// one row if the kept one is the one expected. Nobody has epoch 0, so that one
// stands for "none yet".
func (q *statements) swap(s step) (string, []any) {
	to, from := s.to, s.from
	args := []any{s.key.Projector, int64(s.key.Version), int64(s.key.Lane),
		int64(to.Epoch), uuid(to.Holder), uuid(to.Incarnation), int64(to.Timeline), int64(to.Position),
		int64(to.Mark.Position), uuid(to.Mark.ID), int64(to.Seqno), append([]byte{}, to.Recent...)}
	if from.Epoch == 0 {
		return q.insert, args
	}
	return q.update, append(args, int64(from.Epoch), uuid(from.Holder), int64(from.Position), int64(from.Seqno))
}

func uuid(u eventstore.UUID) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }
