// Command layout measures how entries should lie in PostgreSQL, and says it in ratios to a floor of the same run.
//
// Three layouts carry the product's columns and its append statement:
//
//	one     one entries table, keys (stream, seqno) and (category, position)
//	parent  entries partitioned by category, appended to through the parent, read from the partition
//	tables  a table per category, appended to and read directly
//
// Those of parent and tables have keys (stream, seqno) and (position). A feed of several categories merges a branch for
// each, in every layout; with a third index on (position), which costs 35 B an entry, "one" could read it in one scan.
//
// The floor is a bare prepared INSERT of the same columns into a table without any index. Repeats are interleaved, and a
// ratio is the median of the ratios within a repeat, since a shared machine drifts more than the layouts differ. Server
// CPU per append (Linux) is the steadiest figure.
//
//	make bench-layout                     # under four minutes, on a throwaway server
//	go run ./internal/bench/layout -repeats 5 -time 10s -entries 400000
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

// options are the flags.
type options struct {
	dsn        string
	repeats    int
	time       time.Duration // of one append run
	entries    int           // preloaded for the reads
	deleted    int           // entries of the category that is deleted
	categories int           // of the last part
}

const (
	payload     = 900 // bytes
	smalls      = 9   // small categories beside the large one
	maxWriters  = 16
	largeShare  = 91 // percent of the appends that go to the large category, 1 to each small one
	page        = 500
	poolConns   = maxWriters + 4
	groupSize   = 32
	firstSmall  = 2 // category ids: 1 is the large one
	lastSmall   = firstSmall + smalls - 1
	preloadBase = 1_000_000_000 // ordinals of preloaded streams, which need no registry row
)

var writerCounts = []int{1, 4, maxWriters}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("layout", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dsn, "dsn", "", "server to use, schemas bench_* are made and dropped in it (default: a throwaway one)")
	flags.IntVar(&o.repeats, "repeats", 3, "interleaved repeats of each append run")
	flags.DurationVar(&o.time, "time", 1200*time.Millisecond, "length of one append run")
	flags.IntVar(&o.entries, "entries", 100_000, "entries preloaded for the reads, 2 % in each small category")
	flags.IntVar(&o.deleted, "deleted", 200_000, "entries of the category that is deleted")
	flags.IntVar(&o.categories, "categories", 300, "categories of the last part")
	if flags.Parse(args) != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "layout:", err)
		return 1
	}
	return 0
}

// bench runs every part against one server.
func bench(ctx context.Context, o options, stdout, stderr io.Writer) error {
	began := time.Now()
	if o.dsn == "" {
		server, err := pgtest.Launch(pgtest.Setting("shared_buffers", "1GB"), pgtest.Setting("max_wal_size", "4GB"),
			pgtest.Setting("checkpoint_timeout", "15min"), pgtest.Setting("jit", "off"))
		if err != nil {
			return err
		}
		defer server.Close()
		o.dsn = server.DSN()
	}
	config, err := pgxpool.ParseConfig(o.dsn)
	if err != nil {
		return err
	}
	config.MaxConns, config.MinConns = poolConns, poolConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	b := &campaign{options: o, pool: pool, out: stdout, progress: stderr}
	if err := b.all(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nwhole run: %.0f s\n", time.Since(began).Seconds())
	return nil
}

// campaign is one run of the benchmark.
type campaign struct {
	options
	pool     *pgxpool.Pool
	out      io.Writer
	progress io.Writer
	layouts  []*layout // without the floor
	floor    *layout
}

func (b *campaign) all(ctx context.Context) error {
	var version string
	if err := b.pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "PostgreSQL %s, %d B payload, %d small categories beside a large one, %d repeats of %v\n",
		version, payload, smalls, b.repeats, b.time)
	if err := b.setUp(ctx); err != nil {
		return err
	}
	defer b.tearDown(context.WithoutCancel(ctx))
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"appends", b.appends}, {"preload", b.preload}, {"reads", b.reads},
		{"create and delete", b.admin}, {"many categories", b.many},
	} {
		fmt.Fprintf(b.progress, "layout: %s\n", part.name)
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
