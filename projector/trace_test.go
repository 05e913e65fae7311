// Spans: linked to the traces that wrote, never inside them.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func traced(t *testing.T) (*tracetest.InMemoryExporter, *env) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return spans, newEnv(t, &eventstore.Options{TracerProvider: provider})
}

// process returns the spans of processing, and forgets all.
func process(spans *tracetest.InMemoryExporter) (all tracetest.SpanStubs) {
	for _, s := range spans.GetSpans() {
		if s.SpanKind == trace.SpanKindConsumer {
			all = append(all, s)
		}
	}
	spans.Reset()
	return all
}

func attr(s tracetest.SpanStub, key attribute.Key) string {
	for _, kv := range s.Attributes {
		if kv.Key == key {
			return kv.Value.String()
		}
	}
	return ""
}

func TestSpanPerBatch(t *testing.T) {
	spans, e := traced(t)
	e.append("account-a", Deposited{1}, Deposited{2}) // one trace
	e.deposit("account-a", 1)                         // another
	written := map[trace.TraceID]bool{}
	for _, s := range spans.GetSpans() {
		written[s.SpanContext.TraceID()] = true
	}
	spans.Reset()
	p := projector.New(e.store, "balances", "account", projector.Memory(events, func(context.Context, projector.Event[Event]) error { return nil }))
	for range 2 { // the second time nothing is left, and no span
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	got := process(spans)
	if len(got) != 1 {
		t.Fatalf("%d spans", len(got))
	}
	s := got[0]
	if s.Name != "process balances" || s.Parent.IsValid() || written[s.SpanContext.TraceID()] {
		t.Errorf("span %q, parent %v, of an old trace: %v", s.Name, s.Parent, written[s.SpanContext.TraceID()])
	}
	if len(s.Links) != 2 || !written[s.Links[0].SpanContext.TraceID()] || !written[s.Links[1].SpanContext.TraceID()] || !s.Links[0].SpanContext.IsRemote() {
		t.Errorf("links %v", s.Links)
	}
	for key, want := range map[attribute.Key]string{eventstore.AttrSystem: "wattle", eventstore.AttrOperation: "process", eventstore.AttrOpType: "process",
		eventstore.AttrDestination: "account", eventstore.AttrBatchCount: "3", eventstore.AttrPosition: "3", projector.AttrGroup: "balances/1/0"} {
		if v := attr(s, key); v != want {
			t.Errorf("%s = %q, want %q", key, v, want)
		}
	}
	if s.Status.Code != codes.Unset {
		t.Errorf("status %v", s.Status)
	}
}

func TestSpanPerEntryAndErrors(t *testing.T) {
	spans, e := traced(t)
	e.deposit("account-a", 3)
	spans.Reset()
	h := projector.Memory(events, func(ctx context.Context, ev projector.Event[Event]) error {
		if !trace.SpanFromContext(ctx).IsRecording() {
			t.Error("the handler's context has no span")
		}
		if ev.Seqno == 3 {
			return errors.New("third")
		}
		return nil
	})
	p := projector.New(e.store, "balances", "account", h, &projector.Options{SpanPerEntry: true, StopOnPoison: true})
	if _, err := p.CatchUp(t.Context(), 0); err == nil {
		t.Fatal("no error")
	}
	var names []string
	failed := 0
	for _, s := range process(spans) {
		names = append(names, s.Name)
		if s.Name == "process deposited" {
			if !s.Parent.IsValid() || len(s.Links) != 1 || attr(s, eventstore.AttrStream) != "account-a" || attr(s, eventstore.AttrSeqno) == "" {
				t.Errorf("span of an entry: %+v", s)
			}
		}
		if s.Status.Code == codes.Error {
			failed++
		}
	}
	// The page: two that succeed, one that fails, the batch; then the third alone.
	want := "[process deposited process deposited process deposited process balances process deposited process balances]"
	if fmt.Sprint(names) != want || failed != 4 {
		t.Errorf("spans %v, %d failed", names, failed)
	}
}

// A batch of many traces has a bounded number of links.
func TestLinksAreBounded(t *testing.T) {
	spans, e := traced(t)
	e.deposit("account-a", 300)
	spans.Reset()
	if _, err := projector.New(e.store, "p", "account", &database{}).CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := process(spans); len(got) != 1 || len(got[0].Links) != 128 || got[0].DroppedLinks != 0 {
		t.Errorf("%d spans, %d links, %d dropped", len(got), len(got[0].Links), got[0].DroppedLinks)
	}
}
