// What the client puts into the header of each call.

package remotetopic

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

// callHeader puts the bearer token and the trace into the header of each call, and what is
// the same for all.
type callHeader struct {
	fixed http.Header
	token func(context.Context) (string, error)
}

func (c callHeader) set(ctx context.Context, h http.Header) error {
	for k, v := range c.fixed {
		h[k] = v
	}
	if isOnce(ctx) {
		h.Set("Connection", "close")
	}
	if parent := eventstore.Traceparent(ctx); parent != "" {
		h.Set("Traceparent", parent)
		if state := trace.SpanContextFromContext(ctx).TraceState().String(); state != "" {
			h.Set("Tracestate", state)
		}
	}
	if c.token == nil {
		return nil
	}
	token, err := c.token(ctx)
	if err != nil {
		return &eventstore.Error{Kind: remotelog.ErrUnauthenticated, Wanted: "a token", Found: "none", Hint: "nothing was sent", Err: err}
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func (c callHeader) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := c.set(ctx, r.Header()); err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

func (c callHeader) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if err := c.set(ctx, conn.RequestHeader()); err != nil {
			return noConn{conn, err}
		}
		return conn
	}
}

func (c callHeader) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// noConn is a stream that has failed before anything was sent.
type noConn struct {
	connect.StreamingClientConn
	err error
}

func (c noConn) Send(any) error    { return c.err }
func (c noConn) Receive(any) error { return c.err }

// onceKey marks a context whose call is to leave no connection to those after it. A
// transport of HTTP/2 that sends no pings would go on with a dead one for as long as the
// kernel does: the call that is made like this fails on it too, but the next one gets
// another.
type onceKey struct{}

func onlyOnce(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

func isOnce(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }
