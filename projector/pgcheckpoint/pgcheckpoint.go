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
func (h *handler) Handle(ctx context.Context, key projector.Key, from, to projector.Checkpoint, batch []eventstore.Entry) error {
	if len(batch) == 0 {
		return h.Save(ctx, key, from, to)
	}
	if h.mistake != nil {
		return h.mistake
	}
	return h.again(ctx, func() error {
		apply, err := h.prepare(batch)
		if err != nil {
			return err
		}
		return h.transact(ctx, step{key: key, from: from, to: to, batch: batch}, apply)
	})
}

// step is one move of a checkpoint.
type step struct {
	key      projector.Key
	from, to projector.Checkpoint
	batch    []eventstore.Entry
}

// transact makes one attempt.
func (h *handler) transact(ctx context.Context, s step, apply effects) error {
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return translate("project", err, connecting)
	}
	defer conn.Release() // closes the connection if a transaction is still open on it
	began := time.Now()
	tx, err := h.begin(ctx, conn.Conn(), s)
	if err != nil {
		return drop(ctx, conn.Conn(), err)
	}
	defer rollback(ctx, tx) // also when the handler ends its goroutine
	if err := apply(ctx, handlerTx{tx}); err != nil {
		return drop(ctx, conn.Conn(), ofHandler(ctx, conn.Conn(), err, time.Since(began) >= h.ttl))
	}
	if err := committable(conn.Conn(), s.batch); err != nil {
		return err
	}
	return drop(ctx, conn.Conn(), h.commit(ctx, tx, s.batch))
}

// commit waits for an answer no longer than the TTL: a primary that was cut off from its
// synchronous standby never gives one, while another has taken its place.
func (h *handler) commit(ctx context.Context, tx pgx.Tx, batch []eventstore.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, h.ttl)
	defer cancel()
	if err := tx.Commit(ctx); err != nil {
		return ofCommit(batch, err)
	}
	return nil
}

// begin opens the transaction with the checkpoint's update, in one round trip.
func (h *handler) begin(ctx context.Context, conn *pgx.Conn, s step) (pgx.Tx, error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	b.Queue(setTimeout, fmt.Sprint(h.ttl.Milliseconds()))
	update, args := h.sql.swap(s)
	b.Queue(update, args...)
	results := conn.SendBatch(ctx, b)
	var moved int64
	var err error
	for range b.Len() {
		tag, e := results.Exec()
		moved = tag.RowsAffected() // of the last one
		if err == nil {
			err = e
		}
	}
	if e := results.Close(); err == nil {
		err = e
	}
	tx := results.Tx()
	if err == nil && moved == 1 {
		return tx, nil
	}
	defer rollback(ctx, tx)
	if err != nil {
		return nil, translate("project", err, reading) // nothing was committed
	}
	found, err := h.read(ctx, tx, s.key)
	if err != nil {
		return nil, translate("project", err, reading)
	}
	return nil, projector.FencedError(s.key, s.from, found)
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
