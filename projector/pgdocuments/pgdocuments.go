// Package pgdocuments keeps the documents of projections that are handlers (package
// projector/guest) in PostgreSQL, in the transaction that moves the projector's checkpoint:
// each document has had each entry exactly once.
//
//	err := pgdocuments.EnsureTable(ctx, pool, nil)
//	docs := pgdocuments.New(pool, nil)
//	p := guest.NewProjector(store, "balances", caller, docs, nil)
//
// # The table
//
// A row per document, in a table of the user's choosing, which [DDL] shows; those of
// several projectors may share one. Data is of type json, not jsonb: a document comes back
// to the byte as its handler wrote it, which may matter to it, and can be queried and
// indexed by expressions all the same. The checkpoints are those of package pgcheckpoint,
// in the same database.
//
// # Several lanes
//
// A step locks the documents that it reads, in the order of their keys, until it ends:
// their rows or, where there is no document, a row without data that is gone before the
// commit. So no change of a document is lost, whichever lanes, backends or processes share
// it, and none decides on what is no longer so; each waits for the others.
//
// Names are qualified and nothing is kept in the session, so PgBouncer in transaction mode
// will do; see package pgcheckpoint.
package pgdocuments

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// DefaultTable is the table where none is named.
const DefaultTable = "documents"

// Options of Documents; nil and zero fields are the defaults.
type Options struct {
	// Checkpoints are the options of the checkpoints beside the documents.
	Checkpoints pgcheckpoint.Options
	// Schema that holds the table. Empty: that of the checkpoints.
	Schema string
	// Table of the documents. Empty: DefaultTable.
	Table string
}

func (o *Options) orDefault() (c Options) {
	if o != nil {
		c = *o
	}
	if c.Checkpoints.Schema == "" {
		c.Checkpoints.Schema = pgcheckpoint.DefaultSchema
	}
	if c.Schema == "" {
		c.Schema = c.Checkpoints.Schema
	}
	if c.Table == "" {
		c.Table = DefaultTable
	}
	return c
}

func (o Options) table() string { return pgx.Identifier{o.Schema, o.Table}.Sanitize() }

// DDL returns the statement that makes the table.
func DDL(o *Options) string {
	return "CREATE TABLE IF NOT EXISTS " + o.orDefault().table() + ` (
	projector text COLLATE "C" NOT NULL,
	version integer NOT NULL,
	key text COLLATE "C" NOT NULL,
	data json,
	updated timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (projector, version, key)
)`
}

// EnsureTable makes the table unless it is there. Several processes may do so at once.
func EnsureTable(ctx context.Context, pool *pgxpool.Pool, o *Options) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// CREATE TABLE IF NOT EXISTS fails on one that somebody else is just making.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", o.orDefault().table()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, DDL(o))
		return err
	})
	return translate("create table of documents", err)
}

// Documents implements guest.Documents in PostgreSQL.
type Documents struct {
	pool        *pgxpool.Pool
	checkpoints *pgcheckpoint.Checkpoints
	sql         statements
}

var _ guest.Documents = (*Documents)(nil)

// New returns the documents in a table. The pool stays the caller's. Mistakes in the
// options are the ErrInvalid of every step.
func New(pool *pgxpool.Pool, o *Options) *Documents {
	c := o.orDefault()
	return &Documents{pool: pool, checkpoints: pgcheckpoint.NewCheckpoints(pool, &c.Checkpoints), sql: newStatements(c.table())}
}

// Keeps returns the checkpoints, which are a projector.Control.
func (d *Documents) Keeps() projector.Checkpoints { return d.checkpoints }

// Step does a step and what f does, in one transaction.
func (d *Documents) Step(ctx context.Context, s projector.Step, f func(ctx context.Context, tx guest.Tx) error) error {
	return d.checkpoints.Step(ctx, s, func(ctx context.Context, tx pgx.Tx) error {
		t := &transaction{sql: &d.sql, tx: tx, step: s, name: s.Key.Name()}
		if err := f(ctx, t); err != nil {
			return err
		}
		return t.tidy(ctx)
	})
}

// Get returns one document.
func (d *Documents) Get(ctx context.Context, name string, version int, key string) (doc []byte, found bool, err error) {
	rows, err := d.pool.Query(ctx, d.sql.get, name, version, key)
	if err == nil {
		var all [][]byte
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]byte, error) {
			var text string
			err := row.Scan(&text)
			return []byte(text), err
		})
		if len(all) == 1 {
			doc, found = all[0], true
		}
	}
	return doc, found, translate("get document", err)
}

// All yields the documents of a version, by one statement whose rows come as the loop
// takes them: it holds a connection of the pool meanwhile.
func (d *Documents) All(ctx context.Context, name string, version int) iter.Seq2[guest.Document, error] {
	return func(yield func(guest.Document, error) bool) {
		rows, err := d.pool.Query(ctx, d.sql.all, name, version)
		if err != nil {
			yield(guest.Document{}, translate("read documents", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var key, text string
			if err := rows.Scan(&key, &text); err != nil {
				yield(guest.Document{}, translate("read documents", err))
				return
			}
			if !yield(guest.Document{Key: key, Data: []byte(text)}, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(guest.Document{}, translate("read documents", err))
		}
	}
}

// Clear removes the documents of a version.
func (d *Documents) Clear(ctx context.Context, name string, version int) error {
	_, err := d.pool.Exec(ctx, d.sql.clear, name, version)
	return translate("clear documents", err)
}

// Reset sets a version back to the beginning and removes its documents, in one
// transaction; see projector.Admin.Reset, also for version 0. store is that of the entries: where they are
// gone it is ErrTrimmed, unless acceptTrimmed, and the documents stay.
func (d *Documents) Reset(ctx context.Context, store *eventstore.Store, name string, version int, acceptTrimmed bool) error {
	admin := projector.NewAdmin(store, d.checkpoints)
	return admin.ResetWith(ctx, name, version, acceptTrimmed, func(version int, reset func([]projector.Version) ([]projector.Version, error)) error {
		return d.checkpoints.UpdateTx(ctx, name, func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error) {
			all, err := reset(all)
			if err == nil {
				_, err = tx.Exec(ctx, d.sql.clear, name, version)
			}
			return all, err
		})
	})
}

func invalid(key string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "write documents", Wanted: "keys of UTF-8 without a zero byte", Found: fmt.Sprintf("%q", key)}
}
