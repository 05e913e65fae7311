// Outages longer than a lease: brokers find one another again.

package topic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// The outcome of an append is known later than a beat waits for it when another broker joins:
// it is answered all the same, and then the partition moves.
func TestLeavingTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e, log := newEnv(t, shared), bend(shared)
		b := e.brokerOn(log, &topic.Options{Address: "http://one"})
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 2}))
		e.publish(b, "orders", "k", 0)
		var mu sync.Mutex
		asked := map[eventstore.UUID]bool{}
		log.hooks(nil, func(op string, a *eventstore.Append, err error) error {
			if op != "append" || a.Batches[0].Stream.Category() != "orders" {
				return err
			}
			time.Sleep(400 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if id := a.Batches[0].ID; !asked[id] { // the first answer is lost
				asked[id] = true
				return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: op}
			}
			return err
		})
		stop, wrong := make(chan struct{}), make(chan error, 100)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					_, err := b.Publish(t.Context(), publication("orders", fmt.Sprint("key", i), n, time.Now()))
					if errors.Is(err, topic.ErrNotOwner) {
						time.Sleep(100 * time.Millisecond)
					} else if err != nil {
						wrong <- err
						return
					}
				}
			})
		}
		time.Sleep(5 * time.Second)
		e.broker(&topic.Options{Address: "http://two"})
		time.Sleep(ttl + 5*time.Second)
		d, err := b.Describe(t.Context(), "orders")
		if e.ok(err); d.Partitions[0].Owner == d.Partitions[1].Owner {
			t.Errorf("both are still owned by %s", d.Partitions[0].Owner)
		}
		close(stop)
		wg.Wait()
		close(wrong)
		for err := range wrong {
			t.Error(err)
		}
	})
}

// The store refuses a group of publications, so they are appended one by one; when that
// fails half way all of them are answered, and may be published again.
func TestGroupCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := bend(memlog.New(nil))
		e := newEnv(t, log.wholeLog)
		b := e.brokerOn(log, nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(b, "orders", "k", 0)
		release, alone := make(chan struct{}), 0
		var mu sync.Mutex
		log.hooks(func(op string, a *eventstore.Append) error {
			if op != "append" || a.Batches[0].Stream.Category() != "orders" {
				return nil
			}
			<-release
			mu.Lock()
			defer mu.Unlock()
			if len(a.Batches[0].Events) > 1 {
				return &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: op}
			}
			if alone++; alone == 3 {
				return &eventstore.Error{Kind: eventstore.ErrFenced, Op: op}
			}
			return nil
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for n := 1; n <= 6; n++ {
			wg.Go(func() {
				if _, err := b.Publish(ctx, publication("orders", fmt.Sprint(n), n, time.Now())); err != nil && !errors.Is(err, topic.ErrNotOwner) {
					t.Errorf("%d: %v", n, err)
				}
			})
			synctest.Wait()
		}
		close(release)
		wg.Wait()
		for n := 1; n <= 6; n++ {
			e.publish(b, "orders", fmt.Sprint(n), n)
		}
		if got := len(e.all("orders", 1)[0]); got != 7 {
			t.Errorf("%d messages, want 7", got)
		}
	})
}

// What a broker takes for the end of a log is not: it looks again, and publications go on.
func TestDivergedHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := bend(memlog.New(nil))
		e := newEnv(t, log.wholeLog)
		b := e.brokerOn(log, nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(b, "orders", "k", 0)
		var once sync.Once
		log.hooks(func(op string, a *eventstore.Append) (err error) {
			if op == "append" && a.Batches[0].Stream.Category() == "orders" {
				once.Do(func() { err = &eventstore.Error{Kind: eventstore.ErrDiverged, Op: op} })
			}
			return err
		}, nil)
		if got := e.publish(b, "orders", "k", 1); got.First != 2 || got.Replays {
			t.Errorf("%+v", got)
		}
	})
}

// A caller whose context has ended may use his payload anew, also if it is still to be sent.
func TestPayloadStaysTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := bend(memlog.New(nil))
		e := newEnv(t, log.wholeLog)
		b := e.brokerOn(log, nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(b, "orders", "k", 0)
		release := make(chan struct{})
		log.hooks(func(op string, _ *eventstore.Append) error {
			if op == "append" {
				<-release
			}
			return nil
		}, nil)
		x := publication("orders", "k", 1, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Publish(ctx, x); !errors.Is(err, eventstore.ErrUnknown) {
			t.Error(err)
		}
		want := string(x.Events[0].Data)
		copy(x.Events[0].Data, "!!!!!!!")
		close(release)
		synctest.Wait()
		all := e.all("orders", 1)[0]
		if len(all) != 2 || string(all[1].Data) != want {
			t.Errorf("%d messages, the last one %q, want %q", len(all), all[len(all)-1].Data, want)
		}
	})
}
