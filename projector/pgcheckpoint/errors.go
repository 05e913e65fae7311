// Errors of PostgreSQL, of the handler's function and of the commit, translated
// once: by SQLSTATE and by what had been sent, never by text.

package pgcheckpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// phase says what may have happened when an error came.
type phase int

const (
	connecting phase = iota // nothing was sent
	reading                 // nothing can have been committed
	writing                 // a commit may have been sent
)

// errNotYours is what a handler's function gets that ends the transaction.
var errNotYours = errors.New("pgcheckpoint: the transaction is ended by the projector, not by the handler")

// lostError: the server rolled the transaction back for another one's sake.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// translate makes an *eventstore.Error of an error of a statement of ours.
func translate(op string, err error, ph phase) error {
	if _, ours := errors.AsType[*eventstore.Error](err); err == nil || ours {
		return err
	}
	e := &eventstore.Error{Op: op, Err: err}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case answered && (ph != writing || !fatal(pg)):
		if lostCode(pg.Code) {
			return &lostError{err}
		}
		e.Hint, e.Kind = kindOf(pg.Code)
	case ph == writing && !pgconn.SafeToRetry(err):
		e.Kind, e.Hint = eventstore.ErrUnknown, "load the checkpoint to learn the outcome"
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		e.Kind, e.Hint = eventstore.ErrUnavailable, "is the database of the read model up and reachable?"
	}
	return e
}

func fatal(e *pgconn.PgError) bool {
	s := e.SeverityUnlocalized
	if s == "" {
		s = e.Severity
	}
	return s == "FATAL" || s == "PANIC"
}

// lostCode: serialization failure, deadlock. Nothing has happened; do it again.
func lostCode(code string) bool { return code == "40001" || code == "40P01" }

// kindOf maps the SQLSTATE of a statement that was rolled back.
func kindOf(code string) (hint string, kind error) {
	switch code {
	case "42P01", "42703", "3F000": // undefined table, column, schema
		return "apply the migrations to the database of the read model, and name its schema in Options", eventstore.ErrNotMigrated
	case "25006":
		return "connect to the primary", eventstore.ErrReadOnly
	case "42501":
		return "grant the role SELECT, INSERT, UPDATE and DELETE on the tables checkpoints, projectors, parked and skipped", eventstore.ErrUnavailable
	case "55P03", "57014": // lock not available, cancelled: another instance's transaction stands before ours
		return "another transaction holds the checkpoint", eventstore.ErrOverloaded
	}
	switch code[:2] {
	case "53": // insufficient resources
		return "try again later", eventstore.ErrOverloaded
	case "22", "54": // data exception, program limit
		return "", eventstore.ErrInvalid
	}
	return "", eventstore.ErrUnavailable
}

// ofHandler sorts an error of the handler's function. A lost connection is an
// outage, and so is a lock that others did not let go of in time; a transaction lost
// against another one is begun again, the rest is the function's own.
func ofHandler(ctx context.Context, conn *pgx.Conn, err error, long bool) error {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	cause := err // what is no fault of the entry does not name it
	if e, ok := errors.AsType[*projector.EntryError](err); ok {
		cause = e.Err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case answered && lostCode(pg.Code):
		return &lostError{cause}
	case answered && pg.Code == "25P03", conn.IsClosed() && long:
		return hinted(err, "the transaction idled for longer than its TTL and was ended by the server: compute before the transaction, or raise Options.TTL")
	case conn.IsClosed(), answered && fatal(pg):
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "project", Err: cause, Hint: "the connection was lost; nothing was committed"}
	case answered && pg.Code == "55P03": // lock_timeout, NOWAIT
		return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "project", Err: cause, Hint: "another transaction holds what the handler's SQL locks; nothing was committed"}
	case answered && (pg.Code == "25006" || pg.Code[:2] == "53"):
		hint, kind := kindOf(pg.Code)
		return &eventstore.Error{Kind: kind, Op: "project", Err: cause, Hint: hint}
	}
	return err
}

func hinted(err error, hint string) error {
	e, ok := errors.AsType[*projector.EntryError](err)
	if !ok {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	c := *e
	c.Err = fmt.Errorf("%w (%s)", e.Err, hint)
	return &c
}

// committable refuses to commit a transaction that the handler's function has
// left in no state for it.
func committable(conn *pgx.Conn, batch []eventstore.Entry) error {
	err := unfit(conn)
	if _, outage := errors.AsType[*eventstore.Error](err); err == nil || outage {
		return err
	}
	e := projector.NewEntryError(batch, err)
	e.Permanent = errors.Is(err, errEnded)
	return e
}

var errEnded = errors.New("the handler ended the transaction itself")

// unfit says why a transaction cannot be committed, if it cannot.
func unfit(conn *pgx.Conn) error {
	switch status := conn.PgConn().TxStatus(); {
	case conn.IsClosed():
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "project", Hint: "the connection was lost; nothing was committed"}
	case conn.PgConn().IsBusy():
		return errors.New("the handler returned with rows left open")
	case status == 'E':
		return errors.New("a statement of the handler failed and its error was not returned")
	case status != 'T':
		return errEnded
	}
	return nil
}

// ofCommit sorts an error of COMMIT.
func ofCommit(batch []eventstore.Entry, err error) error {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	if answered && !fatal(pg) && pg.Code[:2] == "23" && len(batch) > 0 { // a deferred constraint
		return projector.NewEntryError(batch, err)
	}
	return translate("project", err, writing)
}

// drop closes a connection to a server that takes no writes, so that the pool
// makes a new one, perhaps to the new primary.
func drop(ctx context.Context, conn *pgx.Conn, err error) error {
	if errors.Is(err, eventstore.ErrReadOnly) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}
	return err
}
