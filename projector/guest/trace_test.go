// One trace from a step of the projector through the call to the far side, linked to the
// traces that wrote the entries.

package guest_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector/guest"
)

// elsewhere is a carrier to another process: of the caller's context nothing comes along.
type elsewhere struct{ h handler.Handler }

func (f elsewhere) Call(_ context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(context.Background(), f.h, op, request), nil
}

func TestOneTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	e := newEnv(t, &eventstore.Options{TracerProvider: provider})
	e.append("account-1", Deposited{1})
	written := spans.GetSpans()[0].SpanContext.TraceID()
	for _, s := range spans.GetSpans() {
		if s.SpanContext.TraceID() != written {
			t.Fatalf("the append has several traces")
		}
	}
	c := caller(t, handler.Over(elsewhere{handler.Traced(guest.New(accounts), provider)}, "elsewhere"), &handler.Options{TracerProvider: provider})
	spans.Reset()
	issued := &commands{}
	e.append("account-1", Closed{"x"})
	spans.Reset()
	var seen trace.SpanContext
	o := &guest.Options{Issue: issued.issue}
	if _, err := guest.NewProjector(e.store, "p", c, &guest.MemoryDocuments{}, o).CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var process tracetest.SpanStub
	for _, s := range spans.GetSpans() {
		if s.Name == "process p" {
			process, seen = s, s.SpanContext
		}
	}
	if len(process.Links) != 2 || process.Links[0].SpanContext.TraceID() != written {
		t.Fatalf("the step's span: %+v", process)
	}
	by := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		by[s.Name] = s
		if s.Status.Code == codes.Error {
			t.Errorf("span %q failed: %v", s.Name, s.Status)
		}
	}
	for _, op := range []string{"keys", "project"} {
		call, far := by[op+" p"], by["handle "+op]
		if call.SpanContext.TraceID() != seen.TraceID() || call.Parent.SpanID() != seen.SpanID() || call.SpanKind != trace.SpanKindClient {
			t.Errorf("%s: the call's span %+v", op, call)
		}
		if far.SpanContext.TraceID() != seen.TraceID() || far.Parent.SpanID() != call.SpanContext.SpanID() || far.SpanKind != trace.SpanKindServer || !far.Parent.IsRemote() {
			t.Errorf("%s: the far side's span %+v", op, far)
		}
	}
}
