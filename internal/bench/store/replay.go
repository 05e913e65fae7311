// The loan example end to end (commands, appends, projection, report) against a
// COPY of the same payloads. One command, one append, one commit an event keeps it
// honest: COPY has one commit for all.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/projector"
)

// generatedCases stand in for a file.
const generatedCases = 2000

func (b *bench) cases() (iter.Seq2[loan.Case, error], func() error, error) {
	if b.xes == "" {
		return func(yield func(loan.Case, error) bool) {
			for c := range loan.Generate(1, generatedCases) {
				if !yield(c, nil) {
					return
				}
			}
		}, func() error { return nil }, nil
	}
	f, err := os.Open(b.xes)
	if err != nil {
		return nil, nil, err
	}
	return loan.ReadXES(f), f.Close, nil
}

// replays takes minutes with a real log, so each figure is printed when it is there; the
// ratios to COPY come last.
func (b *bench) replays(ctx context.Context, out io.Writer) error {
	inMemory := func(*eventstore.Store) (bank.View, error) { return &bank.MemoryView{}, nil }
	const schema = "bench_replay"
	if err := migrations.Up(ctx, b.pool, schema); err != nil {
		return err
	}
	log, err := pglog.Open(ctx, b.pool, &pglog.Options{Schema: schema})
	if err != nil {
		return err
	}
	store := eventstore.New(log, nil)
	view := func(s *eventstore.Store) (bank.View, error) {
		return bankpg.Open(ctx, b.pool, s, bankpg.Options{Schema: schema + "_loan", StoreSchema: schema})
	}
	inPostgres := func() (replayed, error) { return b.replay(ctx, store, view) }
	fmt.Fprintln(out, "\nloan applications end to end, 16 writers, one command and one commit an event")
	var all []replayed
	for _, do := range []func() (replayed, error){
		func() (replayed, error) { return b.replay(ctx, eventstore.New(memlog.New(nil), nil), inMemory) },
		func() (replayed, error) { return b.replayFile(ctx, inMemory) },
		inPostgres, inPostgres, // the second time nothing is written
		func() (replayed, error) { return b.rebuild(ctx, store, view) },
		func() (replayed, error) { return copyAll(ctx, b.pool, store) },
	} {
		r, err := do()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %-42s %8.0f events/s, %d in %.1f s\n", r.name, r.rate(), r.events, r.took.Seconds())
		all = append(all, r)
	}
	for _, r := range all {
		fmt.Fprintf(out, "  %-42s %.3f × COPY\n", r.name, r.rate()/all[len(all)-1].rate())
	}
	return nil
}

// replayFile replays into a store in files, on the disk of the system's temporary ones.
func (b *bench) replayFile(ctx context.Context, open func(*eventstore.Store) (bank.View, error)) (r replayed, err error) {
	dir, err := os.MkdirTemp("", "wattle-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	log, err := filelog.Open(dir, nil)
	if err != nil {
		return r, err
	}
	store := eventstore.New(log, nil)
	r, err = b.replay(ctx, store, open)
	return r, errors.Join(err, store.Close())
}

type replayed struct {
	name   string
	events int
	took   time.Duration
}

func (r replayed) rate() float64 { return float64(r.events) / r.took.Seconds() }

func (b *bench) replay(ctx context.Context, store *eventstore.Store, open func(*eventstore.Store) (bank.View, error)) (replayed, error) {
	view, err := open(store)
	if err != nil {
		return replayed{}, err
	}
	service, err := bank.New(ctx, store, view)
	if err != nil {
		return replayed{}, err
	}
	cases, done, err := b.cases()
	if err != nil {
		return replayed{}, err
	}
	defer done()
	count := &bank.Count{}
	start := time.Now()
	report, err := service.Replay(ctx, cases, &bank.ImportOptions{Count: count})
	if err != nil {
		return replayed{}, err
	}
	name := fmt.Sprintf("%T", store.Log())
	if count.Known.Load() > 0 {
		name += ", again (nothing is written)"
	}
	return replayed{name: name, events: report.Events, took: time.Since(start)}, nil
}

// rebuild builds the report anew, as a second version beside the one in use, and switches
// to it.
func (b *bench) rebuild(ctx context.Context, store *eventstore.Store, open func(*eventstore.Store) (bank.View, error)) (r replayed, err error) {
	view, err := open(store)
	if err != nil {
		return r, err
	}
	service, err := bank.New(ctx, store, view)
	if err != nil {
		return r, err
	}
	before, err := service.Report(ctx)
	if err != nil {
		return r, err
	}
	admin := projector.NewAdmin(store, view.Control())
	next, err := admin.Rebuild(ctx, bank.Projection, false)
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := service.CatchUp(ctx); err != nil {
		return r, err
	}
	r = replayed{name: "rebuild of the report, 16 lanes, one after the other", events: before.Events, took: time.Since(start)}
	if err := admin.Switch(ctx, bank.Projection, next, &projector.SwitchOptions{MaxBehind: 1}); err != nil {
		return r, err
	}
	after, err := service.Report(ctx)
	if err == nil && (after.Cases != before.Cases || after.Events != before.Events) {
		err = fmt.Errorf("the rebuilt report is of %d applications and %d events, the one before of %d and %d", after.Cases, after.Events, before.Cases, before.Events)
	}
	return r, err
}

// copyAll copies every entry of the feed into the floor's table.
func copyAll(ctx context.Context, pool *pgxpool.Pool, store *eventstore.Store) (replayed, error) {
	var rows [][]any
	for e, err := range store.Feed(ctx, 0, eventstore.Filter{}) {
		if err != nil {
			return replayed{}, err
		}
		rows = append(rows, []any{int64(e.Position), int64(1), int64(e.Seqno), int64(e.Epoch), e.Time, 1, e.Version, [16]byte(e.ID), [16]byte(e.BatchID),
			int16(e.Stream.Slot()), e.Type, e.ContentType, "", e.Data})
	}
	start := time.Now()
	_, err := pool.CopyFrom(ctx, pgx.Identifier{"bench_floor"}, []string{"position", "stream", "seqno", "epoch", "time", "category", "version", "id", "batch",
		"slot", "type", "content_type", "metadata", "data"}, pgx.CopyFromRows(rows))
	return replayed{name: "COPY of the same payloads", events: len(rows), took: time.Since(start)}, err
}
