// Package e2e tests what no package can show alone: one command on its way through
// executor, log, NATS and projector, seen by OpenTelemetry; applications on files that
// are closed and opened.
package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/natsannounce"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
)

type deposited struct{ Amount int64 }

var events = schema.New[deposited](schema.Wire[deposited]("deposited", 1))

var account = aggregate.Type[int64, int64, deposited]{Category: "account", Schema: events, Decider: aggregate.Decider[int64, int64, deposited]{
	Initial: func() int64 { return 0 },
	Decide:  func(_, amount int64) ([]deposited, error) { return []deposited{{amount}}, nil },
	Evolve:  func(s int64, e deposited) int64 { return s + e.Amount },
}}

func connect(t *testing.T) *nats.Conn {
	t.Helper()
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the embedded NATS server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestTrace: execute → load, append → announce in the caller's trace; the hint on
// NATS carries it; the projected entry links to it and is not in it.
func TestTrace(t *testing.T) {
	for _, sampled := range []bool{true, false} {
		t.Run(fmt.Sprint("caller sampled ", sampled), func(t *testing.T) { testTrace(t, sampled) })
	}
}

func testTrace(t *testing.T, sampled bool) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans)) // follows the caller's sampling decision
	nc := connect(t)
	hints, err := nc.SubscribeSync("wattle.>")
	if err != nil {
		t.Fatal(err)
	}
	store := eventstore.New(memlog.New(nil), &eventstore.Options{TracerProvider: provider, Announcer: natsannounce.New(nc, nil)})
	ctx := t.Context()
	exec, err := aggregate.NewExecutor(ctx, store, account, nil)
	if err != nil {
		t.Fatal(err)
	}
	spans.Reset()

	flags := trace.TraceFlags(0)
	if sampled {
		flags = trace.FlagsSampled
	}
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: flags, Remote: true})
	res, err := exec.Execute(trace.ContextWithRemoteSpanContext(ctx, caller), "alice", 500)
	if err != nil {
		t.Fatal(err)
	}
	written := stored(t, store, caller, sampled)
	checkHint(t, hints, caller)
	if !sampled {
		if n := len(spans.GetSpans()); n != 0 {
			t.Errorf("%d spans of a trace that is not sampled", n)
		}
		return
	}
	byName := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		if s.SpanContext.TraceID() != caller.TraceID() {
			t.Errorf("span %q is in another trace", s.Name)
		}
		byName[s.Name] = s
	}
	for name, parent := range map[string]string{"execute account": "", "load account": "execute account", "append account": "execute account", "announce account": "append account"} {
		s, ok := byName[name]
		want := caller.SpanID()
		if parent != "" {
			want = byName[parent].SpanContext.SpanID()
		}
		if !ok || s.Parent.SpanID() != want {
			t.Errorf("span %q: there %v, parent %v, want %q", name, ok, s.Parent.SpanID(), parent)
		}
	}
	if got := byName["append account"].SpanContext; got.SpanID() != written.SpanID() {
		t.Errorf("the event carries span %v, want that of the append %v", written.SpanID(), got.SpanID())
	}
	has(t, byName["append account"], eventstore.AttrSystem.String("wattle"), eventstore.AttrOperation.String("append"), eventstore.AttrOpType.String("send"),
		eventstore.AttrDestination.String("account"), eventstore.AttrBatchCount.Int(1), eventstore.AttrStream.String("account-alice"),
		eventstore.AttrSeqno.Int(1), eventstore.AttrEpoch.Int(1), eventstore.AttrPosition.Int64(int64(res.Token.Position)))
	checkProjected(t, store, spans, written)
}

// stored returns the span context that the event was stored with.
func stored(t *testing.T, store *eventstore.Store, caller trace.SpanContext, sampled bool) trace.SpanContext {
	t.Helper()
	page, err := store.ReadFrom(t.Context(), "account-alice", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	sc, ok := eventstore.ParseTraceparent(page.Entries[0].Metadata[eventstore.MetaTraceparent], "")
	if !ok || sc.TraceID() != caller.TraceID() || sc.IsSampled() != sampled {
		t.Fatalf("stored trace context %v (%v), want trace %v, sampled %v", sc, ok, caller.TraceID(), sampled)
	}
	return sc
}

func checkHint(t *testing.T, hints *nats.Subscription, caller trace.SpanContext) {
	t.Helper()
	m, err := hints.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	sc, ok := eventstore.ParseTraceparent(m.Header.Get("traceparent"), "")
	if !ok || sc.TraceID() != caller.TraceID() {
		t.Errorf("the hint on %s carries %q, want trace %v", m.Subject, m.Header.Get("traceparent"), caller.TraceID())
	}
}

func checkProjected(t *testing.T, store *eventstore.Store, spans *tracetest.InMemoryExporter, written trace.SpanContext) {
	t.Helper()
	for round := range 2 { // the second is a replay, of another version
		spans.Reset()
		p := projector.New(store, "balances", "account", projector.Memory(events, func(context.Context, projector.Event[deposited]) error { return nil }),
			&projector.Options{Version: round + 1})
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		all := spans.GetSpans()
		if len(all) != 1 {
			t.Fatalf("%d spans, want one", len(all))
		}
		s := all[0]
		if s.Name != "process balances" || s.SpanKind != trace.SpanKindConsumer || s.SpanContext.TraceID() == written.TraceID() {
			t.Errorf("span %q, kind %v, in the trace that wrote: %v", s.Name, s.SpanKind, s.SpanContext.TraceID() == written.TraceID())
		}
		if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID() != written.TraceID() || s.Links[0].SpanContext.SpanID() != written.SpanID() {
			t.Errorf("links %v, want one to %v", s.Links, written)
		}
	}
}

func has(t *testing.T, s tracetest.SpanStub, want ...attribute.KeyValue) {
	t.Helper()
	for _, w := range want {
		found := false
		for _, kv := range s.Attributes {
			found = found || kv == w
		}
		if !found {
			t.Errorf("span %q has no attribute %s=%s among %v", s.Name, w.Key, w.Value.String(), s.Attributes)
		}
	}
}
