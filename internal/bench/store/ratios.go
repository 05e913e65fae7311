// Ratios that the layout is held to, each measured in one run against its floor.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
)

// s0Tables are the floor of an append with all its checks but no feed: no position, no
// lock, no index but the primary key.
const s0Tables = `create table bench_s0_streams (ordinal bigint generated always as identity primary key, epoch bigint not null,
  last_seqno bigint not null, last_time timestamptz not null, category int not null, holder uuid not null, last_id uuid not null,
  key text collate "C" not null, unique (category, key)) with (fillfactor = 80);
create table bench_s0 (like bench_floor, primary key (stream, seqno))`

// s0Append has the shape of the product's statement, without position and lock.
const s0Append = `with g as materialized (select current_setting('transaction_isolation') = 'read committed' as ok,
  case when current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then set_config('synchronous_commit', 'on', true) end as raised),
u as (update bench_s0_streams s set epoch = 1, last_seqno = $2::bigint + 1, last_id = $3::uuid,
    last_time = greatest(date_trunc('microseconds', clock_timestamp()), s.last_time)
  where (select ok from g) and s.category = 1 and s.key = $1::text and s.last_seqno = $2::bigint and s.epoch = 1 and s.holder is not null
    and (s.last_id = $3::uuid or $2::bigint >= 0)
  returning s.ordinal, s.last_time),
n as (insert into bench_s0_streams (category, key, epoch, holder, last_seqno, last_id, last_time)
  select 1, $1::text, 1, $3::uuid, 1, $3::uuid, clock_timestamp()
  where (select ok from g) and $2::bigint = 0 and not exists (select 1 from u)
  on conflict (category, key) do nothing returning ordinal, last_time),
w as materialized (select ordinal, last_time from u union all select ordinal, last_time from n)
insert into bench_s0 select 0, ordinal, $2::bigint + ev, 1, last_time, 1, version, id, $3::uuid, 7::smallint, type, content_type, metadata, data
  from w cross join unnest($4::uuid[], $5::int[], $6::text[], $7::text[], $8::text[], $9::bytea[])
    with ordinality e(id, version, type, content_type, metadata, data, ev) order by ev`

// ratio is one line of the table.
type ratio struct {
	what           string
	measured, hold float64
	atMost         bool
	unit           string
}

func (r ratio) held() bool { return r.measured >= r.hold != r.atMost || r.measured == r.hold }

func (b *bench) ratios(ctx context.Context, out io.Writer) error {
	if _, err := b.pool.Exec(ctx, s0Tables); err != nil {
		return err
	}
	var all []ratio
	for _, part := range []func(context.Context) ([]ratio, error){b.singles, b.slow, b.groups, b.space, b.catchUp, b.tail} {
		some, err := part(ctx)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nratio\tmeasured\thold to\t")
	for _, r := range all {
		sign, verdict := "≥", "held"
		if r.atMost {
			sign = "≤"
		}
		if !r.held() {
			verdict = "NOT HELD"
		}
		fmt.Fprintf(w, "%s\t%.2f%s\t%s %g\t%s\n", r.what, r.measured, r.unit, sign, r.hold, verdict)
	}
	return w.Flush()
}

// logWith opens another log on the pool's store.
func logWith(ctx context.Context, pool *pgxpool.Pool, senders int) (*eventstore.Store, error) {
	log, err := pglog.Open(ctx, pool, &pglog.Options{Senders: senders})
	if err != nil {
		return nil, err
	}
	return eventstore.New(log, nil), nil
}

// s0 appends with n workers, each to streams of its own.
func (b *bench) s0(ctx context.Context, n int) (figure, error) {
	const each = 100
	run := eventstore.NewUUID().String()
	step := func(w, i int) error {
		id := eventstore.NewUUID().String()
		tag, err := b.pool.Exec(ctx, s0Append, fmt.Sprintf("%d-%d-%s", w, i%each, run), i/each, id,
			[]string{id}, []int32{1}, []string{"bench.happened"}, []string{"application/json"}, []string{""}, [][]byte{b.data})
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("append without a feed: %v", tag)
		}
		return err
	}
	for w := range n { // as the product: the first append of a stream is another thing
		for i := range each {
			if err := step(w, i); err != nil {
				return figure{}, err
			}
		}
	}
	return b.measure(ctx, n, func(w, i int) error { return step(w, i+each) })
}

// singles: one append a statement, 16 workers, two sizes.
func (b *bench) singles(ctx context.Context) (all []ratio, err error) {
	single, err := logWith(ctx, b.pool, -1)
	if err != nil {
		return nil, err
	}
	defer func(data []byte) { b.data = data }(b.data)
	for _, c := range []struct {
		size        int
		floor, feed float64
	}{{900, .5, .85}, {256, .4, .7}} {
		b.data = payloadOf(c.size)
		f, err := b.inTurn(
			func() (figure, error) { return b.floor(ctx, b.pool, 16) },
			func() (figure, error) { return b.s0(ctx, 16) },
			func() (figure, error) { return b.product(ctx, single, 16) })
		if err != nil {
			return nil, err
		}
		all = append(all, ratio{what: fmt.Sprintf("single append, 16 workers, %d bytes × bare INSERT", c.size), measured: f[2].rate / f[0].rate, hold: c.floor},
			ratio{what: fmt.Sprintf("the same × an append without a feed, %d bytes", c.size), measured: f[2].rate / f[1].rate, hold: c.feed})
		if c.size == 900 {
			all = append(all, ratio{what: "WAL of an append × bare INSERT", measured: f[2].wal / f[0].wal, hold: 1.45, atMost: true})
		}
	}
	return all, nil
}

// slow: commits that wait 3 ms for a synchronous standby, 32 workers.
func (b *bench) slow(ctx context.Context) (_ []ratio, err error) {
	end, err := slowStandby(ctx, b.pool, 3*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	single, err := logWith(ctx, b.pool, -1)
	if err != nil {
		return nil, err
	}
	f, err := b.inTurn(
		func() (figure, error) { return b.floor(ctx, b.pool, 32) },
		func() (figure, error) { return b.product(ctx, single, 32) },
		func() (figure, error) { return b.product(ctx, b.store, 128) })
	if err != nil {
		return nil, err
	}
	return []ratio{{what: "single append, commits of 3 ms, 32 workers × bare INSERT", measured: f[1].rate / f[0].rate, hold: .7},
		{what: "groups of 128 owners, commits of 3 ms × bare INSERT of 32", measured: f[2].rate / f[0].rate, hold: 2.5}}, nil
}

// groups: 128 owners whose appends meet on 4 connections.
func (b *bench) groups(ctx context.Context) ([]ratio, error) {
	f, err := b.inTurn(
		func() (figure, error) { return b.floor(ctx, b.pool, 4) },
		func() (figure, error) { return b.product(ctx, b.store, 128) },
		func() (figure, error) { return b.dedicated(ctx, b.store, 128) })
	if err != nil {
		return nil, err
	}
	return []ratio{{what: "groups of 128 owners on 4 connections × bare INSERT of 4", measured: f[1].rate / f[0].rate, hold: 2.5},
		{what: "the same on dedicated logs", measured: f[2].rate / f[0].rate, hold: 2.5}}, nil
}

func (b *bench) space(ctx context.Context) ([]ratio, error) {
	var index float64
	err := b.pool.QueryRow(ctx, "select pg_indexes_size('"+b.table+"'::regclass)::float8 / (select count(*) from "+b.table+")").Scan(&index)
	return []ratio{{what: "index of an event", measured: index, hold: 75, atMost: true, unit: " bytes"}}, err
}

// catchUp reads everything there is, by the feed and by a plain scan.
func (b *bench) catchUp(ctx context.Context) ([]ratio, error) {
	if _, err := b.pool.Exec(ctx, "vacuum analyze "+b.table); err != nil {
		return nil, err
	}
	timed := func(f func() (int, error)) func() (figure, error) {
		return func() (figure, error) {
			start := time.Now()
			n, err := f()
			return figure{rate: float64(n) / time.Since(start).Seconds()}, err
		}
	}
	f, err := b.inTurn(
		timed(func() (n int, err error) {
			rows, err := b.pool.Query(ctx, "select * from "+b.table)
			if err != nil {
				return 0, err
			}
			for rows.Next() {
				n++
			}
			return n, rows.Err()
		}),
		timed(func() (n int, err error) {
			for after := eventstore.Position(0); ; {
				p, err := b.store.ReadFeed(ctx, after, eventstore.Filter{Categories: []eventstore.Category{"bench"}}, 1000)
				n += len(p.Entries)
				if err != nil || p.End {
					return n, err
				}
				after = p.Through.Position
			}
		}))
	if err != nil {
		return nil, err
	}
	return []ratio{{what: "feed catch-up × a plain scan of its table", measured: f[1].rate / f[0].rate, hold: .65}}, nil
}

// tail: from the reply to an append until a reader that follows has the entry, at some
// 2,000 appends a second.
func (b *bench) tail(ctx context.Context) ([]ratio, error) {
	const writers, rate = 16, 2000
	var mu sync.Mutex
	replied := map[eventstore.UUID]time.Time{}
	var lags []time.Duration
	stop, done := make(chan struct{}), make(chan error, 1)
	p, err := b.store.ReadFeed(ctx, 1<<62, eventstore.Filter{}, 1)
	if err != nil {
		return nil, err
	}
	after := p.Drawn
	go func() {
		done <- b.follow(ctx, after, stop, func(e eventstore.Entry, now time.Time) {
			mu.Lock()
			defer mu.Unlock()
			if at, ok := replied[e.ID]; ok {
				lags = append(lags, now.Sub(at))
			} else {
				lags = append(lags, 0) // here before the writer had his reply
			}
		})
	}()
	var wg sync.WaitGroup
	failed := make(chan error, writers)
	start := time.Now()
	appended := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			s := eventstore.Stream("bench-tail-" + eventstore.NewUUID().String())
			batch := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.NewUUID(), Claim: true, Events: []eventstore.Event{{Type: "bench.happened", Data: b.data}}}
			for i := 0; time.Since(start) < b.d; i++ {
				time.Sleep(time.Until(start.Add(time.Duration(i*writers+w) * time.Second / rate)))
				batch.ID = eventstore.NewUUID()
				done, err := b.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{batch}})
				if err != nil {
					failed <- err
					return
				}
				batch.Claim, batch.After = false, done.Receipts[0].Last
				mu.Lock()
				replied[batch.After.ID] = time.Now()
				mu.Unlock()
				appended[w]++
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	close(stop)
	if err := <-done; err != nil {
		return nil, err
	}
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	n := 0
	for _, a := range appended {
		n += a
	}
	slices.Sort(lags)
	if len(lags) == 0 {
		return nil, fmt.Errorf("tail: nothing was delivered")
	}
	return []ratio{{what: fmt.Sprintf("delivery of a new entry at %.0f appends/s, p50", float64(n)/took.Seconds()), measured: float64(lags[len(lags)/2].Microseconds()) / 1000, hold: 5, atMost: true, unit: " ms"}}, nil
}

// follow reads the feed without pause until stop, and then to its end.
func (b *bench) follow(ctx context.Context, after eventstore.Position, stop chan struct{}, see func(eventstore.Entry, time.Time)) error {
	for {
		last := false
		select {
		case <-stop:
			last = true
		default:
		}
		p, err := b.store.ReadFeed(ctx, after, eventstore.Filter{Categories: []eventstore.Category{"bench"}}, 500)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, e := range p.Entries {
			see(e, now)
		}
		after = max(after, p.Through.Position)
		if last && p.End {
			return nil
		}
	}
}
