// Within: the caller's own SQL and an append as one transaction.

package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

const opWithin = "append within"

// rollbackPatience is how long a ROLLBACK may take to be answered; then the
// connection is closed, which rolls back as well.
const rollbackPatience = 5 * time.Second

// Within carries out f's SQL and the append that f returns as one transaction: both
// are durable when it returns nil, and after an error that is not ErrUnknown neither
// is there. store's log must be a *Log, else the error is errors.ErrUnsupported.
//
// f runs first, in a READ COMMITTED transaction on a connection of the pool. Then the
// append goes out together with COMMIT, so what the append holds up (its streams, the
// feed) it holds up no longer than [Log.Append] does, however long f took. What f's own
// SQL locks stays locked through f. A session that idles in f for longer than
// Options.HolderTTL is ended by the server.
//
// f may run several times, at most 20: a deadlock, in f's SQL or the append's, and a
// race lost to another append roll back and start again. So it must have no effects
// but those of its tx, and must neither end tx nor keep it. An error of f rolls back
// and is returned as it is; a panic rolls back. What f asks of the store itself goes
// over another connection, which a pool of one has not got, and does not see what tx
// has written.
//
// A refused append rolls f's SQL back; the error is that of [Log.Append]. After
// ErrUnknown call Within again with the same Batch.ID: if the first transaction did
// commit, the append is proved, f's SQL of this call is rolled back, and the receipts
// say Replays. f must come through although its effects are there already (insert …
// on conflict do nothing), for it runs before that is known.
func Within(ctx context.Context, store *eventstore.Store, f func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error)) (eventstore.Appended, error) {
	l, err := logOf(store, opWithin)
	if err != nil {
		return eventstore.Appended{}, err
	}
	for range maxAttempts {
		done, again, nerr := l.within(ctx, store, f)
		if err = nerr; !again {
			return done, err
		}
		l.categories.forget() // the race may have been with a category's deletion
	}
	return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: opWithin, Wanted: "to commit without losing a race",
		Found: itoa(maxAttempts) + " races lost; nothing was written", Hint: "try again", Err: err}
}

func logOf(store *eventstore.Store, op string) (*Log, error) {
	l, ok := store.Log().(*Log)
	if !ok {
		return nil, &eventstore.Error{Kind: errors.ErrUnsupported, Op: op, Wanted: "a store on a *pglog.Log", Found: fmt.Sprintf("one on a %T", store.Log())}
	}
	return l, nil
}

// within is one attempt; again says that it was rolled back for a race. The log is
// not entered while f runs: f may call it.
func (l *Log) within(ctx context.Context, store *eventstore.Store, f func(context.Context, pgx.Tx) (eventstore.Append, error)) (done eventstore.Appended, again bool, err error) {
	t, err := l.begin(ctx)
	if err != nil {
		return done, false, err
	}
	defer func() {
		if pgCode(err) == codeReadOnly {
			t.conn.Conn().Close(ctx) // as in on
		}
		t.end(ctx)
	}()
	a, err := f(ctx, t.tx)
	if err == nil {
		err = t.usable()
	}
	if err != nil {
		return done, pgCode(err) == codeDeadlock, err
	}
	done, err = store.AppendBy(ctx, a, func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		return l.appendAndCommit(ctx, t, a)
	})
	return done, errors.Is(err, errRaced), err
}

// ownTx is a transaction of Within's on its connection.
type ownTx struct {
	conn  *pgxpool.Conn
	tx    pgx.Tx // nil once it has ended
	waits waitWatch
}

func (l *Log) begin(ctx context.Context) (*ownTx, error) {
	leave, err := l.enter(ctx, opWithin, "")
	if err != nil {
		return nil, err
	}
	defer leave()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, l.translate(opWithin, "", err, connecting)
	}
	if err := readable(opWithin, "", conn.Conn()); err != nil {
		conn.Release()
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: l.sql.begin})
	if err != nil {
		conn.Release()
		return nil, l.translate(opWithin, "", err, reading)
	}
	return &ownTx{conn: conn, tx: tx, waits: watchWaits(conn)}, nil
}

// usable refuses a transaction that f has ended or left failed: the append would
// not be one with f's SQL.
func (t *ownTx) usable() error {
	e := &eventstore.Error{Kind: eventstore.ErrInvalid, Op: opWithin, Wanted: "the function to leave its transaction open"}
	switch t.conn.Conn().PgConn().TxStatus() {
	case 'I':
		e.Found, e.Hint = "it committed or rolled back itself; nothing was appended", "leave both to Within"
	case 'E':
		e.Found, e.Hint = "a statement of it failed, and it returned no error; all was rolled back", "return the error, or use a savepoint (tx.Begin)"
	default:
		return nil
	}
	return e
}

// rollback takes back what has not been committed.
func (t *ownTx) rollback(ctx context.Context) {
	if t.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
	defer cancel()
	t.tx.Rollback(ctx) // where it fails it closes the connection
	t.tx = nil
}

// end rolls back and gives the connection back; nothing happens the second time.
func (t *ownTx) end(ctx context.Context) {
	t.rollback(ctx)
	t.conn.Release()
}

// appendAndCommit sends the append and COMMIT in one round trip. If the append does
// not pass, the transaction is rolled back before it is judged.
func (l *Log) appendAndCommit(ctx context.Context, t *ownTx, a eventstore.Append) (eventstore.Appended, error) {
	first := a.Batches[0].Stream
	leave, err := l.enter(ctx, opWithin, first)
	if err != nil {
		return eventstore.Appended{}, err
	}
	defer leave()
	places, err := l.numbers(ctx, t.tx, a)
	if err != nil {
		return eventstore.Appended{}, err
	}
	w, err := l.sendWith(ctx, t.tx, "", a, places, l.sql.orFail, "commit")
	if w.passed && err == nil {
		err = t.waits.err()
	}
	code := pgCode(err)
	switch {
	case w.passed && err == nil:
		t.tx = nil
		t.end(ctx) // the announcement needs no connection
		return l.written(a, w.position), nil
	case !w.passed && (err == nil || code == codeDivisionByZero):
		t.rollback(ctx)
		done, err := l.judge(ctx, t.conn, a, places)
		if stale(err) {
			err = l.raced(err)
		}
		if err == nil {
			err = l.translate(opWithin, first, t.waits.err(), writing)
		}
		return done, err
	case code == codeDeadlock, !w.passed && stale(err):
		return eventstore.Appended{}, l.raced(err)
	}
	return eventstore.Appended{}, l.commitError(first, err, w.passed)
}

// commitError translates an error of an append sent with COMMIT, of the COMMIT itself
// if the append had passed.
func (l *Log) commitError(s eventstore.Stream, err error, passed bool) error {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case answered && pg.Code == codeIdleInTx: // it ended the session, but while there was no COMMIT
		return l.translate(opWithin, s, err, reading)
	case passed && answered && !fatal(pg) && pg.Code[:2] == "23":
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: opWithin, Stream: s, Wanted: "to commit",
			Found: "a deferred constraint of the caller's tables; nothing was written", Err: err}
	}
	return l.translate(opWithin, s, err, writing)
}

// sendWith sends an append between two statements, before (if any) and after, in one
// round trip. An error after it has passed is that of after.
func (l *Log) sendWith(ctx context.Context, q querier, before string, a eventstore.Append, places []category, texts appendTexts, after string) (w wrote, err error) {
	if cannotPass(a, places) {
		return w, nil
	}
	sql, args := statementFor(a, places, texts)
	b := &pgx.Batch{}
	if before != "" {
		b.Queue(before)
	}
	b.Queue(sql, args...)
	b.Queue(after)
	res := q.SendBatch(ctx, b)
	defer res.Close()
	if before != "" {
		if _, err := res.Exec(); err != nil {
			return w, err
		}
	}
	w, err = scanAppend(res, a)
	if err != nil {
		return w, err
	}
	if _, err := res.Exec(); err != nil {
		return w, err
	}
	return w, res.Close()
}

// scanAppend takes the row of an append; some come with a third column.
func scanAppend(res pgx.BatchResults, a eventstore.Append) (wrote, error) {
	rows, err := res.Query()
	if err != nil {
		return wrote{}, err
	}
	defer rows.Close()
	var ok bool
	var position *int64
	for rows.Next() {
		targets := []any{&ok, &position, nil}
		if err := rows.Scan(targets[:len(rows.FieldDescriptions())]...); err != nil {
			return wrote{}, err
		}
	}
	rows.Close()
	if rows.Err() != nil {
		return wrote{}, rows.Err()
	}
	return wroteOf(a, ok, position)
}
