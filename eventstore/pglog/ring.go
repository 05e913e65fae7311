// The pure rules of the dedicated layout: rings and chunks. No database here.
//
// A dedicated stream has two tables, the halves of its ring. Entries are written to
// one of them. When a trim reaches into that half and the other is empty, writing goes
// over to the other; when a trim has passed the last entry of the half left behind,
// that is emptied by TRUNCATE. So space comes back by whole files, and there are never
// more than two of them.

package pglog

import "github.com/wattle-es/wattle/eventstore"

// ring is where a dedicated stream is written, kept in one number of its registry row.
type ring struct {
	from eventstore.Seqno // first seqno of the half that is written
	full bool             // the other half has not been emptied; its last seqno is from - 1
	half int64            // the half that is written, 0 or 1
}

// maxRing bounds from, which has two bits less than a seqno: a stream that comes so
// far stays in its half.
const maxRing = 1<<61 - 1

// newRing is that of a stream that has just been created.
var newRing = ring{from: 1}

func ringOf(n int64) ring {
	return ring{from: eventstore.Seqno(n >> 2), full: n&2 != 0, half: n & 1}
}

func (r ring) number() int64 {
	n := int64(r.from)<<2 | r.half
	if r.full {
		n |= 2
	}
	return n
}

// part is the value of column part in a half of a stream.
func part(ordinal, half int64) int64 { return 2*ordinal + half }

// dead says if nothing in the half left behind can be read any more.
func (r ring) dead(trimmed eventstore.Seqno) bool { return r.full && trimmed >= r.from-1 }

// emptied is the ring after the half left behind has been emptied.
func (r ring) emptied() ring {
	r.full = false
	return r
}

// turned is the ring after a trim: the half that is written is left behind if some of
// it is trimmed and the other is there to be written.
func (r ring) turned(trimmed, last eventstore.Seqno) ring {
	if r.full || trimmed < r.from || last >= maxRing {
		return r
	}
	return ring{from: last + 1, full: true, half: 1 - r.half}
}

// chunkBytes is how much of a body one row takes: with the longest names beside it the
// row still fits a page of 8 KiB, whose limit is 8,160 bytes for a row.
const chunkBytes = 7680

// LogRows is how many rows of a dedicated stream an entry takes whose data and metadata
// (as a JSON object) have so many bytes together.
func LogRows(bytes int) int { return max(1, (bytes+chunkBytes-1)/chunkBytes) }

// chunksOf cuts a body into rows; an empty one is one row.
func chunksOf(body []byte) [][]byte {
	chunks := make([][]byte, 0, len(body)/chunkBytes+1)
	for len(body) > chunkBytes {
		chunks = append(chunks, body[:chunkBytes])
		body = body[chunkBytes:]
	}
	return append(chunks, body)
}
