// Publishing: few appends for many publishers, and what one of them cannot do to others.

package topic_test

import (
	"context"
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

// dam is a log whose appends wait until they are let through, one after the other.
type dam struct {
	*bent
	let chan struct{}
	mu  sync.Mutex
	all []eventstore.Batch // appended to topics, in order; also those that were refused
}

func newDam(log eventstore.Log) *dam {
	d := &dam{bent: bend(log), let: make(chan struct{}, 1000)}
	d.hooks(func(op string, a *eventstore.Append) error {
		if op != "append" || a.Batches[0].Stream.Category() == topic.CategoryName {
			return nil
		}
		<-d.let
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = append(d.all, a.Batches...)
		return nil
	}, nil)
	return d
}

func (d *dam) sizes() (n []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.all {
		n = append(n, len(b.Events))
	}
	return n
}

// inDam is a topic of one partition behind a dam, with one message in it.
func inDam(t *testing.T, o *topic.Options, limits eventstore.Limits) (*env, *dam, *topic.Broker) {
	d := newDam(memlog.New(nil))
	e := newEnv(t, d.wholeLog)
	if o == nil {
		o = &topic.Options{}
	}
	o.LeaseTTL = ttl
	b, err := topic.NewBroker(t.Context(), eventstore.New(d, &eventstore.Options{Limits: limits}), o)
	e.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	t.Cleanup(func() { cancel(); close(d.let); <-done })
	e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
	e.eventually(5*time.Second, "the partition is owned", func() bool {
		d, err := b.Describe(t.Context(), "orders")
		_, err2 := e.store.Head(t.Context(), "orders-0")
		return err == nil && err2 == nil && d.Partitions[0].Head.Epoch > 0
	})
	d.let <- struct{}{}
	e.publish(b, "orders", "", 0)
	return e, d, b
}

// begin publishes and returns at once.
func begin(t *testing.T, b *topic.Broker, p topic.Publication) <-chan error {
	out := make(chan error, 1)
	go func() { _, err := b.Publish(t.Context(), p); out <- err }()
	return out
}

// await is what comes out of it within a minute.
func await(t *testing.T, out <-chan error) error {
	t.Helper()
	select {
	case err := <-out:
		return err
	case <-time.After(time.Minute):
		t.Fatal("no answer")
		return nil
	}
}

func several(key string, n, events int) topic.Publication {
	p := publication("orders", key, n, time.Now())
	for i := 1; i < events; i++ {
		p.Events = append(p.Events, event(n*100+i))
	}
	return p
}

// What comes in while an append is under way goes together into the next one, in order,
// as much as fits and no publication in two.
func TestAppendsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d, b := inDam(t, nil, eventstore.Limits{BatchEvents: 100})
		var all []<-chan error
		for n := range 50 {
			all = append(all, begin(t, b, several("a", n+1, 3)))
			synctest.Wait()
		}
		for range 3 {
			d.let <- struct{}{}
			synctest.Wait()
		}
		for _, one := range all {
			e.ok(await(t, one))
		}
		if got := fmt.Sprint(d.sizes()); got != "[1 3 99 48]" {
			t.Errorf("appends of %s events, want [1 3 99 48]", got)
		}
		next := 1
		for _, m := range e.all("orders", 1)[0][1:] {
			if m.Metadata[topic.MetaPart] == "" {
				if want := fmt.Sprintf(`{"n":%d}`, next); string(m.Data) != want {
					t.Errorf("%s where %s is due", m.Data, want)
				}
				next++
			}
		}
	})
}

// Over the bounds of what may wait: ErrOverloaded at once, nothing written, and room again
// when what waited has been answered or withdrawn.
func TestOverload(t *testing.T) {
	for what, o := range map[string]topic.Options{
		"publications": {QueuePublications: 10},
		"bytes":        {QueueBytes: 10*len(`{"n":10}`) + 10*len("topic_keya") + 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, d, b := inDam(t, &o, eventstore.Limits{})
			first := begin(t, b, several("a", 10, 1))
			synctest.Wait() // it is under way, and waits no more
			var all []<-chan error
			for n := range 9 {
				all = append(all, begin(t, b, several("a", 11+n, 1)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			withdrawn := make(chan error, 1)
			go func() { _, err := b.Publish(ctx, several("a", 20, 1)); withdrawn <- err }()
			synctest.Wait()
			if err := await(t, begin(t, b, several("a", 21, 1))); !errors.Is(err, eventstore.ErrOverloaded) {
				t.Errorf("%s: %v, want ErrOverloaded", what, err)
			}
			cancel()
			if err := await(t, withdrawn); err != context.Canceled {
				t.Errorf("%s: withdrawn: %v, want its context's error: nothing was written", what, err)
			}
			all = append(all, begin(t, b, several("a", 22, 1)))
			synctest.Wait()
			d.let <- struct{}{}
			d.let <- struct{}{}
			e.ok(await(t, first))
			for _, one := range all {
				e.ok(await(t, one))
			}
			if n := len(e.all("orders", 1)[0]); n != 12 {
				t.Errorf("%s: %d messages, want 12", what, n)
			}
		})
	}
}

// One that no longer waits for what is under way is told that the outcome is unknown.
func TestGivenUpUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d, b := inDam(t, nil, eventstore.Limits{})
		ctx, cancel := context.WithCancel(t.Context())
		p := several("a", 1, 1)
		out := make(chan error, 1)
		go func() { _, err := b.Publish(ctx, p); out <- err }()
		synctest.Wait()
		cancel()
		if err := await(t, out); !errors.Is(err, eventstore.ErrUnknown) || unprovable(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want ErrUnknown because of the context", err)
		}
		d.let <- struct{}{}
		if got, err := b.Publish(t.Context(), p); err != nil || !got.Replays || len(e.all("orders", 1)[0]) != 2 {
			t.Errorf("again: %+v, %v", got, err)
		}
	})
}

// One that is bad fails before it comes near the others.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d, b := inDam(t, nil, eventstore.Limits{EventBytes: 1000, AppendBytes: 5000, BatchEvents: 50})
		first := begin(t, b, several("a", 1, 1))
		synctest.Wait()
		good := begin(t, b, several("a", 2, 1))
		synctest.Wait()
		for what, want := range map[string]struct {
			kind error
			p    topic.Publication
		}{
			"no events":     {eventstore.ErrInvalid, topic.Publication{}},
			"no type":       {eventstore.ErrInvalid, topic.Publication{Events: []eventstore.Event{{}}}},
			"bad metadata":  {eventstore.ErrInvalid, topic.Publication{Events: []eventstore.Event{event(1), {Type: "x", Metadata: eventstore.Metadata{"a": "\x00"}}}}},
			"bad key":       {eventstore.ErrInvalid, topic.Publication{Key: "\xff", Events: []eventstore.Event{event(1)}}},
			"long key":      {eventstore.ErrTooLarge, topic.Publication{Key: strings.Repeat("k", topic.MaxKeyBytes+1), Events: []eventstore.Event{event(1)}}},
			"large event":   {eventstore.ErrTooLarge, topic.Publication{Events: []eventstore.Event{{Type: "x", Data: make([]byte, 1001)}}}},
			"too many":      {eventstore.ErrTooLarge, topic.Publication{Events: slices.Repeat([]eventstore.Event{event(1)}, 51)}},
			"large in sum":  {eventstore.ErrTooLarge, topic.Publication{Events: slices.Repeat([]eventstore.Event{{Type: "x", Data: make([]byte, 999)}}, 6)}},
			"no such topic": {topic.ErrNoSuchTopic, topic.Publication{Topic: "nothing", Events: []eventstore.Event{event(1)}}},
		} {
			if want.p.Topic == "" {
				want.p.Topic = "orders"
			}
			if err := await(t, begin(t, b, want.p)); !errors.Is(err, want.kind) {
				t.Errorf("%s: %v, want %v", what, err, want.kind)
			}
		}
		last := begin(t, b, several("a", 3, 1))
		synctest.Wait()
		d.let <- struct{}{}
		d.let <- struct{}{}
		e.ok(await(t, first))
		e.ok(await(t, good))
		e.ok(await(t, last))
		if got := fmt.Sprint(d.sizes()); got != "[1 1 2]" {
			t.Errorf("appends of %s events, want [1 1 2]", got)
		}
	})
}

// An append whose answer was lost is sent again, the same, until it is proved: before
// that nothing else is decided. A refusal in between proves nothing.
func TestLostAnswers(t *testing.T) {
	for _, written := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e, d, b := inDam(t, nil, eventstore.Limits{})
			lost := &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append"}
			down := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "append"}
			tries := 0
			var ids []eventstore.UUID
			d.hooks(func(op string, a *eventstore.Append) error {
				if op != "append" {
					return nil
				}
				ids = append(ids, a.Batches[0].ID)
				if tries++; tries == 2 {
					return down
				}
				if tries < 4 && !written {
					return lost
				}
				return nil
			}, func(op string, _ *eventstore.Append, err error) error {
				if op == "append" && tries < 4 && written && err == nil {
					return lost
				}
				return err
			})
			a := begin(t, b, several("a", 1, 1))
			synctest.Wait()
			c := begin(t, b, several("a", 2, 1))
			e.ok(await(t, a))
			e.ok(await(t, c))
			if tries != 5 || ids[0] != ids[1] || ids[0] != ids[2] || ids[0] != ids[3] || ids[0] == ids[4] {
				t.Errorf("written %v: batches %v; want one four times and then another", written, ids)
			}
			if n := len(e.all("orders", 1)[0]); n != 3 {
				t.Errorf("written %v: %d messages, want 3", written, n)
			}
		})
	}
}

// What the log refused was not written: whoever published it is told so.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d, b := inDam(t, nil, eventstore.Limits{})
		for _, kind := range []error{eventstore.ErrUnavailable, eventstore.ErrReadOnly, eventstore.ErrOverloaded} {
			d.hooks(func(op string, a *eventstore.Append) error {
				if op == "append" {
					return &eventstore.Error{Kind: kind, Op: op}
				}
				return nil
			}, nil)
			if err := await(t, begin(t, b, several("a", 1, 1))); !errors.Is(err, kind) {
				t.Errorf("%v, want %v", err, kind)
			}
		}
		d.hooks(nil, nil)
		if got, err := b.Publish(t.Context(), several("a", 1, 1)); err != nil || got.First != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		e.ok(nil)
	})
}

// A key is where it was, whoever owns the partition: its slot modulo their number.
func TestPartitionOfKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 7}))
		want := map[string]int{"alice": 0, "bob": 0, "carol": 0, "dave": 0, "erin": 0}
		for key := range want {
			want[key] = int(eventstore.Stream("x-"+key).Slot()) % 7
		}
		if got := fmt.Sprint(want); got != "map[alice:0 bob:2 carol:4 dave:4 erin:3]" {
			t.Errorf("partitions %s", got)
		}
		for round := range 2 {
			for key, n := range want {
				if got := e.publish(b, "orders", key, round); got.Partition != n {
					t.Errorf("%s is in partition %d, want %d", key, got.Partition, n)
				}
			}
			b.stop()
			b = e.broker(nil)
		}
		spread := map[int]bool{}
		for n := range 100 {
			p := publication("orders", "", n, time.Now())
			a, err := retry(t.Context(), p, b)
			e.ok(err)
			again, err := retry(t.Context(), p, b)
			e.ok(err)
			if again.Partition != a.Partition || !again.Replays {
				t.Errorf("without a key: %+v, again %+v", a, again)
			}
			spread[a.Partition] = true
		}
		if len(spread) != 7 {
			t.Errorf("without a key: in partitions %v", spread)
		}
	})
}

// One goroutine may have many publications of a key under way: they are in its order.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 2}))
		e.publish(b, "orders", "a", 0)
		var waits []func(context.Context) (topic.Published, error)
		for n := range 500 {
			wait, err := b.Begin(t.Context(), several("a", n+1, 1))
			e.ok(err)
			waits = append(waits, wait)
		}
		last := eventstore.Seqno(1)
		for _, wait := range waits {
			got, err := wait(t.Context())
			e.ok(err)
			if got.First != last+1 {
				t.Fatalf("%+v behind %d", got, last)
			}
			last = got.Last
		}
	})
}
