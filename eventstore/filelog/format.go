// The outermost form of the files: segment headers, record headers, checksums.

package filelog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// FormatVersion is the version of the files that this package writes. It opens this
// one and every older one, and refuses a newer one.
const FormatVersion = 1

const (
	segmentMagic  = "wattleSG"
	segmentHeader = 64 // bytes
	recordHeader  = 32 // bytes
	recordAlign   = 8  // records begin at multiples of it
	maxBody       = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the head of a segment file.
type header struct {
	generation  uint32
	incarnation eventstore.UUID
	base        uint64 // positions of its records are at least this
	salt        uint32 // in every record of the file: what other files left in its blocks has another
	created     time.Time
}

func (h header) encode() []byte {
	var e encoder
	e.b = append(e.b, segmentMagic...)
	e.u32(FormatVersion)
	e.u32(h.generation)
	e.uuid(h.incarnation)
	e.u64(h.base)
	e.u32(h.salt)
	e.u32(0)
	e.u64(uint64(h.created.UnixMicro()))
	e.u32(0)
	e.u32(crc32.Checksum(e.b, castagnoli))
	return e.b
}

// decodeHeader reads the head of a segment file. A newer format is an error of its own.
func decodeHeader(b []byte) (h header, err error) {
	if len(b) < segmentHeader || !bytes.HasPrefix(b, []byte(segmentMagic)) {
		return h, fmt.Errorf("%w: not the head of a segment", errDamaged)
	}
	b = b[:segmentHeader]
	if crc32.Checksum(b[:segmentHeader-4], castagnoli) != binary.LittleEndian.Uint32(b[segmentHeader-4:]) {
		return h, fmt.Errorf("%w: checksum of the segment's head", errDamaged)
	}
	d := decoder{b: b[len(segmentMagic):]}
	if v := d.u32(); v > FormatVersion {
		return h, errNewer{v}
	}
	h.generation = d.u32()
	h.incarnation = d.uuid()
	h.base = d.u64()
	h.salt = d.u32()
	d.u32()
	h.created = time.UnixMicro(int64(d.u64())).UTC()
	return h, nil
}

// recordHead is what stands before the body of a record.
type recordHead struct {
	crc      uint32
	length   uint32 // of the body
	salt     uint32
	kind     kind
	mask     uint32 // 24 bits that the body is masked with, see sparse; 0: it is not
	position uint64 // the record's first; every record has at least one of its own
	synced   uint32 // all before this offset of the file was durable when the record was written
	check    uint32 // CRC-32 (IEEE) of the body; looked at in a torn tail only
}

// size is how much of the file a record takes, padding included.
func (h recordHead) size() int64 { return recordSize(int(h.length)) }

func recordSize(body int) int64 {
	return (recordHeader + int64(body) + recordAlign - 1) &^ (recordAlign - 1)
}

// seal fills in the head of the record whose head and body are b, which will stand at
// an offset, and returns b with padding.
func seal(b []byte, h recordHead, offset int64) []byte {
	le := binary.LittleEndian
	le.PutUint32(b[4:], uint32(len(b)-recordHeader))
	le.PutUint32(b[8:], h.salt)
	le.PutUint64(b[16:], h.position)
	le.PutUint32(b[24:], h.synced)
	body := b[recordHeader:]
	for try := 0; ; try++ {
		le.PutUint32(b[12:], uint32(h.kind)|h.mask<<8)
		maskBody(body, h.mask)
		le.PutUint32(b[28:], crc32.ChecksumIEEE(body))
		sum := checksum(b[:recordHeader+len(body)], offset)
		le.PutUint32(b, sum)
		for len(b)%recordAlign != 0 {
			b = append(b, 0)
		}
		if !sparse(b, offset) || try == maxMasks {
			return b
		}
		maskBody(body, h.mask)
		body = b[recordHeader : recordHeader+len(body)]
		h.mask = uint32(spread(sum)) >> 8 // nobody can know it beforehand
	}
}

// maxMasks is how many masks are tried. One that serves is found at once, but for
// records of tens of thousands of sectors made to look like masks.
const maxMasks = 64

// maskBody masks a body, or takes the mask off again.
func maskBody(body []byte, mask uint32) {
	if mask == 0 {
		return
	}
	bytes := [3]byte{byte(mask), byte(mask >> 8), byte(mask >> 16)}
	for i := range body {
		body[i] ^= bytes[i%3]
	}
}

// sectorSize is what a disk writes at once.
const sectorSize = 512

// sparse says if a sector holds one bit of a record that is set and no other. When such
// a sector was lost the record would look as if that bit had flipped (see tail.go), so
// the body is masked until there is none.
func sparse(record []byte, offset int64) bool {
	for len(record) > 0 {
		n := min(int(sectorSize-offset%sectorSize), len(record))
		if oneBit(record[:n]) {
			return true
		}
		record, offset = record[n:], offset+int64(n)
	}
	return false
}

// oneBit says if a single bit is set. The length is a multiple of 8.
func oneBit(b []byte) bool {
	var set uint64
	for ; len(b) > 0; b = b[8:] {
		switch w := binary.LittleEndian.Uint64(b); {
		case w == 0:
		case set != 0 || w&(w-1) != 0:
			return false
		default:
			set = w
		}
	}
	return set != 0
}

// checksum is CRC-32C over the offset of a record, its head behind the checksum, and
// its body: a record that was copied elsewhere is not valid there.
func checksum(record []byte, offset int64) uint32 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(offset))
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, record[4:])
}

func decodeHead(b []byte) recordHead {
	le := binary.LittleEndian
	k := le.Uint32(b[12:])
	return recordHead{crc: le.Uint32(b), length: le.Uint32(b[4:]), salt: le.Uint32(b[8:]), kind: kind(k & 0xff), mask: k >> 8,
		position: le.Uint64(b[16:]), synced: le.Uint32(b[24:]), check: le.Uint32(b[28:])}
}

// plausible says if a head can be one of a file with a salt, before its checksum is
// looked at.
func (h recordHead) plausible(salt uint32) bool {
	return h.salt == salt && h.kind > 0 && h.kind < kinds && h.length <= maxBody && h.position > 0 && h.position <= eventstore.MaxNumber
}

// parseRecord returns the head and the body of the record that begins b, which was
// read at an offset of a file with a salt. b may be longer than the record.
func parseRecord(b []byte, offset int64, salt uint32) (recordHead, []byte, error) {
	if len(b) < recordHeader {
		return recordHead{}, nil, fmt.Errorf("%w: %d bytes where a record was expected", errDamaged, len(b))
	}
	h := decodeHead(b)
	end := recordHeader + int(h.length)
	if !h.plausible(salt) || end > len(b) {
		return h, nil, fmt.Errorf("%w: no head of a record", errDamaged)
	}
	if checksum(b[:end], offset) != h.crc {
		return h, nil, fmt.Errorf("%w: checksum of a record", errDamaged)
	}
	body := b[recordHeader:end:end]
	if h.mask != 0 {
		body = bytes.Clone(body) // b may be looked at again
		maskBody(body, h.mask)
	}
	return h, body, nil
}
