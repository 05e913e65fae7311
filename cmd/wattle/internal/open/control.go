// Who keeps the checkpoints of the projectors of a store.

package open

import (
	"context"
	"slices"

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

// Keepers are those that are there: the tables beside a store in PostgreSQL, and streams
// of a category in any store, by default logcheckpoint.DefaultCategory. Nothing is created.
func (s *Store) Keepers(ctx context.Context, category eventstore.Category) ([]Keeper, error) {
	var all []Keeper
	if s.Pool != nil {
		all = append(all, Keeper{"database", pgcheckpoint.NewCheckpoints(s.Pool, &pgcheckpoint.Options{Schema: s.Schema})})
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
