// What it takes to trim and reclaim nine tenths of many entries.

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
)

const (
	trimEntries = 500 // of a stream
	trimKept    = trimEntries / 10
)

func (b *bench) trims(ctx context.Context, out io.Writer) error {
	streams := b.trim / trimEntries
	if streams == 0 {
		return nil
	}
	log, err := pglog.Open(ctx, b.pool, &pglog.Options{ReclaimEvery: -1})
	if err != nil {
		return err
	}
	store := eventstore.New(log, nil)
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "trimmed", TrimFreely: true}); err != nil {
		return err
	}
	var table string
	if err := b.pool.QueryRow(ctx, "select 'wattle.entries_' || id from wattle.categories where name = 'trimmed'").Scan(&table); err != nil {
		return err
	}
	name := func(i int) eventstore.Stream { return eventstore.Stream(fmt.Sprintf("trimmed-%d", i)) }
	fmt.Fprintf(out, "\n%d entries of %d bytes in %d streams, nine tenths of each trimmed:\n", streams*trimEntries, len(b.data), streams)
	step := func(what string, f func() error) error { return b.step(ctx, out, table, what, f) }
	if err := step("append them, 500 at a time", func() error { return b.fillTrimmed(ctx, store, streams, name) }); err != nil {
		return err
	}
	if err := step("trim", func() error {
		for i := range streams {
			if _, err := store.Trim(ctx, name(i), trimEntries-trimKept, false); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	var sum pglog.Reclaimed
	if err := step("reclaim, resting half of the time", func() (err error) { sum, err = log.Reclaim(ctx, 0); return err }); err != nil {
		return err
	}
	if want := int64(streams * (trimEntries - trimKept)); sum.Entries != want {
		return fmt.Errorf("reclaimed %d entries, want %d", sum.Entries, want)
	}
	if err := step("vacuum", func() error { _, err := b.pool.Exec(ctx, "vacuum "+table); return err }); err != nil {
		return err
	}
	return b.trimLog(ctx, out, log, store)
}

func (b *bench) fillTrimmed(ctx context.Context, store *eventstore.Store, streams int, name func(int) eventstore.Stream) error {
	for i := range streams {
		batch := eventstore.Batch{Stream: name(i), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true}
		for range trimEntries {
			batch.Events = append(batch.Events, eventstore.Event{Type: "bench.happened", Data: b.data})
		}
		if _, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{batch}}); err != nil {
			return err
		}
	}
	return nil
}

// trimLog does the same on one dedicated log, whose space comes back by TRUNCATE.
func (b *bench) trimLog(ctx context.Context, out io.Writer, log *pglog.Log, store *eventstore.Store) error {
	const stream = eventstore.Stream("log-trimmed")
	if err := store.CreateStreams(ctx, stream); err != nil {
		return err
	}
	defer store.DropStream(ctx, stream)
	fmt.Fprintf(out, "the same on one dedicated log, trimmed behind every 50 batches to the last %d entries:\n", trimEntries)
	return b.step(ctx, out, "", "append and trim", func() error {
		batch := eventstore.Batch{Stream: stream, Epoch: 1, Holder: eventstore.NewUUID(), Claim: true}
		for range trimEntries {
			batch.Events = append(batch.Events, eventstore.Event{Type: "bench.happened", Data: b.data})
		}
		for i := range b.trim / trimEntries {
			batch.ID = eventstore.NewUUID()
			done, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{batch}})
			if err != nil {
				return err
			}
			batch.Claim, batch.After = false, done.Receipts[0].Last
			if i%50 == 49 {
				if _, err := store.Trim(ctx, stream, batch.After.Seqno-trimEntries, false); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// step runs f and prints its time, its WAL and what the table takes behind it.
func (b *bench) step(ctx context.Context, out io.Writer, table, what string, f func() error) error {
	if _, err := b.pool.Exec(ctx, "checkpoint"); err != nil {
		return err
	}
	before, err := b.wal(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f(); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := b.wal(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s: %v, %.0f MB of WAL", what, took.Round(10*time.Millisecond), float64(after-before)/1e6)
	var data, index float64
	sql := "select pg_relation_size($1::text::regclass), pg_indexes_size($1::text::regclass)"
	args := []any{table}
	if table == "" {
		sql, args = "select coalesce(sum(pg_relation_size(oid)), 0)::float8, 0::float8 from pg_class where relnamespace = 'wattle'::regnamespace and relname like 'log\\_%' and relkind = 'r'", nil
	}
	if err := b.pool.QueryRow(ctx, sql, args...).Scan(&data, &index); err != nil {
		return err
	}
	fmt.Fprintf(out, "; table %.0f MB, indexes %.0f MB\n", data/1e6, index/1e6)
	return nil
}
