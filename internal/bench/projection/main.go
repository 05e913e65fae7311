// Command projection measures the projector on PostgreSQL against a bare loop of the
// same SQL, interleaved in one run on one throwaway server (fsync on): throughput, the
// feed against COPY, workers, latency from append to committed projection with and
// without NATS, and what idle leases cost. The figures to quote are the ratios.
//
//	go run ./internal/bench/projection -entries 100000 -repeats 3
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("projection", flag.ContinueOnError)
	flags.SetOutput(stderr)
	entries := flags.Int("entries", 100_000, "entries to project")
	repeats := flags.Int("repeats", 3, "interleaved repeats; medians are printed")
	payload := flags.Int("payload", 256, "bytes of each event's data")
	appends := flags.Int("appends", 1000, "appends whose latency is measured")
	idle := flags.Duration("idle", 20*time.Second, "how long idle leases are watched")
	only := flags.String("only", "", "parts to run, as "+names()+"; without it all")
	profile := flags.String("cpuprofile", "", "file for a profile of this process")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		defer pprof.StopCPUProfile()
	}
	b := &bench{entries: *entries, repeats: *repeats, data: []byte(strings.Repeat("wattle ", *payload/7+1)[:*payload]), appends: *appends, idle: *idle}
	if err := b.all(context.Background(), stdout, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// parts of the bench, in the order they run.
var parts = []struct {
	name string
	run  func(*bench, context.Context, io.Writer) error
}{{"throughput", (*bench).throughput}, {"feed", (*bench).feed}, {"workers", (*bench).workers}, {"latency", (*bench).latency}, {"leases", (*bench).leases}}

func names() string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return strings.Join(all, ",")
}

type bench struct {
	entries, repeats, appends int
	data                      []byte
	idle                      time.Duration
	dsn                       string
	pool                      *pgxpool.Pool
	store                     *eventstore.Store
	table                     string // of the entries of category bench
	runs                      int
}

// batch is how many entries become one transaction.
const batch = 500

func (b *bench) all(ctx context.Context, out io.Writer, only []string) error {
	server, err := pgtest.Launch()
	if err != nil {
		return err
	}
	defer server.Close()
	b.dsn = server.DSN()
	if b.pool, err = pgxpool.New(ctx, b.dsn); err != nil {
		return err
	}
	defer b.pool.Close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	var v string
	if err := b.pool.QueryRow(ctx, "select version()").Scan(&v); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n%d processors, load %s; %d entries of %d bytes in %d streams; medians of %d repeats\n\n", v, runtime.NumCPU(), load(), b.entries, len(b.data), streams, b.repeats)
	for _, p := range parts {
		if len(only) == 0 || slices.Contains(only, p.name) {
			if err := p.run(b, ctx, out); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

// load is the machine's load average: what the figures are worth.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:1], "")
}

const streams = 1000

// prepare writes the entries.
func (b *bench) prepare(ctx context.Context) error {
	if err := migrations.Up(ctx, b.pool, ""); err != nil {
		return err
	}
	log, err := pglog.Open(ctx, b.pool, nil)
	if err != nil {
		return err
	}
	b.store = eventstore.New(log, nil)
	if err := b.store.CreateCategory(ctx, eventstore.CategorySpec{Name: "bench", TrimFreely: true}); err != nil {
		return err
	}
	if err := b.pool.QueryRow(ctx, "select 'wattle.entries_' || id from wattle.categories").Scan(&b.table); err != nil {
		return err
	}
	after := make([]eventstore.Mark, streams)
	const batches, events = 50, 10
	for n, s := 0, 0; n < b.entries; n += batches * events {
		var a eventstore.Append
		first := s
		for range batches {
			a.Batches = append(a.Batches, b.batch(fmt.Sprintf("%d", s), after[s], events))
			s = (s + 1) % streams
		}
		done, err := b.store.Append(ctx, a)
		if err != nil {
			return err
		}
		for i, r := range done.Receipts {
			after[(first+i)%streams] = r.Last
		}
	}
	_, err = b.pool.Exec(ctx, "vacuum analyze")
	return err
}

func (b *bench) batch(key string, after eventstore.Mark, events int) eventstore.Batch {
	one := eventstore.Batch{Stream: eventstore.Stream("bench-" + key), Epoch: 1, Holder: eventstore.UUID{1}, Claim: after.Seqno == 0, After: after}
	for range events {
		one.Events = append(one.Events, eventstore.Event{Type: "bench.happened", Data: b.data})
	}
	return one
}

// raw decodes nothing: what is measured is the projector.
type raw struct{}

func (raw) Decode(e eventstore.Entry) ([]byte, error) { return e.Data, nil }

var _ projector.Decoder[[]byte] = raw{}

// median of rates or times.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
