// Reading a damaged segment: every record that is valid, and the holes between them.

package filelog

import (
	"encoding/binary"
	"errors"
	"iter"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// piece is a record, or a hole: bytes that are none (body nil).
type piece struct {
	offset, size int64
	head         recordHead
	body         body
}

// salvage goes through a segment up to a size. Bodies stay valid. An error is one of
// reading the file.
func salvage(s *segment, f vfs.File, size int64) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		r := scanner{segment: s, file: f, to: size}
		hole := int64(-1)
		for at := int64(segmentHeader); at < size; {
			p, err := r.piece(at)
			if err != nil {
				yield(piece{}, err)
				return
			}
			if p.body == nil {
				if hole < 0 {
					hole = at
				}
				at += recordAlign
				continue
			}
			if hole >= 0 && !yield(piece{offset: hole, size: at - hole}, nil) {
				return
			}
			hole = -1
			if !yield(p, nil) {
				return
			}
			at += p.size
		}
		if hole >= 0 {
			yield(piece{offset: hole, size: size - hole}, nil)
		}
	}
}

// piece returns the record at an offset, a hole if there is none.
func (r *scanner) piece(at int64) (piece, error) {
	p := piece{offset: at}
	b, err := r.bytes(at, recordHeader)
	if err != nil && !errors.Is(err, eventstore.ErrCorrupt) {
		return p, err
	}
	if len(b) < recordHeader || binary.LittleEndian.Uint32(b[8:]) != r.salt {
		return p, nil
	}
	h, b, err := r.record(at)
	if errors.Is(err, eventstore.ErrCorrupt) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	content, err := decodeBody(h.kind, append([]byte(nil), b...))
	if err != nil {
		return p, nil
	}
	return piece{at, h.size(), h, content}, nil
}
