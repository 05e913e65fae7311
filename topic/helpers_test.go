package topic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// env is a log and the brokers on it.
type env struct {
	t     *testing.T
	log   eventstore.Log
	store *eventstore.Store // straight to the log
}

func newEnv(t *testing.T, log eventstore.Log) *env {
	return &env{t: t, log: log, store: eventstore.New(log, nil)}
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// node is a broker that runs.
type node struct {
	*topic.Broker
	stop func() // as a process does that is asked to end
}

// broker starts a broker on a log of its own (nil: the env's) until the test ends.
func (e *env) broker(o *topic.Options) *node { return e.brokerOn(e.log, o) }

func (e *env) brokerOn(log eventstore.Log, o *topic.Options) *node {
	e.t.Helper()
	if o == nil {
		o = &topic.Options{}
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = ttl
	}
	b, err := topic.NewBroker(e.t.Context(), eventstore.New(log, nil), o)
	e.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			e.t.Error(err)
		}
	}()
	n := &node{Broker: b, stop: sync.OnceFunc(func() { cancel(); <-done })}
	e.t.Cleanup(n.stop)
	return n
}

// id is the same for the same name, and says that it was made now.
func event(n int) eventstore.Event {
	return eventstore.Event{Type: "placed", Data: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// publication is the n-th of a key: always the same. It was first tried at a time.
func publication(name eventstore.Category, key string, n int, tried time.Time) topic.Publication {
	return topic.Publication{Topic: name, Key: key, ID: eventstore.NameUUID(fmt.Sprintf("%s/%s/%d", name, key, n)), FirstTried: tried,
		Events: []eventstore.Event{event(n)}}
}

// publish publishes through any of the brokers until it is there.
func (e *env) publish(b topic.Service, name eventstore.Category, key string, n int) topic.Published {
	e.t.Helper()
	got, err := retry(e.t.Context(), publication(name, key, n, time.Now()), b)
	e.ok(err)
	return got
}

// retry publishes the same until the outcome is known, at one broker after the other.
func retry(ctx context.Context, p topic.Publication, all ...topic.Service) (topic.Published, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i := 0; ; i++ {
		got, err := all[i%len(all)].Publish(ctx, p)
		if err == nil || !retriable(err) {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func retriable(err error) bool {
	for _, kind := range []error{topic.ErrNotOwner, eventstore.ErrUnknown, eventstore.ErrUnavailable, eventstore.ErrOverloaded} {
		if errors.Is(err, kind) {
			e, ok := errors.AsType[*eventstore.Error](err)
			return !ok || !e.Unprovable
		}
	}
	return false
}

// all reads the partitions of a topic.
func (e *env) all(name eventstore.Category, partitions int) [][]eventstore.Entry {
	e.t.Helper()
	out := make([][]eventstore.Entry, partitions)
	for n := range out {
		h, err := e.store.Head(context.Background(), eventstore.Stream(fmt.Sprintf("%s-%d", name, n)))
		e.ok(err)
		for entry, err := range e.store.Read(context.Background(), eventstore.Stream(fmt.Sprintf("%s-%d", name, n)), h.Trimmed) {
			e.ok(err)
			out[n] = append(out[n], entry)
		}
	}
	return out
}
