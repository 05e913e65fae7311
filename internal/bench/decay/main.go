// Command decay measures what a session that holds an old snapshot does to appends to a
// hot stream: its registry row is updated by every append, and old versions of it cannot
// be cleared away while somebody may still see them. It prints appends/s in windows of
// 5 s before, while the snapshot is held, and after, for single appends and for appends
// that go together, on one throwaway server (fsync on). The figures to quote are the
// ratios of one run.
//
//	go run ./internal/bench/decay -held 60s
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("decay", flag.ContinueOnError)
	flags.SetOutput(stderr)
	held := flags.Duration("held", time.Minute, "how long the snapshot is held")
	window := flags.Duration("window", 5*time.Second, "the length of one measurement")
	around := flags.Int("around", 3, "windows before and after")
	owners := flags.Int("owners", 16, "hot streams of the group path, each with its owner")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *window <= 0 || *held < *window || *around < 1 || *owners < 1 {
		fmt.Fprintln(stderr, "wanted -held of at least one -window, -around and -owners of at least 1")
		return 2
	}
	b := &bench{held: *held, window: *window, around: *around, owners: *owners}
	if err := b.all(context.Background(), stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

type bench struct {
	held, window   time.Duration
	around, owners int
	pool           *pgxpool.Pool
}

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
	config.MaxConns = 10
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer b.pool.Close()
	if err := migrations.Up(ctx, b.pool, ""); err != nil {
		return err
	}
	var version string
	if err := b.pool.QueryRow(ctx, "select version()").Scan(&version); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\nappends/s in windows of %v; the snapshot is held for %v\n", version, b.window, b.held)
	if err := b.path(ctx, out, "single appends, one hot stream", 1, -1); err != nil {
		return err
	}
	return b.path(ctx, out, fmt.Sprintf("group path, %d hot streams, 1 sender", b.owners), b.owners, 1)
}

// path measures owners that append, each to a stream of its own.
func (b *bench) path(ctx context.Context, out io.Writer, name string, owners, senders int) error {
	log, err := pglog.Open(ctx, b.pool, &pglog.Options{Senders: senders})
	if err != nil {
		return err
	}
	store := eventstore.New(log, nil)
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "hot"}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var appended atomic.Int64
	failed := make(chan error, owners)
	var wg sync.WaitGroup
	for range owners {
		wg.Go(func() {
			if err := own(ctx, store, &appended); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	err = b.phases(ctx, out, name, &appended)
	cancel()
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return err
	}
}

// own appends to a stream until ctx ends.
func own(ctx context.Context, store *eventstore.Store, appended *atomic.Int64) error {
	batch := eventstore.Batch{Stream: eventstore.Stream("hot-" + eventstore.NewUUID().String()), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true,
		Events: []eventstore.Event{{Type: "bench.happened", Data: []byte(strings.Repeat("wattle ", 30))}}}
	for ctx.Err() == nil {
		batch.ID = eventstore.NewUUID()
		done, err := store.Append(context.WithoutCancel(ctx), eventstore.Append{Batches: []eventstore.Batch{batch}})
		if err != nil {
			return err
		}
		batch.Claim, batch.After = false, done.Receipts[0].Last
		appended.Add(1)
	}
	return nil
}

func (b *bench) phases(ctx context.Context, out io.Writer, name string, appended *atomic.Int64) error {
	fmt.Fprintf(out, "\n%s\n", name)
	if _, err := b.rates(ctx, 1, appended); err != nil { // statements are prepared
		return err
	}
	before, err := b.rates(ctx, b.around, appended)
	if err != nil {
		return err
	}
	release, err := b.hold(ctx)
	if err != nil {
		return err
	}
	held, err := b.rates(ctx, int(b.held/b.window), appended)
	release()
	if err != nil {
		return err
	}
	after, err := b.rates(ctx, b.around, appended)
	if err != nil {
		return err
	}
	base := mean(before)
	for _, phase := range []struct {
		name  string
		rates []float64
	}{{"before", before}, {"held", held}, {"released", after}} {
		fmt.Fprintf(out, "  %-9s%s  mean × before %.2f, last × before %.2f\n", phase.name, format(phase.rates), mean(phase.rates)/base, phase.rates[len(phase.rates)-1]/base)
	}
	return nil
}

// hold takes a snapshot and keeps it until release, as a forgotten report would.
func (b *bench) hold(ctx context.Context) (release func(), err error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"begin isolation level repeatable read", "select count(*) from wattle.categories"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			conn.Conn().Close(ctx)
			conn.Release()
			return nil, err
		}
	}
	return func() {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "rollback") // the pool closes it if that failed
		conn.Release()
	}, nil
}

// rates measures n windows.
func (b *bench) rates(ctx context.Context, n int, appended *atomic.Int64) (rates []float64, err error) {
	for range n {
		start, count := time.Now(), appended.Load()
		select {
		case <-time.After(b.window):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		rates = append(rates, float64(appended.Load()-count)/time.Since(start).Seconds())
	}
	return rates, nil
}

func mean(rates []float64) (sum float64) {
	for _, r := range rates {
		sum += r
	}
	return sum / float64(len(rates))
}

func format(rates []float64) string {
	var s strings.Builder
	for _, r := range rates {
		fmt.Fprintf(&s, " %5.0f", r)
	}
	return s.String()
}
