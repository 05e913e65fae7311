// Errors of PostgreSQL, translated once: by SQLSTATE, never by text.

package pgdocuments

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// setUp makes an error of those that say that the database is not set up; nil: it is not
// one.
func setUp(op string, err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return nil
	}
	switch pg.Code {
	case "42P01", "42703", "3F000": // undefined table, column, schema
		return &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: op, Err: err, Hint: "make the table with pgdocuments.EnsureTable, and name it in Options"}
	case "42501":
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: op, Err: err, Hint: "grant the role SELECT, INSERT, UPDATE and DELETE on the table of documents"}
	}
	return nil
}

// translate makes an *eventstore.Error of an error outside of steps.
func translate(op string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if named := setUp(op, err); named != nil {
		return named
	}
	return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: op, Err: err}
}

// failed makes an error of a statement in a step's transaction one that pgcheckpoint sorts:
// it knows lost connections, lost races and full disks, the rest is the batch's fault.
func (t *transaction) failed(err error) error {
	if err == nil {
		return nil
	}
	if named := setUp("project "+t.step.Key.String(), err); named != nil {
		return named
	}
	if len(t.step.Batch) == 0 {
		return err
	}
	return projector.NewEntryError(t.step.Batch, err)
}
