// The far side's span.

package handler

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
)

// Traced returns h with a span "handle decide <category>" and the like, of kind server,
// around each call, as a child of the caller's span that the request names.
func Traced(h Handler, p trace.TracerProvider) Handler {
	tracer := p.Tracer(eventstore.ScopeName)
	return Func(func(ctx context.Context, r *Request) (reply *Reply, err error) {
		if sc, ok := eventstore.ParseTraceparent(r.Traceparent, r.Tracestate); ok && trace.SpanContextFromContext(ctx).TraceID() != sc.TraceID() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
		}
		name := "handle " + string(r.Op)
		if r.Stream != "" {
			name += " " + string(r.Stream.Category())
		}
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
		defer func() {
			failed := err
			if _, refused := errors.AsType[*Rejected](err); refused {
				span.SetAttributes(AttrRefused.Bool(true))
				failed = nil
			}
			if reply != nil && reply.Failure != nil {
				failed = failure(r, "", reply.Failure)
			}
			eventstore.EndSpan(span, failed)
		}()
		return h.Handle(ctx, r)
	})
}
