// An append whose last step is not the log's own.

package eventstore_test

import (
	"context"
	"errors"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/eventstore"
)

// The step gets what Append would hand to a log; what it refuses is not announced,
// and what comes incomplete or too large never reaches it.
func TestAppendBy(t *testing.T) {
	a := &announcer{}
	s := newStore(t, &eventstore.Options{Announcer: a, Limits: eventstore.Limits{EventBytes: 10}})
	oops := errors.New("oops")
	fail := error(nil)
	calls := 0
	do := func(ctx context.Context, got eventstore.Append) (eventstore.Appended, error) {
		calls++
		if b := got.Batches[0]; b.ID.IsZero() || b.Events[0].ID.IsZero() || b.Events[0].Version != 1 {
			t.Errorf("incomplete: %+v", b)
		}
		if fail != nil {
			return eventstore.Appended{}, fail
		}
		return s.Log().Append(ctx, got)
	}
	if done, err := s.AppendBy(t.Context(), opening(2, "account-a"), do); err != nil || done.Receipts[0].Last.Seqno != 2 || len(a.hints) != 1 {
		t.Errorf("%+v %v, %d hints", done, err, len(a.hints))
	}
	fail = oops
	if _, err := s.AppendBy(t.Context(), opening(1, "account-b"), do); err != oops || len(a.hints) != 1 {
		t.Errorf("%v, %d hints", err, len(a.hints))
	}
	large := opening(1, "account-c")
	large.Batches[0].Events[0].Data = make([]byte, 11)
	if _, err := s.AppendBy(t.Context(), large, do); !errors.Is(err, eventstore.ErrTooLarge) || calls != 2 {
		t.Errorf("%v, %d calls", err, calls)
	}
}

// Nothing is announced before it is said to be committed; then as a child of the
// append's span, which ended long ago.
func TestAppendPending(t *testing.T) {
	a := &announcer{}
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	s := newStore(t, &eventstore.Options{Announcer: a, TracerProvider: provider})
	done, announce, err := s.AppendPending(t.Context(), opening(1, "account-a", "account-b"), s.Log().Append)
	if err != nil || len(done.Receipts) != 2 || len(a.hints) != 0 {
		t.Fatalf("%+v %v, %d hints", done, err, len(a.hints))
	}
	announce(t.Context())
	if len(a.hints) != 2 || a.hints[1].Stream != "account-b" || a.hints[1].Position != done.Token.Position {
		t.Errorf("%+v", a.hints)
	}
	ended := spans.Ended()
	if n := len(ended); n != 2 || ended[1].Parent().SpanID() != ended[0].SpanContext().SpanID() {
		t.Errorf("%d spans, want the announcement's below the append's", n)
	}
	if _, announce, err := s.AppendPending(t.Context(), opening(1, "account-a"), s.Log().Append); !errors.Is(err, eventstore.ErrFenced) || announce != nil {
		t.Errorf("refused: %v, something to announce: %v", err, announce != nil)
	}
}
