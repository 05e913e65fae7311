// Package migrations holds the PostgreSQL schema of a store as goose SQL files and applies it.
//
// The same files serve three hands: [Up] (and the wattle command, which calls it), [Provider] for programs that already
// run goose, and the goose CLI on the directory sql:
//
//	psql -c 'CREATE SCHEMA wattle'           # the CLI does not create it, Up does
//	goose -dir migrations/sql -table wattle.wattle_version postgres "$DSN" up
//
// The schema's name is a placeholder with a default, ${WATTLE_SCHEMA:-wattle}. The CLI takes it from the environment, as
// SQL spells it; this package puts it in itself and touches no environment. Every name is qualified; search_path is
// never used. Each migration is one transaction that also writes its version row, so one that is killed half way has
// done nothing and can be run again.
//
// # Entries and their partitions
//
// Table entries is partitioned by category: entries_<id> holds the entries of category <id>. It is made LIKE entries_0,
// the partition of a category that never exists and so stays empty, in the transaction that inserts the category:
//
//	CREATE TABLE wattle.entries_7 (LIKE wattle.entries_0 INCLUDING ALL);
//	ALTER TABLE wattle.entries ATTACH PARTITION wattle.entries_7 FOR VALUES IN (7);
//
// It is deleted, once the category's row is, by statements that never make an append to another category wait; a plain
// DROP would lock the parent against them:
//
//	ALTER TABLE wattle.entries DETACH PARTITION wattle.entries_7 CONCURRENTLY;  -- not in a transaction; cut off? FINALIZE
//	DROP TABLE wattle.entries_7;
//
// Appends go through the parent, reads of a category to its partition. A migration reaches all of them so:
//
//   - columns, checks, defaults, storage and plain indexes: ALTER TABLE or CREATE INDEX on the parent, entries. It goes
//     down into every partition, entries_0 among them, so categories made later get it too;
//   - unique indexes (those of a partition do not hold the category, so the parent cannot have them) and settings such as
//     fillfactor: a DO block over SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = '<schema>.entries'::regclass,
//     entries_0 among them.
//
// The tables of dedicated streams hang under table logs in the same way, two levels down (see 00002_dedicated.sql): ALTER
// TABLE on logs reaches them all.
//
// A migration that runs while processes of the version before still append must stay readable to them.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

const (
	// Version is the newest version in [FS], the one that this build of wattle works with.
	Version int64 = 3
	// DefaultSchema is the schema meant by the empty name.
	DefaultSchema = "wattle"
	// VersionTable is the table, in the store's schema, in which goose records what has been applied.
	VersionTable = "wattle_version"
	// LockTable is the table, in the store's schema, whose row the running migrator holds.
	LockTable = "wattle_lock"
)

//go:embed sql/*.sql
var embedded embed.FS

// FS is the directory of SQL files as the goose CLI reads it, placeholders not replaced.
func FS() fs.FS {
	sub, err := fs.Sub(embedded, "sql")
	if err != nil {
		panic(err) // the path is a constant: fs.Sub refuses malformed ones only
	}
	return sub
}

// Up creates the schema if it is missing and applies every migration that is pending; it does nothing when there is
// none. The empty schema means [DefaultSchema]. Any number of processes may call it at once: one works, the others wait
// until it is done or until ctx ends. A migrator that died is waited for no longer than its lease, 10 s.
//
// The pool must allow two connections ([ErrPoolTooSmall]): one migrates, one keeps the lease. The role must own the
// schema, or may create one in the database. A bad name is a [*SchemaNameError]; server errors come wrapped, a
// *pgconn.PgError inside.
func Up(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	return withProvider(pool, schema, func(p *goose.Provider, db *sql.DB, n name) error {
		if err := bootstrap(ctx, db, n); err != nil {
			return err
		}
		_, err := p.Up(ctx)
		return err
	})
}

// Down takes back every migration: it DESTROYS EVERY LOG of the store, its snapshots, checkpoints and all. The schema
// itself stays, with goose's own two tables, as may what others keep in it. A schema that does not exist or is not
// migrated is left alone, without error. Locks and errors are those of [Up].
func Down(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	return withProvider(pool, schema, func(p *goose.Provider, db *sql.DB, n name) error {
		done, err := applied(ctx, db, n)
		if err != nil || len(done) == 0 {
			return err
		}
		_, err = p.DownTo(ctx, 0)
		return err
	})
}

// A Migration is one SQL file and whether it has been applied.
type Migration struct {
	Version int64
	Name    string    // the file's name
	Applied time.Time // zero while it is pending
}

// Pending says whether the migration has yet to be applied.
func (m Migration) Pending() bool { return m.Applied.IsZero() }

// Status lists the migrations of this build in ascending order. It only reads: where the schema or its version table is
// missing, all are pending. It takes no lock.
func Status(ctx context.Context, pool *pgxpool.Pool, schema string) ([]Migration, error) {
	var all []Migration
	err := withProvider(pool, schema, func(p *goose.Provider, db *sql.DB, n name) error {
		done, err := applied(ctx, db, n)
		for _, s := range p.ListSources() {
			all = append(all, Migration{Version: s.Version, Name: s.Path, Applied: done[s.Version]})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Provider gives goose's own handle on the migrations of one schema, for what the functions here do not offer. The
// schema must exist. The provider locks as [Up] does and needs two connections of db; db stays the caller's, so do not
// close the provider to keep db.
func Provider(db *sql.DB, schema string) (*goose.Provider, error) {
	n, err := parseName(schema)
	if err != nil {
		return nil, err
	}
	return newProvider(db, n)
}

func newProvider(db *sql.DB, n name) (*goose.Provider, error) {
	if max := db.Stats().MaxOpenConnections; max == 1 {
		return nil, ErrPoolTooSmall
	}
	versions, err := versionStore(n)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectCustom, db, named(FS(), n),
		goose.WithStore(versions),
		goose.WithLocker(newLocker(n)),
		goose.WithDisableGlobalRegistry(true),
	)
}

// withProvider calls do with a provider on the pool's connections, and says of which schema an error is.
func withProvider(pool *pgxpool.Pool, schema string, do func(*goose.Provider, *sql.DB, name) error) error {
	n, err := parseName(schema)
	if err != nil {
		return err
	}
	if pool.Config().MaxConns < 2 {
		return ErrPoolTooSmall
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	p, err := newProvider(db, n)
	if err == nil {
		err = do(p, db, n)
	}
	if err != nil {
		return fmt.Errorf("migrations of schema %s: %w", n.quoted(), err)
	}
	return nil
}
