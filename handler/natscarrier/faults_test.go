// Bad replies, bad requests, lost messages, connections and services that go away.

package natscarrier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/internal/carriertest"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

// fake answers decide requests as it likes; right is the reply of a right handler. The
// rest of the operations are answered rightly.
func fake(t testing.TB, nc *nats.Conn, decide func(m *nats.Msg, right []byte)) {
	t.Helper()
	h := carriertest.Decider(t)
	sub, err := nc.Subscribe("fake.*", func(m *nats.Msg) {
		op := strings.TrimPrefix(m.Subject, "fake.")
		right := handler.Serve(context.Background(), h, op, m.Data)
		if op == string(handler.Decide) {
			decide(m, right)
			return
		}
		_ = m.Respond(right)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}

func respond(m *nats.Msg, header nats.Header, data []byte) {
	_ = m.RespondMsg(&nats.Msg{Header: header, Data: data})
}

// Replies that no right service gives, and what they are taken for.
func TestBadReplies(t *testing.T) {
	s := start(t, -1, 8<<20)
	for name, f := range map[string]struct {
		answer func(m *nats.Msg, right []byte)
		want   error
	}{
		"truncated": {func(m *nats.Msg, right []byte) { respond(m, nil, right[:len(right)/2]) }, handler.ErrBadReply},
		"empty":     {func(m *nats.Msg, _ []byte) { respond(m, nil, nil) }, handler.ErrBadReply},
		"not UTF-8": {func(m *nats.Msg, right []byte) {
			respond(m, nil, bytes.Replace(right, []byte("added"), []byte("\xff"), 1))
		}, handler.ErrBadReply},
		"older contract": {func(m *nats.Msg, right []byte) {
			respond(m, nil, bytes.Replace(right, []byte(`"v":1`), []byte(`"v":0`), 1))
		}, handler.ErrBadReply},
		"newer contract": {func(m *nats.Msg, right []byte) {
			respond(m, nil, bytes.Replace(right, []byte(`"v":1`), []byte(`"v":2`), 1))
		}, handler.ErrBadReply},
		"an epoch": {func(m *nats.Msg, right []byte) {
			respond(m, nil, bytes.Replace(right, []byte(`"v":1`), []byte(`"v":1,"epoch":7`), 1))
		}, handler.ErrBadReply},
		"other key": {func(m *nats.Msg, _ []byte) {
			respond(m, nil, handler.AppendReply(nil, &handler.Reply{Key: eventstore.NewUUID()}))
		}, handler.ErrBadReply},
		"other stream": {func(m *nats.Msg, right []byte) {
			respond(m, nil, bytes.Replace(right, []byte(`"v":1`), []byte(`"v":1,"stream":"counter-b"`), 1))
		}, handler.ErrBadReply},
		"too large": {func(m *nats.Msg, right []byte) {
			respond(m, nil, append(right, bytes.Repeat([]byte(" "), handler.DefaultReplyBytes)...))
		}, eventstore.ErrTooLarge},
		"huge events": {func(m *nats.Msg, right []byte) {
			respond(m, nil, bytes.Replace(right, []byte(`"events":[`), []byte(`"events":[`+strings.Repeat(`{"type":"added","data":1},`, 1001)), 1))
		}, handler.ErrBadReply},
		"no answer": {func(*nats.Msg, []byte) {}, handler.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			nc := connect(t, s)
			calls := 0
			fake(t, nc, func(m *nats.Msg, right []byte) { calls++; f.answer(m, right) })
			timeout := 20 * time.Second
			if errors.Is(f.want, handler.ErrFailed) {
				timeout = 500 * time.Millisecond
			}
			c := caller(t, s, "fake", &handler.Options{Retries: 1, Timeout: timeout})
			_, err := c.Call(t.Context(), carriertest.Decide(1))
			if _, refused := errors.AsType[*handler.Rejected](err); !errors.Is(err, f.want) || refused {
				t.Errorf("%v, want %v", err, f.want)
			}
			if err := nc.Drain(); err != nil {
				t.Fatal(err)
			}
			until(t, nc.IsClosed)
			if want := map[error]int{handler.ErrBadReply: 1, eventstore.ErrTooLarge: 1, handler.ErrFailed: 2}[f.want]; calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
		})
	}
}

// The errors of micro services, also of those that are not ours: none is a refusal.
func TestMicroErrors(t *testing.T) {
	s := start(t, -1, 0)
	var code string
	fake(t, connect(t, s), func(m *nats.Msg, _ []byte) {
		respond(m, nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {"rejected: no"}}, nil)
	})
	c := caller(t, s, "fake", &handler.Options{Retries: -1})
	for _, is := range []struct {
		code string
		want error
	}{{"400", handler.ErrBadRequest}, {"404", handler.ErrBadRequest}, {"422", handler.ErrBadRequest}, {"401", handler.ErrDenied}, {"403", handler.ErrDenied},
		{"413", eventstore.ErrTooLarge}, {"429", eventstore.ErrOverloaded}, {"503", eventstore.ErrOverloaded},
		{"409", handler.ErrFailed}, {"500", handler.ErrFailed}, {"504", handler.ErrFailed}, {"200", handler.ErrFailed}, {"x", handler.ErrFailed}} {
		code = is.code
		_, err := c.Call(t.Context(), carriertest.Decide(1))
		if _, refused := errors.AsType[*handler.Rejected](err); !errors.Is(err, is.want) || refused {
			t.Errorf("code %s: %v, want %v", code, err, is.want)
		}
	}
}

// What a handler returns arrives as the kind it is.
func TestKindsOfErrors(t *testing.T) {
	s := start(t, -1, 0)
	var kind error
	h := carriertest.Decider(t)
	service := serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide {
			return nil, kind
		}
		return h.Handle(ctx, r)
	}), nil)
	c := caller(t, s, service.Prefix(), &handler.Options{Retries: -1})
	for _, kind = range []error{handler.ErrFailed, handler.ErrBadRequest, handler.ErrStateVersion, handler.ErrDenied, eventstore.ErrTooLarge, eventstore.ErrOverloaded,
		eventstore.ErrUnknown, eventstore.ErrAlreadyWritten} {
		want := kind
		kind = &handler.Error{Kind: want, Op: handler.Decide}
		if _, err := c.Call(t.Context(), carriertest.Decide(1)); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	kind = &handler.Rejected{Code: "no", Message: "because"}
	_, err := c.Call(t.Context(), carriertest.Decide(1))
	if refused, ok := errors.AsType[*handler.Rejected](err); !ok || *refused != (handler.Rejected{Code: "no", Message: "because"}) {
		t.Errorf("%v", err)
	}
}

// Replies that come too late or twice are dropped: each call has its own, the first.
func TestLateAndTwice(t *testing.T) {
	s := start(t, -1, 0)
	nc := connect(t, s)
	first := true
	fake(t, nc, func(m *nats.Msg, right []byte) {
		if first { // too late for its call
			first = false
			time.Sleep(400 * time.Millisecond)
		}
		respond(m, nil, right)
		respond(m, nil, bytes.Replace(right, []byte(`{"N":`), []byte(`{"N":9`), 1))
		respond(m, nil, nil)
	})
	patient := caller(t, s, "fake", &handler.Options{Timeout: 20 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := patient.Call(ctx, carriertest.Decide(0)); !errors.Is(err, handler.ErrFailed) {
		t.Fatalf("late: %v", err)
	}
	for n := range 50 {
		reply, err := patient.Call(t.Context(), carriertest.Decide(n))
		if err != nil || len(reply.Events) != 1 || string(reply.Events[0].Data) != fmt.Sprintf(`{"N":%d}`, n) {
			t.Fatalf("%d: %+v, %v", n, reply, err)
		}
	}
}

// Nobody there is told at once, with what to look at; an operation that is not there is
// another thing.
func TestNobodyThere(t *testing.T) {
	s := start(t, -1, 0)
	client := natscarrier.NewClient(connect(t, s), "handler.counter", nil)
	_, err := client.Handle(t.Context(), carriertest.Decide(1))
	if !errors.Is(err, eventstore.ErrOverloaded) || !strings.Contains(err.Error(), "handler.counter.decide") || !strings.Contains(err.Error(), "is the service running") {
		t.Errorf("%v", err)
	}
	serve(t, connect(t, s), carriertest.Decider(t), nil)
	if _, err := client.Handle(t.Context(), &handler.Request{Op: handler.Project}); !errors.Is(err, handler.ErrBadRequest) {
		t.Errorf("%v", err)
	}
	if _, err := client.Handle(t.Context(), &handler.Request{Op: "dance"}); !errors.Is(err, handler.ErrBadRequest) {
		t.Errorf("%v", err)
	}
}

// Sizes: over the limit and over the server's max_payload, on the way there and back.
func TestTooLarge(t *testing.T) {
	s := start(t, -1, 64<<10)
	h := carriertest.Decider(t)
	reply := 0
	service := serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide && reply > 0 {
			return nil, &handler.Rejected{Code: "long", Message: strings.Repeat("x", reply)}
		}
		return h.Handle(ctx, r)
	}), &natscarrier.ServeOptions{Limits: handler.Limits{RequestBytes: 32 << 10}})
	c := caller(t, s, service.Prefix(), &handler.Options{Retries: 1})
	big := func(bytes int) *handler.Request {
		r := carriertest.Decide(1)
		r.Command.Metadata = eventstore.Metadata{"m": strings.Repeat("x", bytes)}
		return r
	}
	for _, is := range []struct {
		request, reply int
		says           string
	}{{2 << 20, 0, "a request of at most 1048576 bytes"}, {64 << 10, 0, "max_payload"}, {40 << 10, 0, "a request of at most 32768 bytes"}, {1, 64 << 10, "a reply of at most 64512 bytes"}} {
		reply = is.reply
		before := tallyOf(t, service, "decide")
		_, err := c.Call(t.Context(), big(is.request))
		if !errors.Is(err, eventstore.ErrTooLarge) || !strings.Contains(err.Error(), is.says) {
			t.Errorf("%+v: %v", is, err)
		}
		if sent := tallyOf(t, service, "decide").Failed - before.Failed; (is.request >= 64<<10) != (sent == 0) || sent > 1 {
			t.Errorf("%+v: came to the service %d times", is, sent)
		}
	}
	reply = 0
	if _, err := c.Call(t.Context(), big(16<<10)); err != nil {
		t.Error(err)
	}
}

// Requests from elsewhere: each is answered, none reaches the handler.
func TestBadRequests(t *testing.T) {
	s := start(t, -1, 0)
	h, reached := carriertest.Decider(t), 0
	service := serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide {
			reached++
		}
		return h.Handle(ctx, r)
	}), nil)
	nc := connect(t, s)
	key := eventstore.NewUUID()
	right := carriertest.Decide(1)
	right.Key = key
	body := handler.AppendRequest(nil, right)
	evolve := *right
	evolve.Op = handler.Evolve
	for name, m := range map[string]nats.Msg{
		"empty":            {},
		"truncated":        {Data: body[:len(body)-3]},
		"two":              {Data: append(bytes.Clone(body), body...)},
		"other operation":  {Data: handler.AppendRequest(nil, &evolve)},
		"older contract":   {Data: bytes.Replace(body, []byte(`"v":1`), []byte(`"v":0`), 1)},
		"newer by header":  {Data: body, Header: nats.Header{"Wattle-Contract": {"2"}}},
		"other key":        {Data: body, Header: nats.Header{"Wattle-Key": {eventstore.NewUUID().String()}}},
		"no key":           {Data: body, Header: nats.Header{"Wattle-Key": {"zz"}}},
		"a field too many": {Data: bytes.Replace(body, []byte(`"v":1`), []byte(`"v":1,"epoch":1`), 1)},
		"deep":             {Data: []byte(`{"v":1,"op":"decide","state":` + strings.Repeat("[", 100_000))},
	} {
		m.Subject = service.Prefix() + ".decide"
		if m.Header == nil {
			m.Header = nats.Header{"Wattle-Key": {key.String()}, "Wattle-Contract": {"1"}, "Wattle-Timeout": {"-7"}}
		}
		got, err := nc.RequestMsg(&m, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		reply, err := handler.ParseReply(got.Data)
		if err != nil || reply.Failure == nil || reply.Failure.Code != handler.CodeInvalid || got.Header.Get(micro.ErrorCodeHeader) != "400" {
			t.Errorf("%s: %s, %v, %v", name, got.Data, got.Header, err)
		}
		if strings.Contains(name, "trunc") && reply.Key != key {
			t.Errorf("%s: key %v", name, reply.Key)
		}
	}
	// Nobody waits for a publication, and a service without headers is no service less.
	if err := nc.Publish(service.Prefix()+".decide", body); err != nil {
		t.Fatal(err)
	}
	if got, err := nc.Request(service.Prefix()+".describe", []byte(`{"v":1,"op":"describe"}`), 10*time.Second); err != nil || !bytes.Contains(got.Data, []byte(`"name":"counter"`)) {
		t.Errorf("%v, %v", got, err)
	}
	until(t, func() bool { return tallyOf(t, service, "decide").Late == 1 })
	if err := service.Stop(t.Context()); err != nil || reached != 0 {
		t.Errorf("%v, reached %d times", err, reached)
	}
}

// A connection that is away fails calls at once, and nothing of them is sent later.
func TestConnectionAway(t *testing.T) {
	s := start(t, -1, 0)
	nc := connect(t, s)
	client := natscarrier.NewClient(nc, "handler.counter", &natscarrier.ClientOptions{Timeout: 20 * time.Second})
	hang := make(chan *nats.Msg, 10)
	far := connect(t, s)
	sub, err := far.ChanSubscribe("handler.counter.decide", hang)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := far.Flush(); err != nil { // the server knows of it: else nobody is there to be asked
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		r := carriertest.Decide(1)
		r.Deadline = time.Now().Add(time.Second) // a reply might still find its way, by another server of a cluster
		_, err := client.Handle(t.Context(), r)
		done <- err
	}()
	select {
	case <-hang:
	case err := <-done:
		t.Fatalf("not under way: %v", err)
	}
	shutdown(s) // while a call is under way
	if err := <-done; !errors.Is(err, handler.ErrFailed) {
		t.Errorf("under way: %v", err)
	}
	until(t, func() bool { return !nc.IsConnected() })
	began := time.Now()
	if _, err := client.Handle(t.Context(), carriertest.Decide(2)); !errors.Is(err, handler.ErrFailed) || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("away: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	again := start(t, s.port, 0)
	until(t, nc.IsConnected)
	serve(t, connect(t, again), carriertest.Decider(t), nil)
	until(t, func() bool {
		_, err := client.Handle(t.Context(), carriertest.Decide(3))
		return err == nil
	})
	nc.Close()
	if _, err := client.Handle(t.Context(), carriertest.Decide(4)); !errors.Is(err, handler.ErrFailed) {
		t.Errorf("closed: %v", err)
	}
	for len(hang) > 0 {
		if m := <-hang; bytes.Contains(m.Data, []byte(`{"N":2}`)) {
			t.Error("what failed was sent later")
		}
	}
}

// A caller that goes away is told so by its own context.
func TestCancelled(t *testing.T) {
	s := start(t, -1, 0)
	fake(t, connect(t, s), func(*nats.Msg, []byte) {})
	client := natscarrier.NewClient(connect(t, s), "fake", nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := client.Handle(ctx, carriertest.Decide(1)); !errors.Is(err, context.Canceled) || !errors.Is(err, handler.ErrFailed) {
		t.Errorf("%v", err)
	}
}
