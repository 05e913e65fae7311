// Package carriers_test proves that it makes no difference what carries a handler: the
// loan process passes the same suite on every carrier, gives the same replies, and leaves
// one trace.
package carriers_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/internal/guests"
)

// carrier brings requests to the loan handler.
type carrier struct {
	name string
	// start returns the near side. The far side records its spans with p, if it can.
	start func(t *testing.T, p trace.TracerProvider) handler.Handler
	spans bool // the far side can
}

var carriers = []carrier{
	{"native", func(t *testing.T, p trace.TracerProvider) handler.Handler { return handler.Traced(process(t), p) }, true},
	{"bytes", func(t *testing.T, p trace.TracerProvider) handler.Handler {
		return handler.Over(encoded{handler.Traced(process(t), p)}, "bytes")
	}, true},
	{"http", overHTTP, true},
	{"nats", overNATS, true},
	{"connect", overConnect, true},
	{"grpc", overGRPC, true},
	{"wasm", func(t *testing.T, _ trace.TracerProvider) handler.Handler {
		return handler.Over(module(t), "loan.wasm")
	}, false},
}

// process is the loan process, decided in this process.
func process(t testing.TB) handler.Handler {
	t.Helper()
	h, err := wire.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// encoded lets nothing but bytes across.
type encoded struct{ h handler.Handler }

func (e encoded) Call(_ context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(context.Background(), e.h, op, request), nil
}

var dir string // of the guest, for all tests

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "wattle-carriers"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// built is the loan process as a WebAssembly guest, and what was compiled of it.
var built = sync.OnceValues(func() (b struct {
	module []byte
	cache  string
}, err error) {
	b.module, b.cache, err = guests.Build("../..", "./examples/guest/loan", dir)
	return b, err
})

// module is that guest, opened. The limit of a call is high: under the race detector,
// beside other tests, a call may take long.
func module(t testing.TB) *wasm.Module {
	t.Helper()
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Open(t.Context(), b.module, &wasm.Options{CacheDir: b.cache, Timeout: 30 * time.Second, StartTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m
}

// cases are every step'th of the loan process's.
func cases(t testing.TB, step int) (some []conformance.Case) {
	t.Helper()
	all, err := wiretest.Cases(1, 25, 12)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

func TestConformance(t *testing.T) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			step := 1
			if c.name == "wasm" { // a call takes a hundred times as long there
				step = 4
			}
			result, err := conformance.Run(t.Context(), c.start(t, noop.NewTracerProvider()), &conformance.Options{Cases: cases(t, step),
				Caller: &handler.Options{Timeout: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Findings {
				t.Error(f)
			}
			t.Logf("%d rules, %d calls", len(result.Rules), result.Calls)
		})
	}
}

// Every reply, refusals and failures included, is the same to the byte.
func TestSameReplies(t *testing.T) {
	requests := requests(t)
	native := replies(t, process(t), requests)
	for _, c := range carriers[1:] {
		t.Run(c.name, func(t *testing.T) {
			for i, got := range replies(t, c.start(t, noop.NewTracerProvider()), requests) {
				if got != native[i] {
					t.Fatalf("%s\n%s\nwant %s", handler.AppendRequest(nil, requests[i]), got, native[i])
				}
			}
		})
	}
}

// requests are decisions on events and on states, and some that are wrong.
func requests(t *testing.T) (all []*handler.Request) {
	t.Helper()
	for i, c := range cases(t, 2) {
		key := eventstore.NameUUID(c.Name)
		r := &handler.Request{Op: handler.Decide, Key: key, Stream: c.Stream, Command: &c.When, Now: time.Unix(int64(i), 0), ID: key}
		for n, e := range c.Given {
			r.Events = append(r.Events, handler.Entry{Event: e, Seqno: eventstore.Seqno(n + 1), Time: time.Unix(int64(n), 0)})
		}
		evolve := *r
		evolve.Op, evolve.Command = handler.Evolve, nil
		wrong := *r
		wrong.Command = &handler.Command{Type: c.When.Type, Data: []byte(`"wrong"`)}
		all = append(all, r, &evolve, &wrong)
	}
	return all
}

func replies(t *testing.T, h handler.Handler, requests []*handler.Request) (all []string) {
	t.Helper()
	for _, r := range requests {
		reply, err := h.Handle(t.Context(), r)
		if err != nil {
			reply = handler.AsReply(r, err)
		}
		text := string(handler.AppendReply(nil, reply))
		if reply.Failure != nil { // its text may name the carrier
			text = reply.Failure.Code
		}
		all = append(all, strings.ToValidUTF8(text, "?"))
	}
	return all
}
