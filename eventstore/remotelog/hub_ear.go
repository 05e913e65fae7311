// An ear: how a follower learns that there may be something to read.

package remotelog

import (
	"sync/atomic"

	"github.com/wattle-es/wattle/eventstore"
)

// ear wakes one follower. It keeps no hints, so it costs the same however many come.
type ear struct {
	ready chan struct{} // holds one: look now

	// How far its follower is. Of a feed only the position counts.
	feed     bool
	seqno    atomic.Uint64
	position atomic.Uint64

	hinted atomic.Uint64 // highest position heard of
	doubt  atomic.Bool   // what stands at the follower's place is to be compared again
}

func newEar(feed bool) *ear { return &ear{feed: feed, ready: make(chan struct{}, 1)} }

// hear wakes the follower unless it has passed what the hint tells of.
func (e *ear) hear(a eventstore.Announcement) {
	later := uint64(a.Position) > e.position.Load()
	switch {
	case a == (eventstore.Announcement{}):
		e.doubt.Store(true)
	case e.feed && !later:
		return
	case e.feed:
		raise(&e.hinted, uint64(a.Position))
	case uint64(a.Seqno) > e.seqno.Load():
	case later: // a stream of that name that was begun anew
		e.doubt.Store(true)
	default:
		return
	}
	e.rouse()
}

func (e *ear) rouse() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// passed tells how far the follower is.
func (e *ear) passed(s eventstore.Seqno, p eventstore.Position) {
	e.seqno.Store(uint64(s))
	raise(&e.position, uint64(p))
}

func raise(n *atomic.Uint64, to uint64) {
	for old := n.Load(); old < to && !n.CompareAndSwap(old, to); old = n.Load() {
	}
}
