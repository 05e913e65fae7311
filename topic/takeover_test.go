// Takeovers, step by step: who owns what, and what the one before can still do.

package topic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

// Case L3: an append of the old owner is on its way when the partition is taken over. It is
// refused when it arrives, and what it carried is written once, by the new owner.
func TestL3AppendOfTheOldOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e := newEnv(t, shared)
		d := newDam(shared)
		d.let <- struct{}{}
		old := e.brokerOn(d, nil)
		t.Cleanup(func() { close(d.let) })
		e.ok(old.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(old, "orders", "a", 0)
		x := several("a", 1, 1)
		stuck := make(chan error, 1)
		go func() { _, err := old.Publish(t.Context(), x); stuck <- err }()
		synctest.Wait()
		d.freeze()
		// Within TTL and 5 s another one owns it, without waiting for anybody.
		next := e.broker(nil)
		began := time.Now()
		got, err := retry(t.Context(), x, next)
		e.ok(err)
		if took := time.Since(began); got.First != 2 || got.Replays || took > ttl+5*time.Second {
			t.Errorf("%+v after %v", got, took)
		}
		d.let <- struct{}{}
		d.thaw()
		if err := await(t, stuck); err == nil {
			t.Error("the old owner acknowledged what it could not write")
		} else if _, err := retry(t.Context(), x, next); err != nil {
			t.Error(err)
		}
		if n := len(e.all("orders", 1)[0]); n != 2 {
			t.Errorf("%d messages, want 2", n)
		}
	})
}

// An answer that was lost and a takeover: the new owner finds what the old one wrote.
func TestFoundByTheNewOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e, log := newEnv(t, shared), bend(shared)
		old := e.brokerOn(log, nil)
		e.ok(old.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(old, "orders", "a", 0)
		var dead atomic.Bool
		log.hooks(func(op string, _ *eventstore.Append) error {
			if dead.Load() {
				return errDead
			}
			return nil
		}, func(op string, _ *eventstore.Append, err error) error {
			if op == "append" {
				dead.Store(true)
				return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: op}
			}
			return err
		})
		x := several("a", 1, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := old.Publish(ctx, x)
		if !errors.Is(err, eventstore.ErrUnknown) || unprovable(err) || time.Since(began) > ttl+5*time.Second {
			t.Fatalf("%v after %v, want ErrUnknown when the leases have run out", err, time.Since(began))
		}
		if _, err := old.Publish(t.Context(), x); !errors.Is(err, topic.ErrNotOwner) {
			t.Errorf("its leases have run out: %v, want ErrNotOwner", err)
		}
		next := e.broker(nil)
		if got, err := retry(t.Context(), x, next); err != nil || !got.Replays || got.First != 2 || got.Last != 4 {
			t.Errorf("%+v, %v, want what the old owner wrote", got, err)
		}
	})
}

// While what was published lately is still being read back, new publications go ahead and
// old ones wait, and those behind them of their key.
func TestNewOwnerReadsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e := newEnv(t, shared)
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		x := several("a", 1, 1)
		_, err := retry(t.Context(), x, b)
		e.ok(err)
		time.Sleep(2 * time.Minute)
		for range 2 {
			p := topic.Publication{Topic: "orders"}
			for n := range 1000 {
				p.Events = append(p.Events, event(n+1000))
			}
			_, err := b.Publish(t.Context(), p)
			e.ok(err)
			time.Sleep(time.Minute)
		}
		missed := several("a", 2, 1)
		b.stop()
		log, pages := bend(shared), make(chan struct{})
		all := sync.OnceFunc(func() { close(pages) })
		log.hooks(func(op string, _ *eventstore.Append) error {
			if op == "read" {
				<-pages
			}
			return nil
		}, nil)
		b = e.brokerOn(log, nil)
		t.Cleanup(all)
		time.Sleep(20 * time.Second) // so that what is new cannot be in the log
		pages <- struct{}{}
		missed.FirstTried = time.Now().Add(-150 * time.Second)
		again := begin(t, b.Broker, x)
		behind := begin(t, b.Broker, missed)
		synctest.Wait()
		follows := begin(t, b.Broker, several("a", 3, 1))
		if got, err := retry(t.Context(), several("b", 1, 1), b); err != nil || got.Replays {
			t.Errorf("a new one: %+v, %v", got, err)
		}
		synctest.Wait()
		for what, one := range map[string]<-chan error{"one that was published": again, "one that may have been": behind, "one behind it": follows} {
			select {
			case err := <-one:
				t.Errorf("%s: %v before it can be known", what, err)
			default:
			}
		}
		all()
		e.ok(await(t, again))
		e.ok(await(t, behind))
		e.ok(await(t, follows))
		order := ""
		for _, m := range e.all("orders", 1)[0] {
			if m.Metadata[topic.MetaKey] == "a" {
				order += string(m.Data)
			}
		}
		if order != `{"n":1}{"n":2}{"n":3}` {
			t.Errorf("of the key: %s", order)
		}
	})
}

// Whoever asks a broker that is not the owner is told the owner's address, also by one
// that does not run; and by all again when the owner has changed.
func TestNotTheOwner(t *testing.T) {
	onEach(t, func(t *testing.T, open func() eventstore.Log) {
		e := newEnv(t, open())
		a := e.brokerOn(open(), &topic.Options{Address: "https://a", LeaseTTL: time.Second})
		e.ok(a.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 2}))
		e.owners("orders", 10*time.Second, 2)
		b := e.brokerOn(open(), &topic.Options{Address: "https://b", LeaseTTL: time.Second})
		idle, err := topic.NewBroker(t.Context(), eventstore.New(open(), nil), nil)
		e.ok(err)
		e.owners("orders", 10*time.Second, 1, 1)
		all := map[string]*topic.Broker{"https://a": a.Broker, "https://b": b.Broker}
		n := 0
		asked := func(who *topic.Broker, key string) (owner string) {
			t.Helper()
			e.eventually(10*time.Second, "an owner of "+key, func() bool {
				n++
				_, err := who.Publish(t.Context(), publication("orders", key, n, time.Now()))
				if err == nil {
					for owner = range all {
						if all[owner] == who {
							return true
						}
					}
				}
				if owner, _ = topic.Owner(err); owner == "" && !errors.Is(err, topic.ErrNotOwner) {
					t.Fatal(err)
				}
				return owner != ""
			})
			return owner
		}
		owners := map[string]bool{}
		for _, key := range []string{"alice", "bob"} { // of both partitions
			owner := asked(idle, key)
			owners[owner] = true
			for name, who := range all {
				if got := asked(who, key); got != owner {
					t.Errorf("%s says %s owns %s, want %s", name, got, key, owner)
				}
			}
		}
		d, err := idle.Describe(t.Context(), "orders")
		e.ok(err)
		if len(owners) != 2 || d.Partitions[0].Owner == d.Partitions[1].Owner || all[d.Partitions[0].Owner] == nil || all[d.Partitions[1].Owner] == nil {
			t.Errorf("owners %v, described as %+v", owners, d.Partitions)
		}
		b.stop()
		e.owners("orders", 10*time.Second, 2)
		e.eventually(10*time.Second, "the other one is told", func() bool { return asked(idle, "alice") == "https://a" && asked(idle, "bob") == "https://a" })
	})
}

// Who joins takes its share and no more, and nobody's work is stopped for it.
func TestSharesOfBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e := newEnv(t, shared)
		a := e.broker(nil)
		e.ok(a.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 16}))
		e.ok(a.Create(t.Context(), topic.Spec{Name: "broker/a", Partitions: 1}))
		e.owners("orders", 5*time.Second, 16)
		fences := func() map[eventstore.Stream]eventstore.Epoch {
			m := map[eventstore.Stream]eventstore.Epoch{}
			for n := range 16 {
				s := eventstore.Stream(fmt.Sprintf("orders-%d", n))
				h, err := e.store.Head(t.Context(), s)
				e.ok(err)
				m[s] = h.Epoch
			}
			return m
		}
		changed := func(before map[eventstore.Stream]eventstore.Epoch) (n int) {
			for s, epoch := range fences() {
				if before[s] != epoch {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Second)
		was := fences()
		b := e.broker(nil)
		e.sharesOf(7*time.Second, 8, 9)
		time.Sleep(time.Minute)
		if n := changed(was); n < 7 || n > 8 {
			t.Errorf("%d partitions of orders moved when a second broker came", n)
		}
		log := bend(shared)
		c := e.brokerOn(log, nil)
		e.sharesOf(7*time.Second, 5, 6, 6)
		b.stop()
		e.sharesOf(7*time.Second, 8, 9)
		log.kill()
		e.sharesOf(ttl+5*time.Second, 17)
		_ = c
	})
}

// sharesOf waits until the partitions of all topics are shared so.
func (e *env) sharesOf(within time.Duration, want ...int) {
	e.t.Helper()
	e.eventually(within, fmt.Sprintf("shares %v", want), func() bool {
		all, err := e.store.UpdateLeases(context.Background(), eventstore.LeaseUpdate{Holder: eventstore.NewUUID(), Prefix: "topic/partition/"})
		e.ok(err)
		by := map[eventstore.UUID]int{}
		for _, l := range all {
			if l.Left > 0 {
				by[l.Holder]++
			}
		}
		return sameCounts(by, want)
	})
}

// A partition that is given up, for another broker or at the end, first answers what is in
// flight and what waits.
func TestLeavingAnswers(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDam(memlog.New(nil))
			e := newEnv(t, d.wholeLog)
			a := e.brokerOn(d, nil)
			t.Cleanup(func() { close(d.let) })
			e.ok(a.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 2}))
			d.let <- struct{}{}
			d.let <- struct{}{}
			e.publish(a, "orders", "alice", 0)
			e.publish(a, "orders", "bob", 0)
			var all []<-chan error
			for n := range 4 {
				all = append(all, begin(t, a.Broker, several("alice", n, 1)), begin(t, a.Broker, several("bob", n, 1)))
				synctest.Wait()
			}
			if ends {
				go a.stop()
			} else {
				e.broker(nil)
			}
			time.Sleep(1100 * time.Millisecond) // a beat, and not yet the end of patience at the end
			for range 10 {
				d.let <- struct{}{}
			}
			for _, one := range all {
				e.ok(await(t, one))
			}
		})
	}
}

// A log that somebody fenced without a lease is taken back.
func TestFencedFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		b := e.broker(nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}))
		e.publish(b, "orders", "a", 0)
		for range 100 {
			_, err := e.store.Fence(t.Context(), "orders-0", eventstore.NewUUID())
			e.ok(err)
		}
		if _, err := b.Publish(t.Context(), several("a", 1, 1)); !errors.Is(err, topic.ErrNotOwner) {
			t.Errorf("%v, want ErrNotOwner", err)
		}
		if got := e.publish(b, "orders", "a", 1); got.First != 2 || got.Replays {
			t.Errorf("%+v", got)
		}
	})
}

// While nothing happens a broker renews its leases and looks for topics, and that is all.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := bend(memlog.New(nil))
		e := newEnv(t, log.wholeLog)
		b := e.brokerOn(log, nil)
		e.ok(b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 8, Retention: topic.Retention{MaxBytes: 1 << 20, MaxAge: time.Hour}}))
		for n := range 50 {
			e.publish(b, "orders", fmt.Sprint("key", n), n)
		}
		time.Sleep(time.Minute)
		var calls [4]atomic.Int64
		names := map[string]int{"leases": 0, "feed": 1, "read": 2}
		log.hooks(func(op string, _ *eventstore.Append) error {
			if i, ok := names[op]; ok {
				calls[i].Add(1)
			} else {
				calls[3].Add(1)
			}
			return nil
		}, nil)
		time.Sleep(10 * time.Minute)
		log.hooks(nil, nil)
		if l, f, r, o := calls[0].Load(), calls[1].Load(), calls[2].Load(), calls[3].Load(); l > 601 || f > 601 || r+o > 0 {
			t.Errorf("in ten idle minutes with a beat of %v: %d looks at leases, %d at topics, %d reads, %d others", ttl/3, l, f, r, o)
		}
	})
}
