// The summary of the loan process, a projection, on every carrier: by the suite, and by a
// projector.

package carriers_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wattle-es/wattle/examples/loan/summary"
	"github.com/wattle-es/wattle/examples/loan/summary/summarytest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

var summaries = map[string]func(t *testing.T) handler.Handler{
	"native": func(*testing.T) handler.Handler { return summary.Handler() },
	"bytes":  func(*testing.T) handler.Handler { return handler.Over(encoded{summary.Handler()}, "bytes") },
	"http":   func(t *testing.T) handler.Handler { return servedHTTP(t, summary.Handler(), noop.NewTracerProvider()) },
	"nats":   func(t *testing.T) handler.Handler { return servedNATS(t, summary.Handler(), noop.NewTracerProvider()) },
	"connect": func(t *testing.T) handler.Handler {
		return servedConnect(t, summary.Handler(), noop.NewTracerProvider(), connectcarrier.Connect)
	},
	"wasm": func(t *testing.T) handler.Handler { return handler.Over(module(t), "loan.wasm") }, // both are one module
}

func TestSummaryOnEveryCarrier(t *testing.T) {
	for name, start := range summaries {
		t.Run(name, func(t *testing.T) {
			n := 60
			if name == "wasm" { // a call takes a hundred times as long there
				n = 8
			}
			summarized(t, start(t), n)
		})
	}
}

// summarized holds a handler against the summary of n applications.
func summarized(t *testing.T, h handler.Handler, n int) {
	applications, err := summarytest.New(5, n)
	if err != nil {
		t.Fatal(err)
	}
	store, err := applications.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := summarytest.Entries(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	want, err := applications.Documents()
	if err != nil {
		t.Fatal(err)
	}
	o := &handler.Options{Timeout: time.Minute}
	result, err := conformance.Run(t.Context(), h, &conformance.Options{Entries: entries, Documents: want, Caller: o})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		t.Error(f)
	}
	caller, err := handler.NewCaller(t.Context(), h, o)
	if err != nil {
		t.Fatal(err)
	}
	docs := &guest.MemoryDocuments{}
	p := guest.NewProjector(store, "summary", caller, docs, &guest.Options{Projector: projector.Options{Lanes: 3, PageSize: 100}})
	if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
		t.Fatal(more, err)
	}
	found := 0
	for d, err := range docs.All(t.Context(), "summary", 1) {
		if found++; err != nil || string(d.Data) != string(want[d.Key]) {
			t.Errorf("document %q: %s, want %s, %v", d.Key, d.Data, want[d.Key], err)
		}
	}
	if found != len(want) {
		t.Errorf("%d documents, want %d", found, len(want))
	}
}
