// Package bankpg keeps the read model of package bank in PostgreSQL: a table of
// one JSON document an application, written in the transaction that moves the
// checkpoint of its projector's lane.
//
// It has a schema of its own beside the store's. What is in it can be made anew
// from the log at any time, and is when the store is another one than the model
// was made from, so nothing has to be migrated or backed up:
//
//	build               one row: the store's incarnation (of several backends all of
//	                    them) and the lowest version that is of it
//	applications_<n>    key text, doc jsonb: the model of version n of the projector
//	customers           customer, application: those that are open; see Customers
//
// Versions are those of the projector bank.Projection, which readers and workers of any
// process find in the store's schema. So the model is rebuilt, compared, switched and
// rolled back with projector.Admin or the command wattle projector, while workers run: a
// worker makes the table of a version when it begins to build it. The tables of versions
// that were dropped go when all is made anew.
package bankpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// Options of Open.
type Options struct {
	// Schema of the model, created if it is missing. It must not be the store's.
	Schema string
	// StoreSchema is that of the store, where the projector's versions are kept.
	StoreSchema string
	// Rebuild makes the model anew at once, in a version that takes the place of all
	// there are. It is for a model that cannot be used any more: one that can is better
	// rebuilt in its shadow, with projector.Admin.
	Rebuild bool
	// Categories of the applications, as in bank.Options. Empty: bank.Category.
	Categories []eventstore.Category
	// Fold returns that of a version; nil: loan.Apply is that of all.
	Fold func(version int) bank.Fold
}

// SchemaBeside names a schema for the model of a store, like that of the store with
// _loan behind. PostgreSQL would cut a name over 63 bytes; such a one is shortened
// here and told from others by a digest.
func SchemaBeside(storeSchema string) string {
	const most, suffix = 63, "_loan"
	if len(storeSchema)+len(suffix) <= most {
		return storeSchema + suffix
	}
	digest := sha256.Sum256([]byte(storeSchema))
	suffixed := "_" + hex.EncodeToString(digest[:4]) + suffix
	return strings.ToValidUTF8(storeSchema[:most-len(suffixed)], "") + suffixed
}

// View implements bank.View. Its methods may be called from several goroutines at once.
type View struct {
	pool    *pgxpool.Pool
	o       Options
	control *pgcheckpoint.Checkpoints
	reader  *projector.Reader
	build   int // the lowest version that is of this store
}

// Control keeps the versions in the store's schema, for all processes.
func (v *View) Control() projector.Control { return v.control }

// Version is the one to begin with.
func (v *View) Version() int { return v.build }

// Handler folds a batch into a version of the model: one statement reads the documents
// it is about, one writes them back. The checkpoint's row lock lets one batch of each
// lane in at a time, and an application lies in one lane, so nobody writes in between.
// It makes the version's table, unless the version was dropped meanwhile.
func (v *View) Handler(version int) (projector.Handler, error) {
	m := &model{table: v.Table(version), fold: loan.Apply}
	if v.o.Fold != nil {
		m.fold = v.o.Fold(version)
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	if err := v.makeTable(ctx, version); err != nil {
		return nil, fmt.Errorf("read model in schema %q: %w", v.o.Schema, err)
	}
	return pgcheckpoint.BatchHandler(v.pool, bank.Events(), m.apply, &pgcheckpoint.Options{Schema: v.o.StoreSchema}), nil
}

// Table returns the table of a version, as SQL spells it.
func (v *View) Table(version int) string { return table(v.o.Schema, version) }

// model is one version that is built.
type model struct {
	table string
	fold  bank.Fold
}

func (m *model) apply(ctx context.Context, tx pgx.Tx, batch []projector.Event[loan.Event]) error {
	docs := map[string]loan.Application{}
	for _, e := range batch {
		docs[e.Stream.Key()] = loan.Application{}
	}
	if err := m.load(ctx, tx, docs); err != nil {
		return err
	}
	for _, e := range batch {
		key := e.Stream.Key()
		if e.Seqno == 1 { // also when the version was reset, or has the number of one before it
			docs[key] = loan.Application{}
		}
		docs[key] = m.fold(docs[key], e.Value)
	}
	return m.save(ctx, tx, docs)
}

// load fills in the documents that are there.
func (m *model) load(ctx context.Context, tx pgx.Tx, docs map[string]loan.Application) error {
	rows, err := tx.Query(ctx, "SELECT key, doc FROM "+m.table+" WHERE key = ANY($1)", slices.Collect(maps.Keys(docs)))
	if err != nil {
		return err
	}
	var key string
	var doc []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &doc}, func() error {
		var a loan.Application
		err := json.Unmarshal(doc, &a)
		docs[key] = a
		return err
	})
	return err
}

func (m *model) save(ctx context.Context, tx pgx.Tx, docs map[string]loan.Application) error {
	keys := slices.Sorted(maps.Keys(docs))
	texts := make([]string, len(keys))
	for i, key := range keys {
		doc, err := json.Marshal(docs[key])
		if err != nil {
			return err
		}
		texts[i] = string(doc)
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+m.table+" (key, doc) SELECT key, doc::jsonb FROM unnest($1::text[], $2::text[]) AS new (key, doc)"+
		" ON CONFLICT (key) DO UPDATE SET doc = excluded.doc", keys, texts)
	return err
}

// Applications yields the live version as of one moment.
func (v *View) Applications(ctx context.Context) iter.Seq2[loan.Application, error] {
	return func(yield func(loan.Application, error) bool) {
		rows, err := v.rows(ctx)
		if err != nil {
			yield(loan.Application{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			a, err := document(rows)
			if !yield(a, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(loan.Application{}, err)
		}
	}
}

// rows queries the live version. One that stops being that meanwhile is whole all the
// same; one whose table has gone, too, is looked for anew.
func (v *View) rows(ctx context.Context) (rows pgx.Rows, err error) {
	for range maxLooks {
		version, failed := v.reader.Live(ctx)
		if errors.Is(failed, projector.ErrNotRegistered) {
			version, failed = v.build, nil // nothing is built yet
		}
		if failed != nil {
			return nil, failed
		}
		rows, err = v.pool.Query(ctx, "SELECT doc FROM "+v.Table(version))
		if err == nil && !rows.Next() { // where the protocol tells an error late it tells it now
			rows.Close()
			err = rows.Err()
			if err == nil {
				return rows, nil
			}
		} else if err == nil {
			return &begun{Rows: rows}, nil
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != undefinedTable {
			return nil, err
		}
	}
	return nil, err
}

// begun are rows of which the first was asked for already.
type begun struct {
	pgx.Rows
	went bool
}

func (b *begun) Next() bool {
	if !b.went {
		b.went = true
		return true
	}
	return b.Rows.Next()
}

func document(row pgx.Row) (a loan.Application, err error) {
	var doc []byte
	if err := row.Scan(&doc); err != nil {
		return a, err
	}
	return a, json.Unmarshal(doc, &a)
}
