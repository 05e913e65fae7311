// What a server is told when it is made.

package server

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/server/policy"
)

// Options are the options of New. What is zero is the default that is stated.
type Options struct {
	// Policy says who may do what. Nil: nobody anything.
	Policy *policy.Current
	// TLS secures the connections. Nil: they are not, and Serve takes listeners on loopback
	// and Unix sockets only, unless Insecure.
	TLS      *TLS
	Insecure bool
	// Tokens is a file of bearer tokens for development, "NAME TOKEN" on each line. It must
	// not be readable for everybody. "": there are none.
	Tokens string
	// Proxy may say who asks. Nil: nobody but the caller's own certificate or token does.
	Proxy *Proxy
	// Anonymous lets in whoever has neither certificate nor token, as policy.Anonymous.
	Anonymous bool

	// Ready says if the store can be written to now: nil is yes. What its error says is
	// logged, and never shown. It is asked at most once in DefaultReadyInterval. Nil: the
	// server is ready while it serves.
	Ready func(context.Context) error
	// Reflection serves gRPC reflection to those who may do anything at all.
	Reflection bool

	Limits         Limits
	Logger         *slog.Logger         // nil: nobody is told
	TracerProvider trace.TracerProvider // nil: no spans
	MeterProvider  metric.MeterProvider // nil: no metrics; see NewMetrics
	// DistrustTraces links spans to those that callers send instead of continuing them. By
	// default they are continued: only callers who are known come so far.
	DistrustTraces bool
}
