// Command store measures pglog against the floor: a bare prepared INSERT of the
// same bytes for appends, the bare SELECT for loads. Floor and product are
// interleaved in one run on one throwaway server (fsync on); the figures to quote
// are the ratios.
//
//	go run ./internal/bench/store -seconds 3 -repeats 3
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("store", flag.ContinueOnError)
	flags.SetOutput(stderr)
	seconds := flags.Float64("seconds", 2, "seconds of each measurement")
	repeats := flags.Int("repeats", 3, "interleaved repeats; medians are printed")
	only := flags.String("only", "", "parts to run, as appends,loads,ratios,trims,replays; without it all")
	xes := flags.String("xes", "", "an XES log to replay end to end, as bpic2012.xes.gz; without it generated applications")
	senders := flags.String("senders", fmt.Sprint(pglog.DefaultSenders), "numbers of senders to measure, as 2,4,8; -1 is no group commit")
	payload := flags.Int("payload", 900, "bytes of each event's data")
	trimmed := flags.Int("trim", 1_000_000, "entries of which nine tenths are trimmed and reclaimed; 0: none")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	var numbers []int
	for s := range strings.SplitSeq(*senders, ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			fmt.Fprintf(stderr, "-senders: wanted numbers with commas between, found %q\n", *senders)
			return 2
		}
		numbers = append(numbers, n)
	}
	b := &bench{senders: numbers, trim: *trimmed, xes: *xes, only: strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }),
		d: time.Duration(*seconds * float64(time.Second)), repeats: *repeats, data: payloadOf(*payload)}
	if err := b.all(context.Background(), stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

type bench struct {
	xes     string
	only    []string
	senders []int
	trim    int
	d       time.Duration
	repeats int
	data    []byte
	pool    *pgxpool.Pool
	store   *eventstore.Store
	table   string // of the entries of category bench
}

func payloadOf(n int) []byte {
	data := slices.Repeat([]byte("wattle "), n/7+1)[:n]
	for i := range data { // not compressible at a glance, and the same every time
		data[i] ^= byte(i * 131 >> 3)
	}
	return data
}

const floorTable = `create table bench_floor (position bigint not null, stream bigint not null, seqno bigint not null, epoch bigint not null,
  time timestamptz not null, category int not null, version int not null, id uuid not null, batch uuid not null, slot smallint not null,
  type text not null, content_type text not null, metadata text not null, data bytea not null)`

const floorInsert = `insert into bench_floor values ($1, $2, $3, $4, now(), 1, 1, $5::uuid, $6::uuid, $7, $8, $9, '', $10)`

func (b *bench) all(ctx context.Context, out io.Writer) error {
	server, err := pgtest.Launch()
	if err != nil {
		return err
	}
	defer server.Close()
	config, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		return err
	}
	config.MaxConns = 70 // the floor has one a writer
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer b.pool.Close()
	if err := migrations.Up(ctx, b.pool, ""); err != nil {
		return err
	}
	log, err := pglog.Open(ctx, b.pool, nil)
	if err != nil {
		return err
	}
	b.store = eventstore.New(log, nil)
	if err := b.store.CreateCategory(ctx, eventstore.CategorySpec{Name: "bench"}); err != nil {
		return err
	}
	if err := b.pool.QueryRow(ctx, "select 'wattle.entries_' || id from wattle.categories").Scan(&b.table); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, floorTable); err != nil {
		return err
	}
	if err := b.version(ctx, out); err != nil {
		return err
	}
	for _, p := range parts {
		if len(b.only) > 0 && !slices.Contains(b.only, p.name) {
			continue
		}
		if err := p.run(b, ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// parts of the bench, in the order they run.
var parts = []struct {
	name string
	run  func(*bench, context.Context, io.Writer) error
}{{"appends", (*bench).appends}, {"loads", (*bench).loads}, {"ratios", (*bench).ratios}, {"trims", (*bench).trims}, {"replays", (*bench).replays}}

func (b *bench) version(ctx context.Context, out io.Writer) error {
	var v string
	err := b.pool.QueryRow(ctx, "select version()").Scan(&v)
	fmt.Fprintf(out, "%s\n%d bytes of data an event; %v × %d repeats, medians\n\n", v, len(b.data), b.d, b.repeats)
	return err
}

// figure is one measurement.
type figure struct {
	rate, p50, p99, wal float64 // per second, µs, µs, bytes per operation
}

// measure runs do from n goroutines for the bench's duration.
func (b *bench) measure(ctx context.Context, n int, do func(worker, i int) error) (figure, error) {
	before, err := b.wal(ctx)
	if err != nil {
		return figure{}, err
	}
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg sync.WaitGroup
	start := time.Now()
	for w := range n {
		wg.Go(func() {
			var mine []time.Duration
			for i := 0; time.Since(start) < b.d; i++ {
				t := time.Now()
				if err := do(w, i); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			all = append(all, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	took := time.Since(start)
	after, err := b.wal(ctx)
	if failed != nil || err != nil || len(all) == 0 {
		return figure{}, fmt.Errorf("measuring: %w", cmp.Or(failed, err))
	}
	slices.Sort(all)
	us := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) }
	return figure{rate: float64(len(all)) / took.Seconds(), p50: us(.5), p99: us(.99), wal: float64(after-before) / float64(len(all))}, nil
}

func (b *bench) wal(ctx context.Context) (n int64, err error) {
	err = b.pool.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&n)
	return n, err
}

func (b *bench) appends(ctx context.Context, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "append, one event\twriters\tper second\tp50 µs\tp99 µs\tWAL bytes\trate × floor\tWAL × floor")
	for _, n := range []int{1, 4, 16, 64} {
		what := []func() (figure, error){func() (figure, error) { return b.floor(ctx, b.pool, n) }, func() (figure, error) { return b.dedicated(ctx, b.store, n) }}
		names := []string{"bare INSERT", "pglog, dedicated"}
		for _, senders := range b.senders {
			log, err := pglog.Open(ctx, b.pool, &pglog.Options{Senders: senders})
			if err != nil {
				return err
			}
			store := eventstore.New(log, nil)
			what = append(what, func() (figure, error) { return b.product(ctx, store, n) })
			names = append(names, fmt.Sprintf("pglog, %d senders", senders))
		}
		figures, err := b.inTurn(what...)
		if err != nil {
			return err
		}
		for i, f := range figures {
			row(w, names[i], n, f, figures[0])
		}
	}
	return w.Flush()
}

func row(w io.Writer, name string, n int, f, floor figure) {
	fmt.Fprintf(w, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\n", name, n, f.rate, f.p50, f.p99, f.wal, f.rate/floor.rate, f.wal/max(floor.wal, 1))
}

// inTurn measures all in turn, several times, and returns the medians.
func (b *bench) inTurn(what ...func() (figure, error)) ([]figure, error) {
	all := make([][]figure, len(what))
	for range b.repeats {
		if _, err := b.pool.Exec(context.Background(), "checkpoint"); err != nil {
			return nil, err
		}
		for i, measure := range what {
			f, err := measure()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], f)
		}
	}
	medians := make([]figure, len(what))
	for i := range all {
		medians[i] = median(all[i])
	}
	return medians, nil
}

func median(all []figure) figure {
	slices.SortFunc(all, func(a, b figure) int {
		if a.rate < b.rate {
			return -1
		}
		return 1
	})
	return all[len(all)/2]
}

func (b *bench) floor(ctx context.Context, pool *pgxpool.Pool, n int) (figure, error) {
	return b.measure(ctx, n, func(w, i int) error {
		id := eventstore.NewUUID().String()
		_, err := pool.Exec(ctx, floorInsert, i, w, i, 1, id, id, 7, "bench.happened", "application/json", b.data)
		return err
	})
}

// product appends as a warm owner does: each worker to streams of its own, 100 of
// them in turn.
func (b *bench) product(ctx context.Context, store *eventstore.Store, n int) (figure, error) {
	return b.owners(ctx, store, n, 100, func(w, s int) eventstore.Stream {
		return eventstore.Stream(fmt.Sprintf("bench-%d-%d-%s", w, s, eventstore.NewUUID()))
	})
}

// dedicated appends likewise, each worker to a log of its own.
func (b *bench) dedicated(ctx context.Context, store *eventstore.Store, n int) (figure, error) {
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "log", Layout: eventstore.Dedicated, TrimFreely: true}); err != nil {
		return figure{}, err
	}
	run := eventstore.NewUUID()
	name := func(w, _ int) eventstore.Stream { return eventstore.Stream(fmt.Sprintf("log-%d-%s", w, run)) }
	logs := make([]eventstore.Stream, n)
	for w := range logs {
		logs[w] = name(w, 0)
	}
	if err := store.CreateStreams(ctx, logs...); err != nil {
		return figure{}, err
	}
	f, err := b.owners(ctx, store, n, 1, name)
	for _, log := range logs {
		err = cmp.Or(err, store.DropStream(ctx, log))
	}
	return f, err
}

// owners appends from n workers, each in turn to streams of its own.
func (b *bench) owners(ctx context.Context, store *eventstore.Store, n, streams int, name func(worker, stream int) eventstore.Stream) (figure, error) {
	owners := make([][]eventstore.Batch, n)
	for w := range owners {
		owners[w] = make([]eventstore.Batch, streams)
		for s := range owners[w] {
			owners[w][s] = eventstore.Batch{Stream: name(w, s), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true,
				Events: []eventstore.Event{{Type: "bench.happened", Data: b.data}}}
		}
	}
	step := func(w, i int) error {
		o := &owners[w][i%streams]
		o.ID = eventstore.NewUUID()
		done, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{*o}})
		if err == nil {
			o.Claim, o.After = false, done.Receipts[0].Last
		}
		return err
	}
	for w := range owners { // the first append of a stream is another thing
		for s := range streams {
			if err := step(w, s); err != nil {
				return figure{}, err
			}
		}
	}
	return b.measure(ctx, n, step)
}

func (b *bench) loads(ctx context.Context, out io.Writer) error {
	const streams, entries = 500, 20
	holder := eventstore.NewUUID()
	for s := range streams {
		batch := eventstore.Batch{Stream: eventstore.Stream(fmt.Sprintf("bench-load-%d", s)), Epoch: 1, Holder: holder, Claim: true}
		for range entries {
			batch.Events = append(batch.Events, eventstore.Event{Type: "bench.happened", Data: b.data})
		}
		if _, err := b.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{batch}}); err != nil {
			return err
		}
	}
	bare := `select e.* from ` + b.table + ` e where stream = (select s.ordinal from wattle.streams s join wattle.categories c on c.id = s.category where c.name = 'bench' and s.key = $1) order by seqno`
	figures, err := b.inTurn(
		func() (figure, error) {
			return b.measure(ctx, 1, func(_, i int) error {
				rows, err := b.pool.Query(ctx, bare, fmt.Sprintf("load-%d", i%streams))
				if err != nil {
					return err
				}
				for rows.Next() {
					if _, err := rows.Values(); err != nil {
						return err
					}
				}
				return rows.Err()
			})
		},
		func() (figure, error) {
			return b.measure(ctx, 1, func(_, i int) error {
				l, err := b.store.Load(ctx, eventstore.Stream(fmt.Sprintf("bench-load-%d", i%streams)), "bench")
				if err != nil {
					return err
				}
				for _, err := range l.Tail {
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	if err != nil {
		return err
	}
	floor, product := figures[0], figures[1]
	fmt.Fprintf(out, "\nload of a stream of %d entries: bare SELECT p50 %.0f µs, head + snapshot + tail p50 %.0f µs, rate × floor %.2f\n",
		entries, floor.p50, product.p50, product.rate/floor.rate)
	return nil
}
