// The index file of a sealed segment: sorted, mapped into memory, found by binary
// search. It holds nothing that the segment does not: when it is missing, damaged or
// another segment's it is made again.
//
//	head, 96 bytes  magic "wattleIX" · u32 format · u32 generation · incarnation ·
//	                u64 base · u64 bytes of the segment · u32 salt · u32 rows ·
//	                u32 categories · u32 places · u32 filter bytes · zeros · u32 CRC-32C
//	                of the whole file but these four bytes
//	rows, 24 each   u32 ordinal · u32 entries · u64 first seqno · u32 offset · u32 size
//	                by ordinal and seqno
//	categories, 12  u32 number · u32 first place · u32 places, by number
//	places, 16      u64 position · u32 offset · u32 size, by category and position
//	filter          a Bloom filter of the ordinals
//
// Numbers are little endian.

package filelog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sort"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	indexMagic   = "wattleIX"
	indexHeader  = 96
	rowSize      = 24
	categorySize = 12
	placeSize    = 16
	filterBits   = 10 // per stream: one in a hundred is looked for in vain
	filterHashes = 7
	maxIndexRows = 1 << 20 // a segment with more is rolled: its index stays below some 50 MiB
)

// encodeIndex returns the index file of a segment of a size.
func encodeIndex(h header, size int64, x *memIndex) []byte {
	ordinals := slices.Sorted(maps.Keys(x.streams))
	categories := slices.Sorted(maps.Keys(x.categories))
	places := 0
	for _, c := range categories {
		places += len(x.categories[c])
	}
	filter := newFilter(len(ordinals))
	e := encoder{b: make([]byte, 0, indexHeader+rowSize*x.count+categorySize*len(categories)+placeSize*places+len(filter))}
	e.b = append(e.b, indexMagic...)
	e.u32(FormatVersion)
	e.u32(h.generation)
	e.uuid(h.incarnation)
	e.u64(h.base)
	e.u64(uint64(size))
	e.u32(h.salt)
	for _, n := range []int{x.count, len(categories), places, len(filter)} {
		e.u32(uint32(n))
	}
	e.b = append(e.b, make([]byte, indexHeader-len(e.b))...)
	for _, o := range ordinals {
		filter.add(o)
		for _, r := range x.streams[o] {
			e.row(r)
		}
	}
	e.places(x, categories)
	e.b = append(e.b, filter...)
	binary.LittleEndian.PutUint32(e.b[indexHeader-4:], indexChecksum(e.b))
	return e.b
}

func (e *encoder) row(r row) {
	e.u32(r.ordinal)
	e.u32(r.count)
	e.u64(uint64(r.first))
	e.u32(r.offset)
	e.u32(r.size)
}

func (e *encoder) places(x *memIndex, categories []uint32) {
	first := 0
	for _, c := range categories {
		e.u32(c)
		e.u32(uint32(first))
		e.u32(uint32(len(x.categories[c])))
		first += len(x.categories[c])
	}
	for _, c := range categories {
		for _, p := range x.categories[c] {
			e.u64(p.position)
			e.u32(p.offset)
			e.u32(p.size)
		}
	}
}

func indexChecksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:indexHeader-4], castagnoli), castagnoli, b[indexHeader:])
}

// fileIndex is an index file in memory or mapped into it.
type fileIndex struct {
	rowTable, categoryTable, placeTable []byte
	filter                              filter
}

// decodeIndex reads an index file, which must be of a segment of a size.
func decodeIndex(b []byte, of header, size int64) (*fileIndex, error) {
	if len(b) < indexHeader || !bytes.HasPrefix(b, []byte(indexMagic)) {
		return nil, fmt.Errorf("%w: not an index", errDamaged)
	}
	if indexChecksum(b) != binary.LittleEndian.Uint32(b[indexHeader-4:]) {
		return nil, fmt.Errorf("%w: checksum of an index", errDamaged)
	}
	d := decoder{b: b[len(indexMagic):indexHeader]}
	version := d.u32()
	if version > FormatVersion {
		return nil, errNewer{version}
	}
	is := header{generation: d.u32(), incarnation: d.uuid(), base: d.u64()}
	bytes := d.u64()
	is.salt = d.u32()
	of.created = is.created
	if is != of || bytes != uint64(size) {
		return nil, fmt.Errorf("%w: the index of another segment", errDamaged)
	}
	rows, categories, places, filter := uint64(d.u32()), uint64(d.u32()), uint64(d.u32()), uint64(d.u32())
	d = decoder{b: b[indexHeader:]}
	x := &fileIndex{rowTable: d.take(rows * rowSize), categoryTable: d.take(categories * categorySize), placeTable: d.take(places * placeSize)}
	x.filter = d.take(filter)
	if err := d.end(); err != nil {
		return nil, err
	}
	return x, x.check(size)
}

// check demands that nothing in an index leads out of it, or out of its segment.
func (x *fileIndex) check(size int64) error {
	inside := len(x.filter)%filterBlock == 0
	for i := range len(x.rowTable) / rowSize {
		r := x.row(i)
		inside = inside && r.count > 0 && int64(r.offset)+int64(r.size) <= size
	}
	places := len(x.placeTable) / placeSize
	for i := range places {
		p := x.place(i)
		inside = inside && int64(p.offset)+int64(p.size) <= size
	}
	for b := x.categoryTable; len(b) > 0; b = b[categorySize:] {
		first, n := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
		inside = inside && uint64(first)+uint64(n) <= uint64(places)
	}
	if !inside {
		return fmt.Errorf("%w: an index of what the segment does not hold", errDamaged)
	}
	return nil
}

// in returns the same index on other bytes, which are the same.
func (x *fileIndex) in(b []byte) *fileIndex {
	at := indexHeader
	next := func(n int) []byte { at += n; return b[at-n : at] }
	return &fileIndex{next(len(x.rowTable)), next(len(x.categoryTable)), next(len(x.placeTable)), next(len(x.filter))}
}

func (x *fileIndex) row(i int) row {
	b, le := x.rowTable[i*rowSize:], binary.LittleEndian
	return row{le.Uint32(b), le.Uint32(b[4:]), eventstore.Seqno(le.Uint64(b[8:])), le.Uint32(b[16:]), le.Uint32(b[20:])}
}

func (x *fileIndex) rows(ordinal uint32, after eventstore.Seqno, limit int) []row {
	if !x.filter.mayHave(ordinal) {
		return nil
	}
	n := len(x.rowTable) / rowSize
	i := sort.Search(n, func(i int) bool {
		r := x.row(i)
		return cmp.Or(cmp.Compare(r.ordinal, ordinal), cmp.Compare(r.last(), after+1)) >= 0
	})
	var all []row
	for ; i < n && len(all) < limit; i++ {
		r := x.row(i)
		if r.ordinal != ordinal {
			break
		}
		all = append(all, r)
	}
	return all
}

func (x *fileIndex) place(i int) place {
	b, le := x.placeTable[i*placeSize:], binary.LittleEndian
	return place{le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:])}
}

// category returns which places are a category's.
func (x *fileIndex) category(number uint32) (from, to int) {
	le, n := binary.LittleEndian, len(x.categoryTable)/categorySize
	i := sort.Search(n, func(i int) bool { return le.Uint32(x.categoryTable[i*categorySize:]) >= number })
	if i == n || le.Uint32(x.categoryTable[i*categorySize:]) != number {
		return 0, 0
	}
	b := x.categoryTable[i*categorySize:]
	from = int(le.Uint32(b[4:]))
	return from, from + int(le.Uint32(b[8:]))
}

func (x *fileIndex) places(category uint32, after uint64, limit int) []place {
	from, to := x.category(category)
	i := from + sort.Search(to-from, func(i int) bool { return x.place(from+i).position > after+1 })
	i = max(i-1, from) // the record before may reach beyond
	all := make([]place, 0, min(to-i, limit))
	for ; i < to && len(all) < limit; i++ {
		all = append(all, x.place(i))
	}
	return all
}

func (x *fileIndex) each(f func(row)) {
	for i := range len(x.rowTable) / rowSize {
		f(x.row(i))
	}
}

// filter is a Bloom filter in blocks of 64 bytes, so that a question touches one line
// of the processor's cache (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient
// Bloom Filters, 2007).
type filter []byte

const filterBlock = 64

func newFilter(n int) filter {
	blocks := max(1, (n*filterBits+filterBlock*8-1)/(filterBlock*8))
	return make(filter, blocks*filterBlock)
}

// spread hashes an ordinal (the finalizer of SplitMix64).
func spread(ordinal uint32) uint64 {
	z := uint64(ordinal) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (f filter) bits(ordinal uint32) (block []byte, hash uint64) {
	h := spread(ordinal)
	blocks := uint64(len(f) / filterBlock)
	at := (h >> 32) * blocks >> 32 * filterBlock
	return f[at : at+filterBlock], spread(uint32(h))
}

func (f filter) add(ordinal uint32) {
	block, h := f.bits(ordinal)
	for range filterHashes {
		block[h>>3%filterBlock] |= 1 << (h & 7)
		h >>= 9
	}
}

func (f filter) mayHave(ordinal uint32) bool {
	if len(f) < filterBlock {
		return true
	}
	block, h := f.bits(ordinal)
	for range filterHashes {
		if block[h>>3%filterBlock]&(1<<(h&7)) == 0 {
			return false
		}
		h >>= 9
	}
	return true
}
