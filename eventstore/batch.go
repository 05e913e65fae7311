// What an append says and what it answers: Batch, Guard, Append, Receipt, Token.

package eventstore

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"
)

// Batch is what one append writes to one stream.
//
// It goes through only if the stream's epoch, its last seqno and its last entry's
// ID are what the writer saw:
//
//   - with Claim, Epoch must be above the stream's; the append raises it and makes
//     Holder the stream's holder;
//   - without Claim, Epoch and Holder must be the stream's own;
//   - After must be the mark of the stream's last entry. Its ID may be left empty
//     by an owner that sends a batch before the one before it was answered.
//
// Sending a batch again is safe: see Log.Append.
type Batch struct {
	// ID names the batch for ever; zero: Store gives it a new one. That it was used
	// before is noticed where the batch would stand, not elsewhere in the stream.
	ID     UUID
	Stream Stream
	Epoch  Epoch
	Holder UUID
	Claim  bool
	After  Mark
	Events []Event
}

// Last returns the seqno that the batch's last event will have.
func (b *Batch) Last() Seqno { return b.After.Seqno + Seqno(len(b.Events)) }

// Guard is a stream that must still be at a mark for an append to go through,
// though nothing is written to it. The zero Mark demands that it has no entries.
type Guard struct {
	Stream Stream
	At     Mark
}

// Append is one atomic step: all batches are written, or none.
// Every batch has a stream and an ID of its own.
type Append struct {
	Batches []Batch
	Guards  []Guard
}

// Receipt is the answer to one batch that is durably there.
type Receipt struct {
	Stream  Stream
	First   Seqno // of the batch's first event
	Last    Mark  // of the batch's last event: the After of the next batch
	Fenced  bool  // the stream has been fenced since the batch was written
	Replays bool  // the batch was there already; this call proved it and wrote nothing
}

// Appended is the answer to an Append: a receipt per batch, in their order.
type Appended struct {
	Receipts []Receipt
	Token    Token
}

// Token names a place in a store. A query that carries it can wait until a
// projector has passed it, and so read its own writes. Behind a Route it is a place in
// the backend that was written; two of different incarnations do not compare.
// The zero Token is passed by everybody.
type Token struct {
	Incarnation UUID // of the store
	Position    Position
}

// String returns "incarnation.position"; ParseToken is its inverse.
func (t Token) String() string { return t.Incarnation.String() + "." + t.Position.String() }

// ParseToken reads the form of String; anything else is ErrInvalid.
func ParseToken(s string) (Token, error) {
	id, pos, _ := strings.Cut(s, ".")
	u, err := ParseUUID(id)
	if err != nil {
		return Token{}, err
	}
	p, err := ParsePosition(pos)
	return Token{Incarnation: u, Position: p}, err
}

// Digest is what makes two batches the same: SHA-256 over the stream, After, and
// each event's ID, Type, Version, ContentType, Data and metadata except the trace
// keys, every field behind its length. Events must be complete (as Store makes
// them and as they are read).
func Digest(s Stream, after Mark, events []Event) [sha256.Size]byte {
	h := sha256.New()
	digestBytes(h, []byte(s))
	digestNumber(h, uint64(after.Seqno))
	h.Write(after.ID[:])
	for i := range events {
		digestEvent(h, &events[i])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func digestEvent(h hash.Hash, e *Event) {
	h.Write(e.ID[:])
	digestBytes(h, []byte(e.Type))
	digestNumber(h, uint64(e.Version))
	digestBytes(h, []byte(e.ContentType))
	digestBytes(h, e.Data)
	keys := make([]string, 0, len(e.Metadata))
	for k := range e.Metadata {
		if !isTraceKey(k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	digestNumber(h, uint64(len(keys)))
	for _, k := range keys {
		digestBytes(h, []byte(k))
		digestBytes(h, []byte(e.Metadata[k]))
	}
}

func digestBytes(h hash.Hash, b []byte) {
	digestNumber(h, uint64(len(b)))
	h.Write(b)
}

func digestNumber(h hash.Hash, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	h.Write(b[:])
}
