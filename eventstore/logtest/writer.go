// writer: a client that owns a stream, and the events it writes.

package logtest

import (
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// writer is a client of one stream: it claims with its first batch and then
// appends as the owner.
type writer struct {
	e      *env
	stream eventstore.Stream
	holder eventstore.UUID
	epoch  eventstore.Epoch
	last   eventstore.Mark
	owns   bool
}

// writer returns a new holder that has read the head of a stream.
func (e *env) writer(s eventstore.Stream) *writer {
	e.Helper()
	h := e.head(s)
	return &writer{e: e, stream: s, holder: eventstore.NewUUID(), epoch: h.Epoch + 1, last: h.Last}
}

// filled returns the owner of a stream that it has just filled with n entries of
// one batch.
func (e *env) filled(s eventstore.Stream, n int) *writer {
	e.Helper()
	w := e.writer(s)
	w.append(n)
	return w
}

// batch is the next batch of the writer; nothing is sent.
func (w *writer) batch(events ...eventstore.Event) eventstore.Batch {
	return eventstore.Batch{ID: eventstore.NewUUID(), Stream: w.stream, Epoch: w.epoch, Holder: w.holder,
		Claim: !w.owns, After: w.last, Events: events}
}

// send appends a batch that must go through and moves the writer behind it.
func (w *writer) send(b eventstore.Batch) eventstore.Appended {
	w.e.Helper()
	done := w.e.appendBatches(b)
	w.wrote(done.Receipts[0])
	return done
}

// append appends n new events, which must go through, as one batch.
func (w *writer) append(n int) eventstore.Receipt {
	w.e.Helper()
	return w.send(w.batch(events(n)...)).Receipts[0]
}

// wrote notes that a batch went through.
func (w *writer) wrote(r eventstore.Receipt) { w.last, w.owns = r.Last, true }

// fencedBy lets another holder claim the stream and write n entries.
func (w *writer) fencedBy(n int) *writer {
	w.e.Helper()
	return w.e.filled(w.stream, n)
}

// events returns n new events.
func events(n int) []eventstore.Event {
	all := make([]eventstore.Event, n)
	for i := range all {
		all[i] = event(fmt.Sprintf(`{"n":%d}`, i))
	}
	return all
}

func event(data string) eventstore.Event {
	return eventstore.Event{Type: "tested", Data: []byte(data), Metadata: eventstore.Metadata{"by": "logtest"}}
}

// ids returns the IDs of entries.
func ids(entries []eventstore.Entry) []eventstore.UUID {
	all := make([]eventstore.UUID, len(entries))
	for i, e := range entries {
		all[i] = e.ID
	}
	return all
}

// seqnos returns the seqnos of entries.
func seqnos(entries []eventstore.Entry) []eventstore.Seqno {
	all := make([]eventstore.Seqno, len(entries))
	for i, e := range entries {
		all[i] = e.Seqno
	}
	return all
}

// span returns the seqnos from first through last.
func span(first, last eventstore.Seqno) []eventstore.Seqno {
	all := make([]eventstore.Seqno, 0)
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}
