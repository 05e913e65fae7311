// What consuming costs: how soon what was published comes, and how fast what is there.

package topic_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

// consumeBench runs f with a broker that owns a topic of one partition.
func consumeBench(b *testing.B, f func(b *testing.B, broker *topic.Broker)) {
	for name, open := range map[string]func() eventstore.Log{
		"memlog": func() eventstore.Log { return memlog.New(nil) },
		"filelog": func() eventstore.Log {
			log, err := filelog.Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			return log
		},
	} {
		b.Run(name, func(b *testing.B) {
			store := eventstore.New(open(), nil)
			defer store.Close()
			broker, err := topic.NewBroker(b.Context(), store, nil)
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan struct{})
			go func() { defer close(done); _ = broker.Run(b.Context()) }()
			defer func() { _ = broker.Close(); <-done }()
			if err := broker.Create(b.Context(), topic.Spec{Name: "orders", Partitions: 1}); err != nil {
				b.Fatal(err)
			}
			if _, err := retry(b.Context(), publication("orders", "", 0, time.Now()), broker); err != nil {
				b.Fatal(err)
			}
			f(b, broker)
		})
	}
}

// BenchmarkDeliver publishes 1 KiB after 1 KiB, and says how long after the answer each
// came to one who consumes: less than nothing if it came before.
func BenchmarkDeliver(b *testing.B) {
	consumeBench(b, func(b *testing.B, broker *topic.Broker) {
		came := make(chan time.Time, 1)
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		began := make(chan struct{})
		go func() {
			defer close(done)
			for d, err := range broker.Consume(ctx, topic.Consumption{Topic: "orders", Start: topic.New}) {
				if err != nil {
					return
				}
				if began != nil {
					close(began)
					began = nil
				}
				for range d.Messages {
					came <- time.Now()
				}
			}
		}()
		<-began
		took := make([]time.Duration, 0, b.N)
		data := make([]byte, 1024)
		for b.Loop() {
			if _, err := broker.Publish(b.Context(), topic.Publication{Topic: "orders", Events: []eventstore.Event{{Type: "placed", Data: data}}}); err != nil {
				b.Fatal(err)
			}
			acked := time.Now()
			took = append(took, (<-came).Sub(acked))
		}
		cancel()
		<-done
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-behind-ack-p50")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-behind-ack-p99")
	})
}

// BenchmarkCatchUp has a member of a new consumer read 1 KiB messages that are there, and
// commit each Delivery.
func BenchmarkCatchUp(b *testing.B) {
	const there = 20_000
	consumeBench(b, func(b *testing.B, broker *topic.Broker) {
		data := make([]byte, 1024)
		for range there / 100 {
			p := topic.Publication{Topic: "orders", Key: "k"}
			for range 100 {
				p.Events = append(p.Events, eventstore.Event{Type: "placed", Data: data})
			}
			if _, err := broker.Publish(b.Context(), p); err != nil {
				b.Fatal(err)
			}
		}
		read := 0
		for round := 0; b.Loop(); round++ {
			name, member, n := fmt.Sprint("c", round), eventstore.NewUUID(), 0
			for d, err := range broker.Consume(b.Context(), topic.Consumption{Topic: "orders", Consumer: name, Member: member}) {
				if err != nil {
					b.Fatal(err)
				}
				if n += len(d.Messages); len(d.Messages) > 0 {
					at := topic.Place{Partition: d.Partition, Offset: d.Messages[len(d.Messages)-1].Offset}
					if lost, err := broker.Commit(b.Context(), topic.Commit{Topic: "orders", Consumer: name, Member: member, Places: []topic.Place{at}}); err != nil || len(lost) > 0 {
						b.Fatal(lost, err)
					}
				}
				if n > there {
					break
				}
			}
			read += n
			if err := broker.DeleteConsumer(b.Context(), "orders", name); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "messages/s")
	})
}
