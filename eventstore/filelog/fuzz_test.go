// Decoders on bytes of all kinds: no panic, no more memory than the bytes could hold,
// and what was read is written as it was.

package filelog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// seeds adds the files of the golden store with a suffix.
func seeds(f *testing.F, suffix string, add func([]byte)) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("testdata/v1/store", "*"+suffix))
	if err != nil || len(names) == 0 {
		f.Fatalf("no golden files *%s, %v", suffix, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		add(b)
	}
}

// within fails if a decoder takes more memory than its input could call for.
func within(t *testing.T, b []byte, decode func()) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	decode()
	metrics.Read(sample)
	if got, most := sample[0].Value.Uint64()-before, uint64(1<<20+1000*len(b)); got > most {
		t.Errorf("%d bytes allocated for %d, want at most %d", got, len(b), most)
	}
}

// records calls f for every record of a segment's file.
func records(b []byte, f func(h recordHead, body []byte)) {
	h, err := decodeHeader(b)
	for at := int64(segmentHeader); err == nil && at < int64(len(b)); {
		var r recordHead
		var body []byte
		if r, body, err = parseRecord(b[at:], at, h.salt); err == nil {
			f(r, body)
			at += r.size()
		}
	}
}

// FuzzBody: a body that is read is written as it was read, and a body with a valid
// checksum and any content is refused or understood.
func FuzzBody(f *testing.F) {
	seeds(f, ".log", func(b []byte) { records(b, func(h recordHead, body []byte) { f.Add(uint8(h.kind), body) }) })
	f.Fuzz(func(t *testing.T, k uint8, b []byte) {
		var got body
		var err error
		within(t, b, func() { got, err = decodeBody(kind(k), b) })
		if err != nil {
			return
		}
		var first, second encoder
		got.encode(&first)
		again, err := decodeBody(kind(k), first.b)
		if err != nil {
			t.Fatalf("%#v cannot be read back: %v", got, err)
		}
		again.encode(&second)
		if !bytes.Equal(first.b, second.b) {
			t.Errorf("%#v is written as %x and then as %x", got, first.b, second.b)
		}
		skipped(t, kind(k), first.b)
	})
}

// skipped demands that events are passed over where they are read.
func skipped(t *testing.T, k kind, b []byte) {
	t.Helper()
	if k != kindAppend {
		return
	}
	d := decoder{b: b}
	for range d.count(40) {
		var b batch
		d.batchHead(&b)
		for range b.count {
			d.skipEvent()
		}
	}
	if err := d.end(); err != nil {
		t.Errorf("events passed over: %v", err)
	}
}

// FuzzRecord: any body comes back from its record, where it was written and nowhere
// else, and no sector of the record looks as if a bit had flipped when it is lost.
func FuzzRecord(f *testing.F) {
	seeds(f, ".log", func(b []byte) {
		records(b, func(h recordHead, body []byte) { f.Add(body, uint16(h.position), h.salt, uint32(h.kind)) })
	})
	f.Add(make([]byte, 3000), uint16(8), uint32(1), uint32(1))
	f.Fuzz(func(t *testing.T, b []byte, at uint16, salt, k uint32) {
		offset := int64(at) * recordAlign
		h := recordHead{salt: salt, kind: 1 + kind(k)%(kinds-1), position: 1 + uint64(at), synced: salt / 2}
		record := seal(append(make([]byte, recordHeader), b...), h, offset)
		got, body, err := parseRecord(record, offset, salt)
		if err != nil || !bytes.Equal(body, b) || got.kind != h.kind || got.position != h.position || got.synced != h.synced || got.size() != int64(len(record)) {
			t.Fatalf("%+v, %x, %v, want %+v, %x", got, body, err, h, b)
		}
		if _, _, err := parseRecord(record, offset+recordAlign, salt); err == nil {
			t.Error("valid elsewhere too")
		}
		if _, _, err := parseRecord(record, offset, salt^1); err == nil {
			t.Error("valid with another salt too")
		}
		if sparse(record, offset) {
			t.Errorf("a sector of %x holds one bit", record)
		}
		bit := int(salt) % ((recordHeader + len(b)) * 8)
		record[bit/8] ^= 1 << (bit % 8)
		if found, ok := oneBitOff(record, offset, salt); !ok || found != bit {
			t.Errorf("bit %d flipped: found %d, %t", bit, found, ok)
		}
		within(t, b, func() { parseRecord(b, offset, salt) })
	})
}

// FuzzHeader, FuzzManifest, FuzzRegistry and FuzzIndex mend the checksum, so that what
// lies behind it is reached.
func FuzzHeader(f *testing.F) {
	seeds(f, ".log", func(b []byte) { f.Add(b[:segmentHeader]) })
	f.Fuzz(func(t *testing.T, b []byte) {
		mend(b, segmentMagic, segmentHeader, func(b []byte) uint32 { return crc32.Checksum(b[:segmentHeader-4], castagnoli) })
		h, err := decodeHeader(b)
		if err != nil {
			return
		}
		if again, err := decodeHeader(h.encode()); err != nil || !reflect.DeepEqual(again, h) {
			t.Errorf("%+v is read back as %+v, %v", h, again, err)
		}
	})
}

// mend makes magic, version and checksum of a file right.
func mend(b []byte, magic string, size int, sum func([]byte) uint32) {
	if len(b) < size {
		return
	}
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[len(magic):], FormatVersion)
	binary.LittleEndian.PutUint32(b[size-4:], sum(b))
}

func FuzzManifest(f *testing.F) {
	seeds(f, "MANIFEST", func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		mend(b, manifestMagic, manifestHeader, manifestChecksum)
		var m *manifest
		var err error
		within(t, b, func() { m, err = decodeManifest(b) })
		if err != nil {
			return
		}
		if again, err := decodeManifest(m.encode()); err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%+v is read back as %+v, %v", m, again, err)
		}
	})
}

// manyOrdinals says if a registry knows of more ordinals than it has bytes. Those of
// dropped streams take memory and no bytes, so how many there are has to be believed.
func manyOrdinals(body []byte) bool {
	d := &decoder{b: body}
	newRegistry().decodeCategories(d)
	return d.uint() > uint64(len(body))
}

func FuzzRegistry(f *testing.F) {
	var incarnation eventstore.UUID
	seeds(f, ".reg", func(b []byte) { f.Add(b[registryHeader:], uint64(37)) })
	f.Fuzz(func(t *testing.T, body []byte, position uint64) {
		b := encodeRegistry(newRegistry(), incarnation)[:registryHeader]
		binary.LittleEndian.PutUint64(b[32:], position)
		binary.LittleEndian.PutUint64(b[40:], uint64(len(body)))
		b = append(b, body...)
		mend(b, registryMagic, registryHeader, registryChecksum)
		if manyOrdinals(body) {
			return
		}
		var r *registry
		var err error
		within(t, b, func() { r, err = decodeRegistry(b, incarnation) })
		if err != nil {
			return
		}
		first := encodeRegistry(r, incarnation)
		again, err := decodeRegistry(first, incarnation)
		if err != nil || !bytes.Equal(encodeRegistry(again, incarnation), first) {
			t.Errorf("%+v is read back as %+v, %v", r, again, err)
		}
	})
}

func FuzzIndex(f *testing.F) {
	seeds(f, ".idx", func(b []byte) { f.Add(b, uint32(1), uint64(3)) })
	f.Fuzz(func(t *testing.T, b []byte, ordinal uint32, after uint64) {
		mend(b, indexMagic, indexHeader, indexChecksum)
		of, size := indexOf(b)
		var x *fileIndex
		var err error
		within(t, b, func() { x, err = decodeIndex(b, of, size) })
		if err != nil {
			return
		}
		for _, r := range x.rows(ordinal, eventstore.Seqno(after%1e6), 100) {
			if r.ordinal != ordinal || int64(r.offset)+int64(r.size) > size {
				t.Errorf("row %+v of stream %d, in %d bytes", r, ordinal, size)
			}
		}
		for _, p := range x.places(ordinal, after, 100) {
			if int64(p.offset)+int64(p.size) > size {
				t.Errorf("place %+v in %d bytes", p, size)
			}
		}
		x.each(func(row) {})
		x.in(b)
	})
}

// indexOf returns what an index file says that it is of.
func indexOf(b []byte) (header, int64) {
	if len(b) < indexHeader {
		return header{}, 0
	}
	d := decoder{b: b[len(indexMagic)+4:]}
	h := header{generation: d.u32(), incarnation: d.uuid(), base: d.u64()}
	size := int64(d.u64())
	h.salt = d.u32()
	return h, size
}

// TestIndexRoundTrip: the index file finds what the index in memory does.
func TestIndexRoundTrip(t *testing.T) {
	x := newMemIndex()
	for i := range 500 {
		o := uint32(i*i) % 97
		first := eventstore.Seqno(1)
		if rows := x.streams[o]; len(rows) > 0 {
			first = rows[len(rows)-1].last() + 1
		}
		x.add(appendBody{batches: []batch{{streamRef: streamRef{ordinal: o, category: 1 + o%3}, first: first, count: 1 + i%4, position: eventstore.Position(10*i + 1)}}},
			uint64(10*i+1), int64(64+i*40), 40)
	}
	h := header{base: 1, salt: 7, created: time.UnixMicro(0)}
	b := encodeIndex(h, 1<<20, x)
	file, err := decodeIndex(b, h, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for o := range uint32(120) {
		for after := range eventstore.Seqno(12) {
			if got, want := file.rows(o, after, 3), x.rows(o, after, 3); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("rows of %d behind %d = %v, want %v", o, after, got, want)
			}
		}
	}
	for c := range uint32(5) {
		for after := uint64(0); after < 5100; after += 3 {
			if got, want := file.places(c, after, 3), x.places(c, after, 3); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("places of %d behind %d = %v, want %v", c, after, got, want)
			}
		}
	}
	other := h
	other.salt++
	if _, err := decodeIndex(b, other, 1<<20); err == nil || !strings.Contains(err.Error(), "another segment") {
		t.Errorf("as the index of another segment: %v", err)
	}
}

// TestIndexOutside: an index with a valid checksum that leads out of its segment, or out
// of itself, is refused.
func TestIndexOutside(t *testing.T) {
	h := header{base: 1, created: time.UnixMicro(0)}
	x := newMemIndex()
	x.add(appendBody{batches: []batch{{streamRef: streamRef{ordinal: 1, category: 1}, first: 1, count: 1, position: 1}}}, 1, 64, 4000)
	if _, err := decodeIndex(encodeIndex(h, 128, x), h, 128); err == nil {
		t.Error("a record of 4000 bytes in a segment of 128")
	}
	b := encodeIndex(h, 1<<20, x)
	binary.LittleEndian.PutUint32(b[indexHeader+rowSize+8:], 3) // places of the first category
	mend(b, indexMagic, indexHeader, indexChecksum)
	if _, err := decodeIndex(b, h, 1<<20); err == nil {
		t.Error("three places where there are two")
	}
}

// TestDecodeOther: the registry of another store is refused.
func TestDecodeOther(t *testing.T) {
	one, other := eventstore.NameUUID("one"), eventstore.NameUUID("other")
	if _, err := decodeRegistry(encodeRegistry(newRegistry(), one), other); err == nil {
		t.Error("the registry of another store was read")
	}
}
