// Handlers over a real NATS server: the same as called directly, found, shared, bounded.

package natscarrier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel/trace"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/internal/carriertest"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

func TestLoanConforms(t *testing.T) {
	h, err := wire.Handler()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := wiretest.Cases(1, 20, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, -1, 0)
	service := serve(t, connect(t, s), h, nil)
	if service.Prefix() != "handler.loan" {
		t.Errorf("prefix %q", service.Prefix())
	}
	result, err := conformance.Run(t.Context(), natscarrier.NewClient(connect(t, s), service.Prefix(), nil), &conformance.Options{Cases: cases})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		t.Error(f)
	}
	t.Logf("%d cases, %d rules, %d calls", len(cases), len(result.Rules), result.Calls)
}

// What "nats micro info" and the like see.
func TestDiscovery(t *testing.T) {
	s := start(t, -1, 0)
	serve(t, connect(t, s), carriertest.Decider(t), &natscarrier.ServeOptions{Prefix: "prod.deciders.counter", QueueGroup: "deciders"})
	nc := connect(t, s)
	ask := func(verb micro.Verb, into any) {
		t.Helper()
		subject, err := micro.ControlSubject(verb, "counter", "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.Request(subject, nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m.Data, into); err != nil {
			t.Fatal(err)
		}
	}
	var ping micro.Ping
	ask(micro.PingVerb, &ping)
	if ping.Version != "1.2.3" || ping.Metadata["wattle.release"] != "v1.2.3" || ping.Metadata["wattle.contract"] != "1" {
		t.Errorf("%+v", ping)
	}
	var info micro.Info
	ask(micro.InfoVerb, &info)
	var found []string
	for _, e := range info.Endpoints {
		found = append(found, fmt.Sprintf("%s %s %s %s|%s", e.Name, e.Subject, e.QueueGroup, e.Metadata["wattle.commands"], e.Metadata["wattle.events"]))
	}
	want := "describe prod.deciders.counter.describe deciders |\ndecide prod.deciders.counter.decide deciders add/1|added/1\nevolve prod.deciders.counter.evolve deciders |added/1"
	if got := strings.Join(found, "\n"); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	c := caller(t, s, "prod.deciders.counter", nil)
	for n := range 3 {
		_, _ = c.Call(t.Context(), carriertest.Decide(n*carriertest.MostSum)) // 0, then two refusals
	}
	var stats micro.Stats
	until(t, func() bool { // a reply may be here before micro has counted its request
		stats = micro.Stats{}
		ask(micro.StatsVerb, &stats)
		n := 0
		for _, e := range stats.Endpoints {
			n += e.NumRequests
		}
		return n == 4
	})
	for _, e := range stats.Endpoints {
		var tally natscarrier.Tally
		if err := json.Unmarshal(e.Data, &tally); err != nil {
			t.Fatal(err)
		}
		if wants := map[string]int{"describe": 1, "decide": 3}[e.Name]; e.NumRequests != wants || tally.Answered != int64(wants) || e.NumErrors != 0 || tally.Failed != 0 {
			t.Errorf("%s: %+v, %+v", e.Name, e, tally)
		}
	}
}

// Two copies in one queue group share the calls; a third of another group has them all.
func TestCopiesShare(t *testing.T) {
	s := start(t, -1, 0)
	copies := []*natscarrier.Service{serve(t, connect(t, s), carriertest.Decider(t), nil), serve(t, connect(t, s), carriertest.Decider(t), nil)}
	c := caller(t, s, "handler.counter", nil)
	const calls = 200
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range calls / 4 {
				if _, err := c.Call(t.Context(), carriertest.Decide(1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	requests := func(copied *natscarrier.Service) int {
		for _, e := range copied.Stats().Endpoints {
			if e.Name == "decide" {
				return e.NumRequests
			}
		}
		return 0
	}
	until(t, func() bool { return requests(copies[0])+requests(copies[1]) == calls })
	for _, copied := range copies {
		if n := requests(copied); n < calls/10 {
			t.Errorf("a copy had %d of %d calls", n, calls)
		}
	}
}

// blocking is a handler whose decisions wait to be let go.
func blocking(t testing.TB, entered *atomic.Int64, release chan struct{}) handler.Handler {
	h := carriertest.Decider(t)
	return handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide {
			entered.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return h.Handle(ctx, r)
	})
}

// What is over the bound is refused at once, says so, and harms nobody who is inside.
func TestOverload(t *testing.T) {
	s := start(t, -1, 0)
	var entered atomic.Int64
	release := make(chan struct{})
	service := serve(t, connect(t, s), blocking(t, &entered, release), &natscarrier.ServeOptions{Running: 2, Waiting: 3})
	c := caller(t, s, service.Prefix(), &handler.Options{Retries: -1, Timeout: 20 * time.Second})
	done := make(chan error, 5)
	for range 5 {
		go func() {
			_, err := c.Call(t.Context(), carriertest.Decide(1))
			done <- err
		}()
	}
	until(t, func() bool { return tallyOf(t, service, "decide").Inside == 5 && entered.Load() == 2 })
	for range 20 {
		began := time.Now()
		if _, err := c.Call(t.Context(), carriertest.Decide(1)); !errors.Is(err, eventstore.ErrOverloaded) || !handler.Temporary(err) {
			t.Fatalf("%v", err)
		}
		if time.Since(began) > 10*time.Second {
			t.Error("not refused at once")
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
	if got := tallyOf(t, service, "decide"); got.Overloaded != 20 || got.Answered != 5 {
		t.Errorf("%+v", got)
	}
}

func tallyOf(t testing.TB, s *natscarrier.Service, op string) (got natscarrier.Tally) {
	t.Helper()
	for _, e := range s.Stats().Endpoints {
		if e.Name == op {
			if err := json.Unmarshal(e.Data, &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	return got
}

// Stop answers what has come in, and nothing is lost between two copies of which one goes.
func TestStopLosesNothing(t *testing.T) {
	s := start(t, -1, 0)
	serve(t, connect(t, s), carriertest.Decider(t), nil)
	client := natscarrier.NewClient(connect(t, s), "handler.counter", nil)
	end := make(chan struct{})
	var calls, lost atomic.Int64
	c, err := handler.NewCaller(t.Context(), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reply, err := client.Handle(ctx, r)
		if errors.Is(err, handler.ErrFailed) { // refused by a copy that stops is another thing
			lost.Add(1)
		}
		return reply, err
	}), &handler.Options{Timeout: 10 * time.Second, Retries: 5})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if _, err := c.Call(t.Context(), carriertest.Decide(1)); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for range 10 {
		nc := connect(t, s)
		service, err := natscarrier.Serve(t.Context(), nc, carriertest.Decider(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		before := calls.Load()
		until(t, func() bool { return calls.Load() > before+20 })
		if err := service.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := service.Stop(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		nc.Close() // at once: all replies are with the server
	}
	close(end)
	wg.Wait()
	if lost.Load() > 0 {
		t.Errorf("%d replies were lost", lost.Load())
	}
}

// Who does not want to wait for calls that hang ends them.
func TestStopInTime(t *testing.T) {
	s := start(t, -1, 0)
	var entered atomic.Int64
	service := serve(t, connect(t, s), blocking(t, &entered, nil), nil)
	c := caller(t, s, service.Prefix(), &handler.Options{Retries: -1, Timeout: 20 * time.Second})
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), carriertest.Decide(1))
		done <- err
	}()
	until(t, func() bool { return entered.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := service.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped: %v", err)
	}
	if err := <-done; !errors.Is(err, handler.ErrFailed) {
		t.Errorf("the call: %v", err)
	}
}

// The caller's deadline is the handler's, by the caller's wait and not by his clock.
func TestDeadlineIsPassedOn(t *testing.T) {
	s := start(t, -1, 0)
	left := make(chan time.Duration, 10)
	h := carriertest.Decider(t)
	service := serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if until, ok := ctx.Deadline(); ok && r.Op == handler.Decide {
			left <- time.Until(until)
		}
		return h.Handle(ctx, r)
	}), &natscarrier.ServeOptions{Timeout: time.Minute})
	c := caller(t, s, service.Prefix(), &handler.Options{Timeout: 20 * time.Second})
	if _, err := c.Call(t.Context(), carriertest.Decide(1)); err != nil {
		t.Fatal(err)
	}
	if got := <-left; got > 20*time.Second || got < 10*time.Second {
		t.Errorf("%v left, want nearly 20s", got)
	}
	client := natscarrier.NewClient(connect(t, s), service.Prefix(), &natscarrier.ClientOptions{Timeout: 7 * time.Second})
	if _, err := client.Handle(t.Context(), carriertest.Decide(1)); err != nil {
		t.Fatal(err)
	}
	if got := <-left; got > 7*time.Second {
		t.Errorf("%v left, want at most 7s", got)
	}
	early := carriertest.Decide(1)
	early.Deadline = time.Now().Add(3 * time.Second)
	if _, err := client.Handle(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	if got := <-left; got > 3*time.Second {
		t.Errorf("%v left, want at most 3s", got)
	}
}

// A panic is that call's own; who called is not told the stack, the log is.
func TestPanic(t *testing.T) {
	s := start(t, -1, 0)
	h := carriertest.Decider(t)
	var log strings.Builder
	service := serve(t, connect(t, s), handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide && r.Stream == "counter-bad" {
			panic("a bug\nhere")
		}
		return h.Handle(ctx, r)
	}), &natscarrier.ServeOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := caller(t, s, service.Prefix(), &handler.Options{Retries: -1})
	bad := carriertest.Decide(1)
	bad.Stream = "counter-bad"
	_, err := c.Call(t.Context(), bad)
	if !errors.Is(err, handler.ErrFailed) || !strings.Contains(err.Error(), "a panic") || strings.Contains(err.Error(), "a bug here") {
		t.Errorf("%v", err)
	}
	if _, err := c.Call(t.Context(), carriertest.Decide(1)); err != nil {
		t.Errorf("after the panic: %v", err)
	}
	if got := tallyOf(t, service, "decide"); got.Failed != 1 || got.Answered != 1 {
		t.Errorf("%+v", got)
	}
	if err := service.Stop(t.Context()); err != nil || !strings.Contains(log.String(), "natscarrier_test.go") {
		t.Errorf("%v, log %q", err, log.String())
	}
}

// One trace from the caller's command through the handler.
func TestOneTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	s := start(t, -1, 0)
	service := serve(t, connect(t, s), carriertest.Decider(t), &natscarrier.ServeOptions{TracerProvider: provider})
	c := caller(t, s, service.Prefix(), &handler.Options{TracerProvider: provider})
	x, err := guest.NewExecutor(t.Context(), newTracedStore(t, provider), c, nil)
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
		return len(by["handle decide counter"].Name) > 0
	})
	for child, parent := range map[string]string{"handle decide counter": "decide counter", "decide counter": "execute counter", "execute counter": "root", "append counter": "execute counter"} {
		if by[child].Parent.SpanID() != by[parent].SpanContext.SpanID() || by[child].SpanContext.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%q is no child of %q in the trace: %+v", child, parent, by[child])
		}
	}
	if by["handle decide counter"].SpanKind != trace.SpanKindServer || by["decide counter"].SpanKind != trace.SpanKindClient {
		t.Error("kinds of spans")
	}
}

func newTracedStore(t testing.TB, p trace.TracerProvider) *eventstore.Store {
	return eventstore.New(carriertest.Store(t).Log(), &eventstore.Options{TracerProvider: p})
}

func TestMistakesAreNamed(t *testing.T) {
	s := start(t, -1, 0)
	nc := connect(t, s)
	for _, prefix := range []string{".", "a..b", "a.*", ">", "a b", "a\n", "\xff", "$SRV.PING", strings.Repeat("x", 129)} {
		if _, err := natscarrier.Serve(t.Context(), nc, carriertest.Decider(t), &natscarrier.ServeOptions{Prefix: prefix}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		if _, err := natscarrier.NewClient(nc, prefix, nil).Handle(t.Context(), carriertest.Decide(1)); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	if _, err := natscarrier.Serve(t.Context(), nil, carriertest.Decider(t), nil); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	if _, err := natscarrier.Serve(t.Context(), nc, carriertest.Decider(t), &natscarrier.ServeOptions{Name: "no name"}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	if _, err := natscarrier.NewClient(nil, "a", nil).Handle(t.Context(), carriertest.Decide(1)); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	for _, op := range []handler.Op{"", "a.b", "*", ">", "a b"} {
		if _, err := natscarrier.NewClient(nc, "a", nil).Handle(t.Context(), &handler.Request{Op: op}); !errors.Is(err, handler.ErrBadRequest) {
			t.Errorf("op %q: %v", op, err)
		}
	}
	broken := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) { panic("no description") })
	if _, err := natscarrier.Serve(t.Context(), nc, broken, nil); !errors.Is(err, handler.ErrFailed) {
		t.Error(err)
	}
}
