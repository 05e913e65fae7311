// Builds: which versions are of this store, and their tables.

package bankpg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// Open returns the view of a store's applications. The pool is that of the
// store's database and stays the caller's. Versions that were made from another store,
// and with Options.Rebuild all there are, are removed.
func Open(ctx context.Context, pool *pgxpool.Pool, store *eventstore.Store, o Options) (*View, error) {
	if len(o.Categories) == 0 {
		o.Categories = []eventstore.Category{bank.Category}
	}
	of, err := identity(ctx, store, o.Categories)
	if err != nil {
		return nil, err
	}
	v := &View{pool: pool, o: o, control: pgcheckpoint.NewCheckpoints(pool, &pgcheckpoint.Options{Schema: o.StoreSchema})}
	v.reader = projector.NewReader(store, bank.Projection, v.control)
	registered, err := v.control.Versions(ctx, bank.Projection)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return v.prepare(ctx, tx, of, registered) })
	if err != nil {
		return nil, fmt.Errorf("read model in schema %q: %w", o.Schema, err)
	}
	return v, v.removeOld(ctx, store, registered)
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

// lockKey serializes those who prepare a model in one database: CREATE … IF NOT
// EXISTS alone fails when two do it at once.
const lockKey = 0x6c6f616e // "loan"

// prepare finds the lowest version that is of this store, or begins a new one.
func (v *View) prepare(ctx context.Context, tx pgx.Tx, identity string, registered []projector.Version) error {
	name := pgx.Identifier{v.o.Schema}.Sanitize()
	for _, sql := range []string{
		lockSQL,
		"SET LOCAL client_min_messages = warning",
		"CREATE SCHEMA IF NOT EXISTS " + name,
		"CREATE TABLE IF NOT EXISTS " + name + ".build (one boolean PRIMARY KEY DEFAULT true CHECK (one), number int NOT NULL, incarnation text NOT NULL)",
		`CREATE TABLE IF NOT EXISTS ` + v.customers() + ` (customer text COLLATE "C" PRIMARY KEY, application text COLLATE "C" NOT NULL UNIQUE)`,
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	var of string
	err := tx.QueryRow(ctx, "SELECT number, incarnation FROM "+name+".build").Scan(&v.build, &of)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	case err == nil && of == identity && !v.o.Rebuild:
		return nil
	}
	if of != identity {
		if _, err := tx.Exec(ctx, "TRUNCATE "+v.customers()); err != nil {
			return err
		}
	}
	tables, err := v.tables(ctx, tx)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	v.build = max(v.build, slices.Max(append(slices.Concat(tables, numbers(registered, all)), 0))) + 1
	for _, old := range tables {
		b.Queue("DROP TABLE " + v.Table(old))
	}
	b.Queue("INSERT INTO "+name+".build (number, incarnation) VALUES ($1, $2) ON CONFLICT (one) DO UPDATE SET number = excluded.number, incarnation = excluded.incarnation",
		v.build, identity)
	b.Queue(v.createTable(v.build))
	return tx.SendBatch(ctx, b).Close()
}

var lockSQL = fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", lockKey)

// tables are the versions that have a table.
func (v *View) tables(ctx context.Context, tx pgx.Tx) ([]int, error) {
	rows, err := tx.Query(ctx, `SELECT substring(tablename FROM '^applications_(\d{1,9})$')::int FROM pg_tables WHERE schemaname = $1 AND tablename ~ '^applications_\d{1,9}$'`, v.o.Schema)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

func table(schema string, version int) string {
	return pgx.Identifier{schema, fmt.Sprintf("applications_%d", version)}.Sanitize()
}

// createTable leaves room on every page: a document is rewritten some twenty times.
func (v *View) createTable(version int) string {
	return "CREATE TABLE IF NOT EXISTS " + v.Table(version) + ` (key text COLLATE "C" PRIMARY KEY, doc jsonb NOT NULL) WITH (fillfactor = 50)`
}

// makeTable makes the table of a version, if it is one of this store. Of an older one
// nothing is made: its worker finds no table, and stops.
func (v *View) makeTable(ctx context.Context, version int) error {
	return pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{lockSQL, "SET LOCAL client_min_messages = warning"} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		var lowest int
		if err := tx.QueryRow(ctx, "SELECT number FROM "+pgx.Identifier{v.o.Schema, "build"}.Sanitize()).Scan(&lowest); err != nil || version < lowest {
			return err
		}
		_, err := tx.Exec(ctx, v.createTable(version))
		return err
	})
}

// removeOld takes the versions that are not of this store out of the projector's, with
// the lowest that is in their place, and gives up their holds. It is one step, so that no
// worker finds none and registers an old one again.
func (v *View) removeOld(ctx context.Context, store *eventstore.Store, registered []projector.Version) error {
	old := func(r projector.Version) bool { return r.Key.Version < v.build }
	if !slices.ContainsFunc(registered, old) {
		return nil
	}
	err := v.control.Update(ctx, bank.Projection, func(all []projector.Version) ([]projector.Version, error) {
		var kept []projector.Version
		for _, r := range all {
			switch {
			case !old(r):
				kept = append(kept, r)
			case r.Role == projector.Live:
				kept = append(kept, v.instead(r))
			}
		}
		return kept, nil
	})
	if err != nil {
		return err
	}
	for _, r := range slices.Compact(numbers(registered, old)) {
		p := projector.New(store, bank.Projection, v.o.Categories[0], pgcheckpoint.BatchHandler(v.pool, bank.Events(), (&model{}).apply),
			&projector.Options{Version: r, Categories: v.o.Categories[1:]})
		if err := p.Unregister(ctx); err != nil && !errors.Is(err, eventstore.ErrNoSuchCategory) {
			return err
		}
	}
	return nil
}

// instead is the version that takes the place of an old live one, from the beginning.
func (v *View) instead(old projector.Version) projector.Version {
	next := projector.Version{Key: old.Key, Role: projector.Live, Scope: old.Scope, Lanes: make([]projector.Checkpoint, len(old.Lanes))}
	next.Key.Version = v.build
	for i := range next.Lanes {
		next.Lanes[i].Epoch = 1
	}
	return next
}

func all(projector.Version) bool { return true }

func numbers(all []projector.Version, which func(projector.Version) bool) (chosen []int) {
	for _, v := range all {
		if which(v) {
			chosen = append(chosen, v.Key.Version)
		}
	}
	slices.Sort(chosen)
	return chosen
}
