// A group: what is staged to be written together.

package filelog

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// group is what the writer has staged. Decisions look at streams through it.
type group struct {
	log     *Log
	b       []byte // the records, encoded
	records []staged
	answers []answer
	next    uint64 // position of the next record

	found    []found // for each batch of the append that is decided
	streams  map[eventstore.Stream]*stagedStream
	locked   map[any]bool // streams, names of leases: changed in ways that only the registry can show
	global   bool         // categories or holds have been changed
	trims    bool         // something can no longer be read
	ordinals uint32       // of the next stream to be created
}

type staged struct {
	body     body
	position uint64
	span     uint64 // how many positions it takes
	size     int64
}

type answer struct {
	request *request
	err     error
	writes  bool
}

// found is what find has found.
type found struct {
	category *category
	stream   *stagedStream
}

// stagedStream is a stream as the group leaves it.
type stagedStream struct {
	streamRef
	head eventstore.Head
	time int64
}

func newGroup(l *Log) *group {
	g := &group{log: l, streams: map[eventstore.Stream]*stagedStream{}, locked: map[any]bool{}}
	g.reset()
	return g
}

// reset empties the group for the next one.
func (g *group) reset() {
	const keep = 1 << 20
	if cap(g.b) > keep {
		g.b = nil
	}
	clear(g.records)
	clear(g.answers)
	g.b, g.records, g.answers = g.b[:0], g.records[:0], g.answers[:0]
	clear(g.streams)
	clear(g.locked)
	g.global, g.trims = false, false
	g.next = g.log.reg.position + 1
	g.ordinals = uint32(len(g.log.reg.ordinals))
}

func (g *group) empty() bool { return len(g.records) == 0 }

func (g *group) full() bool { return len(g.b) >= maxGroupBytes }

// add encodes a record behind the others. The payload is the caller's no longer than that.
func (g *group) add(b body, s *segment) {
	at := len(g.b)
	e := encoder{append(g.b, make([]byte, recordHeader)...)}
	b.encode(&e)
	offset := s.size + int64(at)
	span := spanOf(b)
	h := recordHead{salt: s.salt, kind: b.kind(), position: g.next, synced: uint32(g.log.synced.Load())}
	record := seal(e.b[at:], h, offset)
	g.b = append(e.b[:at], record...)
	g.records = append(g.records, staged{b, g.next, span, int64(len(record))})
	g.next += span
	switch b.(type) {
	case trimBody, snapshotBody, deleteCategoryBody, dropStreamBody:
		g.trims = true
	}
	if a, ok := b.(appendBody); ok {
		for i := range a.batches {
			a.batches[i].events = nil
		}
	}
}

// spanOf says how many positions a record takes: one for each of its entries that has
// one, and one at least, so that every record has a position of its own.
func spanOf(b body) uint64 {
	n := uint64(0)
	if a, ok := b.(appendBody); ok {
		for i := range a.batches {
			if last := a.batches[i].lastPosition(); last > 0 {
				n += uint64(last-a.batches[i].position) + 1
			}
		}
	}
	return max(n, 1)
}

// find returns category and stream as the group leaves them, the stream nil if it is a
// shared one that does not exist. errStaged if the group has changed more than heads.
func (g *group) find(op string, s eventstore.Stream) (*category, *stagedStream, error) {
	if g.global || g.locked[s] {
		return nil, nil, errStaged
	}
	c, err := g.log.reg.category(op, s.Category(), s)
	if err != nil {
		return nil, nil, err
	}
	if st := g.streams[s]; st != nil {
		return c, st, nil
	}
	c, st, err := g.log.reg.find(op, s)
	if err != nil || st == nil {
		return c, nil, err
	}
	return c, &stagedStream{st.ref(), st.head, st.time}, nil
}

// alone returns category and stream of a change that only the registry shows, and keeps
// the group from looking at the stream again.
func (g *group) alone(op string, s eventstore.Stream) (*category, *stream, error) {
	if g.global || g.locked[s] || g.streams[s] != nil {
		return nil, nil, errStaged
	}
	c, st, err := g.log.reg.find(op, s)
	if err == nil {
		g.locked[s] = true
	}
	return c, st, err
}

// whole keeps the group for a change of categories or holds, which everything depends on.
func (g *group) whole() error {
	if !g.empty() {
		return errStaged
	}
	g.global = true
	return nil
}

// headIn is the zero Head for a stream that does not exist.
func headIn(st *stagedStream) eventstore.Head {
	if st == nil {
		return eventstore.Head{}
	}
	return st.head
}

// reach returns a stream to be changed, which is created if it does not exist.
func (g *group) reach(c *category, st *stagedStream, s eventstore.Stream) *stagedStream {
	if st == nil {
		st = &stagedStream{streamRef: streamRef{ordinal: g.ordinals, category: c.number, name: s}}
		g.ordinals++
	}
	g.streams[s] = st
	return st
}

// now is the time of an append to a stream, in microseconds since 1970: it never falls
// along a stream.
func (g *group) now(st *stagedStream, clock time.Time) int64 { return max(clock.UnixMicro(), st.time) }
