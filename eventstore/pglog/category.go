// Categories: their numbers, cached, and their tables.

package pglog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// categoryCache remembers the numbers of categories. A number is never used again,
// so a stale one can do no harm: its table is gone and statements find nothing.
type categoryCache struct {
	mu  sync.RWMutex
	ids map[eventstore.Category]int32
}

func (c *categoryCache) get(name eventstore.Category) (int32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, ok := c.ids[name]
	return id, ok
}

func (c *categoryCache) put(name eventstore.Category, id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids == nil {
		c.ids = map[eventstore.Category]int32{}
	}
	c.ids[name] = id
}

func (c *categoryCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = nil
}

// errStale says that a category's number may be out of date.
var errStale = errors.New("stale category number")

// stale says if an error of a statement comes from a number out of date.
func stale(err error) bool {
	if _, told := errors.AsType[*eventstore.Error](err); told {
		return false // it has been translated: that was the answer
	}
	code := pgCode(err)
	return errors.Is(err, errStale) || code == codeUndefinedTable || code == codeCheck
}

// number returns the number of a category, or ErrNoSuchCategory.
func (l *Log) number(ctx context.Context, q querier, op string, name eventstore.Category, s eventstore.Stream) (int32, error) {
	if id, ok := l.categories.get(name); ok {
		return id, nil
	}
	var id int32
	err := q.QueryRow(ctx, l.sql.category, string(name)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, noSuchCategory(op, name, s)
	}
	if err != nil {
		return 0, l.translate(op, s, err, reading)
	}
	l.categories.put(name, id)
	return id, nil
}

func noSuchCategory(op string, name eventstore.Category, s eventstore.Stream) error {
	return &eventstore.Error{Kind: eventstore.ErrNoSuchCategory, Op: op, Stream: s, Category: name,
		Wanted: "category " + string(name), Found: "none of that name", Hint: "create the category first"}
}

// with calls f with the number of a category, and once more with a fresh one if f
// finds that it is out of date.
func (l *Log) with(ctx context.Context, q querier, op string, name eventstore.Category, s eventstore.Stream, f func(id int32) error) error {
	var err error
	for range 2 {
		id, nerr := l.number(ctx, q, op, name, s)
		if nerr != nil {
			return nerr
		}
		if err = f(id); !stale(err) {
			return err
		}
		l.categories.forget()
	}
	if errors.Is(err, errStale) { // deleted and created again all the while
		return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: op, Stream: s, Category: name, Wanted: "category " + string(name), Found: "it kept changing"}
	}
	return err
}

// CreateCategory creates a category and its table; idempotent for the same spec.
// It waits for no append: attaching takes a lock that appends do not conflict with.
func (l *Log) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	const op = "create category"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return err
	}
	defer leave()
	if spec.Layout != eventstore.Shared {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Category: spec.Name, Wanted: "layout shared", Found: spec.Layout.String()}
	}
	for range maxAttempts {
		if err = l.createCategory(ctx, op, spec); !errors.Is(err, errStale) {
			break
		}
	}
	if err == nil {
		l.refreshPartitions(ctx)
	}
	return l.translate(op, "", err, writing)
}

// refreshPartitions makes every session look at the partitions again, once the new
// one is committed. One that looked in the very moment it was attached can have kept
// a list without it. It takes no lock that an append waits for; if it fails, a session
// that finds no partition is closed and heals that way (see on).
func (l *Log) refreshPartitions(ctx context.Context) {
	if _, err := l.pool.Exec(ctx, l.sql.refreshPartitions); err != nil {
		l.logger.WarnContext(ctx, "cannot refresh the sessions' lists of partitions", "error", err)
	}
}

func (l *Log) createCategory(ctx context.Context, op string, spec eventstore.CategorySpec) error {
	return l.inTx(ctx, op, "", func(tx pgx.Tx) error {
		var id int32
		err := tx.QueryRow(ctx, l.sql.insertCategory, string(spec.Name), int16(spec.Layout), !spec.TrimFreely).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return l.sameSpec(ctx, tx, spec)
		}
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(of(l.sql.createTable, id))
		b.Queue(of(l.sql.attach, id))
		return tx.SendBatch(ctx, b).Close()
	})
}

func (l *Log) sameSpec(ctx context.Context, q querier, want eventstore.CategorySpec) error {
	all, err := l.listCategories(ctx, q)
	if err != nil {
		return err
	}
	for _, have := range all {
		if have.Name == want.Name {
			return eventstore.SameSpec(have, want)
		}
	}
	return errStale // deleted in between; the caller may create it again
}

// DeleteCategory drops the category's table. Appends in flight to any category are
// waited for, for a quarter of a second at a time, and wait for the drop, which is
// short. Registry rows go in bounded steps behind it.
func (l *Log) DeleteCategory(ctx context.Context, name eventstore.Category) error {
	const op = "delete category"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return err
	}
	defer leave()
	var id int32
	for {
		err = l.with(ctx, l.pool, op, name, "", func(n int32) error {
			id = n
			return l.dropCategory(ctx, op, n)
		})
		if pgCode(err) != codeLockTimeout {
			break
		}
		if err := pause(ctx, dropPause); err != nil {
			return err
		}
	}
	l.categories.forget()
	if err != nil {
		return l.translate(op, "", err, writing)
	}
	l.sweepStreams(ctx, id)
	return nil
}

// dropPause lies between two attempts to drop a table: appends that waited behind
// one go on meanwhile.
const dropPause = 500 * time.Millisecond

func (l *Log) dropCategory(ctx context.Context, op string, id int32) error {
	return l.inTx(ctx, op, "", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `set local lock_timeout = '250ms'`); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, l.sql.deleteCategory, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errStale
		}
		_, err = tx.Exec(ctx, of(l.sql.dropTable, id))
		return err
	})
}

// sweepStreams removes the registry rows of a category that is gone, a bounded
// number at a time. Rows left by a failure are out of reach and harmless;
// Reclaim finds them.
func (l *Log) sweepStreams(ctx context.Context, id int32) {
	for {
		var n int64
		if err := l.pool.QueryRow(ctx, l.sql.deleteStreams, id).Scan(&n); err != nil || n == 0 {
			if err != nil {
				l.logger.WarnContext(ctx, "registry rows of a deleted category left behind", "category", id, "error", err)
			}
			return
		}
	}
}

// ListCategories returns all categories ordered by name.
func (l *Log) ListCategories(ctx context.Context) ([]eventstore.CategorySpec, error) {
	leave, err := l.enter(ctx, "list categories", "")
	if err != nil {
		return nil, err
	}
	defer leave()
	all, err := l.listCategories(ctx, l.pool)
	return all, l.translate("list categories", "", err, reading)
}

func (l *Log) listCategories(ctx context.Context, q querier) ([]eventstore.CategorySpec, error) {
	rows, err := q.Query(ctx, l.sql.categories)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (c eventstore.CategorySpec, err error) {
		var layout int16
		err = r.Scan((*string)(&c.Name), &layout, &c.TrimFreely)
		c.Layout = eventstore.Layout(layout)
		return c, err
	})
}

// inTx runs f in a READ COMMITTED transaction of its own, with the commit made
// durable. Raw errors of a category that is out of date pass, for with to see.
func (l *Log) inTx(ctx context.Context, op string, s eventstore.Stream, f func(tx pgx.Tx) error) error {
	return l.on(ctx, op, s, func(q querier) error {
		tx, err := q.(interface {
			BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
		}).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		if err != nil {
			return err
		}
		if err := f(tx); err != nil {
			tx.Rollback(context.WithoutCancel(ctx)) // the error that matters is err
			return err
		}
		if _, err := tx.Exec(ctx, raise); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// raise makes the commit durable where the session asks for less; see gate.
const raise = `select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local', 'remote_write')`

// on runs f, which writes, on one connection. What fails before f is sent is
// never ErrUnknown. A connection that turned out unfit is closed.
func (l *Log) on(ctx context.Context, op string, s eventstore.Stream, f func(q querier) error) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return l.translate(op, s, err, connecting)
	}
	defer conn.Release()
	err = f(conn)
	if unfit(err) {
		conn.Conn().Close(ctx)
	}
	if stale(err) {
		return err
	}
	return l.translate(op, s, err, writing)
}

// unfit says if an error shows that a session is not one to go on with: it is
// read-only (behind a failover the pool's others may lead to the new primary), or
// found no partition (its list of them may be out of date, and would stay so).
func unfit(err error) bool {
	code := pgCode(err)
	return code == codeReadOnly || code == codeCheck
}
