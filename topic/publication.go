// A publication on its way: checked, completed, and waiting for its outcome.

package topic

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// pending is a publication that waits in a partition or is being appended. The
// partition's mu guards what may change, until done is closed.
type pending struct {
	id     eventstore.UUID
	key    string
	tried  time.Time // zero: its ID is new, so it cannot have been tried before
	events []eventstore.Event
	size   int

	flying  bool // it is, or may be, in an append
	gone    bool // nobody waits for it any more: it is no longer in the queue
	waiters int

	done    chan struct{}
	at      eventstore.Seqno // of its first event
	written bool             // by the append that carried it; else it is known from before, and to be proved
	err     error
}

// first is the ID by which the publication is known in the log.
func (w *pending) first() eventstore.UUID { return w.events[0].ID }

// prepare checks a publication and completes its events, so that one that is bad never
// comes near the others.
func (b *Broker) prepare(ctx context.Context, p Publication, spec Spec) (*pending, place, error) {
	w := &pending{id: p.ID, key: p.Key, tried: p.FirstTried, waiters: 1, done: make(chan struct{})}
	if err := w.name(p); err != nil {
		return nil, place{}, err
	}
	at := place{spec.Name, partitionOf(p.Key, w.id, spec.Partitions)}
	if len(p.Key) > MaxKeyBytes {
		return nil, at, tooLarge(at, fmt.Sprintf("a key of at most %d bytes", MaxKeyBytes), fmt.Sprintf("%d bytes", len(p.Key)))
	}
	events, err := w.label(at, p.Events)
	if err != nil {
		return nil, at, err
	}
	if w.events, err = b.completed(ctx, at, w.id, events); err != nil {
		return nil, at, err
	}
	for i := range w.events {
		e := &w.events[i]
		e.Data = bytes.Clone(e.Data) // a caller whose context ends may use his anew before it is sent
		w.size += sizeOf(e)
	}
	return w, at, nil
}

// name settles by which ID the publication is known and since when.
func (w *pending) name(p Publication) error {
	switch {
	case p.ID.IsZero():
		w.id, w.tried = eventstore.NewUUID(), time.Time{}
	case p.ID[6]>>4 == 7:
		w.tried = madeAt(p.ID)
	case p.FirstTried.IsZero():
		return invalid("publish", p.Topic, "FirstTried, or an ID that is a UUIDv7", "ID "+p.ID.String()+" and no time",
			"say when the publication was first tried: it is what tells it from one that is no longer remembered")
	}
	return nil
}

// madeAt is when a UUIDv7 was made.
func madeAt(id eventstore.UUID) time.Time {
	ms := int64(0)
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// label gives the events of a publication their IDs and says in their metadata which key
// and which place they have.
func (w *pending) label(at place, in []eventstore.Event) ([]eventstore.Event, error) {
	events := make([]eventstore.Event, len(in))
	for i, e := range in {
		id := eventstore.DeriveUUID(w.id, i)
		if !e.ID.IsZero() && e.ID != id {
			return nil, invalid("publish", at.topic, fmt.Sprintf("event %d: no ID, or the one derived from the publication's", i), e.ID.String(), "leave it zero")
		}
		part := ""
		if i > 0 {
			part = strconv.Itoa(i)
		}
		e.ID = id
		meta := maps.Clone(e.Metadata)
		for _, m := range [...]struct{ key, value string }{{MetaKey, w.key}, {MetaPart, part}} {
			if have, ok := meta[m.key]; ok && have != m.value {
				return nil, invalid("publish", at.topic, fmt.Sprintf("event %d: no metadata %s, or %q", i, m.key, m.value), strconv.Quote(have), "leave it out")
			}
			if m.value == "" {
				continue
			}
			if meta == nil {
				meta = eventstore.Metadata{}
			}
			meta[m.key] = m.value
		}
		e.Metadata = meta
		events[i] = e
	}
	return events, nil
}

// completed has the store check the publication as if it were appended by itself, and
// returns its events as it would write them: with defaults filled in and the
// publisher's trace, under a span of its own.
func (b *Broker) completed(ctx context.Context, at place, id eventstore.UUID, events []eventstore.Event) (done []eventstore.Event, err error) {
	s := streamOf(at.topic, at.n)
	batch := eventstore.Batch{ID: id, Stream: s, Epoch: 1, Holder: b.holder, Events: events}
	_, _, err = b.store.AppendPending(ctx, eventstore.Append{Batches: []eventstore.Batch{batch}},
		func(_ context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done = a.Batches[0].Events
			return eventstore.Appended{Receipts: []eventstore.Receipt{{Stream: s}}}, nil
		})
	return done, err
}

// sizeOf is what an event counts for, as the limits of a Store count it.
func sizeOf(e *eventstore.Event) int {
	n := len(e.Data)
	for k, v := range e.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// same says if two publications of one ID have the same content.
func (w *pending) same(events []eventstore.Event) bool {
	return len(w.events) == len(events) && eventstore.Digest("", eventstore.Mark{}, w.events) == eventstore.Digest("", eventstore.Mark{}, events)
}

func tooLarge(at place, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: "publish", Stream: streamOf(at.topic, at.n), Category: at.topic, Wanted: wanted, Found: found}
}
