// Who keeps the checkpoints of the projectors of a store.

package open

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// Keeper keeps checkpoints, and what belongs to them.
type Keeper struct {
	Where string // "database" or "log"
	projector.Control
}

// Keepers are those that are there: the tables of database, or if that is nil those beside
// a store in PostgreSQL, and streams of a category in any store, by default
// logcheckpoint.DefaultCategory. Nothing is created.
func (s *Store) Keepers(ctx context.Context, database *Database, category eventstore.Category) ([]Keeper, error) {
	if database == nil && s.Pool != nil {
		database = &Database{s.Pool, s.Schema}
	}
	var all []Keeper
	if database != nil {
		all = append(all, Keeper{"database", pgcheckpoint.NewCheckpoints(database.pool, &pgcheckpoint.Options{Schema: database.schema})})
	}
	if category == "" {
		category = logcheckpoint.DefaultCategory
	}
	categories, err := s.ListCategories(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(categories, func(c eventstore.CategorySpec) bool { return c.Name == category }) {
		return all, nil
	}
	log, err := logcheckpoint.New(ctx, s.Store, &logcheckpoint.Options{Category: category, Existing: true})
	if err != nil {
		return nil, err
	}
	return append(all, Keeper{"log", log}), nil
}

// Database is one in PostgreSQL with read models and the checkpoints of what keeps them.
type Database struct {
	pool   *pgxpool.Pool
	schema string
}

// Database opens the database of a target, for checkpoints of a store that is elsewhere.
// It connects when it is first used.
func (t *Target) Database(ctx context.Context) (*Database, error) {
	if t.config == nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open database", Wanted: "a database like postgres://user@host:5432/database?schema=wattle", Found: t.name,
			Hint: "checkpoints elsewhere than in PostgreSQL are kept in the store itself"}
	}
	pool, err := t.pool(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	return &Database{pool, t.schema}, nil
}

// Close closes its connections.
func (d *Database) Close() { d.pool.Close() }
