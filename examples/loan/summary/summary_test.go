// The summary of generated applications, in process and through bytes, against one that is
// counted from the cases.

package summary_test

import (
	"context"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/examples/loan/summary"
	"github.com/wattle-es/wattle/examples/loan/summary/summarytest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// far answers bytes with the summary, as the far side of a carrier does.
type far struct{}

func (far) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(ctx, summary.Handler(), op, request), nil
}

func TestSummary(t *testing.T) {
	const n = 300
	applications, err := summarytest.New(7, n)
	ok(t, err)
	s, err := applications.Store(t.Context())
	ok(t, err)
	want, err := applications.Documents()
	ok(t, err)
	for name, h := range map[string]handler.Handler{"in process": summary.Handler(), "bytes": handler.Over(far{}, "bytes")} {
		t.Run(name, func(t *testing.T) {
			caller, err := handler.NewCaller(t.Context(), h, nil)
			ok(t, err)
			docs := &guest.MemoryDocuments{}
			p := guest.NewProjector(s, "summary", caller, docs, &guest.Options{Projector: projector.Options{Lanes: 4, PageSize: 90}})
			if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
				t.Fatal(more, err)
			}
			kinds := map[string]int{}
			for d, err := range docs.All(t.Context(), "summary", 1) {
				ok(t, err)
				if string(d.Data) != string(want[d.Key]) {
					t.Errorf("document %q: %s, want %s", d.Key, d.Data, want[d.Key])
				}
				kinds[strings.FieldsFunc(d.Key, func(r rune) bool { return r == ' ' || r == '-' })[0]]++
			}
			if kinds["application"] != n || kinds["outcome"] != 3 || kinds["day"] < 10 || kinds["application"]+kinds["outcome"]+kinds["day"] != len(want) {
				t.Errorf("kinds of documents: %v, want %d in all", kinds, len(want))
			}
		})
	}
}

func TestConformance(t *testing.T) {
	applications, err := summarytest.New(3, 40)
	ok(t, err)
	s, err := applications.Store(t.Context())
	ok(t, err)
	entries, err := summarytest.Entries(t.Context(), s)
	ok(t, err)
	want, err := applications.Documents()
	ok(t, err)
	result, err := conformance.Run(t.Context(), summary.Handler(), &conformance.Options{Entries: entries, Documents: want})
	ok(t, err)
	for _, f := range result.Findings {
		t.Error(f)
	}
}

// What the process does not do is said of the entry.
func TestWhatCannotBe(t *testing.T) {
	h := summary.Handler()
	at := `{"at":"2011-10-01T00:00:00Z"}`
	reply, err := h.Handle(t.Context(), &handler.Request{Op: handler.Project, Events: []handler.Entry{
		{Event: handler.Event{Type: "loan.approved", Version: 1, Data: []byte(at)}, Stream: "application-1", Seqno: 2, Position: 1},
		{Event: handler.Event{Type: "loan.submitted", Version: 1, Data: []byte(at)}, Stream: "application-2", Seqno: 1, Position: 2},
		{Event: handler.Event{Type: "loan.approved", Version: 1, Data: []byte(at)}, Stream: "application-2", Seqno: 2, Position: 3},
		{Event: handler.Event{Type: "loan.cancelled", Version: 1, Data: []byte(at)}, Stream: "application-2", Seqno: 3, Position: 4},
	}})
	if err != nil || len(reply.Failed) != 2 || reply.Failed[0].Position != 1 || reply.Failed[1].Position != 4 || len(reply.Put) != 3 {
		t.Errorf("%+v, %v", reply, err)
	}
}
