// Brokers over one log: what a publisher is promised.

package topic_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

const ttl = 3 * time.Second

func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 3}))
		first := e.publish(b, "orders", "alice", 1)
		again := e.publish(b, "orders", "alice", 1)
		if first.Replays || !again.Replays || again.First != first.First || again.Partition != first.Partition || first.First != 1 || first.Last != 1 {
			t.Errorf("published %+v, again %+v", first, again)
		}
		all := e.all("orders", 3)
		if len(all[first.Partition]) != 1 {
			t.Errorf("%d messages in the partition, want 1", len(all[first.Partition]))
		}
	})
}

// Close ends Run, once and for all; the partitions are free at once.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders"}))
		e.publish(b, "orders", "a", 1)
		if err := b.Run(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("a second Run: %v, want ErrClosed", err)
		}
		e.ok(b.Close())
		e.ok(b.Close())
		e.sharesOf(0)
		if err := b.Run(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("Run after Close: %v, want ErrClosed", err)
		}
		if _, err := b.Publish(t.Context(), several("a", 2, 1)); !errors.Is(err, topic.ErrNotOwner) {
			t.Errorf("Publish after Close: %v, want ErrNotOwner", err)
		}
		idle, err := topic.NewBroker(t.Context(), e.store, &topic.Options{Address: "https://" + strings.Repeat("x", topic.MaxAddressBytes)})
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%v, %v, want ErrInvalid", idle, err)
		}
	})
}
