// A topic that is deleted and created again while somebody consumes it.

package topic

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// One that is slow to learn that its topic is gone does not keep those of the new one, which
// may have fewer partitions or more, from what is published there.
func TestConsumeATopicCreatedAnew(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			e := memEnv(t, 4)
			e.publish("t", 0, 1, false)
			p, busy := e.proc(), make(chan struct{})
			slow := p.join("", newLedger(false), func(r *run, _ *Consumption) {
				r.body = func(d Delivery) {
					if len(d.Messages) > 0 {
						<-busy // the other partitions were looked at before
					}
				}
			})
			time.Sleep(time.Minute)
			e.ok(e.store.DeleteCategory(t.Context(), "t"))
			e.topic("t", partitions)
			l := newLedger(false)
			r := p.join("", l, nil)
			time.Sleep(10 * eventstore.DefaultPollInterval)
			e.publish("t", partitions-1, 1, false)
			eventually(t, 2*eventstore.DefaultPollInterval, "what is published to the new one", func() bool { return l.given(e, "t", partitions) })
			close(busy)
			slow.kill()
			r.kill()
			l.check(t)
		})
	}
}

// brokers are two that do not run, each of which knows what it has seen in the last second.
func (e *env) brokers() (one, two *Broker) {
	e.t.Helper()
	one, err := NewBroker(e.t.Context(), e.store, nil)
	e.ok(err)
	two, err = NewBroker(e.t.Context(), e.store, nil)
	e.ok(err)
	return one, two
}

// A topic that is deleted leaves no positions behind, also if a Create has to finish that.
func TestDeletedPositions(t *testing.T) {
	for _, finished := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, memlog.New(nil))
			one, _ := e.brokers()
			e.ok(one.Create(t.Context(), Spec{Name: "orders", Partitions: 1}))
			e.ok(collect(within(t), one.consumers, Consumption{Topic: "orders", Consumer: "c"}, func(d Delivery) bool { return len(d.Assignment) == 1 }))
			if finished {
				e.ok(one.Delete(t.Context(), "orders"))
			} else {
				h, have, err := one.current(t.Context(), "orders")
				e.ok(err)
				e.ok(one.write(t.Context(), topicStream("orders"), h, 0, typeDeleting, have.data()))
				e.ok(one.Create(t.Context(), Spec{Name: "orders", Partitions: 1}))
			}
			stream := positionStream("orders", 0, "c")
			h, err := e.store.Head(t.Context(), stream)
			e.ok(err)
			page, err := e.store.ReadFrom(t.Context(), stream, h.Last.Seqno-1, 1)
			e.ok(err)
			if kind := page.Entries[0].Type; kind != typeErased {
				t.Errorf("the position is %s", kind)
			}
		})
	}
}

// A broker that has not heard that a topic is gone leaves no name of a consumer behind, by
// which the next topic would retain everything; and where one was left it counts for nothing.
func TestNamesOfADeletedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		one, two := e.brokers()
		named := func(when string) {
			t.Helper()
			names, _, err := one.consumers.names(t.Context(), "orders")
			if e.ok(err); len(names) > 0 {
				t.Errorf("%s: %v", when, names)
			}
		}
		spec := Spec{Name: "orders", Partitions: 2, Retention: Retention{Consumed: true, MaxAge: time.Hour}}
		e.ok(one.Create(t.Context(), spec))
		_, err := two.List(t.Context())
		e.ok(err)
		e.ok(one.Delete(t.Context(), "orders"))
		for _, start := range []Start{First, New} {
			err = collect(within(t), two.consumers, Consumption{Topic: "orders", Consumer: "ghost", Start: start}, func(Delivery) bool { return false })
			if !errors.Is(err, ErrNoSuchTopic) {
				t.Errorf("consumed when it is gone: %v", err)
			}
			named("nobody was told of it")
		}
		e.ok(two.consumers.register(t.Context(), "orders", "ghost"))
		e.ok(one.Create(t.Context(), spec))
		named("created anew")
	})
}
