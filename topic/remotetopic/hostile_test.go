// Messages that cannot be, from either side; and the round trip of those that can.

package remotetopic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/topic"
)

// A server that repeats, leaves out or makes up messages is found out.
func TestHostileDeliveries(t *testing.T) {
	noLeaks(t)
	message := func(p int, offsets ...int) topic.Delivery {
		d := topic.Delivery{Partition: p}
		for _, n := range offsets {
			d.Messages = append(d.Messages, topic.Message{Event: eventstore.Event{ID: eventstore.NewUUID()}, Offset: eventstore.Seqno(n)})
		}
		return d
	}
	assignment := func(places ...int) topic.Delivery {
		d := topic.Delivery{Assignment: []topic.Place{}}
		for _, p := range places {
			d.Assignment = append(d.Assignment, topic.Place{Partition: p, Offset: 4})
		}
		return d
	}
	noID := message(0, 1)
	noID.Messages[0].ID = eventstore.UUID{}
	var all []topic.Delivery
	f := serve(t, &fakeTopics{consume: func(ctx context.Context, _ topic.Consumption, yield func(topic.Delivery) bool) error {
		for _, d := range all {
			if !yield(d) {
				return nil
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}}, ServiceOptions{})
	c := clientOf(t, nil, f.URL)
	plain, from5, member := topic.Consumption{}, topic.Consumption{Only: true, Places: []topic.Place{{Partition: 0, Offset: 4}}}, topic.Consumption{Consumer: "c"}
	for i, x := range []struct {
		q    topic.Consumption
		all  []topic.Delivery
		good bool
	}{
		{plain, []topic.Delivery{message(0, 7), message(0, 8, 9), message(1, 1)}, true},
		{plain, []topic.Delivery{message(0, 1), message(0, 1)}, false},
		{plain, []topic.Delivery{message(0, 1), message(0, 3)}, false},
		{plain, []topic.Delivery{message(0, 1, 3)}, false},
		{plain, []topic.Delivery{message(0, 2, 1)}, false},
		{plain, []topic.Delivery{message(0, 0)}, false},
		{plain, []topic.Delivery{message(topic.MaxPartitions, 1)}, false},
		{plain, []topic.Delivery{noID}, false},
		{plain, []topic.Delivery{assignment(0)}, false},
		{from5, []topic.Delivery{message(0, 5, 6)}, true},
		{from5, []topic.Delivery{message(0, 6)}, false},
		{from5, []topic.Delivery{message(1, 1)}, false},
		{member, []topic.Delivery{assignment(0), message(0, 7), message(0, 8), assignment()}, true},
		{member, []topic.Delivery{message(0, 5)}, false},
		{member, []topic.Delivery{assignment(0), message(1, 5)}, false},
		{member, []topic.Delivery{assignment(0, 0)}, false},
		{member, []topic.Delivery{assignment(0), message(0, 4)}, false},
		{member, []topic.Delivery{assignment(0), assignment(), message(0, 5)}, false},
	} {
		all = x.all
		x.q.Topic = "orders"
		n := 0
		for _, err := range c.Consume(within(t), x.q) {
			if err == nil {
				if n++; n == len(all) {
					break
				}
				continue
			}
			if x.good || !errors.Is(err, eventstore.ErrCorrupt) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if !x.good && n == len(all) {
			t.Errorf("%d: nothing was found wrong", i)
		}
	}
}

// Answers to publications that cannot be are no acknowledgement.
func TestHostileAnswers(t *testing.T) {
	noLeaks(t)
	var answer atomic.Pointer[topic.Published]
	f := serve(t, &fakeTopics{publish: func(context.Context, topic.Publication) (topic.Published, error) { return *answer.Load(), nil }}, ServiceOptions{})
	c := clientOf(t, nil, f.URL)
	p, err := c.Publisher(within(t))
	ok(t, err)
	for _, got := range []topic.Published{{}, {First: 1, Last: 2}, {First: 2, Last: 1}, {First: 5, Last: 4}, {First: 1 << 63, Last: 1 << 63}, {First: 0, Last: 0}, {Partition: topic.MaxPartitions, First: 1, Last: 1}} {
		answer.Store(&got)
		ctx, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
		_, err := c.Publish(ctx, publication("orders", "a", 1))
		wantErr(t, err, eventstore.ErrUnknown)
		cancel()
	}
	wait := p.Publish(within(t), publication("orders", "a", 1))
	ctx, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
	defer cancel()
	if _, err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	answer.Store(&topic.Published{First: 7, Last: 7})
	if at, err := wait(within(t)); err != nil || at.First != 7 {
		t.Errorf("%+v, %v", at, err)
	}
	ok(t, p.Close())
}

// What is not one of our servers makes no acknowledgement either, and no loop without a pause.
func TestNotAServer(t *testing.T) {
	noLeaks(t)
	for _, code := range []int{200, 302, 404, 500, 503} {
		server := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(code)
			fmt.Fprint(w, "<html>")
		}))
		c := clientOf(t, nil, server.URL)
		ctx, cancel := context.WithTimeout(within(t), 150*time.Millisecond)
		if _, err := c.Publish(ctx, publication("orders", "a", 1)); err == nil {
			t.Errorf("%d: no error", code)
		}
		for _, err := range c.Consume(ctx, topic.Consumption{Topic: "orders"}) {
			if err == nil {
				t.Errorf("%d: a delivery", code)
			}
		}
		cancel()
	}
}

// What a request says is checked before the topics get it.
func TestHostileRequests(t *testing.T) {
	noLeaks(t)
	f := serve(t, &fakeTopics{}, ServiceOptions{}) // none of its methods may be called
	s := clientOf(t, nil, f.URL).servers[0].service
	ctx := within(t)
	long := make([]*wattlev1.Place, topic.MaxPartitions+1)
	for i := range long {
		long[i] = &wattlev1.Place{}
	}
	for name, try := range map[string]func() error{
		"no topic": func() error { _, err := s.CreateTopic(ctx, &wattlev1.CreateTopicRequest{}); return err },
		"huge partitions": func() error {
			_, err := s.CreateTopic(ctx, &wattlev1.CreateTopicRequest{Topic: &wattlev1.Topic{Partitions: math.MaxUint32}})
			return err
		},
		"huge bytes": func() error {
			_, err := s.CreateTopic(ctx, &wattlev1.CreateTopicRequest{Topic: &wattlev1.Topic{Retention: &wattlev1.Retention{MaxBytes: math.MaxUint64}}})
			return err
		},
		"odd duration": func() error {
			_, err := s.CreateTopic(ctx, &wattlev1.CreateTopicRequest{Topic: &wattlev1.Topic{DedupWindow: &durationpb.Duration{Seconds: 1, Nanos: -1}}})
			return err
		},
		"ID": func() error { _, err := s.Publish(ctx, &wattlev1.PublishRequest{Id: "x"}); return err },
		"event": func() error {
			_, err := s.Publish(ctx, &wattlev1.PublishRequest{Events: []*wattlev1.Event{{Version: math.MaxUint32}}})
			return err
		},
		"offset": func() error {
			_, err := s.Commit(ctx, &wattlev1.CommitRequest{Places: []*wattlev1.Place{{Offset: math.MaxUint64}}})
			return err
		},
		"places": func() error { _, err := s.Commit(ctx, &wattlev1.CommitRequest{Places: long}); return err },
		"start": func() error {
			r, err := s.Consume(ctx, &wattlev1.ConsumeRequest{Start: 9})
			if err == nil {
				r.Receive()
				err = errors.Join(r.Err(), r.Close())
			}
			return err
		},
		"nothing in a stream": func() error {
			conn, err := s.PublishStream(ctx)
			if err == nil {
				_ = conn.Send(&wattlev1.PublishStreamRequest{})
				_, err = conn.Receive()
				_ = conn.CloseRequest()
				_ = conn.CloseResponse()
			}
			return err
		},
	} {
		err := try()
		if err == nil || !errors.Is(f.service.caller().Failed(ctx, act, false, err), eventstore.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode reads any bytes as any message: it is refused, or the same after another trip.
func FuzzDecode(f *testing.F) {
	add := func(m proto.Message) {
		data, err := proto.Marshal(m)
		ok(f, err)
		for kind := range uint8(8) {
			f.Add(kind, data)
		}
	}
	add(&wattlev1.ConsumeRequest{Topic: "orders", Places: []*wattlev1.Place{{Partition: 1, Offset: 2}}, Member: eventstore.NameUUID("m").String()})
	add(fromPublication(topic.Publication{Topic: "orders", Key: "k", ID: eventstore.NameUUID("p"), FirstTried: time.Unix(1, 0), Events: []eventstore.Event{event("k", 1)}}))
	add(fromSpec(topic.Spec{Name: "orders", Partitions: 3, DedupWindow: time.Minute, Retention: topic.Retention{MaxBytes: 1, MaxAge: time.Hour, Consumed: true}}))
	add(fromDelivery(topic.Delivery{Partition: 3, End: true, Assignment: []topic.Place{{Partition: 1, Offset: 1}}, Messages: []topic.Message{{Event: event("k", 1), Offset: 1, Key: "k"}}}))
	add(fromDescription(topic.Description{Spec: topic.Spec{Name: "orders", Partitions: 1}, Partitions: []topic.Partition{{}}, Consumers: []topic.Consumer{{Name: "c", Positions: []topic.ConsumerPosition{{Lag: 1}}}}}))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		switch kind % 8 {
		case 0:
			trip(t, data, &wattlev1.ConsumeRequest{}, (*reader).consumption, fromConsumption)
		case 1:
			trip(t, data, &wattlev1.PublishRequest{}, (*reader).publication, fromPublication)
		case 2:
			trip(t, data, &wattlev1.Topic{}, (*reader).spec, fromSpec)
		case 3:
			trip(t, data, &wattlev1.ConsumeResponse{}, (*reader).delivery, fromDelivery)
		case 4:
			trip(t, data, &wattlev1.DescribeTopicResponse{}, (*reader).description, fromDescription)
		case 5:
			trip(t, data, &wattlev1.CommitRequest{}, (*reader).commit, fromCommit)
		case 6:
			trip(t, data, &wattlev1.PublishResponse{}, func(r *reader, m *wattlev1.PublishResponse) topic.Published { return r.published(m, 1) }, fromPublished)
		case 7:
			m := &wattlev1.ConsumeRequest{}
			if protojson.Unmarshal(data, m) == nil {
				_, _ = read(m, (*reader).consumption)
			}
		}
	})
}

// trip reads a message and, if it can be, writes and reads it again.
func trip[M proto.Message, T any](t *testing.T, data []byte, m M, to func(*reader, M) T, from func(T) M) {
	if proto.Unmarshal(data, m) != nil {
		return
	}
	v, err := read(m, to)
	if err != nil {
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Fatal(err)
		}
		return
	}
	again, err := read(from(v), to)
	if err != nil || !reflect.DeepEqual(v, again) {
		t.Fatalf("%+v\nand then\n%+v, %v", v, again, err)
	}
}
