// PublishStream and Publisher: order, answers, bounds, and streams that end.

package remotetopic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/topic"
)

// outcomeWait is an outcome that is waited for.
type outcomeWait struct {
	key  string
	wait func(context.Context) (topic.Published, error)
}

// pipeline publishes n of each key without waiting in between, and notes the outcomes.
func pipeline(t *testing.T, p *Publisher, a *acks, keys []string, from, n int) {
	t.Helper()
	var all []outcomeWait
	for i := from; i < from+n; i++ {
		for _, key := range keys {
			all = append(all, outcomeWait{key, p.Publish(within(t), publication("orders", key, i))})
		}
	}
	for _, one := range all {
		got, err := one.wait(within(t))
		if err != nil {
			t.Errorf("%s: %v", one.key, err)
			return
		}
		a.note(one.key, got)
	}
}

func TestPublisher(t *testing.T) {
	e := newEnv(t)
	one, _ := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	p, err := e.client(&Options{Window: 16}, one.url).Publisher(t.Context())
	ok(t, err)
	var a acks
	var keys []string
	for i := range 8 {
		keys = append(keys, keyOf(i%4, 4, i))
	}
	pipeline(t, p, &a, keys, 1, 20)
	ok(t, p.Close())
	e.verify("orders", 4, &a)
	_, err = p.Publish(within(t), publication("orders", "k", 1))(within(t))
	wantErr(t, err, eventstore.ErrClosed)
}

func TestPublisherServerKilled(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	var a acks
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, c := range []*Client{e.client(nil, one.url, two.url), e.client(nil, two.url, one.url)} {
		var keys []string
		for k := range 8 {
			keys = append(keys, keyOf(k%4, 4, 8*i+k))
		}
		wg.Go(func() {
			p, err := c.Publisher(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			for from := 1; from <= 81; from += 20 {
				pipeline(t, p, &a, keys, from, 20)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "they publish", func() bool { return a.count() > 300 })
	one.kill()
	wg.Wait()
	if n := a.count(); n != 2*8*100 {
		t.Fatalf("%d were acknowledged", n)
	}
	e.verify("orders", 4, &a)
}

// One that is refused does not hold up those behind it, and they keep their order.
func TestPublisherRefusals(t *testing.T) {
	e := newEnv(t)
	n := e.node(ServiceOptions{}, false)
	e.topic("orders", 2, 1)
	p, err := e.client(nil, n.url).Publisher(t.Context())
	ok(t, err)
	var a acks
	first := publication("orders", "a", 1)
	for i, x := range []struct {
		p    topic.Publication
		kind error
	}{
		{first, nil},
		{publication("orders", "bad", 1), nil},
		{topic.Publication{Topic: "nothing", Key: "a", Events: []eventstore.Event{event("a", 1)}}, topic.ErrNoSuchTopic},
		{topic.Publication{Topic: "orders", Key: "a"}, eventstore.ErrInvalid},
		{topic.Publication{Topic: "orders", Key: "a\xff", Events: []eventstore.Event{event("a", 1)}}, eventstore.ErrInvalid},
		{topic.Publication{Topic: "orders", Key: "a", Events: []eventstore.Event{{Type: "x", Data: make([]byte, 65<<20)}}}, eventstore.ErrTooLarge},
		{topic.Publication{Topic: "orders", Key: "a", ID: first.ID, Events: []eventstore.Event{event("a", 9)}}, eventstore.ErrBatchIDReused},
		{publication("orders", "a", 2), nil},
	} {
		wait := p.Publish(within(t), x.p)
		got, err := wait(within(t))
		if x.kind != nil {
			wantErr(t, err, x.kind)
			continue
		}
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		a.note(x.p.Key, got)
	}
	ok(t, p.Close())
	e.verify("orders", 2, &a)
}

// With refusals among many that are under way each gets its own outcome.
func TestPublisherRefusalsUnderWay(t *testing.T) {
	e := newEnv(t)
	n := e.node(ServiceOptions{}, false)
	e.topic("orders", 2, 1)
	p, err := e.client(nil, n.url).Publisher(t.Context())
	ok(t, err)
	var a acks
	var all, bad []outcomeWait
	for i := 1; i <= 40; i++ {
		for _, key := range []string{"a", "b", "c"} {
			all = append(all, outcomeWait{key, p.Publish(within(t), publication("orders", key, i))})
		}
		if i%8 == 0 {
			bad = append(bad, outcomeWait{"a", p.Publish(within(t), topic.Publication{Topic: "orders", Key: "a"})})
		}
	}
	for _, one := range all {
		got, err := one.wait(within(t))
		ok(t, err)
		a.note(one.key, got)
	}
	for _, one := range bad {
		_, err := one.wait(within(t))
		// Behind one that was refused it may have been sent before.
		if e, ours := errors.AsType[*eventstore.Error](err); !ours || e.Kind != eventstore.ErrInvalid && !errors.Is(e.Err, eventstore.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	ok(t, p.Close())
	e.verify("orders", 2, &a)
}

// The context of a publisher ends it: what it sent is unknown, and says so.
func TestPublisherEnds(t *testing.T) {
	noLeaks(t)
	began, release := make(chan struct{}, 9), make(chan struct{})
	f := serve(t, &fakeTopics{publish: func(ctx context.Context, p topic.Publication) (topic.Published, error) {
		began <- struct{}{}
		<-release
		return topic.Published{First: 1, Last: 1}, nil
	}}, ServiceOptions{})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := clientOf(t, &Options{TryTimeout: testWait, Window: 1}, f.URL).Publisher(ctx)
	ok(t, err)
	wait := p.Publish(within(t), publication("orders", "a", 1))
	<-began
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if _, err := p.Publish(short, publication("orders", "a", 2))(within(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: there is no room", err)
	}
	cancel()
	_, err = wait(within(t))
	if u := wantErr(t, err, eventstore.ErrUnknown); u.Unprovable {
		t.Error(err)
	}
	ok(t, p.Close())
}

// An answer to the one before is sent first, whichever is done first; of one key one is
// under way at a time.
func TestStreamOrder(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	gates := map[string]chan struct{}{}
	gate := func(name string) chan struct{} {
		mu.Lock()
		defer mu.Unlock()
		if gates[name] == nil {
			gates[name] = make(chan struct{})
		}
		return gates[name]
	}
	began := make(chan string, 10)
	f := serve(t, &fakeTopics{publish: func(ctx context.Context, p topic.Publication) (topic.Published, error) {
		name := string(p.Events[0].Data)
		began <- name
		<-gate(name)
		return topic.Published{Partition: len(p.Key), First: 1, Last: 1}, nil
	}}, ServiceOptions{})
	c := clientOf(t, nil, f.URL)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	conn, err := c.servers[0].service.PublishStream(ctx)
	ok(t, err)
	send := func(key string, n int) {
		q := publication("orders", key, n)
		ok(t, conn.Send(&wattlev1.PublishStreamRequest{Publish: fromPublication(q)}))
	}
	begin := func(names ...string) {
		t.Helper()
		want, have := map[string]bool{}, map[string]bool{}
		for _, name := range names {
			want[name] = true
			have[<-began] = true
		}
		if fmt.Sprint(want) != fmt.Sprint(have) {
			t.Fatalf("%v were begun, want %v", have, want)
		}
	}
	answers := make(chan uint32, 10)
	var received sync.WaitGroup
	defer received.Wait()
	received.Go(func() {
		for {
			m, err := conn.Receive()
			if err != nil {
				close(answers)
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				return
			}
			answers <- m.GetPublished().GetPartition()
		}
	})
	send("a", 1)   // 1
	send("bb", 1)  // 2
	send("a", 2)   // 1
	send("ccc", 1) // 3
	begin("a#1", "bb#1", "ccc#1")
	select {
	case name := <-began:
		t.Fatalf("%s was begun while the one before it of its key was under way", name)
	case <-time.After(200 * time.Millisecond):
	}
	close(gate("ccc#1"))
	close(gate("bb#1"))
	close(gate("a#1"))
	begin("a#2") // not before
	if one, two := <-answers, <-answers; one != 1 || two != 2 {
		t.Errorf("answers of %d and %d, want 1 and 2", one, two)
	}
	select {
	case n := <-answers:
		t.Errorf("an answer of %d before that of the one before it", n)
	case <-time.After(50 * time.Millisecond):
	}
	close(gate("a#2"))
	if one, two := <-answers, <-answers; one != 1 || two != 3 {
		t.Errorf("answers of %d and %d, want 1 and 3", one, two)
	}
	ok(t, conn.CloseRequest())
	if n, more := <-answers; more {
		t.Errorf("another answer: %d", n)
	}
}

// What is read behind the window waits, and the first error ends the stream when all
// before it is answered.
func TestStreamWindowAndError(t *testing.T) {
	noLeaks(t)
	began, release := make(chan string, 100), make(chan struct{})
	f := serve(t, &fakeTopics{publish: func(ctx context.Context, p topic.Publication) (topic.Published, error) {
		began <- p.Key
		<-release
		if p.Key == "key-3" {
			return topic.Published{}, &eventstore.Error{Kind: topic.ErrNoSuchTopic}
		}
		return topic.Published{First: 1, Last: 1}, nil
	}}, ServiceOptions{Window: 4})
	conn, err := clientOf(t, nil, f.URL).servers[0].service.PublishStream(within(t))
	ok(t, err)
	for i := range 10 {
		ok(t, conn.Send(&wattlev1.PublishStreamRequest{Publish: fromPublication(publication("orders", fmt.Sprint("key-", i), 1))}))
	}
	for range 4 {
		<-began
	}
	select {
	case key := <-began:
		t.Errorf("%s was begun outside the window", key)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	for i := range 3 {
		if _, err := conn.Receive(); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	_, err = conn.Receive()
	wantErr(t, f.service.caller().Failed(t.Context(), act, false, err), topic.ErrNoSuchTopic)
	_ = conn.CloseRequest()
	_ = conn.CloseResponse()
}

func TestStreamDrain(t *testing.T) {
	noLeaks(t)
	began, release := make(chan struct{}, 1), make(chan struct{})
	f := serve(t, &fakeTopics{publish: func(ctx context.Context, p topic.Publication) (topic.Published, error) {
		began <- struct{}{}
		<-release
		return topic.Published{First: 1, Last: 1}, nil
	}}, ServiceOptions{})
	conn, err := clientOf(t, nil, f.URL).servers[0].service.PublishStream(within(t))
	ok(t, err)
	ok(t, conn.Send(&wattlev1.PublishStreamRequest{Publish: fromPublication(publication("orders", "a", 1))}))
	<-began
	f.service.Drain()
	close(release)
	_, err = conn.Receive()
	ok(t, err) // what was read is answered
	_, err = conn.Receive()
	wantErr(t, f.service.caller().Failed(t.Context(), act, false, err), remotelog.ErrGoingAway)
	_ = conn.CloseRequest()
	_ = conn.CloseResponse()
}
