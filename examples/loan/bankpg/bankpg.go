// Package bankpg keeps the read model of package bank in PostgreSQL: a table of
// one JSON document an application, written in the transaction that moves the
// projector's checkpoint.
//
// It has a schema of its own beside the store's. What is in it can be made anew
// from the log at any time, and is when the store is another one than the model
// was made from, so nothing has to be migrated or backed up:
//
//	build               one row: the store's incarnation (of several backends all of
//	                    them) and the number of the build
//	applications_<n>    key text, doc jsonb: the model of build n
//
// The build's number is the projection's version. A new build has a new table and
// a new checkpoint; a process that still works on the old one finds its table gone
// and stops, and can do no harm to the new one.
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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// Options of Open.
type Options struct {
	// Schema of the model, created if it is missing. It must not be the store's.
	Schema string
	// StoreSchema is that of the store, where the projector's checkpoint is kept.
	StoreSchema string
	// Rebuild makes the model anew.
	Rebuild bool
	// Categories of the applications, as in bank.Options. Empty: bank.Category.
	Categories []eventstore.Category
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

// View implements bank.View.
type View struct {
	pool        *pgxpool.Pool
	storeSchema string
	table       string // quoted
	build       int
}

// Open returns the view of a store's applications. The pool is that of the
// store's database and stays the caller's.
func Open(ctx context.Context, pool *pgxpool.Pool, store *eventstore.Store, o Options) (*View, error) {
	if len(o.Categories) == 0 {
		o.Categories = []eventstore.Category{bank.Category}
	}
	of, err := identity(ctx, store, o.Categories)
	if err != nil {
		return nil, err
	}
	v := &View{pool: pool, storeSchema: o.StoreSchema}
	old := 0
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		old, err = v.prepare(ctx, tx, o, of)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read model in schema %q: %w", o.Schema, err)
	}
	v.table = table(o.Schema, v.build)
	if old > 0 {
		err = v.unregister(ctx, store, old, o.Categories)
	}
	return v, err
}

// identity names the stores that the applications lie in.
func identity(ctx context.Context, store *eventstore.Store, categories []eventstore.Category) (string, error) {
	shares, err := store.Split(categories...)
	if err != nil {
		return "", err
	}
	var all []string
	for _, share := range shares {
		id, err := share.Backend.Incarnation(ctx)
		if err != nil {
			return "", err
		}
		all = append(all, id.String())
	}
	slices.Sort(all)
	return strings.Join(all, " "), nil
}

// unregister gives up the hold of a build that was replaced.
func (v *View) unregister(ctx context.Context, store *eventstore.Store, build int, categories []eventstore.Category) error {
	err := bank.Projector(store, v, build, categories).Unregister(ctx)
	if errors.Is(err, eventstore.ErrNoSuchCategory) {
		return nil
	}
	return err
}

// lockKey serializes those who prepare a model in one database: CREATE … IF NOT
// EXISTS alone fails when two do it at once.
const lockKey = 0x6c6f616e // "loan"

// prepare finds the build that is of this store, or begins one. replaced is the
// number of the one before, 0 if there was none.
func (v *View) prepare(ctx context.Context, tx pgx.Tx, o Options, identity string) (replaced int, err error) {
	name := pgx.Identifier{o.Schema}.Sanitize()
	for _, sql := range []string{
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", lockKey),
		"SET LOCAL client_min_messages = warning",
		"CREATE SCHEMA IF NOT EXISTS " + name,
		"CREATE TABLE IF NOT EXISTS " + name + ".build (one boolean PRIMARY KEY DEFAULT true CHECK (one), number int NOT NULL, incarnation text NOT NULL)",
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	var of string
	err = tx.QueryRow(ctx, "SELECT number, incarnation FROM "+name+".build").Scan(&v.build, &of)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return 0, err
	case err == nil && of == identity && !o.Rebuild:
		return 0, nil
	}
	replaced = v.build
	v.build++
	b := &pgx.Batch{}
	b.Queue("INSERT INTO "+name+".build (number, incarnation) VALUES ($1, $2) ON CONFLICT (one) DO UPDATE SET number = excluded.number, incarnation = excluded.incarnation",
		v.build, identity)
	b.Queue("DROP TABLE IF EXISTS " + table(o.Schema, replaced))
	// Room on every page: a document is rewritten some twenty times.
	b.Queue("CREATE TABLE " + table(o.Schema, v.build) + ` (key text COLLATE "C" PRIMARY KEY, doc jsonb NOT NULL) WITH (fillfactor = 50)`)
	return replaced, tx.SendBatch(ctx, b).Close()
}

func table(schema string, build int) string {
	return pgx.Identifier{schema, fmt.Sprintf("applications_%d", build)}.Sanitize()
}

// Version is the number of the build.
func (v *View) Version() int { return v.build }

// Handler folds a batch into the model: one statement reads the documents it is
// about, one writes them back. The checkpoint's row lock lets one batch of each
// backend in at a time, and an application lies in one, so nobody writes in between.
func (v *View) Handler(events *schema.Registry[loan.Event]) projector.Handler {
	return pgcheckpoint.BatchHandler(v.pool, events, v.fold, &pgcheckpoint.Options{Schema: v.storeSchema})
}

func (v *View) fold(ctx context.Context, tx pgx.Tx, batch []projector.Event[loan.Event]) error {
	docs := map[string]loan.Application{}
	for _, e := range batch {
		docs[e.Stream.Key()] = loan.Application{}
	}
	if err := v.load(ctx, tx, docs); err != nil {
		return err
	}
	for _, e := range batch {
		key := e.Stream.Key()
		docs[key] = loan.Apply(docs[key], e.Value)
	}
	return v.save(ctx, tx, docs)
}

// load fills in the documents that are there.
func (v *View) load(ctx context.Context, tx pgx.Tx, docs map[string]loan.Application) error {
	rows, err := tx.Query(ctx, "SELECT key, doc FROM "+v.table+" WHERE key = ANY($1)", slices.Collect(maps.Keys(docs)))
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

func (v *View) save(ctx context.Context, tx pgx.Tx, docs map[string]loan.Application) error {
	keys := slices.Sorted(maps.Keys(docs))
	texts := make([]string, len(keys))
	for i, key := range keys {
		doc, err := json.Marshal(docs[key])
		if err != nil {
			return err
		}
		texts[i] = string(doc)
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+v.table+" (key, doc) SELECT key, doc::jsonb FROM unnest($1::text[], $2::text[]) AS new (key, doc)"+
		" ON CONFLICT (key) DO UPDATE SET doc = excluded.doc", keys, texts)
	return err
}

// Applications yields the model as of one moment.
func (v *View) Applications(ctx context.Context) iter.Seq2[loan.Application, error] {
	return func(yield func(loan.Application, error) bool) {
		rows, err := v.pool.Query(ctx, "SELECT doc FROM "+v.table)
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

func document(row pgx.Row) (a loan.Application, err error) {
	var doc []byte
	if err := row.Scan(&doc); err != nil {
		return a, err
	}
	return a, json.Unmarshal(doc, &a)
}
