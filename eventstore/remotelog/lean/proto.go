// Just so much of the binary form of Protocol Buffers as the detail of an error needs:
// numbers and bytes. See protobuf.dev/programming-guides/encoding.

package lean

import (
	"encoding/binary"

	"github.com/wattle-es/wattle/eventstore"
)

// Wire types.
const (
	wireNumber = 0
	wireBytes  = 2
)

// fields calls f with each field of a message until f returns false. It returns whether
// all of it is well-formed and f has taken it all; no number is above 2^63-1.
func fields(b []byte, f func(field int, n uint64, s []byte) bool) bool {
	for len(b) > 0 {
		tag, k := binary.Uvarint(b)
		if k <= 0 || tag>>3 == 0 || tag>>3 > 1<<20 {
			return false
		}
		b = b[k:]
		n, k := binary.Uvarint(b)
		if k <= 0 || n > eventstore.MaxNumber {
			return false
		}
		b = b[k:]
		var s []byte
		switch tag & 7 {
		case wireNumber:
		case wireBytes:
			if n > uint64(len(b)) {
				return false
			}
			s, b = b[:n], b[n:]
		default:
			return false
		}
		if !f(int(tag>>3), n, s) {
			return false
		}
	}
	return true
}
