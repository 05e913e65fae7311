// Handlers over real HTTP, in every protocol: the same as called directly, and bounded.

package connectcarrier_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/internal/carriertest"
)

func TestLoanConforms(t *testing.T) {
	h, err := wire.Handler()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := wiretest.Cases(1, 4, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, h, nil)
	for _, w := range ways() {
		some := every(3, cases)
		if w != (way{}) { // the other ways are for what differs, not for the domain
			some = cases[len(cases)-4:]
		}
		result, err := conformance.Run(t.Context(), w.client(t, s, connectcarrier.ClientOptions{}), &conformance.Options{Cases: some})
		if err != nil {
			t.Fatalf("%v: %v", w, err)
		}
		for _, f := range result.Findings {
			t.Errorf("%v: %v", w, f)
		}
		if w == (way{}) {
			t.Logf("%d cases, %d rules, %d calls; 4 cases in each of %d ways", len(some), len(result.Rules), result.Calls, len(ways()))
		}
	}
}

// every returns each n'th of a list.
func every[T any](n int, list []T) (some []T) {
	for i := 0; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}

// Anybody with curl is understood, and told what he has misspelt.
func TestPlainJSON(t *testing.T) {
	s := serve(t, carriertest.Decider(t), nil)
	post := func(body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/wattle.handler.v1.HandlerService/Handle", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := httpClient(t, false).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.ReplaceAll(string(text), " ", "")
	}
	if status, text := post(`{"v":1,"op":"describe"}`); status != 200 || !strings.Contains(text, `"name":"counter"`) {
		t.Errorf("%d %s", status, text)
	}
	for _, body := range []string{`{"v":1,"op":"describe","epoch":3}`, `{"op":"describe"}`, `{"v":1,"op":"dance"}`, `{`, ``} {
		if status, text := post(body); status != 400 || !strings.Contains(text, `"code":"invalid_argument"`) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// What is over the bound is refused at once, unread, and says so in every protocol.
func TestOverload(t *testing.T) {
	var entered atomic.Int64
	release := make(chan struct{})
	h := carriertest.Decider(t)
	path, served := connectcarrier.NewHandler(on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		entered.Add(1)
		defer entered.Add(-1)
		select {
		case <-release:
			return h.Handle(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}), &connectcarrier.ServerOptions{Running: 2, Waiting: 3, Timeout: 20 * time.Second})
	var inside atomic.Int64
	s := host(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.Add(1)
		defer inside.Add(-1)
		served.ServeHTTP(w, r)
	}))
	patient := &handler.Options{Retries: -1, Timeout: 20 * time.Second}
	c := way{}.caller(t, s, &handler.Options{Retries: 100, Timeout: 20 * time.Second})
	hasty := way{}.caller(t, s, &handler.Options{Retries: -1, Timeout: 200 * time.Millisecond})
	others := []*handler.Caller{}
	for _, w := range ways() {
		others = append(others, w.caller(t, s, patient))
	}
	done := make(chan error, 5)
	for range 5 {
		go func() {
			_, err := c.Call(t.Context(), carriertest.Decide(1))
			done <- err
		}()
	}
	overloaded := func(c *handler.Caller) error {
		_, err := c.Call(t.Context(), carriertest.Decide(1))
		return err
	}
	// One that is let in goes away again, and the others come back; when it is not, all
	// five are inside.
	until(t, func() bool {
		until(t, func() bool { return inside.Load() == 5 && entered.Load() == 2 })
		return errors.Is(overloaded(hasty), eventstore.ErrOverloaded)
	})
	for i, other := range others {
		if err := overloaded(other); !errors.Is(err, eventstore.ErrOverloaded) || !handler.Temporary(err) || !strings.Contains(err.Error(), "at most 5") {
			t.Errorf("%v: %v", ways()[i], err)
		}
	}
	if n := entered.Load(); n != 2 {
		t.Errorf("%d ran at once, want 2", n)
	}
	close(release)
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := overloaded(c); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// The caller's deadline is the handler's; a call in whose time no turn comes is not run.
func TestDeadlineIsPassedOn(t *testing.T) {
	left := make(chan time.Duration, 1)
	h := carriertest.Decider(t)
	s := serve(t, on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if until, ok := ctx.Deadline(); ok {
			left <- time.Until(until)
		} else {
			left <- 0
		}
		return h.Handle(ctx, r)
	}), &connectcarrier.ServerOptions{Timeout: time.Minute})
	for _, w := range plainWays() {
		c := w.caller(t, s, &handler.Options{Timeout: 20 * time.Second})
		if _, err := c.Call(t.Context(), carriertest.Decide(1)); err != nil {
			t.Fatal(err)
		}
		if got := <-left; got > 20*time.Second || got < 10*time.Second {
			t.Errorf("%v: %v left, want nearly 20s", w, got)
		}
		client := w.client(t, s, connectcarrier.ClientOptions{Timeout: 7 * time.Second})
		if _, err := client.Handle(t.Context(), carriertest.Decide(1)); err != nil {
			t.Fatal(err)
		}
		if got := <-left; got > 7*time.Second {
			t.Errorf("%v: %v left, want at most 7s", w, got)
		}
		early := carriertest.Decide(1)
		early.Deadline = time.Now().Add(3 * time.Second)
		if _, err := client.Handle(t.Context(), early); err != nil {
			t.Fatal(err)
		}
		if got := <-left; got > 3*time.Second {
			t.Errorf("%v: %v left, want at most 3s", w, got)
		}
	}
}

// The server's own bound, for callers who wait for ever.
func TestServersTimeout(t *testing.T) {
	s := serve(t, on(handler.Decide, carriertest.Decider(t), func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}), &connectcarrier.ServerOptions{Timeout: 50 * time.Millisecond})
	for _, w := range plainWays() {
		c := w.caller(t, s, &handler.Options{Timeout: 20 * time.Second, Retries: -1})
		began := time.Now()
		_, err := c.Call(t.Context(), carriertest.Decide(1))
		if took := time.Since(began); !errors.Is(err, handler.ErrFailed) || took > 10*time.Second {
			t.Fatalf("%v: %v after %v", w, err, took)
		}
	}
}

// A panic is that call's own; who called is not told the stack, the log is.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	h := carriertest.Decider(t)
	s := serve(t, on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Stream == "counter-bad" {
			panic("a bug\nhere")
		}
		return h.Handle(ctx, r)
	}), &connectcarrier.ServerOptions{Logger: slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))})
	for _, w := range ways() {
		c := w.caller(t, s, &handler.Options{Retries: -1})
		bad := carriertest.Decide(1)
		bad.Stream = "counter-bad"
		_, err := c.Call(t.Context(), bad)
		if !errors.Is(err, handler.ErrFailed) || !strings.Contains(err.Error(), "a panic") || strings.Contains(err.Error(), "a bug here") {
			t.Errorf("%v: %v", w, err)
		}
		if _, err := c.Call(t.Context(), carriertest.Decide(1)); err != nil {
			t.Errorf("%v: after the panic: %v", w, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "connectcarrier_test.go") {
		t.Errorf("log %q", log.String())
	}
}

type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// One trace from the caller's command through the handler, in every protocol.
func TestOneTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	s := serve(t, carriertest.Decider(t), &connectcarrier.ServerOptions{TracerProvider: provider})
	for _, w := range plainWays() {
		c := w.caller(t, s, &handler.Options{TracerProvider: provider})
		store := eventstore.New(carriertest.Store(t).Log(), &eventstore.Options{TracerProvider: provider})
		x, err := guest.NewExecutor(t.Context(), store, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		spans.Reset()
		ctx, root := provider.Tracer("test").Start(t.Context(), "root")
		if _, err := x.Execute(ctx, "a", guest.Command{Command: *carriertest.Addition(1)}); err != nil {
			t.Fatal(err)
		}
		root.End()
		by := map[string]tracetest.SpanStub{}
		until(t, func() bool {
			for _, span := range spans.GetSpans() {
				by[span.Name] = span
			}
			return by["handle decide counter"].Name != ""
		})
		for child, parent := range map[string]string{"handle decide counter": "decide counter", "decide counter": "execute counter", "execute counter": "root", "append counter": "execute counter"} {
			if by[child].Parent.SpanID() != by[parent].SpanContext.SpanID() || by[child].SpanContext.TraceID() != root.SpanContext().TraceID() {
				t.Errorf("%v: %q is no child of %q in the trace: %+v", w, child, parent, by[child])
			}
		}
		if by["handle decide counter"].SpanKind != trace.SpanKindServer || by["decide counter"].SpanKind != trace.SpanKindClient {
			t.Errorf("%v: kinds of spans", w)
		}
	}
}

// Those on the way see headers; the trace of a caller who knows no contract counts too.
func TestHeaders(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := make(chan [2]string, 1)
	h := carriertest.Decider(t)
	path, served := connectcarrier.NewHandler(on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		got <- [2]string{r.Traceparent, r.Tracestate}
		return h.Handle(ctx, r)
	}), nil)
	var seen http.Header
	s := host(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		served.ServeHTTP(w, r)
	}))
	for _, w := range plainWays() {
		q := carriertest.Decide(1)
		q.Key, q.Traceparent, q.Tracestate = eventstore.NameUUID("k"), parent, "a=b"
		if _, err := w.client(t, s, connectcarrier.ClientOptions{}).Handle(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if found := <-got; found != [2]string{parent, "a=b"} {
			t.Errorf("%v: %v", w, found)
		}
		if seen.Get("Traceparent") != parent || seen.Get("Tracestate") != "a=b" || seen.Get("Wattle-Key") != q.Key.String() || seen.Get("Wattle-Contract") != "1" {
			t.Errorf("%v: %v", w, seen)
		}
		q.Traceparent, q.Tracestate = "bad\r\nx: y", strings.Repeat("z", 10_000)
		if _, err := w.client(t, s, connectcarrier.ClientOptions{}).Handle(t.Context(), q); err != nil {
			t.Errorf("%v: what is no trace ends no call: %v", w, err)
		}
		<-got
		q.Traceparent, q.Tracestate = "", ""
		header := connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
				r.Header().Set("traceparent", parent)
				return next(ctx, r)
			}
		}))
		if _, err := w.client(t, s, connectcarrier.ClientOptions{Options: []connect.ClientOption{header}}).Handle(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if found := <-got; found != [2]string{parent, ""} {
			t.Errorf("%v: of the header: %v", w, found)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, u := range []string{"", "host", "ftp://host", "http://", ":", "http://a b"} {
		if _, err := connectcarrier.NewClient(nil, u, nil).Handle(t.Context(), carriertest.Decide(1)); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: %v", u, err)
		}
	}
	s := serve(t, carriertest.Decider(t), nil)
	_, err := connectcarrier.NewClient(httpClient(t, false), s.url+"/elsewhere", nil).Handle(t.Context(), carriertest.Decide(1))
	if !errors.Is(err, handler.ErrBadRequest) || !strings.Contains(err.Error(), "is the handler served at this URL") {
		t.Errorf("%v", err)
	}
	secret := strings.Replace(s.url, "http://", "http://user:secret@", 1) + "/elsewhere"
	if _, err := connectcarrier.NewClient(httpClient(t, false), secret, nil).Handle(t.Context(), carriertest.Decide(1)); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
