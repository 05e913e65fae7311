// What the flow and Commit ask of a member.

package topic

import (
	"maps"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// rested says if a flow may go on: the leases of its member have not run out.
func (f *flow) rested() bool { return f.m == nil || f.m.current() }

// current says if the leases, as far as this process can tell, have not run out.
func (m *member) current() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.until)
}

// assign brings the cursors of a flow into line with what its member has, and tells the
// loop body when that has changed.
func (f *flow) assign() error {
	if f.m == nil {
		return nil
	}
	places, changed, err := f.m.assignment(f)
	if err != nil || !changed {
		return err
	}
	return f.tell(Delivery{Assignment: places})
}

// assignment returns what the member has, if the flow does not know it yet.
func (m *member) assignment(f *flow) (places []Place, changed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return nil, false, m.failed
	}
	if m.told {
		return nil, false, nil
	}
	m.told = true
	places = []Place{}
	for p := range f.cursors {
		if one := m.parts[p]; one == nil || !one.leaving.IsZero() {
			f.cursors[p] = nil
		}
	}
	for _, p := range slices.Sorted(maps.Keys(m.parts)) {
		one := m.parts[p]
		if !one.leaving.IsZero() {
			continue
		}
		if cur := f.cursors[p]; cur == nil || cur.epoch != one.lease.Epoch {
			f.set(p, &cursor{at: one.delivered, epoch: one.lease.Epoch, fresh: one.fresh})
			one.fresh = false
		}
		m.given[p], m.anew[p] = true, false
		places = append(places, Place{Partition: p, Offset: one.delivered.Seqno})
	}
	return places, true, nil
}

// verdict is what a member says of a page that was read.
type verdict int

const (
	mayDeliver verdict = iota
	notMine            // the partition is not to be delivered any more
	notNow             // nobody knows whose it is until the leases are renewed
)

// deliver says if a page of a partition may be delivered, and which part of it: what has
// been committed is not. From then on it counts as delivered.
func (m *member) deliver(p int, epoch eventstore.Epoch, entries []eventstore.Entry) (rest []eventstore.Entry, v verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.parts[p]
	if one == nil || one.lease.Epoch != epoch || !one.leaving.IsZero() {
		return nil, notMine
	}
	if !time.Now().Before(m.until) {
		return nil, notNow
	}
	for len(entries) > 0 && entries[0].Seqno <= one.pos.at.Seqno {
		entries = entries[1:]
	}
	if n := len(entries); n > 0 {
		one.delivered = entries[n-1].Mark()
		one.ids.add(entries)
	}
	return entries, mayDeliver
}

// takesAnew notes that a partition is being taken up, so that what was delivered of it
// before counts no more: the consumer may have been deleted since. That is so if this
// Consume had it before, or nobody has; else it is what the member had when it came back.
func (m *member) takesAnew(p int, begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.anew[p] = m.anew[p] || m.given[p] || begins
}

// outdated says if a place in a partition can only be one that was delivered before.
func (m *member) outdated(p int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.anew[p]
}

// position is what this member knows of a position that it has fenced.
func (m *member) position(p int) (position, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.parts[p]; one != nil {
		return one.pos, true
	}
	return position{}, false
}

// committed takes note of a position that was stored.
func (m *member) committed(p int, pos position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pos.last.Seqno >= m.stored[p].last.Seqno {
		m.stored[p] = pos
	}
	one := m.parts[p]
	if one == nil || one.pos.last.Seqno > pos.last.Seqno {
		return
	}
	one.pos = pos
	if one.delivered.Seqno <= pos.at.Seqno && !one.leaving.IsZero() {
		m.wakeKeeper() // it can be given up now
	}
}

// lost takes note that a partition's position was fenced at an epoch by somebody else. If
// the lease is still held the consumer was deleted: it is taken up anew.
func (m *member) lost(p int, at eventstore.Epoch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.parts[p]; one != nil && one.lease.Epoch < at {
		delete(m.parts, p)
		m.tellLocked()
		m.wakeKeeper()
	}
}

// markOf is the mark of a message that was delivered lately, the zero Mark otherwise.
func (m *member) markOf(at Place) eventstore.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.parts[at.Partition]
	if one == nil {
		return eventstore.Mark{}
	}
	return one.ids.find(at.Offset)
}

// idRing keeps the IDs of the last keptIDs messages that were delivered.
type idRing struct {
	ids         []eventstore.UUID // by offset, modulo keptIDs
	first, last eventstore.Seqno  // that are there; last 0: none
}

func (r *idRing) add(entries []eventstore.Entry) {
	if r.ids == nil {
		r.ids = make([]eventstore.UUID, keptIDs)
	}
	for _, e := range entries {
		if e.Seqno != r.last+1 || r.last == 0 {
			r.first = e.Seqno
		}
		r.ids[e.Seqno%keptIDs], r.last = e.ID, e.Seqno
		if r.last-r.first >= keptIDs {
			r.first = r.last - keptIDs + 1
		}
	}
}

func (r *idRing) find(at eventstore.Seqno) eventstore.Mark {
	if r.last == 0 || at < r.first || at > r.last {
		return eventstore.Mark{}
	}
	return eventstore.Mark{Seqno: at, ID: r.ids[at%keptIDs]}
}
