// What the client puts around each call: the bearer token, a span, the trace.

package remotelog

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wattle-es/wattle/eventstore"
)

// bearer puts a token into the header of each call.
type bearer struct {
	token func(context.Context) (string, error)
}

func (b bearer) set(ctx context.Context, h http.Header) error {
	token, err := b.token(ctx)
	if err == nil && token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return err
}

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := b.set(ctx, r.Header()); err != nil {
			return nil, tokenError(err)
		}
		return next(ctx, r)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if err := b.set(ctx, conn.RequestHeader()); err != nil {
			return noConn{conn, tokenError(err)}
		}
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func tokenError(err error) error {
	return &eventstore.Error{Kind: ErrUnauthenticated, Wanted: "a token", Found: "none", Hint: "nothing was sent", Err: err}
}

// noConn is a stream that has failed before anything was sent.
type noConn struct {
	connect.StreamingClientConn
	err error
}

func (c noConn) Send(any) error    { return c.err }
func (c noConn) Receive(any) error { return c.err }

// traced makes a span of kind client around each call, and tells the server the trace.
// It is written by hand: otelconnect links a second Connect and the propagators of OTel,
// which alone are half a megabyte of a program for WebAssembly.
type traced struct{ tracer trace.Tracer }

func newTraced(p trace.TracerProvider) traced {
	if p == nil {
		p = noop.NewTracerProvider() // its spans are those that are in the context
	}
	return traced{p.Tracer(eventstore.ScopeName)}
}

// start begins a span, named and described as by the semantic conventions for RPC.
func (t traced) start(ctx context.Context, spec connect.Spec, h http.Header) (context.Context, trace.Span) {
	name := strings.TrimPrefix(spec.Procedure, "/")
	service, method, _ := strings.Cut(name, "/")
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("rpc.system", "connect_rpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method)))
	if parent := eventstore.Traceparent(ctx); parent != "" {
		setTrace(ctx, parent, h)
	}
	return ctx, span
}

func setTrace(ctx context.Context, parent string, h http.Header) {
	h.Set("Traceparent", parent)
	if state := trace.SpanContextFromContext(ctx).TraceState().String(); state != "" {
		h.Set("Tracestate", state)
	}
}

func (t traced) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, span := t.start(ctx, r.Spec(), r.Header())
		defer span.End()
		answer, err := next(ctx, r)
		if err != nil && span.IsRecording() {
			span.SetAttributes(attribute.String("rpc.connect_rpc.error_code", connect.CodeOf(err).String()))
			span.SetStatus(codes.Error, connect.CodeOf(err).String())
		}
		return answer, err
	}
}

// WrapStreamingClient tells the trace; how long a stream lasts says nothing.
func (t traced) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if parent := eventstore.Traceparent(ctx); parent != "" {
			setTrace(ctx, parent, conn.RequestHeader())
		}
		return conn
	}
}

func (t traced) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
