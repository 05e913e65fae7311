// Spans of the Store, and the W3C trace context formatted by hand: the package
// go.opentelemetry.io/otel/propagation would link net/http.

package eventstore

import (
	"context"
	"encoding/hex"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// ScopeName is the instrumentation scope of all spans of Wattle.
const ScopeName = "github.com/wattle-es/wattle"

// System is the value of the attribute messaging.system on all spans of Wattle.
const System = "wattle"

// Attributes of spans: semantic conventions for messaging where there is one,
// wattle.* else.
const (
	AttrSystem      = attribute.Key("messaging.system")
	AttrOperation   = attribute.Key("messaging.operation.name")
	AttrOpType      = attribute.Key("messaging.operation.type")
	AttrDestination = attribute.Key("messaging.destination.name")
	AttrBatchCount  = attribute.Key("messaging.batch.message_count")
	AttrErrorType   = attribute.Key("error.type")
	AttrStream      = attribute.Key("wattle.stream")
	AttrSeqno       = attribute.Key("wattle.seqno")
	AttrEpoch       = attribute.Key("wattle.epoch")
	AttrPosition    = attribute.Key("wattle.position")
)

// Traceparent returns the W3C traceparent of the span in ctx, "" if there is none.
// It is returned for spans that are not sampled too, so that what is written can
// always be found from the trace.
func Traceparent(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
}

// ParseTraceparent reads a W3C traceparent and tracestate; ok is false if they do
// not hold a valid span context.
func ParseTraceparent(parent, state string) (sc trace.SpanContext, ok bool) {
	// version-traceid-parentid-flags: 2, 32, 16 and 2 lower-case hexadecimal digits
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' || parent[:2] == "ff" {
		return trace.SpanContext{}, false
	}
	if len(parent) > 55 && (parent[:2] == "00" || parent[55] != '-') {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(parent[3:35])
	if err != nil {
		return trace.SpanContext{}, false
	}
	span, err := trace.SpanIDFromHex(parent[36:52])
	if err != nil {
		return trace.SpanContext{}, false
	}
	flags, err := hex.DecodeString(parent[53:55])
	if err != nil {
		return trace.SpanContext{}, false
	}
	ts, _ := trace.ParseTraceState(state) // a bad tracestate is dropped, as W3C says
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span,
		TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, TraceState: ts, Remote: true}), true
}

// traceMetadata is what is stored with each event of an append.
func traceMetadata(ctx context.Context) Metadata {
	parent := Traceparent(ctx)
	if parent == "" {
		return nil
	}
	m := Metadata{MetaTraceparent: parent}
	if ts := trace.SpanContextFromContext(ctx).TraceState().String(); ts != "" {
		m[MetaTracestate] = ts
	}
	return m
}

func (s *Store) span(ctx context.Context, name, opType string, kind trace.SpanKind, on Stream, more ...attribute.KeyValue) (context.Context, trace.Span) {
	if s.untraced { // naming what nobody records would take longer than all the checks
		return s.tracer.Start(ctx, name)
	}
	return s.tracer.Start(ctx, name+" "+string(on.Category()), trace.WithSpanKind(kind), trace.WithAttributes(append(more,
		AttrSystem.String(System), AttrOperation.String(name), AttrOpType.String(opType),
		AttrDestination.String(string(on.Category())), AttrStream.String(string(on)))...))
}

// EndSpan ends a span, with the error if there is one.
func EndSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(AttrErrorType.String(ErrorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// ErrorType is the value of [AttrErrorType] for an error: its kind, or "other".
func ErrorType(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind.Error()
	}
	return "other"
}
