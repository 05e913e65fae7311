// The migrators' mutual exclusion: a leased row in a table, as goose's table locker keeps it.
//
// It is goose's protocol on a table of the same shape (lock.NewPostgresTableLocker on the same table and this locker
// exclude each other), written again because goose's puts the table's name both into identifiers and into catalog
// look-ups, so that no schema that needs quotes works, and probes every 5 s only.

package migrations

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/lock"
)

const (
	lockLease = 10 * time.Second       // a dead migrator holds the others up no longer
	lockBeat  = 2 * time.Second        // how often the lease is renewed; well below it
	lockProbe = 100 * time.Millisecond // how often a waiting migrator looks
)

// locker implements lock.Locker. A lease that is lost while its migrator is frozen does no harm: every migration is one
// transaction on objects of fixed names, of which only one can commit.
type locker struct {
	schema name
	holder string
	lease  time.Duration
	// stop ends the renewal and waits for it; goose calls Lock and Unlock in turn, under its own mutex.
	stop func()
}

var _ lock.Locker = (*locker)(nil)

func newLocker(n name) *locker {
	return &locker{schema: n, holder: rand.Text(), lease: lockLease}
}

// createLock is idempotent, but not safe against itself in another transaction: call it under bootstrap's lock.
func createLock(n name) string {
	return `CREATE TABLE IF NOT EXISTS ` + n.table(LockTable) + ` (
		lock_id bigint NOT NULL PRIMARY KEY,
		locked boolean NOT NULL DEFAULT false,
		locked_at timestamptz NULL,
		locked_by text NULL,
		lease_expires_at timestamptz NULL,
		updated_at timestamptz NULL
	)`
}

// Lock returns when this migrator holds the row, or when ctx ends.
func (l *locker) Lock(ctx context.Context, db *sql.DB) error {
	if err := bootstrap(ctx, db, l.schema); err != nil {
		return err
	}
	for waited := false; ; waited = true {
		held, err := l.acquire(ctx, db)
		switch {
		case held:
			l.renew(ctx, db)
			return nil
		case waited && ctx.Err() != nil: // it may have ended within a probe
			return fmt.Errorf("another migrator is at work (see %s): %w", l.schema.table(LockTable), context.Cause(ctx))
		case err != nil:
			return fmt.Errorf("take the migration lock: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(lockProbe):
		}
	}
}

// acquire takes the row if it is free or its lease has run out on the database's clock.
func (l *locker) acquire(ctx context.Context, db *sql.DB) (bool, error) {
	t := l.schema.table(LockTable)
	var by string
	err := db.QueryRowContext(ctx, `INSERT INTO `+t+` AS l (lock_id, locked, locked_at, locked_by, lease_expires_at, updated_at)
		VALUES ($1, true, now(), $2, now() + make_interval(secs => $3), now())
		ON CONFLICT (lock_id) DO UPDATE SET locked = true, locked_at = now(), locked_by = $2,
			lease_expires_at = now() + make_interval(secs => $3), updated_at = now()
		WHERE NOT l.locked OR l.lease_expires_at < now()
		RETURNING locked_by`, int64(lock.DefaultLockID), l.holder, l.lease.Seconds()).Scan(&by)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// renew keeps the lease until stop is called. An error is not told: the next beat tries again, and losing the lease is
// harmless.
func (l *locker) renew(ctx context.Context, db *sql.DB) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	l.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		tick := time.NewTicker(lockBeat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = db.ExecContext(ctx, `UPDATE `+l.schema.table(LockTable)+`
					SET lease_expires_at = now() + make_interval(secs => $3), updated_at = now()
					WHERE lock_id = $1 AND locked_by = $2 AND locked`, int64(lock.DefaultLockID), l.holder, l.lease.Seconds())
			}
		}
	}()
}

// Unlock frees the row if it is still ours. goose calls it with a context that its caller cannot cancel, hence the limit.
func (l *locker) Unlock(ctx context.Context, db *sql.DB) error {
	l.stop()
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	_, err := db.ExecContext(ctx, `UPDATE `+l.schema.table(LockTable)+`
		SET locked = false, locked_at = NULL, locked_by = NULL, lease_expires_at = NULL, updated_at = now()
		WHERE lock_id = $1 AND locked_by = $2`, int64(lock.DefaultLockID), l.holder)
	if err != nil {
		return fmt.Errorf("free the migration lock: %w", err)
	}
	return nil
}
