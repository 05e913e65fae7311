// Bounds of the server: slow consumers, streams, what ends them, and what it is told.

package remotetopic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/topic"
)

// endless delivers messages of 32 KiB of partition 0 behind a place, and counts them.
func endless(sent *atomic.Int64) *fakeTopics {
	return &fakeTopics{consume: func(ctx context.Context, c topic.Consumption, yield func(topic.Delivery) bool) error {
		at := eventstore.Seqno(0)
		for _, p := range c.Places {
			at = p.Offset
		}
		for ctx.Err() == nil {
			at++
			e := eventstore.Event{ID: eventstore.NewUUID(), Type: "x", Data: make([]byte, 32<<10)}
			if !yield(topic.Delivery{Messages: []topic.Message{{Event: e, Offset: at}}}) {
				return nil
			}
			sent.Add(1)
		}
		return ctx.Err()
	}}
}

// raw consumes with nothing of ours at the client's side, whose transport takes little
// that was not read.
func raw(t *testing.T, url string) *connect.ServerStreamForClient[wattlev1.ConsumeResponse] {
	t.Helper()
	tr := h2(t)
	tr.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	ctx, cancel := context.WithTimeout(context.Background(), testWait/2)
	r, err := wattlev1.NewTopicServiceClient(&http.Client{Transport: tr}, url, connect.WithAcceptCompression("gzip", nil, nil)).
		Consume(ctx, &wattlev1.ConsumeRequest{Topic: "orders"})
	ok(t, err)
	t.Cleanup(func() { cancel(); r.Close() })
	return r
}

// drain receives what is there, within reason, and returns how it ended.
func drain(f *fake, r *connect.ServerStreamForClient[wattlev1.ConsumeResponse]) (n int, err error) {
	for n < 1000 && r.Receive() {
		n += len(r.Msg().GetMessages())
	}
	return n, f.service.caller().Failed(context.Background(), act, false, r.Err())
}

func (s *Service) streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// One that reads on after too long is told so; one of ours goes on by itself.
func TestSlowConsumerIsTold(t *testing.T) {
	noLeaks(t)
	var sent atomic.Int64
	f := serve(t, endless(&sent), ServiceOptions{SlowAfter: 200 * time.Millisecond, StuckAfter: testWait})
	r := raw(t, f.URL)
	if !r.Receive() {
		t.Fatal(r.Err())
	}
	sleep(within(t), 600*time.Millisecond) // it is slow
	n, err := drain(f, r)
	slow := wantErr(t, err, remotelog.ErrSlowConsumer)
	if slow.Hint == "" || connect.CodeOf(r.Err()) != connect.CodeResourceExhausted {
		t.Error(r.Err())
	}
	if most := int64(n) + 3; sent.Load() > most {
		t.Errorf("%d messages were read of the topic for one that took %d", sent.Load(), n)
	}
	at := eventstore.Seqno(0)
	tr := h2(t)
	tr.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	for d, err := range clientOf(t, &Options{Transport: tr}, f.URL).Consume(within(t), topic.Consumption{Topic: "orders"}) {
		ok(t, err)
		for _, m := range d.Messages {
			if at++; m.Offset != at {
				t.Fatalf("message %v, want %v", m.Offset, at)
			}
		}
		if at == 50 || at == 100 {
			sleep(within(t), 400*time.Millisecond)
		}
		if at > 150 {
			break
		}
	}
}

// One that never reads on is reset.
func TestStuckConsumerIsReset(t *testing.T) {
	noLeaks(t)
	var sent atomic.Int64
	f := serve(t, endless(&sent), ServiceOptions{SlowAfter: 100 * time.Millisecond, StuckAfter: 100 * time.Millisecond})
	r := raw(t, f.URL)
	if !r.Receive() {
		t.Fatal(r.Err())
	}
	until(t, "it is ended", func() bool { return f.service.streams() == 0 })
	if sent.Load() > 50 {
		t.Errorf("%d messages for one that does not read", sent.Load())
	}
}

func TestDrainAndBoundOfStreams(t *testing.T) {
	noLeaks(t)
	quiet := &fakeTopics{consume: func(ctx context.Context, _ topic.Consumption, yield func(topic.Delivery) bool) error {
		yield(topic.Delivery{})
		<-ctx.Done()
		return ctx.Err()
	}}
	f := serve(t, quiet, ServiceOptions{Streams: 2})
	one, two := raw(t, f.URL), raw(t, f.URL)
	if !one.Receive() || !two.Receive() {
		t.Fatal(one.Err(), two.Err())
	}
	_, err := drain(f, raw(t, f.URL))
	wantErr(t, err, eventstore.ErrOverloaded)
	f.service.Drain()
	f.service.Drain()
	for _, r := range []*connect.ServerStreamForClient[wattlev1.ConsumeResponse]{one, two, raw(t, f.URL)} {
		_, err := drain(f, r)
		if wantErr(t, err, remotelog.ErrGoingAway); connect.CodeOf(r.Err()) != connect.CodeUnavailable {
			t.Error(r.Err())
		}
	}
}

// A drained server's consumers and publishers go on at another one.
func TestDrainedServerIsLeft(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	pub := e.client(nil, one.url, two.url)
	p, err := pub.Publisher(within(t))
	ok(t, err)
	var a acks
	pipeline(t, p, &a, fourKeys, 1, 10)
	var got seen
	for d, err := range e.client(nil, one.url, two.url).Consume(within(t), topic.Consumption{Topic: "orders"}) {
		ok(t, err)
		if before := got.count(); before < 40 && got.take(d) >= 40 {
			one.service.Drain()
			pipeline(t, p, &a, fourKeys, 11, 10)
		} else if before >= 40 && got.take(d) >= 80 {
			break
		}
	}
	ok(t, p.Close())
	got.once(t, fourKeys, 20)
	e.verify("orders", 4, &a)
	if n := two.service.streams(); n > 1 { // the publisher's may be ending
		t.Errorf("%d streams", n)
	}
}

// What a context ends with, and what Still says, ends a stream; the error is final.
func TestStreamsEndWithCause(t *testing.T) {
	noLeaks(t)
	denied := &eventstore.Error{Kind: remotelog.ErrDenied, Op: "consume", Hint: "rule 7"}
	var no atomic.Bool
	cut := make(chan func(), 1)
	var failed atomic.Int64
	s := NewService(&fakeTopics{
		consume: func(ctx context.Context, _ topic.Consumption, yield func(topic.Delivery) bool) error {
			for yield(topic.Delivery{}) && sleep(ctx, time.Millisecond) {
			}
			return ctx.Err()
		},
		publish: func(context.Context, topic.Publication) (topic.Published, error) {
			return topic.Published{First: 1, Last: 1}, nil
		},
	}, &ServiceOptions{
		Still: func(context.Context) error {
			if no.Load() {
				return denied
			}
			return nil
		},
		Failed: func(context.Context, string, error) { failed.Add(1) },
	})
	mux := http.NewServeMux()
	s.Mount(mux)
	server := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		select {
		case cut <- func() { cancel(denied) }:
		default:
		}
		mux.ServeHTTP(w, r.WithContext(ctx))
	}))
	c := clientOf(t, nil, server.URL)
	for _, end := range []func(){func() { (<-cut)() }, func() { no.Store(true) }} {
		n := 0
		for _, err := range c.Consume(within(t), topic.Consumption{Topic: "orders"}) {
			if n++; n == 3 {
				end()
			}
			if err == nil {
				continue
			}
			if told := wantErr(t, err, remotelog.ErrDenied); told.Hint != "rule 7" {
				t.Error(err)
			}
		}
	}
	if failed.Load() != 2 {
		t.Errorf("%d errors were told of", failed.Load())
	}
	p, err := c.Publisher(within(t))
	ok(t, err)
	_, err = p.Publish(within(t), publication("orders", "a", 1))(within(t))
	wantErr(t, err, remotelog.ErrDenied)
	no.Store(false)
	_, err = p.Publish(within(t), publication("orders", "a", 1))(within(t))
	ok(t, err)
	ok(t, p.Close())
}

// A message of Consume is bounded, whatever the topics deliver at once.
func TestMessagesAreCut(t *testing.T) {
	noLeaks(t)
	f := serve(t, &fakeTopics{consume: func(ctx context.Context, _ topic.Consumption, yield func(topic.Delivery) bool) error {
		d := topic.Delivery{Partition: 3, End: true}
		for i := range 100 {
			d.Messages = append(d.Messages, topic.Message{Event: eventstore.Event{ID: eventstore.NewUUID(), Data: make([]byte, 100)}, Offset: eventstore.Seqno(i + 1)})
		}
		yield(d)
		<-ctx.Done()
		return ctx.Err()
	}}, ServiceOptions{MessageBytes: 1000})
	n, ends := 0, 0
	for d, err := range clientOf(t, nil, f.URL).Consume(within(t), topic.Consumption{Topic: "orders"}) {
		ok(t, err)
		if len(d.Messages) != 10 || d.Partition != 3 || d.Messages[0].Partition != 3 {
			t.Fatalf("%d messages of partition %d", len(d.Messages), d.Partition)
		}
		if d.End {
			ends++
		}
		if n += len(d.Messages); n == 100 {
			break
		}
	}
	if ends != 1 {
		t.Errorf("%d ends", ends)
	}
}

// The causes of errors stay at the server, and errors keep their facts.
func TestErrorsArrive(t *testing.T) {
	noLeaks(t)
	head := eventstore.Head{Epoch: 3, Last: eventstore.Mark{Seqno: 7, ID: eventstore.NewUUID()}, Trimmed: 2}
	var fail error
	f := serve(t, &fakeTopics{publish: func(context.Context, topic.Publication) (topic.Published, error) { return topic.Published{}, fail }}, ServiceOptions{})
	c := clientOf(t, nil, f.URL)
	for _, kind := range []error{topic.ErrNoSuchTopic, topic.ErrNotOwner, remotelog.ErrUnauthenticated, remotelog.ErrDenied, remotelog.ErrGoingAway, remotelog.ErrSlowConsumer,
		eventstore.ErrBatchIDReused, eventstore.ErrUnknown, eventstore.ErrTrimmed, eventstore.ErrUnavailable, eventstore.ErrLeaseLost} {
		told := &eventstore.Error{Kind: kind, Op: "publish", Stream: "orders-3", Category: "orders", Wanted: "w", Found: "f", Hint: "h", Head: &head, First: 3,
			Unprovable: kind == eventstore.ErrUnknown, Err: errors.New("DSN with a secret")}
		if kind == topic.ErrNotOwner {
			told.Err = &topic.NotOwnerError{Owner: "https://other"}
		}
		fail = fmt.Errorf("wrapped: %w", told)
		_, _, err := c.publishAt(within(t), c.servers[0], fromPublication(publication("orders", "a", 1)))
		got := wantErr(t, err, kind)
		if got.Op != told.Op || got.Stream != told.Stream || got.Wanted != "w" || got.Found != "f" || got.Hint != "h" || got.First != 3 || *got.Head != head || got.Unprovable != told.Unprovable {
			t.Errorf("%+v, want %+v", got, told)
		}
		if owner, _ := topic.Owner(err); kind == topic.ErrNotOwner && owner != "https://other" {
			t.Errorf("%v names %q as the owner", err, owner)
		}
		if got.Err != nil && kind != topic.ErrNotOwner {
			t.Errorf("%v has a cause", err)
		}
	}
	fail = errors.New("a secret")
	_, _, err := c.publishAt(within(t), c.servers[0], fromPublication(publication("orders", "a", 1)))
	wantErr(t, err, eventstore.ErrUnknown)
}
