// One trace from a command's caller over the carrier to the projection.

package carriers_test

import (
	"context"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
)

func TestOneTrace(t *testing.T) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			spans := tracetest.NewInMemoryExporter()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
			store := eventstore.New(memlog.New(nil), &eventstore.Options{TracerProvider: provider})
			defer store.Close()
			caller, err := handler.NewCaller(t.Context(), c.start(t, provider), &handler.Options{TracerProvider: provider, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			exec, err := guest.NewExecutor(t.Context(), store, caller, nil)
			if err != nil {
				t.Fatal(err)
			}
			command, err := wiretest.Command(loan.Submit{Order: loan.Order{At: time.Unix(0, 0)}, Amount: 5})
			if err != nil {
				t.Fatal(err)
			}
			spans.Reset()
			ctx, root := provider.Tracer("test").Start(t.Context(), "root")
			if _, err := exec.Execute(ctx, "1", guest.Command{Command: command}); err != nil {
				t.Fatal(err)
			}
			root.End()
			seen := ""
			p := projector.New(store, "p", wire.Category, projector.Memory(wire.Events(), func(ctx context.Context, e projector.Event[loan.Event]) error {
				seen = e.Metadata[eventstore.MetaTraceparent]
				return nil
			}))
			if _, err := p.CatchUp(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			check(t, spans.GetSpans(), root.SpanContext().TraceID().String(), seen, c.spans)
		})
	}
}

// check looks for the way from the caller to the projection.
func check(t *testing.T, spans tracetest.SpanStubs, trace, seen string, far bool) {
	t.Helper()
	by := map[string]tracetest.SpanStub{}
	for _, s := range spans {
		by[s.Name] = s
	}
	path := []string{"root", "execute application", "decide application"}
	if far {
		path = append(path, "handle decide application")
	}
	for i, name := range path {
		s, ok := by[name]
		switch {
		case !ok:
			t.Errorf("no span %q among %d", name, len(spans))
		case s.SpanContext.TraceID().String() != trace:
			t.Errorf("%q is of another trace", name)
		case i > 0 && s.Parent.SpanID() != by[path[i-1]].SpanContext.SpanID():
			t.Errorf("%q is no child of %q", name, path[i-1])
		}
	}
	if len(seen) < 35 || seen[3:35] != trace {
		t.Errorf("the projection saw %q, want trace %s", seen, trace)
	}
	for _, s := range spans { // the projection's span links to the command's
		for _, l := range s.Links {
			if l.SpanContext.TraceID().String() == trace {
				return
			}
		}
		if s.Name == "project p" && s.SpanContext.TraceID().String() == trace {
			return
		}
	}
	t.Errorf("no span of the projection leads back to the trace")
}
