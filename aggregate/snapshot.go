// Snapshots: a state and what is remembered of commands, as one JSON object.

package aggregate

import (
	"context"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
)

// envelope is the data of a snapshot. Its form is named by the fingerprint.
type envelope[S any] struct {
	State S `json:"state"`
	memory
}

func decodeSnapshot[S any](sn *eventstore.Snapshot) (envelope[S], error) {
	var e envelope[S]
	err := schema.JSON.Decode(sn.Data, &e)
	return e, err
}

// Snapshot loads a stream, saves a snapshot at its head and returns where that is;
// the zero Mark if the stream has no entries. It is for whoever makes snapshots
// beside the commands, as before a trim.
func (x *Executor[S, C, E]) Snapshot(ctx context.Context, key string) (eventstore.Mark, error) {
	if x.unkept != nil {
		return eventstore.Mark{}, x.unkept
	}
	s, err := eventstore.NewStream(x.typ.Category, key)
	if err != nil {
		return eventstore.Mark{}, err
	}
	h, err := x.load(ctx, s, eventstore.Mark{})
	if err != nil || h.last.Seqno == 0 || h.snapshotAt == h.last.Seqno {
		return h.mark(), err
	}
	return h.last, x.save(ctx, h)
}

func (h *history[S]) mark() eventstore.Mark {
	if h == nil {
		return eventstore.Mark{}
	}
	return h.last
}

func (x *Executor[S, C, E]) save(ctx context.Context, h *history[S]) error {
	data, err := schema.JSON.Encode(envelope[S]{State: h.state, memory: h.memory})
	if err != nil {
		return err
	}
	return x.store.SaveSnapshot(ctx, eventstore.Snapshot{Stream: h.stream, At: h.last, Fingerprint: x.fingerprint,
		ContentType: schema.JSON.ContentType(), Data: data})
}

// saveIfDue makes a snapshot when enough events stand behind the last one. The
// events are durable already, so a failure is told to the logger only, and tried
// again when as many events more have come.
func (x *Executor[S, C, E]) saveIfDue(ctx context.Context, h *history[S]) {
	every := eventstore.Seqno(x.typ.Snapshots.Every)
	if every == 0 || h.last.Seqno-h.snapshotAt < every {
		return
	}
	h.snapshotAt = h.last.Seqno
	if err := x.save(ctx, h); err != nil {
		x.store.Logger().WarnContext(ctx, "snapshot not saved; loads replay more events", "stream", h.stream, "at", h.last.Seqno, "error", err)
	}
}
