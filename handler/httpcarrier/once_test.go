// The whole way: the loan process over HTTP, executors on either side of it, answers that
// are lost, one trace.

package httpcarrier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// The loan process over HTTP passes the suite that every carrier has to pass.
func TestConforms(t *testing.T) {
	h, err := wire.Handler()
	ok(t, err)
	all, err := wiretest.Cases(1, 20, 5)
	ok(t, err)
	var cases []conformance.Case // a share of them: the carrier does not look into any
	for i := 0; i < len(all); i += 8 {
		cases = append(cases, all[i])
	}
	s, err := httpcarrier.NewSigner(secretA)
	ok(t, err)
	v, err := httpcarrier.NewVerifier(nil, secretA)
	ok(t, err)
	for name, o := range map[string]*httpcarrier.ClientOptions{"bare": nil, "signed, gzip": {Signer: s, GzipOver: 1}} {
		so := &httpcarrier.ServerOptions{GzipOver: 1}
		if o != nil {
			so.Verifier = v
		}
		result, err := conformance.Run(t.Context(), client(t, serve(t, httpcarrier.NewHandler(h, so)), o), &conformance.Options{Cases: cases})
		ok(t, err)
		for _, f := range result.Findings {
			t.Errorf("%s: %v", name, f)
		}
		if result.Calls < 100 {
			t.Errorf("%s: %d calls", name, result.Calls)
		}
	}
}

// lossy has answers lost: the handler has done its part, and nobody hears of it.
type lossy struct {
	h    http.Handler
	lose func() bool
	lost atomic.Int64
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if !l.lose() {
		l.h.ServeHTTP(w, q)
		return
	}
	l.lost.Add(1)
	l.h.ServeHTTP(httptest.NewRecorder(), q)
	panic(http.ErrAbortHandler) // the connection is cut
}

func submit(amount int) *handler.Command {
	return &handler.Command{Type: "loan.submit", Version: 1, Data: fmt.Appendf(nil, `{"at":"2026-01-02T03:04:05Z","amount":%d}`, amount)}
}

func memory(t *testing.T) *eventstore.Store {
	store := eventstore.New(memlog.New(nil), nil)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func service(t testing.TB, store *eventstore.Store) handler.Handler {
	exec, err := aggregate.NewExecutor(t.Context(), store, wire.Applications(), nil)
	ok(t, err)
	return guest.NewService(exec, wire.Category, wire.Events(), guest.CommandsOf(wire.Commands()), nil)
}

// A command whose first answer was lost is decided once: the second try, under the same
// key, is told what became of the first.
func TestLostAnswerOfAService(t *testing.T) {
	store := memory(t)
	var first atomic.Bool
	l := &lossy{h: httpcarrier.NewHandler(service(t, store), nil), lose: func() bool { return first.CompareAndSwap(true, false) }}
	caller, err := handler.NewCaller(t.Context(), client(t, serve(t, l), nil), nil)
	ok(t, err)
	first.Store(true)
	reply, err := caller.Call(t.Context(), &handler.Request{Op: handler.Execute, ID: eventstore.NewUUID(), Stream: "application-1", Command: submit(5000)})
	if err != nil || !reply.Replayed || reply.Mark.Seqno != 1 || l.lost.Load() != 1 {
		t.Errorf("%+v %v, %d answers lost", reply, err, l.lost.Load())
	}
	if n := length(t, store, "application-1"); n != 1 {
		t.Errorf("%d events", n)
	}
}

func length(t *testing.T, store *eventstore.Store, stream eventstore.Stream) (n int) {
	for _, err := range store.Read(t.Context(), stream, 0) {
		ok(t, err)
		n++
	}
	return n
}

// So it is with a command that anybody posts as an event, twice and at once.
func TestCommandEventTwice(t *testing.T) {
	store := memory(t)
	address := serve(t, httpcarrier.NewHandler(service(t, store), &httpcarrier.ServerOptions{Commands: wire.Category}))
	body := envelope("loan.submit", "order-1", "77", string(submit(5000).Data))
	var going sync.WaitGroup
	var replayed, done atomic.Int64
	for range 8 {
		going.Go(func() {
			resp, got := post(t, address, body, "Content-Type", structured)
			reply, err := handler.ParseReply(got)
			if err != nil || resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, got)
				return
			}
			if done.Add(1); reply.Replayed {
				replayed.Add(1)
			}
		})
	}
	going.Wait()
	if n := length(t, store, "application-77"); n != 1 || done.Load() != 8 || replayed.Load() != 7 {
		t.Errorf("%d events, %d answered, %d as replayed", n, done.Load(), replayed.Load())
	}
}

// An Executor whose Decider is behind HTTP, on a link that loses many answers, writes the
// history that one without a link writes.
func TestRemoteDeciderOnABadLink(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	var bad atomic.Bool
	h, err := wire.Handler()
	ok(t, err)
	l := &lossy{h: httpcarrier.NewHandler(h, nil), lose: func() bool {
		mu.Lock()
		defer mu.Unlock()
		return bad.Load() && dice.IntN(4) == 0
	}}
	caller, err := handler.NewCaller(t.Context(), client(t, serve(t, l), nil), &handler.Options{Retries: 8})
	ok(t, err)
	store, native := memory(t), memory(t)
	remote, err := guest.NewExecutor(t.Context(), store, caller, nil)
	ok(t, err)
	direct, err := aggregate.NewExecutor(t.Context(), native, wire.Applications(), nil)
	ok(t, err)
	bad.Store(true)
	for c := range loan.Generate(seed, 4) {
		for i := range c.Events {
			command, err := loan.CommandFor(c, i)
			ok(t, err)
			wired, err := wiretest.Command(command)
			ok(t, err)
			id := aggregate.CommandKey(fmt.Sprint(c.Key, i))
			_, err1 := remote.Execute(t.Context(), c.Key, guest.Command{Command: wired}, id)
			_, err2 := direct.Execute(t.Context(), c.Key, command, id)
			if (err1 == nil) != (err2 == nil) {
				t.Fatalf("%s %d: %v, natively %v", c.Key, i, err1, err2)
			}
		}
		same := history(t, store, c.Key)
		if want := history(t, native, c.Key); same != want || want == "" {
			t.Errorf("%s: wanted %s, found %s", c.Key, want, same)
		}
	}
	if l.lost.Load() == 0 {
		t.Error("no answer was lost")
	}
}

func history(t *testing.T, store *eventstore.Store, key string) (all string) {
	for e, err := range store.Read(t.Context(), eventstore.Stream("application-"+key), 0) {
		ok(t, err)
		all += fmt.Sprint(e.Seqno, e.Type, e.Version, string(e.Data))
	}
	return all
}

// A refusal comes through to the caller of Execute as it is.
func TestRefusalComesThrough(t *testing.T) {
	h, err := wire.Handler()
	ok(t, err)
	caller, err := handler.NewCaller(t.Context(), client(t, serve(t, httpcarrier.NewHandler(h, nil)), nil), nil)
	ok(t, err)
	remote, err := guest.NewExecutor(t.Context(), memory(t), caller, nil)
	ok(t, err)
	_, err = remote.Execute(t.Context(), "1", guest.Command{Command: handler.Command{Type: "loan.approve", Data: json.RawMessage(`{"at":"2026-01-02T03:04:05Z"}`)}})
	if _, refused := errors.AsType[*handler.Rejected](err); !refused {
		t.Errorf("wanted a refusal, found %v", err)
	}
}

// One trace: the caller's span, its call, what the far side does, the append there.
func TestTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	store := eventstore.New(memlog.New(nil), &eventstore.Options{TracerProvider: provider})
	t.Cleanup(func() { _ = store.Close() })
	address := serve(t, httpcarrier.NewHandler(service(t, store), &httpcarrier.ServerOptions{TracerProvider: provider, Commands: wire.Category}))
	caller, err := handler.NewCaller(t.Context(), client(t, address, nil), &handler.Options{TracerProvider: provider})
	ok(t, err)
	spans.Reset()
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	_, err = caller.Call(ctx, &handler.Request{Op: handler.Execute, ID: eventstore.NewUUID(), Stream: "application-1", Command: submit(5000)})
	ok(t, err)
	root.End()
	parents(t, spans, map[string]string{"execute application#client": "root", "handle execute application": "execute application#client", "execute application": "handle execute application", "append application": "execute application"})

	spans.Reset() // an event of anybody
	resp, body := post(t, address, string(submit(1000).Data), event("Ce-Type", "loan.submit", "Ce-Id", "1", "Ce-Subject", "2", "Traceparent", "00-"+root.SpanContext().TraceID().String()+"-b7ad6b7169203331-01")...)
	if resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, s := range spans.GetSpans() {
		if s.SpanContext.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
	}
	if len(spans.GetSpans()) < 3 {
		t.Errorf("%d spans", len(spans.GetSpans()))
	}
}

// parents checks who is whose; a name is that of a span, with its kind where two have it.
func parents(t *testing.T, exporter *tracetest.InMemoryExporter, want map[string]string) {
	t.Helper()
	by := map[string]tracetest.SpanStub{}
	all := exporter.GetSpans()
	for _, s := range all {
		by[s.Name+"#"+s.SpanKind.String()] = s
		if _, there := by[s.Name]; !there || s.SpanKind.String() != "client" {
			by[s.Name] = s
		}
		if s.SpanContext.TraceID() != all[len(all)-1].SpanContext.TraceID() {
			t.Errorf("%s is in another trace", s.Name)
		}
	}
	for name, parent := range want {
		s, there := by[name]
		if !there || s.Parent.SpanID() != by[parent].SpanContext.SpanID() {
			t.Errorf("%s: there %v, parent not %s", name, there, parent)
		}
	}
}

// The deadline of the caller reaches a handler that hangs, and the call ends with it.
func TestCallerGivesUp(t *testing.T) {
	gone := make(chan struct{}, 1)
	hang := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Describe {
			return (&accounts{}).Handle(ctx, r)
		}
		<-ctx.Done()
		gone <- struct{}{}
		return nil, ctx.Err()
	})
	caller, err := handler.NewCaller(t.Context(), client(t, serve(t, httpcarrier.NewHandler(hang, nil)), nil), &handler.Options{Retries: -1})
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := caller.Call(ctx, decide(1)); !errors.Is(err, handler.ErrFailed) {
		t.Error(err)
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the handler hangs on")
	}
}
