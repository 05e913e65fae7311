// What it costs to make and to delete a category, and what appends to other categories feel of it.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// deletion is a way to delete a category; the last step may be what gives the space back.
type deletion struct {
	name  string
	l     *layout
	steps []func(ctx context.Context, id int) error
}

func (b *campaign) deletions() (all []deletion) {
	for _, l := range b.layouts {
		exec := func(sql string) func(context.Context, int) error {
			return func(ctx context.Context, id int) error {
				_, err := b.pool.Exec(ctx, fmt.Sprintf(sql, l.table(id), id))
				return err
			}
		}
		drop := func(ctx context.Context, id int) error { return b.drop(ctx, l, id) }
		switch l.kind {
		case one:
			all = append(all, deletion{"one: DELETE, then VACUUM", l, []func(context.Context, int) error{
				exec(`DELETE FROM %s WHERE category = %d`), exec(`VACUUM %s -- %d`)}})
		case parent:
			detach := func(ctx context.Context, id int) error { return b.detach(ctx, l, id) }
			all = append(all, deletion{"parent: DROP", l, []func(context.Context, int) error{drop}},
				deletion{"parent: DETACH CONCURRENTLY, then DROP", l, []func(context.Context, int) error{detach, drop}})
		case tables:
			all = append(all, deletion{"tables: DROP", l, []func(context.Context, int) error{drop}})
		}
	}
	return all
}

// dropWait bounds how long a DROP that waits for its lock makes others queue behind it, dropPause lets them go on before it
// tries again.
const (
	dropWait  = "250ms"
	dropPause = 250 * time.Millisecond
)

// drop deletes a category and its table in one transaction, again if the lock is not had in time.
func (b *campaign) drop(ctx context.Context, l *layout, id int) error {
	for {
		err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%s'; DROP TABLE %s; DELETE FROM %s.categories WHERE id = %d`,
				dropWait, l.table(id), l.schema, id))
			return err
		})
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "55P03" { // lock_not_available
			return err
		}
		time.Sleep(dropPause)
	}
}

func (b *campaign) detach(ctx context.Context, l *layout, id int) error {
	_, err := b.pool.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s.entries DETACH PARTITION %s CONCURRENTLY`, l.schema, l.table(id)))
	return err
}

func (b *campaign) admin(ctx context.Context) error {
	if err := b.creations(ctx); err != nil {
		return err
	}
	t := newTable(fmt.Sprintf("delete a category of %d entries", b.deleted), "way", "ms", "WAL kB", "last step ms", "last step WAL kB")
	for _, d := range b.deletions() {
		if err := b.deleteFull(ctx, d, t); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	t.print(b.out)
	return b.stalls(ctx)
}

func (b *campaign) creations(ctx context.Context) error {
	const n = 10
	t := newTable("create a category", "layout", "ms", "WAL kB")
	for _, l := range b.layouts {
		took, wal, err := b.cost(ctx, func() error {
			for range n {
				id, err := b.create(ctx, l)
				if err != nil {
					return err
				}
				defer b.remove(ctx, l, id)
			}
			return nil
		})
		if err != nil {
			return err
		}
		t.row(l.kind.String(), number(ms(took)/n), number(float64(wal)/1024/n))
	}
	t.print(b.out)
	return nil
}

// remove drops an empty category without measuring; a later one has another id.
func (b *campaign) remove(ctx context.Context, l *layout, id int) {
	if l.kind != one {
		_ = b.drop(ctx, l, id)
	}
}

// cost is the time and WAL of do.
func (b *campaign) cost(ctx context.Context, do func() error) (took time.Duration, wal int64, err error) {
	before, err := b.walPosition(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := b.walPosition(ctx)
	return took, after - before, err
}

// deleteFull loads a category and deletes it step by step.
func (b *campaign) deleteFull(ctx context.Context, d deletion, t *table) error {
	id, err := b.create(ctx, d.l)
	if err != nil {
		return err
	}
	var last int64
	if err := b.pool.QueryRow(ctx, `SELECT last_value FROM `+d.l.schema+`.position`).Scan(&last); err != nil {
		return err
	}
	if err := b.load(ctx, d.l, last, b.deleted, fmt.Sprint(id), id, id); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	cells := []string{d.name}
	for _, step := range d.steps {
		took, wal, err := b.cost(ctx, func() error { return step(ctx, id) })
		if err != nil {
			return err
		}
		cells = append(cells, number(ms(took)), number(float64(wal)/1024))
	}
	t.row(append(cells, "", "")[:5]...)
	return nil
}

// stalls lets four writers append while categories come and go, then the same while an application's transaction that
// has appended stays open for a while, again and again.
func (b *campaign) stalls(ctx context.Context) error {
	t := newTable("4 writers: alone, while categories are created and deleted all the time, and that with append transactions held open "+held.String(),
		"way", "appends/s", "p50 ms", "p99 ms", "worst ms", "cycles")
	for _, d := range b.deletions() {
		alone, err := b.appendRun(ctx, d.l, 4, b.time, spread)
		if err != nil {
			return err
		}
		t.row(d.name+" (alone)", number(alone.perSecond), number(ms(alone.p50)), number(ms(alone.p99)), number(ms(alone.worst)), "0")
		for _, how := range []struct {
			name   string
			beside []func(context.Context) error
		}{
			{d.name, []func(context.Context) error{func(ctx context.Context) error { return b.cycle(ctx, d) }}},
			{d.name + ", held", []func(context.Context) error{
				func(ctx context.Context) error { return b.cycle(ctx, d) },
				func(ctx context.Context) error { return b.holdAppend(ctx, d.l) }}},
		} {
			f, cycles, err := b.runBeside(ctx, d.l, how.beside)
			if err != nil {
				return fmt.Errorf("%s: %w", how.name, err)
			}
			t.row(how.name, number(f.perSecond), number(ms(f.p50)), number(ms(f.p99)), number(ms(f.worst)), fmt.Sprint(cycles))
		}
	}
	t.print(b.out)
	return nil
}

// held is how long an application keeps a transaction open after its append.
const held = 400 * time.Millisecond

// holdAppend is such a transaction, on a stream that no writer uses.
func (b *campaign) holdAppend(ctx context.Context, l *layout) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		key := streamKey(maxWriters-1, 0)
		h, err := readLast(ctx, tx, l, 1, key)
		if err != nil {
			return err
		}
		w := &writer{l: l, heads: map[string]*head{headKey(1, key): &h}, sql: map[int]string{1: l.appendSQL(1)}, tx: tx}
		if err := w.appendTo(ctx, 1, key); err != nil {
			return err
		}
		time.Sleep(held)
		return nil
	})
}

// runBeside measures four writers while others repeat what they do, and how often the first of these did it.
func (b *campaign) runBeside(ctx context.Context, l *layout, others []func(context.Context) error) (figures, int, error) {
	var stop atomic.Bool
	var all errgroup
	cycles := make([]int, len(others))
	for i, do := range others {
		all.run(func() (err error) {
			for ; !stop.Load() && err == nil; cycles[i]++ {
				err = do(ctx)
			}
			return err
		})
	}
	f, err := b.appendRun(ctx, l, 4, max(b.time, 4*held), spread)
	stop.Store(true)
	err = errors.Join(err, all.wait())
	return f, cycles[0], err
}

// errgroup waits for goroutines and joins their errors.
type errgroup struct {
	sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (g *errgroup) run(do func() error) {
	g.Go(func() {
		err := do()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = errors.Join(g.err, err)
	})
}

func (g *errgroup) wait() error {
	g.Wait()
	return g.err
}

// cycle makes a category and deletes it; vacuuming one big table for it would be unfair.
func (b *campaign) cycle(ctx context.Context, d deletion) error {
	id, err := b.create(ctx, d.l)
	if err != nil {
		return err
	}
	steps := d.steps
	if d.l.kind == one {
		steps = steps[:1]
	}
	for _, step := range steps {
		if err := step(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
