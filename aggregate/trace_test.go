// Spans: names, attributes, parents, what is an error and what is not.

package aggregate_test

import (
	"context"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
)

type traced struct {
	store *eventstore.Store
	log   *faulty
	spans *tracetest.InMemoryExporter
}

func newTraced(t *testing.T) traced {
	store, log := newStore(t)
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	return traced{eventstore.New(store.Log(), &eventstore.Options{TracerProvider: provider}), log, spans}
}

// one returns the only span of that name since the last reset.
func (tr traced) one(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range tr.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q", len(found), name)
	}
	return found[0]
}

func wantAttrs(t *testing.T, s tracetest.SpanStub, want ...attribute.KeyValue) {
	t.Helper()
	for _, kv := range want {
		if !slices.Contains(s.Attributes, kv) {
			t.Errorf("span %q: wanted %v in %v", s.Name, kv, s.Attributes)
		}
	}
}

func TestSpans(t *testing.T) {
	tr := newTraced(t)
	x := newExecutor(t, tr.store, accounts(aggregate.Snapshots{}), nil)
	id := eventstore.NewUUID()
	execute(t, x, "alice", Deposit{1}, aggregate.CommandID(id))
	s := tr.one(t, "execute account")
	if s.SpanKind != trace.SpanKindInternal || s.Status.Code != codes.Unset || s.InstrumentationScope.Name != eventstore.ScopeName {
		t.Fatalf("found %+v", s)
	}
	wantAttrs(t, s, eventstore.AttrSystem.String("wattle"), eventstore.AttrOperation.String("execute"),
		eventstore.AttrDestination.String("account"), eventstore.AttrStream.String("account-alice"), eventstore.AttrSeqno.Int64(1),
		aggregate.AttrCommand.String(id.String()), aggregate.AttrRetries.Int(0), aggregate.AttrReplayed.Bool(false))
	for _, child := range []string{"load account", "append account"} {
		if c := tr.one(t, child); c.Parent.SpanID() != s.SpanContext.SpanID() {
			t.Errorf("%s is no child", child)
		}
	}
	written := entries(t, tr.store, alice)[0].Metadata[eventstore.MetaTraceparent]
	if sc, ok := eventstore.ParseTraceparent(written, ""); !ok || sc.TraceID() != s.SpanContext.TraceID() {
		t.Fatalf("traceparent %q", written)
	}

	tr.spans.Reset()
	execute(t, x, "alice", Deposit{1}, aggregate.CommandID(id))
	wantAttrs(t, tr.one(t, "execute account"), aggregate.AttrReplayed.Bool(true))
}

func TestSpanOfARefusalIsNoError(t *testing.T) {
	tr := newTraced(t)
	x := newExecutor(t, tr.store, accounts(aggregate.Snapshots{}), nil)
	_, err := x.Execute(context.Background(), "alice", Withdraw{1})
	wantErr(t, err, errFunds)
	s := tr.one(t, "execute account")
	wantAttrs(t, s, aggregate.AttrRefused.Bool(true))
	if s.Status.Code != codes.Unset {
		t.Fatalf("status %+v", s.Status)
	}
}

func TestSpanOfAFailureIsAnError(t *testing.T) {
	tr := newTraced(t)
	x := newExecutor(t, tr.store, accounts(aggregate.Snapshots{}), nil)
	tr.log.next(unavailable)
	_, err := x.Execute(context.Background(), "alice", Deposit{1})
	wantErr(t, err, eventstore.ErrUnavailable)
	s := tr.one(t, "execute account")
	wantAttrs(t, s, eventstore.AttrErrorType.String("unavailable"))
	if s.Status.Code != codes.Error {
		t.Fatalf("status %+v", s.Status)
	}
}

func TestSpanCountsRetriesAndNamesStreams(t *testing.T) {
	tr := newTraced(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, tr.store, typ, nil), newExecutor(t, eventstore.New(tr.log, nil), typ, nil)
	execute(t, x, "alice", Deposit{100})
	tr.spans.Reset()
	tr.log.next(before(func() { execute(t, rival, "alice", Deposit{1}) }, pass))
	multi(t, x, 30)
	s := tr.one(t, "execute account")
	wantAttrs(t, s, aggregate.AttrRetries.Int(1), aggregate.AttrStreams.StringSlice([]string{"account-alice", "account-bob", "account-frozen"}))
}
