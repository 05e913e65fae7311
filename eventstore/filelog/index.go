// Where things stand in a segment: by stream and seqno, by category and position.

package filelog

import (
	"cmp"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// row says where entries of a stream stand: those of one batch.
type row struct {
	ordinal uint32           // of the stream
	count   uint32           // how many entries
	first   eventstore.Seqno // of the first one
	offset  uint32           // of the record in its segment
	size    uint32           // of the record, with head and padding
}

func (r row) last() eventstore.Seqno { return r.first + eventstore.Seqno(r.count) - 1 }

// place says where a record stands that has something of a category.
type place struct {
	position uint64 // the record's first
	offset   uint32
	size     uint32
}

// Numbers that stand for no category in the index by category.
const (
	allShared    = 0         // every record with entries that have positions
	allSnapshots = 1<<32 - 1 // every record of a snapshot
)

// index finds records of a segment. That of a sealed segment does not change; that of
// the active one is changed and read under the log's lock.
type index interface {
	// rows returns rows of a stream, in order: that which holds the entry after a
	// seqno, and those behind it, at most limit.
	rows(ordinal uint32, after eventstore.Seqno, limit int) []row
	// places returns places of a category (allShared, allSnapshots) in order: that of
	// the record which may hold the position after+1, and those behind it, at most limit.
	places(category uint32, after uint64, limit int) []place
	// each calls f for every row.
	each(f func(row))
}

// memIndex is the index of a segment that has no file of it yet.
type memIndex struct {
	streams    map[uint32][]row
	categories map[uint32][]place
	count      int // of rows
}

func newMemIndex() *memIndex {
	return &memIndex{streams: map[uint32][]row{}, categories: map[uint32][]place{}}
}

// add notes a record.
func (x *memIndex) add(b body, position uint64, offset, size int64) {
	p := place{position, uint32(offset), uint32(size)}
	switch b := b.(type) {
	case snapshotBody:
		x.categories[allSnapshots] = append(x.categories[allSnapshots], p)
	case appendBody:
		for i := range b.batches {
			x.addBatch(&b.batches[i], p)
		}
	}
}

func (x *memIndex) addBatch(b *batch, p place) {
	if b.count == 0 {
		return
	}
	x.count++
	x.streams[b.ordinal] = append(x.streams[b.ordinal], row{b.ordinal, uint32(b.count), b.first, p.offset, p.size})
	if b.position == 0 {
		return
	}
	for _, c := range [...]uint32{allShared, b.category} {
		if all := x.categories[c]; len(all) == 0 || all[len(all)-1].offset != p.offset { // another batch of the record may have noted it
			if len(all) == cap(all) {
				all = slices.Grow(all, max(len(all), 16)) // it becomes long: append would copy it more often
			}
			x.categories[c] = append(all, p)
		}
	}
}

func (x *memIndex) rows(ordinal uint32, after eventstore.Seqno, limit int) []row {
	all := x.streams[ordinal]
	i, _ := slices.BinarySearchFunc(all, after+1, func(r row, n eventstore.Seqno) int { return cmp.Compare(r.last(), n) })
	return all[i:min(len(all), i+limit)]
}

func (x *memIndex) places(category uint32, after uint64, limit int) []place {
	all := x.categories[category]
	i, found := slices.BinarySearchFunc(all, after+1, func(p place, n uint64) int { return cmp.Compare(p.position, n) })
	if !found && i > 0 {
		i-- // the record before may reach beyond
	}
	return all[i:min(len(all), i+limit)]
}

func (x *memIndex) each(f func(row)) {
	for _, all := range x.streams {
		for _, r := range all {
			f(r)
		}
	}
}
