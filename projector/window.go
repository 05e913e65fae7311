// The digest of the entries before a checkpoint, compared after a failover or restore.

package projector

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// After a failover to a PostgreSQL standby that lagged, entries may be missing
// below the checkpoint although the marked entry is there: commits need not come
// in the order of positions. The same goes for a dump that was made meanwhile and
// restored. What can be missing are entries whose append was under way when the
// marked one was written, so a window of the entries before
// the mark is compared. It reaches back some 60,000 entries: more than any
// plausible number of entries written while one append was committing.
//
// The window is an exponential histogram: spans of consecutive handled entries,
// each with the number of its entries and the sum of their hashes. The newest
// spans hold one entry; when there are more than spansPerSize of a size the two
// oldest of it are joined. So an entry is missed only if count and sum of its
// span agree all the same, and a trim that cut into a span hides at most about
// an eighth of what lies behind it. (Entries that were trimmed need no proof as
// long as the projector keeps its hold: their trim came after the projector had
// passed them, and it survived.)
//
// Layout of Checkpoint.Recent:
//
//	1 byte   version, 1
//	4 bytes  fingerprint of the filter, big endian
//	uvarint  position behind which the window begins
//	then for each span, oldest first
//	uvarint  its last position, less that of the span before
//	uvarint  number of its entries
//	4 bytes  sum of their hashes, modulo 2^32, big endian

const (
	recentVersion = 1
	spansPerSize  = 8
	maxSpanCount  = 1 << 12
	maxSpans      = 13*spansPerSize + 1 // sizes 1, 2, 4 … maxSpanCount

	// MaxRecentBytes bounds Checkpoint.Recent. Some 800 bytes are usual.
	MaxRecentBytes = 5 + binary.MaxVarintLen64 + maxSpans*(2*binary.MaxVarintLen64+4)
)

type window struct {
	filter uint32
	start  eventstore.Position
	spans  []span
}

type span struct {
	end   eventstore.Position // of its last entry
	count uint64
	sum   uint32
}

func (s *span) add(e *eventstore.Entry) {
	s.count++
	s.sum += entryHash(e)
}

func entryHash(e *eventstore.Entry) uint32 {
	h := fnv.New32a()
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], uint64(e.Position))
	copy(b[8:], e.ID[:])
	h.Write(b[:])
	return h.Sum32()
}

func (w *window) add(e *eventstore.Entry) {
	if len(w.spans) == 0 {
		w.start = e.Position - 1
	}
	s := span{end: e.Position}
	s.add(e)
	w.spans = append(w.spans, s)
	for hi := len(w.spans); ; {
		lo := hi - 1
		for lo > 0 && w.spans[lo-1].count == w.spans[hi-1].count {
			lo--
		}
		if hi-lo <= spansPerSize {
			return
		}
		if w.spans[lo].count >= maxSpanCount {
			w.start = w.spans[lo].end
			w.spans = slices.Delete(w.spans, lo, lo+1)
			return
		}
		w.spans[lo+1].count += w.spans[lo].count
		w.spans[lo+1].sum += w.spans[lo].sum
		w.spans = slices.Delete(w.spans, lo, lo+1)
		hi = lo + 1
	}
}

// at returns the span that a position falls into, nil if none.
func (w *window) at(p eventstore.Position) *span {
	i, _ := slices.BinarySearchFunc(w.spans, p, func(s span, p eventstore.Position) int {
		if s.end < p {
			return -1
		}
		return 1
	})
	if p <= w.start || i == len(w.spans) {
		return nil
	}
	return &w.spans[i]
}

// empty returns a window of the same spans with nothing in them, to count into.
func (w *window) empty() window {
	c := window{filter: w.filter, start: w.start, spans: slices.Clone(w.spans)}
	for i := range c.spans {
		c.spans[i].count, c.spans[i].sum = 0, 0
	}
	return c
}

// differs returns the first span, whole behind trimmed, in which o is not as w.
func (w *window) differs(o window, trimmed eventstore.Position) (after eventstore.Position, want, got span, differs bool) {
	after = w.start
	for i, s := range w.spans {
		if after >= trimmed && s != o.spans[i] {
			return after, s, o.spans[i], true
		}
		after = s.end
	}
	return 0, span{}, span{}, false
}

func (w *window) encode() []byte {
	b := make([]byte, 0, 32+8*len(w.spans))
	b = append(b, recentVersion)
	b = binary.BigEndian.AppendUint32(b, w.filter)
	b = binary.AppendUvarint(b, uint64(w.start))
	last := w.start
	for _, s := range w.spans {
		b = binary.AppendUvarint(b, uint64(s.end-last))
		b = binary.AppendUvarint(b, s.count)
		b = binary.BigEndian.AppendUint32(b, s.sum)
		last = s.end
	}
	return b
}

// decodeWindow reads what encode wrote; ok is false for anything that it cannot
// have written.
func decodeWindow(b []byte) (w window, ok bool) {
	if len(b) < 5 || b[0] != recentVersion || len(b) > MaxRecentBytes {
		return window{}, false
	}
	w.filter = binary.BigEndian.Uint32(b[1:])
	d := uvarints{b: b[5:]}
	w.start = eventstore.Position(d.next())
	for last := w.start; len(d.b) > 0 && len(w.spans) < maxSpans; {
		s := span{end: last + eventstore.Position(d.next()), count: d.next()}
		if d.bad || len(d.b) < 4 || s.end <= last || s.end > eventstore.MaxNumber || s.count == 0 || s.count > maxSpanCount {
			return window{}, false
		}
		s.sum = binary.BigEndian.Uint32(d.b)
		d.b = d.b[4:]
		w.spans = append(w.spans, s)
		last = s.end
	}
	return w, !d.bad && len(d.b) == 0
}

// uvarints reads numbers of at most 63 bits off a slice and notes if it cannot.
type uvarints struct {
	b   []byte
	bad bool
}

func (d *uvarints) next() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > eventstore.MaxNumber {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// recentAfter returns the digest of a checkpoint behind further entries. One made under
// another filter cannot be continued and begins anew.
func recentAfter(from Checkpoint, filter uint32, entries []eventstore.Entry) []byte {
	w, ok := decodeWindow(from.Recent)
	if !ok || w.filter != filter {
		w = window{filter: filter, start: from.Position}
	}
	for i := range entries {
		w.add(&entries[i])
	}
	return w.encode()
}

// recentPast is recentAfter for one entry, under the filter of another digest.
func recentPast(from Checkpoint, like []byte, e eventstore.Entry) []byte {
	w, _ := decodeWindow(like)
	return recentAfter(from, w.filter, []eventstore.Entry{e})
}
