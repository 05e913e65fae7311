// Bench: what the operations of a log cost.

package logtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

// Bench measures appends of one event of about 400 bytes by 1, 4 and 16 writers,
// each to a stream of its own, reading and loading a stream of 20 entries, and a
// page of the feed of 500.
func Bench(b *testing.B, h Harness) {
	log := h.Open(b)
	for _, writers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("append/writers=%d", writers), func(b *testing.B) { benchAppend(newEnv(b, h, log, "bench"), b, writers) })
	}
	e := newEnv(b, h, log, "bench")
	w := e.writer(e.stream("20"))
	for range 20 {
		w.send(w.batch(benchEvent()))
	}
	b.Run("read/entries=20", func(b *testing.B) {
		for b.Loop() {
			if p, err := e.store.ReadFrom(e.ctx, w.stream, 0, 100); err != nil || len(p.Entries) != 20 {
				b.Fatalf("%d entries, %v", len(p.Entries), err)
			}
		}
	})
	b.Run("load/entries=20", func(b *testing.B) {
		for b.Loop() {
			if l := e.load(w.stream, fingerprint, 100); len(l.Entries) != 20 {
				b.Fatalf("%d entries", len(l.Entries))
			}
		}
	})
	b.Run("feed/entries=500", func(b *testing.B) {
		for w.last.Seqno < 500 {
			w.send(w.batch(benchEvent()))
		}
		e.settle()
		f := eventstore.Filter{Categories: []eventstore.Category{e.category}}
		for b.Loop() {
			if p, err := e.store.ReadFeed(e.ctx, 0, f, 500); err != nil || len(p.Entries) != 500 {
				b.Fatalf("%d entries, %v", len(p.Entries), err)
			}
		}
	})
}

func benchEvent() eventstore.Event {
	return eventstore.Event{Type: "benched", Data: make([]byte, 400)}
}

// benchAppend shares b.N appends out among writers.
func benchAppend(e *env, b *testing.B, writers int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range writers {
		w := &writer{e: e, stream: e.stream(fmt.Sprint(i)), holder: eventstore.NewUUID(), epoch: 1}
		all.Go(func() {
			for left.Add(-1) >= 0 {
				done, err := e.store.Append(e.ctx, appendOf(w.batch(benchEvent())))
				if err != nil {
					b.Errorf("Append = %v, want nil", err)
					return
				}
				w.wrote(done.Receipts[0])
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}
