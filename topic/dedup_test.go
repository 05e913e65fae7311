// What is published again is found, or refused: never written twice.

package topic_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

// Case A4: X acknowledged; X at once; after 1,000 other messages; after a takeover; X with
// other content; after a trim that removed it. Never a silent second copy.
func TestA4PublishedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, open func() eventstore.Log) {
		e := newEnv(t, open())
		b := e.brokerOn(open(), nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		x := publication("orders", "alice", 1, time.Now())
		x.Events = append(x.Events, event(11), event(12))
		first, err := retry(t.Context(), x, b)
		e.ok(err)
		if first.First != 1 || first.Last != 3 || first.Replays {
			t.Fatalf("first: %+v", first)
		}
		same := func(when string, b topic.Service) {
			t.Helper()
			got, err := retry(t.Context(), x, b)
			if first.Replays = true; err != nil || got != first {
				t.Errorf("%s: %+v, %v; want %+v", when, got, err, first)
			}
			for what, other := range map[string]topic.Publication{
				"other data":   {Events: []eventstore.Event{event(1), event(11), event(13)}},
				"fewer events": {Events: x.Events[:2]},
				"more events":  {Events: append(slices.Clone(x.Events), event(13))},
			} {
				other.Topic, other.Key, other.ID, other.FirstTried = x.Topic, x.Key, x.ID, x.FirstTried
				if got, err := retry(t.Context(), other, b); !errors.Is(err, eventstore.ErrBatchIDReused) {
					t.Errorf("%s, %s: %+v, %v, want ErrBatchIDReused", when, what, got, err)
				}
			}
		}
		same("at once", b)
		for i := range 10 {
			p := topic.Publication{Topic: "orders", Key: "bob"}
			for j := range 100 {
				p.Events = append(p.Events, event(i*100+j))
			}
			_, err := b.Publish(t.Context(), p)
			e.ok(err)
		}
		same("after 1,000 others", b)
		b.stop()
		b = e.brokerOn(open(), nil)
		same("after a restart", b)
		_, err = e.store.Trim(t.Context(), "orders-0", 2, false)
		e.ok(err)
		for range 2 {
			got, err := retry(t.Context(), x, b)
			if e, ok := errors.AsType[*eventstore.Error](err); !ok || e.Kind != eventstore.ErrUnknown || !e.Unprovable {
				t.Errorf("after a trim: %+v, %v, want ErrUnknown, unprovable", got, err)
			}
			b.stop()
			b = e.brokerOn(open(), nil)
		}
		if h, err := e.store.Head(t.Context(), "orders-0"); err != nil || h.Last.Seqno != 1_003 {
			t.Errorf("head %v, %v; want 1,003 messages", h.Last, err)
		}
	})
}

// A publication is known for just the topic's window, by the same broker and by others.
func TestWindow(t *testing.T) {
	for _, moved := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, memlog.New(nil))
			b := e.broker(nil)
			e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1, DedupWindow: 2 * time.Minute}))
			move := func() {
				if moved {
					b.stop()
					b = e.broker(nil)
					e.publish(b, "orders", "", 99)
				}
			}
			e.publish(b, "orders", "alice", 1)
			time.Sleep(time.Minute)
			x := publication("orders", "alice", 2, time.Now())
			missed := publication("orders", "alice", 3, time.Now())
			_, err := retry(t.Context(), x, b)
			e.ok(err)
			tried := time.Now()
			for _, after := range []time.Duration{time.Minute, 2*time.Minute - time.Second} {
				time.Sleep(time.Until(tried.Add(after)))
				move()
				if got, err := retry(t.Context(), x, b); err != nil || !got.Replays {
					t.Errorf("moved %v, %v after: %+v, %v, want the first one", moved, after, got, err)
				}
			}
			time.Sleep(time.Until(tried.Add(2*time.Minute + time.Second)))
			move()
			before := e.head("orders-0")
			if got, err := retry(t.Context(), missed, b); !unprovable(err) {
				t.Errorf("moved %v, first tried before the window: %+v, %v, want ErrUnknown, unprovable", moved, got, err)
			}
			time.Sleep(time.Minute) // now x is forgotten
			move()
			if got, err := retry(t.Context(), x, b); !unprovable(err) {
				t.Errorf("moved %v, published before the window: %+v, %v, want ErrUnknown, unprovable", moved, got, err)
			}
			if now := e.head("orders-0"); now != before && !moved {
				t.Errorf("head %v, want %v: nothing is written", now, before)
			}
			e.publish(b, "orders", "alice", 4)
			n := 0
			for _, m := range e.all("orders", 1)[0] {
				if strings.Contains(string(m.Data), `{"n":2}`) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("moved %v: %d copies", moved, n)
			}
		})
	}
}

// The clock of a publisher that is ahead of the store's must not make it forget too early:
// what was first tried in the future is known until that has passed the window.
func TestPublishersClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1, DedupWindow: time.Minute}))
		x := publication("orders", "alice", 1, time.Now().Add(topic.MaxAhead-time.Second))
		_, err := retry(t.Context(), x, b)
		e.ok(err)
		time.Sleep(time.Minute + 5*time.Second)
		e.publish(b, "orders", "alice", 2)
		b.stop()
		b = e.broker(nil)
		if got, err := retry(t.Context(), x, b); err != nil || !got.Replays {
			t.Errorf("%+v, %v, want the first one", got, err)
		}
		for what, p := range map[string]topic.Publication{
			"FirstTried": publication("orders", "alice", 3, time.Now().Add(topic.MaxAhead+time.Second)),
			"UUIDv7":     {Topic: "orders", Key: "alice", ID: v7(time.Now().Add(topic.MaxAhead + time.Second)), Events: x.Events},
			"no time":    publication("orders", "alice", 4, time.Time{}),
			"event ID":   {Topic: "orders", Events: []eventstore.Event{{ID: eventstore.NewUUID(), Type: "placed"}}},
			"key":        {Topic: "orders", Key: "a", Events: []eventstore.Event{{Type: "placed", Metadata: eventstore.Metadata{topic.MetaKey: "b"}}}},
		} {
			if _, err := b.Publish(t.Context(), p); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
	})
}

func v7(at time.Time) (id eventstore.UUID) {
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}

// A publication that is sent again while the first is under way gets its outcome.
func TestPublishedTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := bend(memlog.New(nil))
		e := newEnv(t, log.wholeLog)
		b := e.brokerOn(log, nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(b, "orders", "alice", 0)
		gate := make(chan struct{})
		release := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(release)
		log.hooks(func(op string, _ *eventstore.Append) error {
			if op == "append" {
				<-gate
			}
			return nil
		}, nil)
		x := publication("orders", "alice", 1, time.Now())
		var wg sync.WaitGroup
		var mu sync.Mutex
		replays := map[bool]int{}
		for range 10 {
			wg.Go(func() {
				got, err := b.Publish(t.Context(), x)
				mu.Lock()
				defer mu.Unlock()
				if replays[got.Replays]++; err != nil || got.First != 2 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		other := x
		other.Events = []eventstore.Event{event(2)}
		if err := await(t, begin(t, b.Broker, other)); !errors.Is(err, eventstore.ErrBatchIDReused) {
			t.Errorf("other content: %v, want ErrBatchIDReused", err)
		}
		if len(replays) > 0 {
			t.Error("acknowledged before it was durable")
		}
		release()
		wg.Wait()
		if fmt.Sprint(replays) != "map[false:1 true:9]" || len(e.all("orders", 1)[0]) != 2 {
			t.Errorf("replays %v, %d messages", replays, len(e.all("orders", 1)[0]))
		}
	})
}

// Where more is published than can be remembered the window is shorter, and in the end
// there is no room; but there is never a second copy.
func TestMemoryIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(&topic.Options{Remembered: 100})
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		x := publication("orders", "alice", 1, time.Now())
		_, err := retry(t.Context(), x, b)
		e.ok(err)
		overloaded := 0
		for n := range 400 {
			p := publication("orders", "bob", n, time.Now())
			_, err := b.Publish(t.Context(), p)
			if errors.Is(err, eventstore.ErrOverloaded) {
				overloaded++
				_, err = retry(t.Context(), p, b)
			}
			if err != nil && !unprovable(err) { // it was first tried long ago, where there was no room for long
				t.Fatal(err)
			}
		}
		if overloaded == 0 {
			t.Error("never overloaded")
		}
		for range 2 {
			if got, err := retry(t.Context(), x, b); !unprovable(err) {
				t.Errorf("%+v, %v, want ErrUnknown, unprovable", got, err)
			}
			b.stop()
			b = e.broker(&topic.Options{Remembered: 100})
		}
	})
}

func (e *env) head(s eventstore.Stream) eventstore.Seqno {
	e.t.Helper()
	h, err := e.store.Head(e.t.Context(), s)
	e.ok(err)
	return h.Last.Seqno
}

func unprovable(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && e.Kind == eventstore.ErrUnknown && e.Unprovable
}
