// The end of the active segment: what a crash may have left there, and what it cannot
// have.
//
// A crash of the machine keeps any part of what was written and not synced, in any
// order, so behind the last valid record there may be anything: nothing, zeros, pieces,
// even valid records with a hole before them. All of that was written after the last
// sync, so nobody was told of it, and it is cut off. Three things say that the first bad
// record was acked, and is damaged:
//
//   - it begins before the size that the manifest knows to be durable;
//   - a valid record stands behind it that was written when this one was durable (each
//     record says how far the file was);
//   - a single bit makes it valid: a lost or torn sector does not look like that (see
//     sparse), a bit that flipped does.

package filelog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// judgeTail says nil if what stands from an offset to the end of the file may be cut
// off, else why it is damage. cause is what was the matter at the offset.
func (l *Log) judgeTail(r *scanner, at, floor int64, cause error) error {
	if at < floor {
		return cause
	}
	tail := make([]byte, r.to-at)
	if _, err := r.file.ReadAt(tail, at); err != nil {
		return r.readError(err, at)
	}
	left := bytes.TrimRight(tail, "\x00")
	if len(left) == 0 {
		return nil
	}
	if off, ok := provesDurable(tail, at, r.salt); ok {
		return corrupt("open", r.name(), at, l.reg.position, fmt.Errorf("%w: the record at byte %d was written after this one was durable", errDamaged, off))
	}
	if bit, ok := oneBitOff(tail, at, r.salt); ok {
		return corrupt("open", r.name(), at, l.reg.position, fmt.Errorf("%w: bit %d of the record flipped", errDamaged, bit))
	}
	if !l.readOnly {
		l.logger.Warn("cut off what a crash left behind the last record", "directory", l.dir, "file", r.name(), "byte", at, "bytes", len(left))
	}
	return nil
}

// provesDurable looks for a valid record behind the first one of a tail that begins at
// an offset of its file, which says that more was durable than stands before the tail.
func provesDurable(tail []byte, at int64, salt uint32) (offset int64, ok bool) {
	var want [4]byte
	binary.LittleEndian.PutUint32(want[:], salt)
	for i := 0; i+recordHeader <= len(tail); i += recordAlign {
		if !bytes.Equal(tail[i+8:i+12], want[:]) {
			continue
		}
		if h, _, err := parseRecord(tail[i:], at+int64(i), salt); err == nil && int64(h.synced) > at {
			return at + int64(i), true
		}
	}
	return 0, false
}

// oneBitOff says which bit of the record that begins a tail must be turned to make it
// valid, if one does. By chance, a torn record of n bits has with probability n/2^32 a
// bit that would make its CRC-32C right, and a sector of garbage is one bit off in the
// few bytes of a record that it holds: so the second checksum and the padding count too.
func oneBitOff(tail []byte, at int64, salt uint32) (bit int, ok bool) {
	if len(tail) < recordHeader {
		return 0, false
	}
	valid := func() bool {
		h, _, err := parseRecord(tail, at, salt)
		return err == nil && crc32.ChecksumIEEE(tail[recordHeader:recordHeader+int(h.length)]) == h.check && padded(tail, h)
	}
	for bit := range recordHeader * 8 { // the length decides what else is looked at
		tail[bit/8] ^= 1 << (bit % 8)
		ok := valid()
		tail[bit/8] ^= 1 << (bit % 8)
		if ok {
			return bit, true
		}
	}
	h := decodeHead(tail)
	end := recordHeader + int(h.length)
	if !h.plausible(salt) || end > len(tail) || !padded(tail, h) {
		return 0, false
	}
	n, ok := flippedBit(checksum(tail[:end], at)^h.crc, end-recordHeader)
	if !ok {
		return 0, false
	}
	bit = recordHeader*8 + n
	tail[bit/8] ^= 1 << (bit % 8)
	defer func() { tail[bit/8] ^= 1 << (bit % 8) }()
	return bit, valid()
}

// padded says if zeros stand behind a record as far as its padding goes.
func padded(tail []byte, h recordHead) bool {
	end := recordHeader + int64(h.length)
	return len(bytes.Trim(tail[end:min(h.size(), int64(len(tail)))], "\x00")) == 0
}

// flippedBit returns which bit of the last n bytes that a CRC-32C was made of differs,
// if a single one explains the difference of two such checksums. CRCs are linear: a bit
// that flipped changes the checksum by an amount that depends on its distance from the
// end alone, so one walk backward over the bits finds it.
func flippedBit(difference uint32, n int) (bit int, ok bool) {
	// The difference that the last bit of the last byte makes.
	syndrome := crc32.Checksum([]byte{0}, castagnoli) ^ crc32.Checksum([]byte{0x80}, castagnoli)
	for i := n - 1; i >= 0; i-- {
		for b := 7; b >= 0; b-- {
			if syndrome == difference {
				return i*8 + b, true
			}
			// One bit further from the end: divided by x once more, in reflected form.
			if syndrome&1 == 1 {
				syndrome = syndrome>>1 ^ crc32.Castagnoli
			} else {
				syndrome >>= 1
			}
		}
	}
	return 0, false
}
