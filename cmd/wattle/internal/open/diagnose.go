// Examining a store: its data, and what surrounds it. Neither opens it first: they are
// for stores that cannot be opened, too.

package open

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/pglog"
)

// Verify checks what the store of a target has stored; see eventstore.Verifier.
func (t *Target) Verify(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	if t.InFiles() {
		return t.verifyFiles(ctx, progress)
	}
	if t.remote != nil {
		return t.remote.verify(ctx, progress)
	}
	return func(yield func(eventstore.Finding, error) bool) {
		err := t.diagnose(ctx, "verify", func(pool *pgxpool.Pool) error {
			for f, err := range pglog.Verify(ctx, pool, &pglog.Options{Schema: t.schema}, progress) {
				if err != nil {
					return err
				}
				if !yield(f, nil) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && err != errEnough {
			yield(eventstore.Finding{}, err)
		}
	}
}

// verifyFiles looks at the files beside their owner, if they have one.
func (t *Target) verifyFiles(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		for f, err := range filelog.Verify(ctx, t.dir, progress) {
			if errors.Is(err, eventstore.ErrNotMigrated) || errors.Is(err, fs.ErrNotExist) { // no segment either, or not even a directory
				err = cmp.Or(t.mustExist("verify"), err)
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// Repair makes a damaged store in files one that opens; see filelog.Repair.
func (t *Target) Repair(ctx context.Context, dry bool) ([]eventstore.Finding, error) {
	found, err := filelog.Repair(ctx, t.dir, &filelog.RepairOptions{DryRun: dry})
	return found, owned(err)
}

// errEnough says that whoever ranges wants no more.
var errEnough = &eventstore.Error{Kind: eventstore.ErrClosed}

// Examine looks at what surrounds the store of a target; see eventstore.Doctor.
func (t *Target) Examine(ctx context.Context) (all []eventstore.Finding, err error) {
	if t.InFiles() {
		return filelog.Examine(ctx, t.dir)
	}
	if t.remote != nil {
		log, err := t.remote.open(ctx)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		return log.Examine(ctx)
	}
	err = t.diagnose(ctx, "examine", func(pool *pgxpool.Pool) error {
		all, err = pglog.Examine(ctx, pool, &pglog.Options{Schema: t.schema})
		return err
	})
	return all, err
}

// diagnose calls f with a pool on the target's database.
func (t *Target) diagnose(ctx context.Context, op string, f func(*pgxpool.Pool) error) error {
	if t.config == nil {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Wanted: "a store that outlives the process, as file:DIR or postgres://…", Found: t.name,
			Hint: "a store in memory is empty when a command opens it"}
	}
	pool, err := t.pool(ctx, 0, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(pool)
}
