// What publishing costs: many publishers at one broker.

package topic_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

// BenchmarkPublish has 64 publishers publish 1 KiB each, one after the other, to four
// partitions. It says how many publications came to one append.
func BenchmarkPublish(b *testing.B) {
	for name, open := range map[string]func() eventstore.Log{
		"memlog": func() eventstore.Log { return memlog.New(nil) },
		"filelog": func() eventstore.Log {
			log, err := filelog.Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = log.Close() })
			return log
		},
	} {
		b.Run(name, func(b *testing.B) {
			log := bend(open())
			broker, err := topic.NewBroker(b.Context(), eventstore.New(log, nil), nil)
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() { defer close(done); _ = broker.Run(b.Context()) }()
			defer func() { _ = broker.Close(); <-done }()
			if err := broker.Create(b.Context(), topic.Spec{Name: "orders"}); err != nil {
				b.Fatal(err)
			}
			for n := range topic.DefaultPartitions * 8 {
				if _, err := retry(b.Context(), publication("orders", "", n, time.Now()), broker); err != nil {
					b.Fatal(err)
				}
			}
			log.appends.Store(0)
			data := make([]byte, 1024)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.SetBytes(1024)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						id := eventstore.NewUUID()
						p := topic.Publication{Topic: "orders", ID: id, Events: []eventstore.Event{{Type: "placed", Data: data}}}
						p.Key = id.String()
						if _, err := broker.Publish(b.Context(), p); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/float64(log.appends.Load()), "publications/append")
		})
	}
}
