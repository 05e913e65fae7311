// Package pgcheckpoint keeps a projector's checkpoint in the PostgreSQL database
// of its read model, in the same transaction as the effects: each effect happens
// exactly once.
//
//	events := schema.New[Event](…)
//	h := pgcheckpoint.Handler(pool, events, func(ctx context.Context, tx pgx.Tx, e projector.Event[Event]) error {
//		_, err := tx.Exec(ctx, "UPDATE …", …)
//		return err
//	})
//	p := projector.New(store, "balances", "account", h)
//
// # One transaction
//
// A batch is one transaction:
//
//	BEGIN; set idle_in_transaction_session_timeout; UPDATE checkpoints … WHERE it is the one we came from   one round trip
//	what the handler's function does
//	COMMIT
//
// The checkpoint comes first: its row lock keeps every other instance out until
// the commit, and an instance that is fenced learns it before it has done
// anything. A process that freezes inside the transaction is ended by the server
// after Options.TTL, so its successor waits no longer.
//
// Any isolation level will do. Serialization failures and deadlocks, the
// server's answer that nothing has happened, begin the batch again. When the
// answer to COMMIT is lost the error is ErrUnknown; the projector then loads the
// checkpoint, which tells, and a repetition of a step that did land is refused by
// the comparison.
//
// # In the append's own transaction
//
// [Inline] is for what must be true together with the events, as names that are unique
// over all streams: its effects are in the transaction that appends. It has no checkpoint.
//
// # The table
//
// Table checkpoints comes with the schema of package migrations. The read model
// may be in another database than the store: apply the migrations there too; the
// other tables stay empty. Names are qualified by Options.Schema and nothing is
// kept in the session, so PgBouncer in transaction mode will do; set the pool's
// DefaultQueryExecMode to QueryExecModeExec there.
package pgcheckpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// DefaultSchema is the schema of the table checkpoints where none is named.
const DefaultSchema = "wattle"

// Options of a handler; nil and the zero value are the defaults.
type Options struct {
	// Schema that holds the table checkpoints. Empty: DefaultSchema.
	Schema string
	// TTL is how long the transaction may idle, between two statements of the
	// handler, before the server ends it; 0 means eventstore.DefaultLeaseTTL. At
	// least eventstore.MinLeaseTTL, at most MaxLeaseTTL. A handler that computes for
	// longer does so in vain. COMMIT too is waited for that long: then its outcome is
	// unknown, and the checkpoint tells.
	TTL time.Duration
	// Invalidate, if not nil, is called with the key of a step whose transaction was not
	// confirmed as committed (it was refused or rolled back, or the answer was lost), for
	// every attempt, and has returned when Handle or Save returns or tries again: what a
	// handler keeps of the read model outside of it may be wrong from then on. It may be
	// called from several goroutines at once.
	Invalidate func(key projector.Key)
}

// Handler returns a handler that calls f with each event of a batch, in order,
// inside the transaction that moves the checkpoint. f must use tx for its effects
// and cannot end it; savepoints (tx.Begin) are its own. It may be called again for
// the same event when the transaction had to be begun anew: what it keeps outside
// of tx is its own concern. An error or panic of f rolls the batch back.
func Handler[E any](pool *pgxpool.Pool, d projector.Decoder[E], f func(ctx context.Context, tx pgx.Tx, e projector.Event[E]) error, options ...*Options) projector.Handler {
	return newHandler(pool, options, func(batch []eventstore.Entry) (effects, error) {
		events, err := projector.Decode(d, batch)
		return func(ctx context.Context, tx pgx.Tx) error {
			return projector.Each(ctx, events, func(ctx context.Context, e projector.Event[E]) error { return f(ctx, tx, e) })
		}, err
	})
}

// BatchHandler is Handler for a function that takes a batch at once, for set-wise
// statements and COPY. The batch is at most as large as the projector's page.
func BatchHandler[E any](pool *pgxpool.Pool, d projector.Decoder[E], f func(ctx context.Context, tx pgx.Tx, batch []projector.Event[E]) error, options ...*Options) projector.Handler {
	return newHandler(pool, options, func(batch []eventstore.Entry) (effects, error) {
		events, err := projector.Decode(d, batch)
		return func(ctx context.Context, tx pgx.Tx) error {
			return projector.Contain(batch, func() error { return f(ctx, tx, events) })
		}, err
	})
}

// effects are what a batch does inside the transaction. Errors are *projector.EntryError.
type effects func(ctx context.Context, tx pgx.Tx) error

// handler implements projector.Handler.
type handler struct {
	*Checkpoints
	// prepare decodes a batch. It runs for each attempt, so that nothing an aborted
	// attempt did to its values is seen by the next.
	prepare func(batch []eventstore.Entry) (effects, error)
}

func newHandler(pool *pgxpool.Pool, options []*Options, prepare func([]eventstore.Entry) (effects, error)) *handler {
	var o *Options
	if len(options) > 0 {
		o = options[0]
	}
	h := &handler{Checkpoints: NewCheckpoints(pool, o), prepare: prepare}
	if len(options) > 1 {
		h.mistake = invalid("at most one Options", fmt.Sprint(len(options)))
	}
	return h
}

// Handle applies a batch and moves the checkpoint, in one transaction.
func (h *handler) Handle(ctx context.Context, s projector.Step) error {
	if len(s.Batch) == 0 {
		return h.Save(ctx, s)
	}
	if h.mistake != nil {
		return h.mistake
	}
	return h.again(ctx, h.confirmed(s.Key, func() error {
		apply, err := h.prepare(s.Batch)
		if err != nil {
			return err
		}
		return h.transact(ctx, s, apply)
	}))
}

// Step does a step, and what f does, in one transaction: for handlers that need the step
// itself, or a function that is made anew for each. What is said of Handler's function
// goes for f; an error of it that is the fault of entries is a *projector.EntryError.
func (c *Checkpoints) Step(ctx context.Context, s projector.Step, f func(ctx context.Context, tx pgx.Tx) error) error {
	if c.mistake != nil {
		return c.mistake
	}
	return c.again(ctx, c.confirmed(s.Key, func() error { return c.transact(ctx, s, f) }))
}

// transact makes one attempt.
func (c *Checkpoints) transact(ctx context.Context, s projector.Step, apply effects) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return translate("project", err, connecting)
	}
	defer conn.Release() // closes the connection if a transaction is still open on it
	began := time.Now()
	tx, err := c.begin(ctx, conn.Conn(), s)
	if err != nil {
		return drop(ctx, conn.Conn(), err)
	}
	defer rollback(ctx, tx) // also when the handler ends its goroutine
	if err := apply(ctx, handlerTx{tx}); err != nil {
		return drop(ctx, conn.Conn(), ofHandler(ctx, conn.Conn(), err, time.Since(began) >= c.ttl))
	}
	if err := committable(conn.Conn(), s.Batch); err != nil {
		return err
	}
	return drop(ctx, conn.Conn(), c.commit(ctx, tx, s.Batch))
}

// commit waits for an answer no longer than the TTL: a primary that was cut off from its
// synchronous standby never gives one, while another has taken its place.
func (c *Checkpoints) commit(ctx context.Context, tx pgx.Tx, batch []eventstore.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, c.ttl)
	defer cancel()
	if err := tx.Commit(ctx); err != nil {
		return ofCommit(batch, err)
	}
	return nil
}

// begin opens the transaction with the checkpoint's update and what the step does to
// parked keys, in one round trip.
func (c *Checkpoints) begin(ctx context.Context, conn *pgx.Conn, s projector.Step) (pgx.Tx, error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	b.Queue(setTimeout, fmt.Sprint(c.ttl.Milliseconds()))
	update, args := c.sql.swap(s)
	var moved int64
	b.Queue(update, args...).Exec(func(tag pgconn.CommandTag) error {
		moved = tag.RowsAffected()
		return nil
	})
	c.control.queue(b, s)
	results := conn.SendBatch(ctx, b)
	err := results.Close()
	tx := results.Tx()
	if err == nil && moved == 1 {
		return tx, nil
	}
	defer rollback(ctx, tx)
	if err != nil {
		return nil, translate("project", err, reading) // nothing was committed
	}
	found, err := c.read(ctx, tx, s.Key)
	if err != nil {
		return nil, translate("project", err, reading)
	}
	return nil, projector.FencedError(s.Key, s.From, found)
}

// rollback ends a transaction that is still open, in a bounded time. Whatever
// becomes of it, a connection that is not clean does not go back to the pool.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// handlerTx is the transaction as the handler's function sees it: it is not the
// function's to end. A deferred Rollback, as one is used to write, does no harm.
type handlerTx struct{ pgx.Tx }

func (handlerTx) Commit(context.Context) error   { return errNotYours }
func (handlerTx) Rollback(context.Context) error { return errNotYours }
