// Hundreds of categories: what appends, groups over many of them, reads and connections cost then.

package main

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func (b *campaign) many(ctx context.Context) error {
	for _, l := range b.layouts {
		for l.nextID <= b.categories {
			if _, err := b.create(ctx, l); err != nil {
				return err
			}
		}
		if err := b.registerMany(ctx, l); err != nil {
			return err
		}
	}
	if _, err := b.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	if err := b.manyAppends(ctx); err != nil {
		return err
	}
	if err := b.manyGroups(ctx); err != nil {
		return err
	}
	return b.manyReads(ctx)
}

// live are the ids of a layout's categories; earlier parts have deleted some.
func (b *campaign) live(ctx context.Context, l *layout) (ids []int, err error) {
	rows, err := b.pool.Query(ctx, `SELECT id FROM `+l.schema+`.categories ORDER BY id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

func (b *campaign) registerMany(ctx context.Context, l *layout) error {
	_, err := b.pool.Exec(ctx, `INSERT INTO `+l.schema+`.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
		SELECT id, 'w'||w||'-s'||s, (w * 31 + s) % 1024, 1, $1, 0, $1, now()
		FROM `+l.schema+`.categories, generate_series(0, $2 - 1) w, generate_series(0, $3 - 1) s ON CONFLICT DO NOTHING`,
		firstID, 4, streamsPerCategory(0))
	if err == nil {
		_, err = b.pool.Exec(ctx, `VACUUM ANALYZE `+l.schema+`.streams`)
	}
	return err
}

// manyAppends spreads single appends over all categories.
func (b *campaign) manyAppends(ctx context.Context) error {
	results := make([][]figures, len(b.layouts))
	for repeat := range b.repeats {
		for i, l := range b.layouts {
			ids, err := b.live(ctx, l)
			if err != nil {
				return err
			}
			f, err := b.appendRun(ctx, l, 4, b.time, func(r *mathrand.Rand) int { return ids[r.IntN(len(ids))] })
			if err != nil {
				return err
			}
			if repeat > 0 || b.repeats == 1 { // the first prepares and loads catalogs
				results[i] = append(results[i], f)
			}
		}
	}
	t := newTable(fmt.Sprintf("4 writers over %d categories", b.categories), "layout", "appends/s", "x first", "p50 ms", "p99 ms", "CPU us", "x first", "first append ms", "backend kB")
	for i, l := range b.layouts {
		speed := func(f figures) float64 { return f.perSecond }
		cpu := func(f figures) float64 { return f.cpu }
		first, memory, err := b.freshBackend(ctx, l)
		if err != nil {
			return err
		}
		t.row(l.kind.String(), number(median(results[i], speed)), fmt.Sprintf("%.2f", medianRatio(results[i], results[0], speed)),
			number(median(results[i], func(f figures) float64 { return ms(f.p50) })), number(median(results[i], func(f figures) float64 { return ms(f.p99) })),
			number(median(results[i], cpu)), fmt.Sprintf("%.2f", medianRatio(results[i], results[0], cpu)), number(ms(first)), memory)
	}
	t.print(b.out)
	return nil
}

// freshBackend is the first append on a new connection, and the backend's memory once it has appended to every category.
func (b *campaign) freshBackend(ctx context.Context, l *layout) (first time.Duration, memory string, err error) {
	config := b.pool.Config()
	config.MaxConns, config.MinConns = 1, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, "", err
	}
	defer pool.Close()
	ids, err := b.live(ctx, l)
	if err != nil {
		return 0, "", err
	}
	own := &campaign{options: b.options, pool: pool}
	w, err := own.newWriter(ctx, l, 0, nil)
	if err != nil {
		return 0, "", err
	}
	defer w.conn.Release()
	for _, id := range ids {
		if err := w.appendTo(ctx, id, streamKey(0, 0)); err != nil {
			return 0, "", err
		}
	}
	return w.times[0], private(w.conn.Conn().PgConn().PID()), nil
}

// groupSQL appends one event to each of several streams of several categories. $1 categories $2 keys $3 previous seqnos
// $4 their ids $5 ids $6 data. It returns how many it appended.
func (l *layout) groupSQL(categories []int) string {
	head := `WITH r AS MATERIALIZED (SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::uuid[], $5::uuid[], $6::bytea[])
		WITH ORDINALITY t (category, key, prev, prev_id, id, data, ord)),
	l AS MATERIALIZED (SELECT s.ordinal, r.ord FROM r JOIN S.streams s ON s.category = r.category AND s.key = r.key
		ORDER BY s.ordinal FOR NO KEY UPDATE OF s),
	u AS (UPDATE S.streams s SET last_seqno = r.prev + 1, last_id = r.id, last_time = greatest(last_time, statement_timestamp())
		FROM l JOIN r ON r.ord = l.ord WHERE s.ordinal = l.ordinal AND s.epoch = 1 AND s.last_seqno = r.prev AND s.last_id = r.prev_id
		RETURNING s.ordinal, s.slot, s.last_time, r.ord),
	k AS MATERIALIZED (SELECT v, LOCK FROM (SELECT LASTV + 0 * c AS v FROM (SELECT count(*) c FROM u) y WHERE c > 0 OFFSET 0) x),
	e AS MATERIALIZED (SELECT GUARD AS position, x.* FROM (SELECT k.v, u.ordinal, u.slot, u.last_time, r.category, r.prev, r.id, r.data
		FROM k CROSS JOIN u JOIN r ON r.ord = u.ord ORDER BY r.ord) x)`
	insert := func(target, where string) string {
		return `(INSERT INTO ` + target + ` (COLUMNS) SELECT position, ordinal, prev + 1, 1, last_time, CATEGORY 1, id, id, slot, '` +
			eventType + `', '` + contentType + `', '` + metadata + `', data FROM e ` + where + ` RETURNING 1)`
	}
	if l.kind != tables {
		return l.expand(head+`, i AS `+insert(l.target(0), "")+` SELECT count(*) FROM i`, "", "category,")
	}
	var sql strings.Builder
	sql.WriteString(head)
	counts := make([]string, len(categories))
	for n, category := range categories {
		fmt.Fprintf(&sql, ", i%d AS %s", n, insert(l.target(category), fmt.Sprintf("WHERE category = %d", category)))
		counts[n] = fmt.Sprintf("(SELECT count(*) FROM i%d)", n)
	}
	return l.expand(sql.String()+` SELECT `+strings.Join(counts, " + "), "", "")
}

// manyGroups appends to 32 categories at once: always the same, then any.
func (b *campaign) manyGroups(ctx context.Context) error {
	t := newTable(fmt.Sprintf("one statement that appends to %d of %d categories, 1 writer", groupSize, b.categories), "layout", "same: p50 ms", "x first", "any: p50 ms", "x first", "relation locks")
	var took [2][tables + 1][]time.Duration // of the same set, of any, by layout and repeat
	for range b.repeats {
		for _, l := range b.layouts {
			for i, same := range []bool{true, false} {
				p50, err := b.groupRun(ctx, l, same, b.time/2)
				if err != nil {
					return err
				}
				took[i][l.kind] = append(took[i][l.kind], p50)
			}
		}
	}
	for _, l := range b.layouts {
		locks, err := b.groupLocks(ctx, l)
		if err != nil {
			return err
		}
		cells := []string{l.kind.String()}
		for i := range took {
			cells = append(cells, number(median(took[i][l.kind], ms)), fmt.Sprintf("%.2f", medianRatio(took[i][l.kind], took[i][one], ms)))
		}
		t.row(append(cells, fmt.Sprint(locks))...)
	}
	t.print(b.out)
	return nil
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}

// group appends one event to a stream in each of the categories.
func (b *campaign) group(ctx context.Context, q querier, l *layout, heads map[int]*head, categories []int) error {
	n := len(categories)
	keys, prevs := make([]string, n), make([]int64, n)
	prevIDs, ids, data := make([][16]byte, n), make([][16]byte, n), make([][]byte, n)
	for i, c := range categories {
		if heads[c] == nil {
			h, err := readLast(ctx, q, l, c, streamKey(1, 1))
			if err != nil {
				return err
			}
			heads[c] = &h
		}
		e := newEvent()
		keys[i], prevs[i], prevIDs[i], ids[i], data[i] = streamKey(1, 1), heads[c].seqno, heads[c].id, e.id, e.payload
	}
	var appended int
	if err := q.QueryRow(ctx, l.groupSQL(categories), categories, keys, prevs, prevIDs, ids, data).Scan(&appended); err != nil {
		return err
	}
	if appended != n {
		return fmt.Errorf("group of %d appended %d", n, appended)
	}
	for i, c := range categories {
		heads[c].seqno++
		heads[c].id = ids[i]
	}
	return nil
}

func (b *campaign) groupRun(ctx context.Context, l *layout, same bool, d time.Duration) (time.Duration, error) {
	ids, err := b.live(ctx, l)
	if err != nil {
		return 0, err
	}
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	random, heads := mathrand.New(mathrand.NewPCG(1, 2)), make(map[int]*head)
	// Every stream's head is read before the clock starts.
	for set := range slices.Chunk(ids, groupSize) {
		if err := b.group(ctx, conn, l, heads, set); err != nil {
			return 0, err
		}
	}
	var times []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); {
		if !same {
			random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		}
		began := time.Now()
		if err := b.group(ctx, conn, l, heads, ids[:min(groupSize, len(ids))]); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// groupLocks counts the relation locks of a transaction that has run one group.
func (b *campaign) groupLocks(ctx context.Context, l *layout) (n int, err error) {
	ids, err := b.live(ctx, l)
	if err != nil {
		return 0, err
	}
	return b.locks(ctx, func(tx pgx.Tx) error {
		return b.group(ctx, tx, l, make(map[int]*head), ids[:min(groupSize, len(ids))])
	})
}

// locks counts the relation locks that do leaves in its transaction, on other than catalogs.
func (b *campaign) locks(ctx context.Context, do func(pgx.Tx) error) (n int, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relation >= 16384`).Scan(&n)
	})
	return n, err
}

// manyReads polls one category, two and all of them at their end.
func (b *campaign) manyReads(ctx context.Context) error {
	var feeds []feed
	for _, l := range b.layouts {
		ids, err := b.live(ctx, l)
		if err != nil {
			return err
		}
		add := func(what, sql string, more ...any) {
			feeds = append(feeds, feed{name: l.kind.String() + ", " + what, l: l, sql: sql, more: more})
		}
		add("one category", l.categoryFeed(firstSmall))
		add("two, merged branches", l.mergedFeed([]int{firstSmall, lastSmall}))
		add("all, merged branches", l.mergedFeed(ids))
		if l.kind == parent {
			add("all, plain", l.wholeFeed())
			add("one category, through the parent", `SELECT `+columns+` FROM `+l.schema+
				`.entries WHERE category = $3 AND position > $1 ORDER BY position LIMIT $2`, firstSmall)
		}
	}
	t := newTable(fmt.Sprintf("empty polls, %d categories", b.categories), "feed", "us", "relation locks")
	for _, f := range feeds {
		us, err := b.poll(ctx, f)
		if err != nil {
			return err
		}
		locks, err := b.locks(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, f.sql, f.args(1<<60, page)...)
			return err
		})
		if err != nil {
			return err
		}
		t.row(f.name, number(us), fmt.Sprint(locks))
	}
	t.print(b.out)
	return nil
}
