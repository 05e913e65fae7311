// Throughput: the projector and several workers against a bare loop, the feed against COPY.

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// model makes a fresh read model: a row a key.
func (b *bench) model(ctx context.Context) (table, name string, err error) {
	b.runs++
	name = fmt.Sprintf("p%d", b.runs)
	_, err = b.pool.Exec(ctx, "create table "+name+" (key text primary key, n bigint not null, bytes bigint not null) with (fillfactor = 50)")
	return name, name, err
}

// apply is the SQL of the read model, the same for floor and product.
func apply(ctx context.Context, tx pgx.Tx, table string, n, bytes map[string]int64) error {
	keys := slices.Sorted(maps.Keys(n))
	counts, sizes := make([]int64, len(keys)), make([]int64, len(keys))
	for i, key := range keys {
		counts[i], sizes[i] = n[key], bytes[key]
	}
	_, err := tx.Exec(ctx, "insert into "+table+" as m (key, n, bytes) select * from unnest($1::text[], $2::bigint[], $3::bigint[])"+
		" on conflict (key) do update set n = m.n + excluded.n, bytes = m.bytes + excluded.bytes", keys, counts, sizes)
	return err
}

// floor is the loop that somebody would write by hand: a page, a transaction that moves
// a position and applies the page, nothing proved.
func (b *bench) floor(ctx context.Context) (perSecond float64, err error) {
	table, name, err := b.model(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := b.pool.Exec(ctx, "create table "+name+"_at (position bigint); insert into "+name+"_at values (0)"); err != nil {
		return 0, err
	}
	began, done := time.Now(), 0
	for position := int64(0); ; {
		n, bytes, last, count, err := b.page(ctx, position)
		if err != nil {
			return 0, err
		}
		if count == 0 {
			return float64(done) / time.Since(began).Seconds(), nil
		}
		err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "update "+name+"_at set position = $1 where position = $2", last, position); err != nil {
				return err
			}
			return apply(ctx, tx, table, n, bytes)
		})
		if err != nil {
			return 0, err
		}
		position, done = last, done+count
	}
}

// page reads a page as the feed does, all columns of it.
func (b *bench) page(ctx context.Context, after int64) (n, bytes map[string]int64, last int64, count int, err error) {
	rows, err := b.pool.Query(ctx, "select e.position, s.key, e.seqno, e.epoch, e.time, e.id, e.batch, e.type, e.version, e.content_type, e.metadata, e.data from "+b.table+
		" e join wattle.streams s on s.ordinal = e.stream where e.position > $1 order by e.position limit $2", after, batch)
	if err != nil {
		return nil, nil, 0, 0, err
	}
	n, bytes = map[string]int64{}, map[string]int64{}
	var (
		key, kind, content, metadata string
		seqno, epoch                 int64
		version                      int32
		at                           time.Time
		id, group                    [16]byte
		data                         []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&last, &key, &seqno, &epoch, &at, &id, &group, &kind, &version, &content, &metadata, &data}, func() error {
		n[key]++
		bytes[key] += int64(len(data))
		count++
		return nil
	})
	return n, bytes, last, count, err
}

// handler is the product's.
func (b *bench) handler(pool *pgxpool.Pool, table string) projector.Handler {
	return pgcheckpoint.BatchHandler(pool, raw{}, func(ctx context.Context, tx pgx.Tx, events []projector.Event[[]byte]) error {
		n, bytes := map[string]int64{}, map[string]int64{}
		for _, e := range events {
			n[e.Stream.Key()]++
			bytes[e.Stream.Key()] += int64(len(e.Value))
		}
		return apply(ctx, tx, table, n, bytes)
	})
}

// product runs so many workers on so many lanes until all is projected.
func (b *bench) product(ctx context.Context, workers, lanes int) (perSecond float64, err error) {
	table, name, err := b.model(ctx)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var first *projector.Projector
	var all []*projector.Projector
	for range workers {
		p := projector.New(b.store, name, "bench", b.handler(b.pool, table), &projector.Options{PageSize: batch, Lanes: lanes})
		all = append(all, p)
		first = all[0]
	}
	last, err := b.token(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for _, p := range all {
		running.Go(func() { _ = p.Run(ctx) })
	}
	if err := first.Wait(ctx, last); err != nil {
		return 0, err
	}
	return float64(b.entries) / time.Since(began).Seconds(), nil
}

// token is that of the last entry.
func (b *bench) token(ctx context.Context) (t eventstore.Token, err error) {
	var position int64
	if err := b.pool.QueryRow(ctx, "select max(position) from "+b.table).Scan(&position); err != nil {
		return t, err
	}
	t.Position = eventstore.Position(position)
	t.Incarnation, err = b.store.Backends()[0].Incarnation(ctx)
	return t, err
}

func (b *bench) throughput(ctx context.Context, out io.Writer) error {
	var floor, one, catchUp []float64
	for range b.repeats {
		f, err := b.floor(ctx)
		if err != nil {
			return err
		}
		p, err := b.product(ctx, 1, 1)
		if err != nil {
			return err
		}
		c, err := b.catchUp(ctx)
		if err != nil {
			return err
		}
		floor, one, catchUp = append(floor, f), append(one, p), append(catchUp, c)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "one transaction per %d entries\tentries per second\t× floor (wanted 0.8)\n", batch)
	fmt.Fprintf(w, "bare loop of the same SQL\t%.0f\t1.00\n", median(floor))
	fmt.Fprintf(w, "Run, one lane\t%.0f\t%.2f\n", median(one), median(one)/median(floor))
	fmt.Fprintf(w, "CatchUp, one lane\t%.0f\t%.2f\n\n", median(catchUp), median(catchUp)/median(floor))
	return w.Flush()
}

func (b *bench) catchUp(ctx context.Context) (perSecond float64, err error) {
	table, name, err := b.model(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	_, err = projector.New(b.store, name, "bench", b.handler(b.pool, table), &projector.Options{PageSize: batch}).CatchUp(ctx, 0)
	return float64(b.entries) / time.Since(began).Seconds(), err
}

func (b *bench) workers(ctx context.Context, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "workers on 16 lanes\tentries per second\t× one worker on one lane")
	counts := []int{0, 1, 2, 4}
	all := make([][]float64, len(counts))
	for range b.repeats {
		for i, n := range counts {
			lanes := 16
			if n == 0 {
				n, lanes = 1, 1
			}
			r, err := b.product(ctx, n, lanes)
			if err != nil {
				return err
			}
			all[i] = append(all[i], r)
		}
	}
	for i, n := range counts[1:] {
		fmt.Fprintf(w, "%d\t%.0f\t%.2f\n", n, median(all[i+1]), median(all[i+1])/median(all[0]))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// feed reads everything through the feed, and with one COPY.
func (b *bench) feed(ctx context.Context, out io.Writer) error {
	var bare, product []float64
	for range b.repeats {
		began := time.Now()
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		_, err = conn.Conn().PgConn().CopyTo(ctx, io.Discard, "copy (select e.*, s.key from "+b.table+" e join wattle.streams s on s.ordinal = e.stream order by position) to stdout (format binary)")
		conn.Release()
		if err != nil {
			return err
		}
		bare = append(bare, float64(b.entries)/time.Since(began).Seconds())
		began = time.Now()
		n := 0
		for _, err := range b.store.Feed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{"bench"}}) {
			if err != nil {
				return err
			}
			n++
		}
		product = append(product, float64(n)/time.Since(began).Seconds())
	}
	fmt.Fprintf(out, "feed, whole category: %.0f entries per second, %.2f × one bare COPY of it (%.0f)\n\n", median(product), median(product)/median(bare), median(bare))
	return nil
}
