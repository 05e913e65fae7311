// What clients put around each call: the bearer token, a span, the trace; and the
// connections they make.

package wire

import (
	"context"
	"net/http"
	"strings"
	"time"

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
	kind  error
}

// Bearer puts the token that a function gives into the header of each call; "" is none.
// Its error is the call's, of a kind: nothing was sent then.
func Bearer(token func(context.Context) (string, error), kind error) connect.Interceptor {
	return bearer{token, kind}
}

func (b bearer) set(ctx context.Context, h http.Header) error {
	token, err := b.token(ctx)
	if err != nil {
		return &eventstore.Error{Kind: b.kind, Wanted: "a token", Found: "none", Hint: "nothing was sent", Err: err}
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := b.set(ctx, r.Header()); err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if err := b.set(ctx, conn.RequestHeader()); err != nil {
			return noConn{conn, err}
		}
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// noConn is a stream that has failed before anything was sent.
type noConn struct {
	connect.StreamingClientConn
	err error
}

func (c noConn) Send(any) error    { return c.err }
func (c noConn) Receive(any) error { return c.err }

type traced struct{ tracer trace.Tracer }

// Traced makes a span of kind client around each call, and tells the server the trace.
// It is written by hand: otelconnect links a second Connect and the propagators of OTel,
// which alone are half a megabyte of a program for WebAssembly.
//
// Nil: there are no spans, and the trace is the one of the context.
func Traced(p trace.TracerProvider) connect.Interceptor {
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

// NewTransport is http.DefaultTransport with a pool of its own. Over http it speaks HTTP/2
// at once, which every server of ours understands. A connection on which nothing has come
// for as long as ping is asked whether it is alive, and given up after as long again: else
// calls would queue on a dead one until each has run out of its time.
func NewTransport(scheme string, ping time.Duration) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping}}
	if scheme == "http" {
		t.Protocols.SetUnencryptedHTTP2(true)
		return t
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}
