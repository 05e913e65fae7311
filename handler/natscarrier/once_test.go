// An Executor as caller and as service: each command once, whatever becomes of the replies.

package natscarrier_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/internal/carriertest"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

// Twice under one ID: one decision, one event, the second time as what it is.
func TestTwiceIsOnce(t *testing.T) {
	s, store := start(t, -1, 0), carriertest.Store(t)
	var decided atomic.Int64
	service := serve(t, connect(t, s), carriertest.Executing(t, store, &decided), nil)
	c := caller(t, s, service.Prefix(), nil)
	one, err := c.Call(t.Context(), carriertest.Execute(5, "one"))
	if err != nil || one.Replayed || one.Mark.Seqno != 1 {
		t.Fatalf("%+v, %v", one, err)
	}
	two, err := c.Call(t.Context(), carriertest.Execute(5, "one"))
	if err != nil || !two.Replayed || two.Mark != one.Mark || len(two.Events) != 1 {
		t.Errorf("%+v, %v", two, err)
	}
	if decided.Load() != 1 || carriertest.Length(t, store) != 1 {
		t.Errorf("decided %d times, %d entries", decided.Load(), carriertest.Length(t, store))
	}
	_, err = c.Call(t.Context(), carriertest.Execute(carriertest.MostSum, "two"))
	if refused, ok := errors.AsType[*handler.Rejected](err); !ok || refused.Code != "too-big" {
		t.Errorf("%v", err)
	}
	stale := carriertest.Execute(1, "three")
	stale.After = eventstore.Mark{Seqno: 9}
	if _, err := c.Call(t.Context(), stale); !errors.Is(err, eventstore.ErrAlreadyWritten) {
		t.Errorf("%v", err)
	}
}

// The first reply is lost on its way: the second try is answered from the history.
func TestReplyLost(t *testing.T) {
	s, store := start(t, -1, 0), carriertest.Store(t)
	var decided atomic.Int64
	h, lost := carriertest.Executing(t, store, &decided), atomic.Bool{}
	keys := make(chan eventstore.UUID, 10)
	service := serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reply, err := h.Handle(ctx, r)
		if r.Op == handler.Execute {
			keys <- r.Key
			if lost.CompareAndSwap(false, true) {
				<-ctx.Done() // until nobody waits: no reply is sent
			}
		}
		return reply, err
	}), nil)
	c := caller(t, s, service.Prefix(), &handler.Options{Timeout: 300 * time.Millisecond, Retries: 5})
	reply, err := c.Call(t.Context(), carriertest.Execute(5, "one"))
	if err != nil || !reply.Replayed || reply.Mark.Seqno != 1 || string(reply.Events[0].Data) != `{"N":5}` {
		t.Errorf("%+v, %v", reply, err)
	}
	if decided.Load() != 1 || carriertest.Length(t, store) != 1 {
		t.Errorf("decided %d times, %d entries", decided.Load(), carriertest.Length(t, store))
	}
	if a, b := <-keys, <-keys; a != b || a.IsZero() {
		t.Errorf("keys of the tries: %v and %v", a, b)
	}
}

// The service dies between append and reply; another copy answers from the history.
func TestKilledBetweenAppendAndReply(t *testing.T) {
	s, store := start(t, -1, 0), carriertest.Store(t)
	var decided atomic.Int64
	nc := connect(t, s)
	h := carriertest.Executing(t, store, &decided)
	_, err := natscarrier.Serve(t.Context(), nc, handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reply, err := h.Handle(ctx, r)
		if r.Op == handler.Execute {
			nc.Close() // as when the process dies: no goodbye, nothing sent any more
		}
		return reply, err
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := caller(t, s, "handler.counter", &handler.Options{Timeout: 300 * time.Millisecond, Retries: 20})
	go func() {
		until(t, nc.IsClosed)
		other, err := natscarrier.Serve(t.Context(), connect(t, s), carriertest.Executing(t, store, &decided), nil)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = other.Stop(context.Background()) })
	}()
	reply, err := c.Call(t.Context(), carriertest.Execute(5, "one"))
	if err != nil || !reply.Replayed || reply.Mark.Seqno != 1 {
		t.Errorf("%+v, %v", reply, err)
	}
	if decided.Load() != 1 || carriertest.Length(t, store) != 1 {
		t.Errorf("decided %d times, %d entries", decided.Load(), carriertest.Length(t, store))
	}
}

// Two callers, two copies, every reply sent twice, some lost: each command once.
func TestOnceByManyCallers(t *testing.T) {
	s, store := start(t, -1, 0), carriertest.Store(t)
	for range 2 {
		h, n := carriertest.Executing(t, store, nil), atomic.Int64{}
		serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := h.Handle(ctx, r)
			if r.Op == handler.Execute && n.Add(1)%5 == 0 {
				<-ctx.Done()
			}
			return reply, err
		}), nil)
	}
	var wg sync.WaitGroup
	const commands = 40
	for range 2 {
		c := caller(t, s, "handler.counter", &handler.Options{Timeout: 200 * time.Millisecond, Retries: 30})
		wg.Go(func() {
			for n := range commands {
				if _, err := c.Call(t.Context(), carriertest.Execute(1, fmt.Sprint(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := carriertest.Length(t, store); n != commands {
		t.Errorf("%d entries, want %d", n, commands)
	}
}

// An Executor whose Decider is behind NATS: it appends; a decider that dies costs a try.
func TestExecutorAsCaller(t *testing.T) {
	s, store := start(t, -1, 0), carriertest.Store(t)
	var asked atomic.Int64 // by tries that may overlap
	h := carriertest.Decider(t)
	fakeLost := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide && asked.Add(1) <= 2 {
			<-ctx.Done()
		}
		return h.Handle(ctx, r)
	})
	service := serve(t, connect(t, s), fakeLost, nil)
	c := caller(t, s, service.Prefix(), &handler.Options{Timeout: 300 * time.Millisecond, Retries: 5})
	x, err := guest.NewExecutor(t.Context(), store, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		result, err := x.Execute(t.Context(), "a", guest.Command{Command: *carriertest.Addition(n)}, aggregate.CommandKey(fmt.Sprint(n)))
		if err != nil || result.Mark.Seqno != eventstore.Seqno(n+1) {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	if _, err := x.Execute(t.Context(), "a", guest.Command{Command: *carriertest.Addition(carriertest.MostSum)}); err == nil || err.Error() != "too-big: the sum would be 1045" {
		t.Errorf("%v", err)
	}
	if n := carriertest.Length(t, store); n != 10 {
		t.Errorf("%d entries", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	s := start(b, -1, 0)
	h := carriertest.Decider(b)
	service := serve(b, connect(b, s), h, nil)
	for _, over := range []struct {
		name string
		h    handler.Handler
	}{{"native", h}, {"nats", natscarrier.NewClient(connect(b, s), service.Prefix(), nil)}} {
		b.Run(over.name, func(b *testing.B) { carriertest.Benchmark(b, over.h) })
	}
	nc := connect(b, s) // what the server and nats.go take themselves
	sub, err := connect(b, s).Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	data := handler.AppendRequest(nil, carriertest.OneKiB())
	b.Run("bare", func(b *testing.B) {
		carriertest.Measure(b, func() error {
			_, err := nc.Request("echo", data, 10*time.Second)
			return err
		})
	})
}
