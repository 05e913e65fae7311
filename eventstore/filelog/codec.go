// Bytes in records: an encoder that appends and a decoder that never trusts a length.

package filelog

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// encoder appends values to a buffer. Numbers are unsigned varints unless said
// otherwise; byte strings stand behind their length.
type encoder struct{ b []byte }

func (e *encoder) byte(b byte)            { e.b = append(e.b, b) }
func (e *encoder) uint(n uint64)          { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) int(n int64)            { e.b = binary.AppendVarint(e.b, n) }
func (e *encoder) bytes(b []byte)         { e.uint(uint64(len(b))); e.b = append(e.b, b...) }
func (e *encoder) string(s string)        { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) uuid(u eventstore.UUID) { e.b = append(e.b, u[:]...) }
func (e *encoder) bool(b bool)            { e.byte(map[bool]byte{true: 1}[b]) }
func (e *encoder) mark(m eventstore.Mark) { e.uint(uint64(m.Seqno)); e.uuid(m.ID) }
func (e *encoder) u32(n uint32)           { e.b = binary.LittleEndian.AppendUint32(e.b, n) }
func (e *encoder) u64(n uint64)           { e.b = binary.LittleEndian.AppendUint64(e.b, n) }
func (e *encoder) metadata(m map[string]string, keys []string) []string {
	keys = keys[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys) // the same metadata is always the same bytes
	e.uint(uint64(len(keys)))
	for _, k := range keys {
		e.string(k)
		e.string(m[k])
	}
	return keys
}

// errMalformed says that bytes with a valid checksum do not have the form of their
// kind: a fault of whoever wrote them, or of whoever reads.
var errMalformed = errors.New("malformed record")

// decoder reads values from a buffer. The first fault is kept; after it every value is
// zero. What it returns may share the buffer.
type decoder struct {
	b     []byte
	err   error
	names map[string]string // interned strings; nil: not interned
	last  string            // the last of them
}

func (d *decoder) fail() {
	d.b, d.err = nil, errMalformed
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	b := d.b[0]
	d.b = d.b[1:]
	return b
}

func (d *decoder) uint() uint64 {
	// One byte is by far the most frequent.
	if len(d.b) > 0 && d.b[0] < 0x80 {
		n := uint64(d.b[0])
		d.b = d.b[1:]
		return n
	}
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) int() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) bytes() []byte { return d.take(d.uint()) }

// string returns a string of its own, or one that was met before.
func (d *decoder) string() string {
	b := d.bytes()
	if d.names == nil {
		return string(b)
	}
	if d.last == string(b) {
		return d.last
	}
	s, ok := d.names[string(b)]
	if ok {
		d.last = s
		return s
	}
	s = string(b)
	if len(d.names) < maxInterned {
		d.names[s] = s
	}
	return s
}

// maxInterned bounds the strings that one reader remembers.
const maxInterned = 1024

func (d *decoder) uuid() (u eventstore.UUID) {
	copy(u[:], d.take(16))
	return u
}

func (d *decoder) bool() bool { return d.byte() != 0 }

func (d *decoder) mark() eventstore.Mark {
	n := d.uint()
	return eventstore.Mark{Seqno: eventstore.Seqno(n), ID: d.uuid()}
}

// metadata returns a map whose values are pieces of one string.
func (d *decoder) metadata() eventstore.Metadata {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	pairs := *d
	for range 2 * n {
		d.bytes()
	}
	if d.err != nil {
		return nil
	}
	pairs.b = pairs.b[:len(pairs.b)-len(d.b)]
	text := string(pairs.b)
	m := make(eventstore.Metadata, n)
	for range n {
		k := pairs.string()
		v := len(pairs.bytes())
		end := len(text) - len(pairs.b)
		m[k] = text[end-v : end]
	}
	return m
}

// count reads the length of a list whose items take at least size bytes each, so that
// no more is allocated than what is there could hold.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

// end demands that nothing is left.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail()
	}
	return d.err
}
