// The product, through its public API alone.

package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
)

// wattle is a variant of it.
type wattle struct {
	senders int // pglog.Options.Senders
	layout  eventstore.Layout
}

type wattleStore struct {
	*inGo
	store *eventstore.Store
	next  []eventstore.Batch // of each stream, without ID and events
}

// category of all streams.
const category = "bench"

func openWattle(variant wattle) func(context.Context, *setup) (store, error) {
	return func(ctx context.Context, s *setup) (store, error) {
		table := "wattle.entries"
		if variant.layout == eventstore.Dedicated {
			table = "wattle.logs"
		}
		g, err := openPool(ctx, s, table)
		if err != nil {
			return nil, err
		}
		w := &wattleStore{inGo: g}
		if err := migrations.Up(ctx, g.pool, ""); err != nil {
			return w, err
		}
		log, err := pglog.Open(ctx, g.pool, &pglog.Options{Senders: variant.senders})
		if err != nil {
			return w, err
		}
		w.store = eventstore.New(log, nil)
		holder := eventstore.NewUUID()
		for i := range s.streams {
			w.next = append(w.next, eventstore.Batch{Stream: streamName(i), Epoch: 1, Holder: holder, Claim: true})
		}
		err = w.store.CreateCategory(ctx, eventstore.CategorySpec{Name: category, Layout: variant.layout, TrimFreely: variant.layout == eventstore.Dedicated})
		if err != nil || variant.layout == eventstore.Shared {
			return w, err
		}
		var logs []eventstore.Stream
		for i := range s.streams {
			logs = append(logs, streamName(i))
		}
		return w, w.store.CreateStreams(ctx, logs...)
	}
}

func streamName(i int) eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("%s-%d", category, i))
}

// append appends as a warm owner does: the first append claims the stream, each states the mark of the one before.
func (w *wattleStore) append(ctx context.Context, stream, events int) error {
	b := w.next[stream]
	for i := range events {
		b.Events = append(b.Events, eventstore.Event{Type: eventType, Data: w.payload(int(b.After.Seqno) + i)})
	}
	done, err := w.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
	if err == nil {
		w.next[stream].Claim, w.next[stream].After = false, done.Receipts[0].Last
	}
	return err
}

func (w *wattleStore) appends(ctx context.Context, writers, k int, d time.Duration) (sample, error) {
	return drive(ctx, writers, k, d, func(ctx context.Context, stream int) error { return w.append(ctx, stream, 1) })
}

func (w *wattleStore) fill(ctx context.Context) error {
	for stream := range w.streams {
		if err := w.append(ctx, stream, w.entries); err != nil {
			return err
		}
	}
	return nil
}

// loads asks for what an aggregate needs: head, snapshot (there is none) and the events.
func (w *wattleStore) loads(ctx context.Context, d time.Duration) (sample, error) {
	return w.loadsOf(ctx, d, func(ctx context.Context, stream int) (n int, err error) {
		l, err := w.store.Load(ctx, streamName(stream), "bench")
		if err != nil {
			return 0, err
		}
		for _, err := range l.Tail {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	})
}

// catchUp is a new reader's: one that has just read the feed to its end rests before it asks again.
func (w *wattleStore) catchUp(ctx context.Context) (sample, error) {
	log, err := pglog.Open(ctx, w.pool, nil)
	if err != nil {
		return sample{}, err
	}
	store := eventstore.New(log, nil)
	defer store.Close()
	return once(func() (n int, err error) {
		var after eventstore.Position
		for {
			p, err := store.ReadFeed(ctx, after, eventstore.Filter{Categories: []eventstore.Category{category}}, page)
			if err != nil {
				return n, err
			}
			n += len(p.Entries)
			if p.End {
				return n, nil
			}
			after = p.Through.Position
		}
	})
}

// commit is set by the linker (see the Makefile).
var commit string

func (w *wattleStore) version() string { return "wattle " + cmp.Or(commit, "of this tree") }

func (w *wattleStore) close() {
	if w.store != nil {
		_ = w.store.Close() // the pool is closed next
	}
	w.inGo.close()
}
