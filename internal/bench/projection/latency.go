// Latency from append to committed projection, and what idle lanes cost.

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/natsannounce"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/projector"
)

func (b *bench) latency(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "wattle-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, StoreDir: dir})
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		return err
	}
	defer nc.Close()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "append to committed projection\tp50 ms\tp99 ms\tappend alone p50 ms")
	for _, how := range []struct {
		name string
		o    *eventstore.Options
	}{{"with NATS", &eventstore.Options{Announcer: natsannounce.New(nc, nil)}}, {"without (poll of 250 ms)", nil}} {
		if err := b.delays(ctx, w, how.name, how.o); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// delays appends one event after the other, some 50 a second so that none waits for the
// pause between two looks, and waits for each.
func (b *bench) delays(ctx context.Context, w io.Writer, name string, o *eventstore.Options) error {
	log, err := pglog.Open(ctx, b.pool, nil)
	if err != nil {
		return err
	}
	store := eventstore.New(log, o)
	table, projection, err := b.model(ctx)
	if err != nil {
		return err
	}
	last, err := b.token(ctx)
	if err != nil {
		return err
	}
	committed := make(chan eventstore.Position, 1000)
	p := projector.New(store, projection, "bench", noting{b.handler(b.pool, table), committed}, &projector.Options{StartAt: last.Position})
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = p.Run(ctx) })
	var after eventstore.Mark
	var all, alone []float64
	stream := eventstore.NewUUID().String()
	appends := b.appends
	if o == nil {
		appends /= 10
	}
	chance := rand.New(rand.NewPCG(1, 2))
	for i := range appends + 10 {
		time.Sleep(10*time.Millisecond + time.Duration(chance.IntN(int(20*time.Millisecond))))
		began := time.Now()
		done, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b.batch(stream, after, 1)}})
		if err != nil {
			return err
		}
		after = done.Receipts[0].Last
		acked := time.Since(began)
		for at := range committed {
			if at >= done.Token.Position {
				break
			}
		}
		if i >= 10 {
			all, alone = append(all, time.Since(began).Seconds()*1000), append(alone, acked.Seconds()*1000)
		}
	}
	slices.Sort(all)
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\n", name, all[len(all)/2], all[len(all)*99/100], median(alone))
	return nil
}

// noting tells when a step has been committed.
type noting struct {
	projector.Handler
	committed chan<- eventstore.Position
}

func (n noting) Handle(ctx context.Context, s projector.Step) error {
	err := n.Handler.Handle(ctx, s)
	if err == nil && len(s.Batch) > 0 {
		n.committed <- s.To.Position
	}
	return err
}

// leases watches two workers with 1,000 lanes that have nothing to do.
func (b *bench) leases(ctx context.Context, out io.Writer) error {
	const lanes = 1000
	table, name, err := b.model(ctx)
	if err != nil {
		return err
	}
	last, err := b.token(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var all []*projector.Projector
	for range 2 {
		p := projector.New(b.store, name, "bench", b.handler(b.pool, table), &projector.Options{Lanes: lanes, StartAt: last.Position})
		all = append(all, p)
		running.Go(func() { _ = p.Run(ctx) })
	}
	began := time.Now()
	for len(all[0].Status().Lanes) != lanes/2 || len(all[1].Status().Lanes) != lanes/2 {
		if time.Since(began) > time.Minute {
			return fmt.Errorf("after a minute the workers have %d and %d lanes", len(all[0].Status().Lanes), len(all[1].Status().Lanes))
		}
		time.Sleep(100 * time.Millisecond)
	}
	shared := time.Since(began)
	time.Sleep(15 * time.Second) // claims and holds are through by then
	wal, rows, err := b.written(ctx)
	if err != nil {
		return err
	}
	time.Sleep(b.idle)
	wal2, rows2, err := b.written(ctx)
	if err != nil {
		return err
	}
	s := b.idle.Seconds()
	fmt.Fprintf(out, "two idle workers, %d lanes, TTL %v: shared after %.1f s; then %.0f rows (all of them leases: %v) and %.1f kB of WAL a second, %.1f transactions a second\n\n",
		lanes, eventstore.DefaultLeaseTTL, shared.Seconds(), float64(rows2.all-rows.all)/s, rows2.other == rows.other, float64(wal2-wal)/s/1000, float64(rows2.commits-rows.commits)/s)
	return nil
}

type written struct{ all, other, commits int64 }

func (b *bench) written(ctx context.Context) (wal int64, w written, err error) {
	err = b.pool.QueryRow(ctx, `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint,
		coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del) filter (where relname <> 'leases'), 0)::bigint,
		(select xact_commit from pg_stat_database where datname = current_database()) from pg_stat_user_tables`).Scan(&wal, &w.all, &w.other, &w.commits)
	return wal, w, err
}
