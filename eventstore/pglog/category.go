// Categories: their numbers, cached, and their tables.

package pglog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// category is the number of a category, and its layout.
type category struct {
	id        int32
	dedicated bool
}

// categoryCache remembers the numbers of categories, and the ordinals of dedicated
// streams. Neither is used again, not by a server that has lost what it was of either
// (see insertCategory), so a stale one can do no harm: its table is gone and statements
// find nothing.
type categoryCache struct {
	mu       sync.RWMutex
	known    map[eventstore.Category]category
	ordinals map[eventstore.Stream]int64
}

func (c *categoryCache) get(name eventstore.Category) (category, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	known, ok := c.known[name]
	return known, ok
}

func (c *categoryCache) put(name eventstore.Category, known category) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[eventstore.Category]category{}
	}
	c.known[name] = known
}

func (c *categoryCache) ordinal(s eventstore.Stream) (int64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ordinal, ok := c.ordinals[s]
	return ordinal, ok
}

// maxOrdinals bounds the cache; whoever has more dedicated streams looks some up again.
const maxOrdinals = 100_000

func (c *categoryCache) putOrdinal(s eventstore.Stream, ordinal int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ordinals == nil || len(c.ordinals) >= maxOrdinals {
		c.ordinals = map[eventstore.Stream]int64{}
	}
	c.ordinals[s] = ordinal
}

func (c *categoryCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.ordinals = nil, nil
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
func (l *Log) number(ctx context.Context, q querier, op string, name eventstore.Category, s eventstore.Stream) (category, error) {
	if known, ok := l.categories.get(name); ok {
		return known, nil
	}
	if q == querier(l.pool) { // hold on to the connection: it may turn out unfit
		conn, err := l.pool.Acquire(ctx)
		if err != nil {
			return category{}, l.translate(op, s, err, connecting)
		}
		defer conn.Release()
		q = conn
	}
	c, standby, err := l.lookUp(ctx, q, name)
	switch {
	case err != nil:
		return c, l.translate(op, s, err, reading)
	case c.id == 0 && standby: // it may lag, or have been the primary once
		if conn, ok := q.(*pgxpool.Conn); ok {
			conn.Conn().Close(ctx)
		}
		return c, &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: op, Stream: s, Category: name, Wanted: "category " + string(name),
			Found: "a server in recovery that does not know it", Hint: "connect to the primary"}
	case c.id == 0:
		return c, noSuchCategory(op, name, s)
	}
	l.categories.put(name, c)
	return c, nil
}

// lookUp asks the server for a category, zero if there is none, and whether it is a
// standby.
func (l *Log) lookUp(ctx context.Context, q querier, name eventstore.Category) (c category, standby bool, err error) {
	var id *int32
	var layout *int16
	err = q.QueryRow(ctx, l.sql.category, string(name)).Scan(&id, &layout, &standby)
	if err == nil && id != nil {
		c = category{id: *id, dedicated: eventstore.Layout(*layout) == eventstore.Dedicated}
	}
	return c, standby, err
}

func noSuchCategory(op string, name eventstore.Category, s eventstore.Stream) error {
	return &eventstore.Error{Kind: eventstore.ErrNoSuchCategory, Op: op, Stream: s, Category: name,
		Wanted: "category " + string(name), Found: "none of that name", Hint: "create the category first"}
}

// with calls f with the number of a category, and once more with a fresh one if f
// finds that it is out of date.
func (l *Log) with(ctx context.Context, q querier, op string, name eventstore.Category, s eventstore.Stream, f func(c category) error) error {
	var err error
	for range 2 {
		c, nerr := l.number(ctx, q, op, name, s)
		if nerr != nil {
			return nerr
		}
		if err = f(c); !stale(err) {
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
	for range maxAttempts {
		if err = l.createCategory(ctx, op, spec); !errors.Is(err, errStale) {
			break
		}
	}
	if err == nil && spec.Layout == eventstore.Shared {
		l.refreshPartitions(ctx, l.sql.refreshPartitions)
	} else if err == nil {
		l.refreshPartitions(ctx, l.refreshLogs(""))
	}
	return l.translate(op, "", err, writing)
}

// refreshPartitions makes every session look at the partitions again, once the new
// one is committed. One that looked in the very moment it was attached can have kept
// a list without it. It takes no lock that an append waits for; if it fails, a session
// that finds no partition is closed and heals that way (see on).
func (l *Log) refreshPartitions(ctx context.Context, sql string) {
	if _, err := l.pool.Exec(ctx, sql); err != nil {
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
		create, attach := l.sql.createTable, l.sql.attach
		if spec.Layout == eventstore.Dedicated {
			create, attach = l.sql.logs.createParent, l.sql.logs.attachParent
		}
		b := &pgx.Batch{}
		b.Queue(of(create, id))
		b.Queue(of(attach, id))
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

// DeleteCategory drops the category's table, or those of its streams. Appends in flight to any category are
// waited for, for a quarter of a second at a time, and wait for the drop, which is
// short. Registry rows go in bounded steps behind it.
func (l *Log) DeleteCategory(ctx context.Context, name eventstore.Category) error {
	const op = "delete category"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return err
	}
	defer leave()
	var c category
	for {
		err = l.with(ctx, l.pool, op, name, "", func(known category) error {
			c = known
			if c.dedicated {
				return l.removeLogs(ctx, op, c.id)
			}
			return l.dropCategory(ctx, op, c.id)
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
	if c.dedicated {
		l.sweepLogs(ctx)
	} else {
		l.sweepStreams(ctx, c.id)
	}
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
	if err := readable(op, s, conn.Conn()); err != nil {
		return err
	}
	waits := watchWaits(conn)
	if err = f(conn); err == nil {
		err = waits.err()
	}
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
