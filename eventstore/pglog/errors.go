// Errors of PostgreSQL and pgx, translated once, by SQLSTATE and by what had been
// sent; never by text.

package pglog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wattle-es/wattle/eventstore"
)

// phase says what may have happened when an error came.
type phase int

const (
	connecting phase = iota // nothing was sent
	reading                 // nothing could have been written
	writing                 // a writing statement may have been sent
)

// SQLSTATEs that mean something to us.
const (
	codeDivisionByZero  = "22012" // appendAll lost a race for a first append; rolled back
	codeNotNull         = "23502" // a position at or below its published bound
	codeCheck           = "23514" // no partition: the category is gone
	codeReadOnly        = "25006"
	codeFailedTx        = "25P02" // a statement before this one has failed
	codeIdleInTx        = "25P03" // idle_in_transaction_session_timeout
	codeSerialization   = "40001"
	codeDeadlock        = "40P01"
	codeUndefinedTable  = "42P01"
	codeUndefinedColumn = "42703"
	codeNoSchema        = "3F000"
	codeNoPrivilege     = "42501"
	codeLockTimeout     = "55P03"
	codeCanceled        = "57014"

	// A prepared statement that is another session's, or nobody's.
	codeNoStatement   = "26000"
	codeSameStatement = "42P05"
)

func pgCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// fatal says if an error ended the session: it may have come after the commit.
func fatal(pg *pgconn.PgError) bool {
	s := pg.SeverityUnlocalized
	if s == "" {
		s = pg.Severity
	}
	return s == "FATAL" || s == "PANIC"
}

// translate makes the one error that leaves the package. Errors of ours pass.
func (l *Log) translate(op string, s eventstore.Stream, err error, ph phase) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*eventstore.Error](err); ours {
		return err
	}
	e := &eventstore.Error{Op: op, Stream: s, Err: err}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case answered && (ph != writing || !fatal(pg)):
		e.Hint, e.Kind = l.kindOf(pg.Code)
	case ph == writing && !pgconn.SafeToRetry(err):
		e.Kind, e.Hint = eventstore.ErrUnknown, "send the same batch again to learn the outcome"
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		e.Kind, e.Hint = eventstore.ErrUnavailable, "nothing was written; is the server up and reachable?"
	}
	return e
}

// kindOf maps the SQLSTATE of a statement that the server rolled back.
func (l *Log) kindOf(code string) (hint string, kind error) {
	switch code {
	case codeUndefinedTable, codeUndefinedColumn, codeNoSchema:
		return "run: wattle migrate up, for schema " + l.schema, eventstore.ErrNotMigrated
	case codeReadOnly:
		return "connect to the primary", eventstore.ErrReadOnly
	case codeFailedTx:
		return "it had failed before: return errors, or use savepoints", eventstore.ErrInvalid
	case codeSerialization:
		return isolationHint, eventstore.ErrIsolation
	case codeNotNull:
		return "the position sequence went back or was altered: stop appending and restore it above max(position)", eventstore.ErrCorrupt
	case codeIdleInTx:
		return "the session idled in its transaction for too long; nothing was written", eventstore.ErrOverloaded
	case codeDeadlock, codeLockTimeout, codeCanceled:
		return "the statement was rolled back; try again", eventstore.ErrOverloaded
	case codeNoStatement, codeSameStatement:
		return prepareHint + "; nothing was written", eventstore.ErrInvalid
	case codeNoPrivilege:
		return "grant the role the store's schema, tables and sequence", eventstore.ErrUnavailable
	}
	switch code[:2] {
	case "53": // insufficient resources: connections, memory, disk
		return "the statement was rolled back; try again later", eventstore.ErrOverloaded
	case "XX": // a block or an index that is corrupt, part of a payload that is missing
		return "run: wattle verify", eventstore.ErrCorrupt
	case "22", "54": // data exception, program limit
		return "the statement was rolled back", eventstore.ErrInvalid
	}
	return "the statement was rolled back", eventstore.ErrUnavailable
}

const isolationHint = "use READ COMMITTED: reset default_transaction_isolation for the role or database"

func isolationError(op string, s eventstore.Stream) error {
	return &eventstore.Error{Kind: eventstore.ErrIsolation, Op: op, Stream: s, Wanted: "transactions under READ COMMITTED",
		Found: "a stricter level; nothing was written", Hint: isolationHint}
}
