// Creating and deleting topics, also cut off half way.

package topic_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

func TestAdmin(t *testing.T) {
	onEach(t, func(t *testing.T, open func() eventstore.Log) {
		ctx := t.Context()
		e := newEnv(t, open())
		a, err := topic.NewBroker(ctx, eventstore.New(open(), nil), &topic.Options{LeaseTTL: ttl})
		e.ok(err)
		b, err := topic.NewBroker(ctx, eventstore.New(open(), nil), &topic.Options{LeaseTTL: ttl})
		e.ok(err)
		spec := topic.Spec{Name: "orders", Partitions: 2, DedupWindow: time.Minute, Retention: topic.Retention{MaxBytes: 1, MaxAge: time.Hour, Consumed: true}}
		e.ok(a.Create(ctx, spec))
		e.ok(b.Create(ctx, spec))
		e.ok(b.Create(ctx, topic.Spec{Name: "bills"}))
		other := spec
		other.Partitions = 3
		if err := b.Create(ctx, other); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("with another spec: %v, want ErrInvalid", err)
		}
		e.ok(e.store.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}))
		for what, bad := range map[string]topic.Spec{
			"name": {Name: "a-b"}, "no name": {}, "ours": {Name: topic.CategoryName}, "partitions": {Name: "x", Partitions: topic.MaxPartitions + 1},
			"fewer": {Name: "x", Partitions: -1}, "window": {Name: "x", DedupWindow: topic.MaxDedupWindow + 1}, "age": {Name: "x", Retention: topic.Retention{MaxAge: -1}},
			"not a topic's": {Name: "account"},
		} {
			if err := a.Create(ctx, bad); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		want := []topic.Spec{{Name: "bills", Partitions: topic.DefaultPartitions, DedupWindow: topic.DefaultDedupWindow}, spec}
		for _, who := range []*topic.Broker{a, b} {
			if got, err := who.List(ctx); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("listed %v, %v, want %v", got, err, want)
			}
			d, err := who.Describe(ctx, "orders")
			if short, serr := who.DescribeWithoutConsumers(ctx, "orders"); serr != nil || fmt.Sprint(short) != fmt.Sprint(d) {
				t.Errorf("described shortly %+v, %v; at length %+v", short, serr, d)
			}
			if err != nil || d.Spec != spec || len(d.Partitions) != 2 || d.Partitions[1].Number != 1 || d.Partitions[1].Owner != "" {
				t.Errorf("described %+v, %v", d, err)
			}
		}
		e.ok(b.Delete(ctx, "orders"))
		for what, err := range map[string]error{
			"delete": a.Delete(ctx, "orders"), "describe": second(a.Describe(ctx, "orders")), "nothing": a.Delete(ctx, "nothing"),
			"not a topic": a.Delete(ctx, "account"),
		} {
			if !errors.Is(err, topic.ErrNoSuchTopic) {
				t.Errorf("%s: %v, want ErrNoSuchTopic", what, err)
			}
		}
		if _, err := e.store.Head(ctx, "orders-0"); !errors.Is(err, eventstore.ErrNoSuchCategory) {
			t.Errorf("its log: %v, want ErrNoSuchCategory", err)
		}
		e.ok(a.Create(ctx, other))
		if d, err := b.Describe(ctx, "orders"); err != nil || d.Spec != other {
			t.Errorf("created anew: %+v, %v", d, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A Create or Delete that is cut off at any step is finished by the next one, whichever
// broker has it to do, and nothing is left of what was deleted.
func TestCutOff(t *testing.T) {
	steps := 0
	for _, what := range []string{"create", "delete", "create anew"} {
		for at := 1; ; at++ {
			done := false
			synctest.Test(t, func(t *testing.T) { done = cutOff(t, what, at) })
			if done {
				break
			}
			steps++
		}
	}
	if t.Logf("%d steps", steps); steps < 12 {
		t.Errorf("cut off at %d steps only", steps)
	}
}

// cutOff cuts off what at the at-th call of the log; it says if that has fewer.
func cutOff(t *testing.T, what string, at int) (done bool) {
	ctx := t.Context()
	log := bend(memlog.New(nil))
	e := newEnv(t, log.wholeLog)
	a, err := topic.NewBroker(ctx, eventstore.New(log, nil), &topic.Options{LeaseTTL: ttl})
	e.ok(err)
	spec := topic.Spec{Name: "orders", Partitions: 2}
	if what != "create" {
		e.ok(a.Create(ctx, spec))
		for n := range 2 {
			e.ok(appendTo(e, fmt.Sprintf("orders-%d", n)))
		}
	}
	calls := 0
	log.hooks(func(string, *eventstore.Append) error {
		if calls++; calls >= at {
			return errDead
		}
		return nil
	}, nil)
	anew := topic.Spec{Name: "orders", Partitions: 1}
	switch what {
	case "create":
		err = a.Create(ctx, spec)
	default:
		err = a.Delete(ctx, "orders")
		if err == nil && what == "create anew" {
			err = a.Create(ctx, anew)
		}
	}
	if done = calls < at; done {
		e.ok(err)
	} else if err == nil {
		t.Errorf("%s, cut off at call %d: nil", what, at)
	}
	b := e.broker(nil)
	switch what {
	case "create":
		e.ok(b.Create(ctx, spec))
		e.publish(b, "orders", "a", 1)
	case "delete":
		if err := b.Delete(ctx, "orders"); err != nil && !errors.Is(err, topic.ErrNoSuchTopic) {
			t.Errorf("%s, cut off at call %d: %v", what, at, err)
		}
		all, err := b.List(ctx)
		if e.ok(err); len(all) != 0 {
			t.Errorf("%s, cut off at call %d: topics %v are left", what, at, all)
		}
		if _, err := e.store.Head(ctx, "orders-0"); !errors.Is(err, eventstore.ErrNoSuchCategory) {
			t.Errorf("%s, cut off at call %d: its log: %v", what, at, err)
		}
	default:
		err := b.Create(ctx, anew)
		if _, still := b.Describe(ctx, "orders"); errors.Is(err, eventstore.ErrInvalid) && still == nil {
			e.ok(b.Delete(ctx, "orders")) // it was cut off before it had begun
			err = b.Create(ctx, anew)
		}
		if err != nil {
			t.Fatalf("%s, cut off at call %d: %v", what, at, err)
		}
		if got := e.publish(b, "orders", "a", 1); got.First != 1 {
			t.Errorf("%s, cut off at call %d: the first message of the new topic is %+v", what, at, got)
		}
	}
	return done
}

// appendTo writes to a log past its broker.
func appendTo(e *env, s string) error {
	h, err := e.store.Head(context.Background(), eventstore.Stream(s))
	if err != nil {
		return err
	}
	_, err = e.store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{{Stream: eventstore.Stream(s), Epoch: h.Epoch + 1,
		Holder: eventstore.NewUUID(), Claim: true, After: h.Last, Events: []eventstore.Event{event(0)}}}})
	return err
}

// A topic that was deleted and created again under its name is another one, to brokers
// that work on it too.
func TestDeletedUnderWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memlog.New(nil)
		e := newEnv(t, shared)
		b, admin := e.broker(nil), e.broker(nil)
		spec := topic.Spec{Name: "orders", Partitions: 4}
		for round := range 5 {
			e.ok(admin.Create(t.Context(), spec))
			for n := range 8 {
				x := publication("orders", fmt.Sprint("key", n), 0, time.Now())
				got, err := retry(t.Context(), x, b, admin)
				if err != nil || got.Replays || round > 0 && got.First > 8 {
					t.Errorf("round %d: %+v, %v", round, got, err)
				}
			}
			e.ok(admin.Delete(t.Context(), "orders"))
			if _, err := retry(t.Context(), publication("orders", "a", 0, time.Now()), b); !errors.Is(err, topic.ErrNoSuchTopic) {
				t.Errorf("round %d: %v, want ErrNoSuchTopic", round, err)
			}
		}
	})
}

// Many at once: one creates, all are told the same.
func TestCreatedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, memlog.New(nil))
		out := make(chan error)
		for n := range 8 {
			b := e.broker(nil)
			go func() { out <- b.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1 + n%2}) }()
		}
		refused := 0
		for range 8 {
			if err := <-out; errors.Is(err, eventstore.ErrInvalid) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused != 4 {
			t.Errorf("%d refused, want those with the other spec: 4", refused)
		}
	})
}
