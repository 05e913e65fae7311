// The span around a command.

package aggregate

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
)

// Attributes of the span "execute <category>", beside those of eventstore. The span
// is of kind internal; load and append are its children.
//
// A refusal by Decide is an answer, not a failure: the span has AttrRefused and no
// error status, and the refusal's text, which may hold what the user said, is left
// out.
const (
	AttrCommand  = attribute.Key("wattle.command_id") // when the command has one
	AttrRetries  = attribute.Key("wattle.retries")    // how often it was decided again
	AttrReplayed = attribute.Key("wattle.replayed")   // it was in the history already
	AttrRefused  = attribute.Key("wattle.refused")    // Decide refused it
	AttrStreams  = attribute.Key("wattle.streams")    // all streams, when there are several
)

func (x *Executor[S, C, E]) span(ctx context.Context, streams []eventstore.Stream, c *call) (context.Context, trace.Span) {
	category := string(x.typ.Category)
	ctx, span := x.tracer.Start(ctx, opExecute+" "+category, trace.WithSpanKind(trace.SpanKindInternal))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(eventstore.AttrSystem.String(eventstore.System), eventstore.AttrOperation.String(opExecute),
		eventstore.AttrDestination.String(category))
	if len(streams) == 1 {
		span.SetAttributes(eventstore.AttrStream.String(string(streams[0])))
	} else {
		names := make([]string, len(streams))
		for i, s := range streams {
			names[i] = string(s)
		}
		slices.Sort(names)
		span.SetAttributes(AttrStreams.StringSlice(names))
	}
	if !c.command.IsZero() {
		span.SetAttributes(AttrCommand.String(c.command.String()))
	}
	return ctx, span
}

// endSpan tells what became of the command.
func endSpan[S, E any](span trace.Span, results []Result[S, E], retries int, refused bool, err error) {
	if span.IsRecording() {
		span.SetAttributes(AttrRetries.Int(retries))
		if refused {
			span.SetAttributes(AttrRefused.Bool(true))
		}
		if len(results) > 0 {
			span.SetAttributes(AttrReplayed.Bool(results[0].Replayed))
		}
		if len(results) == 1 {
			span.SetAttributes(eventstore.AttrSeqno.Int64(int64(results[0].Mark.Seqno)))
		}
	}
	if refused {
		err = nil
	}
	eventstore.EndSpan(span, err)
}
