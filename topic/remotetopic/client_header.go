// What the client puts into the header of each call.

package remotetopic

import (
	"context"
	"maps"
	"net/http"

	"connectrpc.com/connect"
)

// callHeader puts into the header of each call what is the same for all.
type callHeader struct{ fixed http.Header }

func (c callHeader) set(ctx context.Context, h http.Header) {
	maps.Copy(h, c.fixed)
	if isOnce(ctx) {
		h.Set("Connection", "close")
	}
}

func (c callHeader) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		c.set(ctx, r.Header())
		return next(ctx, r)
	}
}

func (c callHeader) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		c.set(ctx, conn.RequestHeader())
		return conn
	}
}

func (c callHeader) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// onceKey marks a context whose call is to leave no connection to those after it. A
// transport of HTTP/2 that sends no pings would go on with a dead one for as long as the
// kernel does: the call that is made like this fails on it too, but the next one gets
// another.
type onceKey struct{}

func onlyOnce(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

func isOnce(ctx context.Context) bool { return ctx.Value(onceKey{}) != nil }
