package remotetopic

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/topic"
)

// A call has a span, and the server is told the trace; a token that cannot be had is an
// error of its own, and nothing is sent.
func TestTraceAndToken(t *testing.T) {
	var parent, token string
	look := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			parent, token = r.Header().Get("Traceparent"), r.Header().Get("Authorization")
			return next(ctx, r)
		}
	})
	calls := 0
	s := serve(t, &fakeTopics{describe: func() (topic.Description, error) { calls++; return topic.Description{}, nil }},
		ServiceOptions{Options: []connect.HandlerOption{connect.WithInterceptors(look)}})
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, outer := provider.Tracer("test").Start(t.Context(), "outer")
	var tokenErr error
	c := clientOf(t, &Options{Lazy: true, TracerProvider: provider, Token: func(context.Context) (string, error) { return "abc", tokenErr }}, s.URL)
	_, _ = c.Describe(ctx, "orders")
	outer.End()
	all := spans.Ended()
	if len(all) < 2 {
		t.Fatalf("found %d spans, want the call's and its caller's", len(all))
	}
	sc, valid := eventstore.ParseTraceparent(parent, "")
	if span := all[0]; !valid || span.Name() != "wattle.v1.TopicService/DescribeTopic" || span.SpanContext().SpanID() != sc.SpanID() || span.Parent().SpanID() != outer.SpanContext().SpanID() {
		t.Errorf("the server was told %q; the span is %q of %v", parent, span.Name(), span.Parent())
	}
	if token != "Bearer abc" || calls != 1 {
		t.Errorf("the server was told %q in %d calls", token, calls)
	}
	tokenErr = errors.New("no token today")
	if _, err := c.Describe(t.Context(), "orders"); !errors.Is(err, remotelog.ErrUnauthenticated) || !errors.Is(err, tokenErr) || calls != 1 {
		t.Errorf("without a token: %v, %d calls", err, calls)
	}
}
