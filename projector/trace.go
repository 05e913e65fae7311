// Spans of processing: linked to the traces that wrote the entries, never part of
// them, so that a replay adds nothing to old traces.

package projector

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
)

// AttrGroup is the attribute for a projector's key: the semantic convention for
// the name of a consumer group.
const AttrGroup = attribute.Key("messaging.consumer.group.name")

func (p *Projector) batchSpan(ctx context.Context, to Checkpoint, batch []eventstore.Entry) (context.Context, trace.Span) {
	ctx, span := p.tracer.Start(ctx, "process "+p.key.Projector, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(links(batch)...), trace.WithAttributes(
			eventstore.AttrSystem.String(eventstore.System), eventstore.AttrOperation.String("process"),
			eventstore.AttrOpType.String("process"), eventstore.AttrDestination.String(p.source.name()),
			eventstore.AttrBatchCount.Int(len(batch)), eventstore.AttrPosition.Int64(int64(to.Position)),
			AttrGroup.String(p.key.String())))
	if p.o.SpanPerEntry {
		ctx = context.WithValue(ctx, entryTracer{}, p)
	}
	return ctx, span
}

// links returns a link for each trace that wrote one of the entries, the first
// maxLinks of them.
func links(batch []eventstore.Entry) []trace.Link {
	var all []trace.Link
	seen := map[trace.TraceID]bool{}
	for i := range batch {
		sc, ok := written(&batch[i])
		if ok && !seen[sc.TraceID()] {
			seen[sc.TraceID()] = true
			all = append(all, trace.Link{SpanContext: sc})
		}
		if len(all) == maxLinks {
			break
		}
	}
	return all
}

func written(e *eventstore.Entry) (trace.SpanContext, bool) {
	return eventstore.ParseTraceparent(e.Metadata[eventstore.MetaTraceparent], e.Metadata[eventstore.MetaTracestate])
}

// entryTracer is the context key under which a projector that wants a span per
// entry hands itself to Each.
type entryTracer struct{}

func entrySpan(ctx context.Context, e *eventstore.Entry) (context.Context, trace.Span) {
	p, ok := ctx.Value(entryTracer{}).(*Projector)
	if !ok {
		return ctx, trace.SpanFromContext(context.Background()) // records nothing
	}
	var link []trace.Link
	if sc, ok := written(e); ok {
		link = append(link, trace.Link{SpanContext: sc})
	}
	return p.tracer.Start(ctx, "process "+e.Type, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(link...),
		trace.WithAttributes(eventstore.AttrSystem.String(eventstore.System), eventstore.AttrOperation.String("process"),
			eventstore.AttrOpType.String("process"), eventstore.AttrDestination.String(string(e.Stream.Category())),
			eventstore.AttrStream.String(string(e.Stream)), eventstore.AttrSeqno.Int64(int64(e.Seqno)),
			eventstore.AttrPosition.Int64(int64(e.Position)), AttrGroup.String(p.key.String())))
}
