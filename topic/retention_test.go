// Retention: what is over a bound goes, and nothing else.

package topic_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

// fill publishes messages of 100 bytes, one a second.
func (e *env) fill(b topic.Service, from, to int) {
	e.t.Helper()
	for n := from; n < to; n++ {
		p := topic.Publication{Topic: "orders", Key: "k", ID: eventstore.NewUUID(),
			Events: []eventstore.Event{{Type: "placed", Data: fmt.Appendf(nil, "%0*d", 100-len(topic.MetaKey+"k"), n)}}}
		_, err := retry(e.t.Context(), p, b)
		e.ok(err)
		time.Sleep(time.Second)
	}
}

// left returns the seqnos that are there, of the only partition.
func (e *env) left() (first, last eventstore.Seqno) {
	e.t.Helper()
	h, err := e.store.Head(e.t.Context(), "orders-0")
	e.ok(err)
	return h.Trimmed + 1, h.Last.Seqno
}

func (e *env) isLeft(what string, first, last eventstore.Seqno) {
	e.t.Helper()
	if f, l := e.left(); f != first || l != last {
		e.t.Errorf("%s: %d to %d are there, want %d to %d", what, f, l, first, last)
	}
}

func retained(t *testing.T, r topic.Retention, f func(t *testing.T, e *env, b *node)) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1, Retention: r}))
		f(t, e, b)
	})
}

func TestRetentionBySize(t *testing.T) {
	retained(t, topic.Retention{MaxBytes: 6400}, func(t *testing.T, e *env, b *node) { // pieces of one message
		e.fill(b, 0, 64)
		time.Sleep(time.Minute)
		e.isLeft("just full", 1, 64)
		e.fill(b, 64, 100)
		time.Sleep(time.Minute)
		e.isLeft("over it", 37, 100)
		b.stop()
		b = e.broker(nil) // it does not know what stands there
		time.Sleep(time.Minute)
		e.isLeft("after a takeover", 37, 100)
		e.fill(b, 100, 110)
		time.Sleep(time.Minute)
		e.isLeft("over it again", 47, 110)
	})
}

func TestRetentionByAge(t *testing.T) {
	retained(t, topic.Retention{MaxAge: 5 * time.Minute}, func(t *testing.T, e *env, b *node) {
		e.fill(b, 0, 100)
		time.Sleep(3 * time.Minute)
		e.isLeft("all young", 1, 100)
		time.Sleep(70 * time.Second) // the youngest 250 s ago, the oldest 350 s; looked at every 5 s
		if first, last := e.left(); first < 42 || first > 53 || last != 100 {
			t.Errorf("%d to %d are there, want about 50 to 100", first, last)
		}
		b.stop()
		b = e.broker(nil)
		time.Sleep(time.Hour)
		e.isLeft("all old but the last, which tells when", 100, 100)
		e.fill(b, 100, 101)
		time.Sleep(time.Hour)
		e.isLeft("and one more", 101, 101)
	})
}

// What is published now can be told from what is sent again though all that was there is
// trimmed: something young stays, and a new owner takes publications at once.
func TestRetentionLeavesWhatIsYoung(t *testing.T) {
	retained(t, topic.Retention{MaxBytes: 1}, func(t *testing.T, e *env, b *node) {
		e.fill(b, 0, 200)
		if first, last := e.left(); last != 200 || first < 200-40 || first > 200-28 {
			t.Errorf("%d to %d are there, want the last 30 s", first, last)
		}
		b.stop()
		b = e.broker(nil)
		if got, err := retry(t.Context(), several("k", 1, 1), b); err != nil || got.Replays {
			t.Errorf("at once: %+v, %v", got, err)
		}
	})
}

// A Hold is never passed, and costs a try now and then.
func TestRetentionStopsAtHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := bend(memlog.New(nil))
		e := newEnv(t, log.wholeLog)
		b := e.brokerOn(log, nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1, Retention: topic.Retention{MaxAge: time.Minute}}))
		e.fill(b, 0, 50)
		e.ok(e.store.SetHold(t.Context(), eventstore.Hold{Name: "archive", Stream: "orders-0", Seqno: 20}))
		time.Sleep(5 * time.Minute)
		var tries atomic.Int64
		log.hooks(func(op string, _ *eventstore.Append) error {
			if op == "trim" {
				tries.Add(1)
			}
			return nil
		}, nil)
		time.Sleep(10 * time.Minute)
		if e.isLeft("held", 20, 50); tries.Load() > 11 {
			t.Errorf("%d tries in ten minutes", tries.Load())
		}
		log.hooks(nil, nil)
		e.ok(e.store.ReleaseHold(t.Context(), "archive", "", "orders-0"))
		time.Sleep(2 * time.Minute)
		e.isLeft("released", 50, 50)
	})
}

// Somebody else may trim as well.
func TestTrimmedFromOutside(t *testing.T) {
	retained(t, topic.Retention{MaxAge: 5 * time.Minute, MaxBytes: 1 << 20}, func(t *testing.T, e *env, b *node) {
		e.fill(b, 0, 50)
		x := several("k", 7, 1)
		got, err := retry(t.Context(), x, b)
		e.ok(err)
		_, err = e.store.Trim(t.Context(), "orders-0", got.Last, false)
		e.ok(err)
		if _, err := retry(t.Context(), x, b); !unprovable(err) {
			t.Errorf("%v, want ErrUnknown, unprovable", err)
		}
		b.stop()
		b = e.broker(nil)
		if _, err := retry(t.Context(), x, b); !unprovable(err) {
			t.Errorf("at the next owner: %v, want ErrUnknown, unprovable", err)
		}
		time.Sleep(time.Minute)
		e.fill(b, 50, 60)
		time.Sleep(time.Hour)
		if first, last := e.left(); first != last {
			t.Errorf("%d to %d are there", first, last)
		}
	})
}

// What every named consumer has committed goes, and what one of them still needs stays,
// whatever the other bounds say.
func TestRetentionByConsumers(t *testing.T) {
	retained(t, topic.Retention{Consumed: true, MaxBytes: 1000}, func(t *testing.T, e *env, b *node) {
		e.fill(b, 0, 40)
		time.Sleep(time.Minute)
		e.isLeft("no consumer: the other bounds hold", 31, 40)
		commit := e.consumer(b, "slow")
		quick := e.consumer(b, "quick")
		e.fill(b, 40, 100)
		time.Sleep(time.Minute)
		e.isLeft("one that has committed nothing", 31, 100)
		quick(100)
		commit(60)
		time.Sleep(time.Minute)
		e.isLeft("the slowest", 61, 100)
		b.stop()
		b = e.broker(nil)
		time.Sleep(time.Minute)
		e.isLeft("at the next owner", 61, 100)
		e.ok(b.DeleteConsumer(t.Context(), "orders", "slow"))
		time.Sleep(time.Minute)
		e.isLeft("the slowest is gone", 100, 100)
	})
}

// consumer makes a named consumer of a topic with one member, and returns what commits for it.
func (e *env) consumer(b topic.Service, name string) (commit func(eventstore.Seqno)) {
	e.t.Helper()
	member := eventstore.NewUUID()
	ctx, cancel := context.WithCancel(e.t.Context())
	has, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		told := false
		for d, err := range b.Consume(ctx, topic.Consumption{Topic: "orders", Consumer: name, Member: member}) {
			if err != nil {
				return
			}
			if len(d.Assignment) == 1 && !told {
				told = true
				close(has)
			}
		}
	}()
	e.t.Cleanup(func() { cancel(); <-done })
	<-has
	return func(at eventstore.Seqno) {
		e.t.Helper()
		lost, err := b.Commit(e.t.Context(), topic.Commit{Topic: "orders", Consumer: name, Member: member, Places: []topic.Place{{Partition: 0, Offset: at}}})
		if e.ok(err); len(lost) > 0 {
			e.t.Fatal("the member has lost its partition")
		}
	}
}
