// Append throughput, latency, WAL and server CPU of each layout at several numbers of writers, against the floor.

package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// figures of one append run.
type figures struct {
	perSecond float64
	p50, p99  time.Duration
	worst     time.Duration
	wal       float64 // bytes per append
	cpu       float64 // server microseconds per append
}

// appends interleaves floor and layouts, repeat by repeat, and prints medians.
func (b *campaign) appends(ctx context.Context) error {
	all := append([]*layout{b.floor}, b.layouts...)
	results := make(map[string][]figures)
	for _, l := range all { // touch pages and caches first
		if _, err := b.appendRun(ctx, l, 4, b.time/3, spread); err != nil {
			return err
		}
	}
	for repeat := range b.repeats {
		for _, writers := range writerCounts {
			for i := range all {
				l := all[(i+repeat)%len(all)]
				f, err := b.appendRun(ctx, l, writers, b.time, spread)
				if err != nil {
					return err
				}
				results[key(l, writers)] = append(results[key(l, writers)], f)
			}
		}
	}
	b.printAppends(all, results)
	return b.printHOT(ctx)
}

func key(l *layout, writers int) string { return fmt.Sprint(l.kind, writers) }

func (b *campaign) printAppends(all []*layout, results map[string][]figures) {
	t := newTable("single appends", "layout", "writers", "appends/s", "x floor", "p50 ms", "p99 ms", "WAL B", "x floor", "CPU us", "x floor")
	for _, writers := range writerCounts {
		for _, l := range all {
			of, base := results[key(l, writers)], results[key(b.floor, writers)]
			get := func(f func(figures) float64) string { return number(median(of, f)) }
			ratio := func(f func(figures) float64) string { return fmt.Sprintf("%.2f", medianRatio(of, base, f)) }
			speed := func(f figures) float64 { return f.perSecond }
			wal := func(f figures) float64 { return f.wal }
			cpu := func(f figures) float64 { return f.cpu }
			t.row(l.kind.String(), fmt.Sprint(writers), get(speed), ratio(speed),
				get(func(f figures) float64 { return ms(f.p50) }), get(func(f figures) float64 { return ms(f.p99) }),
				get(wal), ratio(wal), get(cpu), ratio(cpu))
		}
	}
	t.print(b.out)
}

// printHOT says how many registry updates wrote no index.
func (b *campaign) printHOT(ctx context.Context) error {
	for _, l := range b.layouts {
		var updates, hot int64
		err := b.pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = ($1 || '.streams')::regclass`,
			l.schema).Scan(&updates, &hot)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%s: %.2f %% of %d registry updates were HOT\n", l.kind, 100*float64(hot)/float64(max(updates, 1)), updates)
	}
	return nil
}

// spread is the mix of the first part: most appends to the large category.
func spread(r *mathrand.Rand) int {
	if n := r.IntN(100); n >= largeShare {
		return firstSmall + n - largeShare
	}
	return 1
}

// appendRun lets writers append for a while, each on a connection and streams of its own.
func (b *campaign) appendRun(ctx context.Context, l *layout, writers int, d time.Duration, choose func(*mathrand.Rand) int) (figures, error) {
	ws := make([]*writer, writers)
	for i := range ws {
		w, err := b.newWriter(ctx, l, i, choose)
		if err != nil {
			return figures{}, err
		}
		defer w.conn.Release()
		ws[i] = w
	}
	meter, err := b.startMeter(ctx)
	if err != nil {
		return figures{}, err
	}
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	end := time.Now().Add(d)
	for _, w := range ws {
		all.Go(func() {
			for time.Now().Before(end) && failed.Load() == nil {
				if err := w.append(ctx); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return figures{}, *err
	}
	var times []time.Duration
	for _, w := range ws {
		times = append(times, w.times...)
	}
	return meter.stop(ctx, times)
}

// evaluate sorts the times of the appends.
func evaluate(times []time.Duration, took time.Duration) figures {
	slices.Sort(times)
	n := len(times)
	return figures{
		perSecond: float64(n) / took.Seconds(),
		p50:       times[n/2], p99: times[n*99/100], worst: times[n-1],
	}
}

// event is what every writer appends, fresh bytes each time.
type event struct {
	id      [16]byte
	payload []byte
}

const (
	eventType   = "money-deposited"
	contentType = "application/json"
	metadata    = `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`
)

func newEvent() event {
	e := event{payload: make([]byte, payload)}
	rand.Read(e.payload)
	// Like a UUIDv7: time first.
	binary.BigEndian.PutUint64(e.id[:], uint64(time.Now().UnixNano()))
	copy(e.id[8:], e.payload)
	return e
}

// readLast reads a stream's head, as a cold writer would.
func readLast(ctx context.Context, conn querier, l *layout, category int, key string) (h head, err error) {
	err = conn.QueryRow(ctx, `SELECT last_seqno, last_id, ordinal FROM `+l.schema+`.streams WHERE category = $1 AND key = $2`,
		category, key).Scan(&h.seqno, &h.id, &h.ordinal)
	return h, err
}

// head is what a writer knows of a stream.
type head struct {
	seqno   int64
	id      [16]byte
	ordinal int64
}
