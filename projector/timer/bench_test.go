// How fast timers fire, and how long a scheduler takes to start.

package timer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector/timer"
)

// stores are the backends by name.
func stores(b *testing.B, f func(b *testing.B, store *eventstore.Store)) {
	for name, open := range map[string]func(b *testing.B) (eventstore.Log, error){
		"memlog":  func(*testing.B) (eventstore.Log, error) { return memlog.New(nil), nil },
		"filelog": func(b *testing.B) (eventstore.Log, error) { return filelog.Open(b.TempDir(), nil) },
		"pglog": func(b *testing.B) (eventstore.Log, error) {
			pool, schema := pgtest.Schema(b)
			if err := migrations.Up(b.Context(), pool, schema); err != nil {
				return nil, err
			}
			return pglog.Open(b.Context(), pool, &pglog.Options{Schema: schema})
		},
	} {
		b.Run(name, func(b *testing.B) {
			log, err := open(b)
			if err != nil {
				b.Fatal(err)
			}
			store := eventstore.New(log, nil)
			defer store.Close()
			f(b, store)
		})
	}
}

// fill sets n timers with names and payloads of 20 bytes, many in one append.
func fill(b *testing.B, store *eventstore.Store, n int, due time.Time) {
	b.Helper()
	for i := 0; i < n; {
		var a eventstore.Append
		for ; len(a.Batches) < eventstore.MaxAppendBatches && i < n; i++ {
			stream, err := eventstore.NewStream("timer", fmt.Sprintf("payment-of-%09d", i))
			if err != nil {
				b.Fatal(err)
			}
			a.Batches = append(a.Batches, eventstore.Batch{Stream: stream, Epoch: 1, Claim: true, Holder: eventstore.UUID{1}, Events: []eventstore.Event{
				{Type: timer.SetType, Data: fmt.Appendf(nil, `{"due":%q,"clock":"wall","payload":"YWJjZGVmZ2hpamtsbW5vcHFyc3Q="}`, due.Format(time.RFC3339))}}})
		}
		if _, err := store.Append(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}

// One operation is a timer that is due and is fired.
func BenchmarkFire(b *testing.B) {
	stores(b, func(b *testing.B, store *eventstore.Store) {
		s, err := timer.NewScheduler(b.Context(), store, &timer.Options{Keep: -1})
		if err != nil {
			b.Fatal(err)
		}
		fill(b, store, b.N, time.Now())
		b.ResetTimer()
		if more, err := s.CatchUp(b.Context(), 0); more || err != nil {
			b.Fatal(more, err)
		}
		if n := s.Status().Fired; n != uint64(b.N) {
			b.Fatalf("%d fired, want %d", n, b.N)
		}
	})
}

// One operation is a pending timer that is read when a scheduler starts.
func BenchmarkStart(b *testing.B) {
	stores(b, func(b *testing.B, store *eventstore.Store) {
		s, err := timer.NewScheduler(b.Context(), store, &timer.Options{Keep: -1, MaxPending: max(b.N, 16)})
		if err != nil {
			b.Fatal(err)
		}
		fill(b, store, b.N, time.Now().Add(24*time.Hour))
		b.ResetTimer()
		if more, err := s.CatchUp(b.Context(), 0); more || err != nil {
			b.Fatal(more, err)
		}
		if n := s.Status().Pending; n != b.N {
			b.Fatalf("%d pending, want %d", n, b.N)
		}
	})
}
