// AppendTx: an append inside a transaction of the caller's.

package pglog

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

const opAppendTx = "append in transaction"

// AppendTx appends inside the caller's transaction, which must be one of the store's
// database under READ COMMITTED (else ErrIsolation), and stands or falls with it.
// Prefer [Within], which appends last. store's log must be a *Log, else the error is
// errors.ErrUnsupported.
//
// From the first append to its end the transaction holds back the feed: no reader
// sees a later entry of any stream before. Appends of others go on, except to the
// same streams. So commit soon: the transaction may no longer idle for more than
// Options.HolderTTL (idle_in_transaction_session_timeout, set for it alone), and if it
// is open for longer a reader of the feed ends its session. Any number of appends may
// be made in it; they take one advisory lock together.
//
// A refusal (as in [Log.Append]) writes nothing and leaves the transaction usable. Any
// other error aborts it, as a failed statement does: roll back. An append that was
// there already is proved; its receipts say Replays, and unless it is this transaction
// that wrote it, roll back rather than repeat the SQL that was committed with it.
//
// A lost answer to the caller's COMMIT is his to resolve: run the transaction again
// with the same Batch.ID.
func AppendTx(ctx context.Context, store *eventstore.Store, tx pgx.Tx, a eventstore.Append) (*Pending, error) {
	l, err := logOf(store, opAppendTx)
	if err != nil {
		return nil, err
	}
	p := &Pending{}
	p.done, p.announce, err = store.AppendPending(ctx, a, func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		return l.appendInTx(ctx, tx, a)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Pending is an append in a transaction that has not committed. It may be dropped.
type Pending struct {
	done     eventstore.Appended
	announce func(context.Context)
	once     sync.Once
}

// Receipts says what will be there once the transaction has committed, one receipt per
// batch in their order. The next append to the stream in the same transaction stands
// behind it.
func (p *Pending) Receipts() []eventstore.Receipt { return p.done.Receipts }

// Committed announces the append and returns it with its Token. Call it when COMMIT
// has returned nil, never before: until then nothing of it holds. Calling it again
// announces nothing.
func (p *Pending) Committed(ctx context.Context) eventstore.Appended {
	p.once.Do(func() { p.announce(ctx) })
	return p.done
}

// appendInTx appends inside tx. What it returns is not committed.
func (l *Log) appendInTx(ctx context.Context, tx pgx.Tx, a eventstore.Append) (done eventstore.Appended, err error) {
	if err := a.CheckShape(); err != nil {
		return done, err
	}
	first := a.Batches[0].Stream
	leave, err := l.enter(ctx, opAppendTx, first)
	if err != nil {
		return done, err
	}
	defer leave()
	if err := readable(opAppendTx, first, tx.Conn()); err != nil {
		return done, err
	}
	for range maxAttempts {
		done, err = l.tryInTx(ctx, tx, a)
		if !errors.Is(err, errRaced) {
			return done, l.abortedError(tx, first, err)
		}
	}
	return done, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: opAppendTx, Stream: first, Wanted: "to write without losing a race",
		Found: itoa(maxAttempts) + " races lost; nothing was written", Hint: "try again", Err: err}
}

func (l *Log) tryInTx(ctx context.Context, tx pgx.Tx, a eventstore.Append) (done eventstore.Appended, err error) {
	places, err := l.numbers(ctx, tx, a)
	if err != nil {
		return done, err
	}
	var w wrote
	if mayLoseRace(a) {
		w, err = l.sendBehindSavepoint(ctx, tx, a, places)
	} else {
		w, err = l.send(ctx, tx, a, places, l.sql.inTx)
	}
	switch {
	case err != nil:
		return done, err
	case w.passed:
		return l.written(a, w.position), nil
	}
	done, err = l.judge(ctx, tx, a, places)
	if errors.Is(err, eventstore.ErrBatchIDReused) {
		// Each stream was seen at a moment of its own. If the append was committed in
		// between, "only some batches are there" is not so a moment later.
		done, err = l.judge(ctx, tx, a, places)
	}
	return done, err
}

// mayLoseRace says if the statement can end in an error (22012) because somebody
// else creates one of the streams; see appendAll.
func mayLoseRace(a eventstore.Append) bool {
	if len(a.Batches) == 1 && len(a.Guards) == 0 {
		return false
	}
	for i := range a.Batches {
		if a.Batches[i].After.Seqno == 0 {
			return true
		}
	}
	for _, g := range a.Guards {
		if g.At.Seqno == 0 {
			return true
		}
	}
	return false
}

const (
	savepoint    = "savepoint wattle_append"
	releasePoint = "release savepoint wattle_append"
	backToPoint  = "rollback to savepoint wattle_append; " + releasePoint
)

// sendBehindSavepoint is send for an append that may lose a race: that must not abort
// the caller's transaction. Others go without, for thousands of subtransactions slow
// every session down.
func (l *Log) sendBehindSavepoint(ctx context.Context, tx pgx.Tx, a eventstore.Append, places []category) (wrote, error) {
	w, err := l.sendWith(ctx, tx, savepoint, a, places, l.sql.inTx, releasePoint)
	if pgCode(err) != codeDivisionByZero {
		return w, err
	}
	_, err = tx.Exec(ctx, backToPoint)
	return wrote{}, err // to be judged: it did not pass
}

// abortedError translates an error of an append inside the caller's transaction:
// nothing of it can have been committed.
func (l *Log) abortedError(tx pgx.Tx, s eventstore.Stream, err error) error {
	if stale(err) {
		l.categories.forget()
		if code := pgCode(err); code == codeCheck || code == codeUndefinedTable {
			return &eventstore.Error{Kind: eventstore.ErrNoSuchCategory, Op: opAppendTx, Stream: s, Wanted: "the category's table", Found: "none: the category was deleted, or is another one now",
				Hint: "roll the transaction back", Err: err}
		}
	}
	if errors.Is(err, pgx.ErrTxClosed) {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: opAppendTx, Stream: s, Wanted: "an open transaction", Found: "one that has ended", Err: err}
	}
	err = l.translate(opAppendTx, s, err, reading)
	if e, ok := errors.AsType[*eventstore.Error](err); ok && pgCode(err) != "" && tx.Conn().PgConn().TxStatus() == 'E' {
		e.Hint = "the transaction is aborted, roll it back; " + e.Hint
	}
	return err
}
