// Feeds of one category and of all, after a preload in which the categories lie mixed.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// preload appends entries at positions after the last, small categories 2 % each among the large one, and measures what
// the indexes grew by.
func (b *campaign) preload(ctx context.Context) error {
	t := newTable("preloaded, mixed", "layout", "entries", "index B/entry", "heap B/entry")
	for _, l := range b.layouts {
		index, heap, err := b.sizes(ctx, l)
		if err != nil {
			return err
		}
		var last int64
		if err := b.pool.QueryRow(ctx, `SELECT last_value FROM `+l.schema+`.position`).Scan(&last); err != nil {
			return err
		}
		categories := fmt.Sprintf("CASE WHEN g %% 50 < %d THEN g %% 50 + %d ELSE 1 END", smalls, firstSmall)
		if err := b.load(ctx, l, last, b.entries, categories, 1, lastSmall); err != nil {
			return err
		}
		l.last = last
		index2, heap2, err := b.sizes(ctx, l)
		if err != nil {
			return err
		}
		n := float64(b.entries)
		t.row(l.kind.String(), fmt.Sprint(b.entries), number(float64(index2-index)/n), number(float64(heap2-heap)/n))
	}
	t.print(b.out)
	_, err := b.pool.Exec(ctx, `CHECKPOINT`)
	return err
}

// load inserts n entries after position last; category is an expression of g = 1…n whose values are from…to.
func (b *campaign) load(ctx context.Context, l *layout, last int64, n int, category string, from, to int) error {
	body := newEvent().payload
	insert := func(target, also string) error {
		_, err := b.pool.Exec(ctx, `INSERT INTO `+target+` (`+l.columns()+`) SELECT `+l.expand(
			`$1 + g, $1 + $2 + g * 7919 % 5000, g / 5000 + 1, 1, now(), CATEGORY 1, gen_random_uuid(), gen_random_uuid(), g % 1024,
			$3, $4, $5, $6 FROM (SELECT g, `+category+` AS category FROM generate_series(1, $7::bigint) g) s `, "", "category,")+also+` ORDER BY g`,
			last, preloadBase, eventType, contentType, metadata, body, n)
		return err
	}
	if l.kind != tables {
		if err := insert(l.target(0), ""); err != nil {
			return err
		}
	} else {
		for c := from; c <= to; c++ {
			if err := insert(l.target(c), fmt.Sprintf("WHERE category = %d", c)); err != nil {
				return err
			}
		}
	}
	_, err := b.pool.Exec(ctx, fmt.Sprintf(`SELECT setval('%s.position', %d)`, l.schema, last+int64(n)))
	for c := from; c <= to && err == nil; c++ {
		_, err = b.pool.Exec(ctx, `VACUUM ANALYZE `+l.table(c))
	}
	return err
}

// sizes of all entries tables of a layout, indexes and heap, in bytes.
func (b *campaign) sizes(ctx context.Context, l *layout) (index, heap int64, err error) {
	err = b.pool.QueryRow(ctx, `SELECT sum(pg_indexes_size(oid))::bigint, sum(pg_table_size(oid))::bigint FROM pg_class
		WHERE relkind = 'r' AND relname LIKE 'entries%' AND relnamespace = $1::regnamespace`, l.schema).Scan(&index, &heap)
	return index, heap, err
}

// feed is a way to read in position order.
type feed struct {
	name string
	l    *layout
	sql  string
	more []any // parameters after position and limit
}

// args of a page of at most limit entries after a position.
func (f feed) args(after int64, limit int) []any { return append([]any{after, limit}, f.more...) }

func (b *campaign) reads(ctx context.Context) error {
	var small, large, whole []feed
	every := make([]int, 0, lastSmall)
	for c := 1; c <= lastSmall; c++ {
		every = append(every, c)
	}
	for _, l := range b.layouts {
		name := l.kind.String()
		small = append(small, feed{name: name, l: l, sql: l.categoryFeed(firstSmall)})
		large = append(large, feed{name: name, l: l, sql: l.categoryFeed(1)})
		whole = append(whole, feed{name: name + ", merged branches", l: l, sql: l.mergedFeed(every)})
		if l.kind == parent {
			whole = append(whole, feed{name: name + ", plain", l: l, sql: l.wholeFeed()})
		}
	}
	for _, group := range []struct {
		title string
		feeds []feed
	}{
		{"feed of a small category (2 %, scattered)", small}, {"feed of the large category (82 %)", large},
		{"feed of all 10 categories", whole},
	} {
		if err := b.readTable(ctx, group.title, group.feeds); err != nil {
			return fmt.Errorf("%s: %w", group.title, err)
		}
	}
	return nil
}

// reading is one catch-up.
type reading struct {
	perSecond float64
	entries   int
}

// readTable interleaves the feeds, and prints ratios to the first.
func (b *campaign) readTable(ctx context.Context, title string, feeds []feed) error {
	results := make([][]reading, len(feeds))
	for repeat := range b.repeats + 1 {
		for i, f := range feeds {
			r, err := b.catchUp(ctx, f)
			if err != nil {
				return err
			}
			if repeat > 0 { // the first warms
				results[i] = append(results[i], r)
			}
		}
	}
	t := newTable(title, "layout", "entries", "catch-up entries/s", "x first", "buffers", "x first", "empty poll us", "x first")
	var buffers0, poll0 float64
	for i, f := range feeds {
		buffers, err := b.buffers(ctx, f)
		if err != nil {
			return err
		}
		poll, err := b.poll(ctx, f)
		if err != nil {
			return err
		}
		if i == 0 {
			buffers0, poll0 = buffers, poll
		}
		speed := func(r reading) float64 { return r.perSecond }
		t.row(f.name, fmt.Sprint(results[i][0].entries), number(median(results[i], speed)),
			fmt.Sprintf("%.2f", medianRatio(results[i], results[0], speed)), number(buffers), fmt.Sprintf("%.2f", buffers/buffers0),
			number(poll), fmt.Sprintf("%.2f", poll/poll0))
	}
	t.print(b.out)
	return nil
}

// catchUp reads pages from the preload's start to the end.
func (b *campaign) catchUp(ctx context.Context, f feed) (reading, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return reading{}, err
	}
	defer conn.Release()
	began, after, entries := time.Now(), f.l.last, 0
	for {
		rows, err := conn.Query(ctx, f.sql, f.args(after, page)...)
		if err != nil {
			return reading{}, err
		}
		n := 0
		for rows.Next() {
			after = int64(beUint64(rows.RawValues()[0]))
			n++
		}
		if err := rows.Err(); err != nil {
			return reading{}, err
		}
		if entries += n; n < page {
			return reading{perSecond: float64(entries) / time.Since(began).Seconds(), entries: entries}, nil
		}
	}
}

func beUint64(raw []byte) (n uint64) {
	for _, c := range raw {
		n = n<<8 | uint64(c)
	}
	return n
}

// buffers touched by the whole catch-up, read as one page.
func (b *campaign) buffers(ctx context.Context, f feed) (float64, error) {
	var text []byte
	err := b.pool.QueryRow(ctx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+f.sql, f.args(f.l.last, b.entries)...).Scan(&text)
	if err != nil {
		return 0, err
	}
	var plans []struct {
		Plan struct {
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		return 0, fmt.Errorf("plan of %s: %w", f.name, err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, nil
}

// poll is the median time of a read at the end, in microseconds.
func (b *campaign) poll(ctx context.Context, f feed) (float64, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	times := make([]time.Duration, 300)
	for i := range times {
		began := time.Now()
		rows, err := conn.Query(ctx, f.sql, f.args(1<<60, page)...)
		if err != nil {
			return 0, err
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return 0, err
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return float64(times[len(times)/2]) / float64(time.Microsecond), nil
}
