// Outages longer than a lease: brokers find one another again.

package topic_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

// Leases that ran out cannot be renewed, so brokers that come back may have one another's
// seats: each still knows the address of the other.
func TestSeatsSwapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e, logs := newEnv(t, shared), []*bent{bend(shared), bend(shared)}
		var brokers []*node
		for i, address := range []string{"http://h", "http://k"} {
			brokers = append(brokers, e.brokerOn(logs[i], &topic.Options{Address: address}))
			time.Sleep(time.Second) // the first has the lowest seat
		}
		e.ok(brokers[0].Create(t.Context(), topic.Spec{Name: "orders", Partitions: 4}))
		time.Sleep(time.Minute)
		down := func(op string, _ *eventstore.Append) error {
			if op == "leases" {
				return errDead
			}
			return nil
		}
		for _, log := range logs {
			log.hooks(down, nil)
		}
		time.Sleep(10 * ttl)
		for _, i := range []int{1, 0} { // the other way round
			logs[i].hooks(nil, nil)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		for i, b := range brokers {
			d, err := b.Describe(t.Context(), "orders")
			e.ok(err)
			of := map[string]int{}
			for _, p := range d.Partitions {
				of[p.Owner]++
			}
			if of["http://h"] != 2 || of["http://k"] != 2 {
				t.Errorf("broker %d knows of these owners: %v", i, of)
			}
		}
	})
}

// Of what is old one message stays where younger ones are there: a new owner tells by it
// that what is published now was not there before.
func TestNewOwnerAfterTrimming(t *testing.T) {
	retained(t, topic.Retention{MaxAge: 50 * time.Second}, func(t *testing.T, e *env, b *node) {
		began := time.Now()
		e.publish(b, "orders", "k", 0)
		time.Sleep(time.Until(began.Add(100 * time.Second)))
		e.publish(b, "orders", "k", 1)
		time.Sleep(7 * time.Second)
		b.stop()
		next := e.broker(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := retry(ctx, publication("orders", "k", 2, time.Now()), next); err != nil || got.Replays || got.First != 3 {
			t.Errorf("published now: %+v, %v", got, err)
		}
	})
}
