// What is written and what is read: Event, Entry, Metadata, Mark.

package eventstore

import (
	"maps"
	"time"
)

// Event is a fact to append.
type Event struct {
	ID          UUID     // zero: derived from the batch's ID and the event's index
	Type        string   // wire name, as "account.opened"
	Version     int      // version of the schema of Data, from 1; zero means 1
	ContentType string   // of Data; empty means application/json
	Data        []byte   // opaque; stored and returned byte for byte, never nil when read
	Metadata    Metadata // may be nil; read back as nil when empty
}

// Entry is an Event that has its place. Its Data and Metadata may be shared with
// other readers: treat them as read-only.
type Entry struct {
	Event
	Stream   Stream
	Seqno    Seqno
	Epoch    Epoch     // under which it was written
	BatchID  UUID      // of the batch that wrote it
	Position Position  // in the whole store; 0 in the dedicated layout
	Time     time.Time // of the append, on the store's clock, in UTC to the microsecond; never falls along a stream
}

// Mark returns the mark of the entry in its stream.
func (e Entry) Mark() Mark { return Mark{Seqno: e.Seqno, ID: e.ID} }

// PositionMark returns the mark of the entry in the feed.
func (e Entry) PositionMark() PositionMark {
	return PositionMark{Position: e.Position, ID: e.ID}
}

// Mark is a seqno and the ID of the entry that stands there. Two histories that
// agree on a Mark agree on all before it, so a history that diverged is noticed
// instead of continued. The zero Mark stands before the first entry.
type Mark struct {
	Seqno Seqno
	ID    UUID
}

// PositionMark is a Mark in the order of the whole store.
type PositionMark struct {
	Position Position
	ID       UUID
}

// String returns "seqno@id", or "seqno" when there is no ID.
func (m Mark) String() string { return markString(m.Seqno.String(), m.ID) }

// String returns "position@id", or "position" when there is no ID.
func (m PositionMark) String() string { return markString(m.Position.String(), m.ID) }

func markString(n string, id UUID) string {
	if id.IsZero() {
		return n
	}
	return n + "@" + id.String()
}

// Metadata is what travels with an event beside its data. Keys and values are
// valid UTF-8 without NUL.
type Metadata map[string]string

// Keys of Metadata that Wattle writes. The trace keys are left out of the digest
// of a batch: a batch resent from another span is still the same batch.
const (
	MetaTraceparent = "traceparent"    // W3C trace context of the append
	MetaTracestate  = "tracestate"     // W3C trace state, when there is one
	MetaCorrelation = "correlation_id" // the whole conversation
	MetaCausation   = "causation_id"   // the command or event that caused this one
	MetaCommand     = "command_id"     // the command that was decided
)

func isTraceKey(k string) bool { return k == MetaTraceparent || k == MetaTracestate }

// with returns a copy of m with the pairs of add that m does not have.
func (m Metadata) with(add Metadata) Metadata {
	if len(add) == 0 {
		return m
	}
	out := maps.Clone(add)
	maps.Copy(out, m)
	return out
}
