// Memory: which publications of a partition are known by their ID.

package topic

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// memory knows the offsets of the publications that were written lately, by the ID of
// their first event, and from when on it knows all of them: its floor. That is what makes
// an answer safe. A publication that was first tried at a time t by its publisher's
// clock, which is at most ahead of the store's, was written at t-ahead or later, if at
// all: where that is not below the floor and it is not known, it is not there.
//
// It holds what is younger than the topic's window, and ahead more. At a takeover it is
// filled backward from the head of the log, newest first, and the floor falls; then the
// floor rises with what is forgotten.
//
// Each publication takes some 100 bytes: 24 in a map that is at least half full, 32 in a
// list whose arrays are at least half full.
type memory struct {
	window time.Duration
	most   int

	by      map[eventstore.UUID]eventstore.Seqno
	old     []remembered // what was read back, newest first
	recent  []remembered // what was written since, oldest first
	floor   time.Time    // everything written at or after it is known; the zero time: everything there ever was
	filling bool         // the floor may still fall
	blind   bool         // nothing has been read back yet: nothing is known
}

type remembered struct {
	id eventstore.UUID
	at time.Time // when it was written, on the store's clock, or a little later
}

// newMemory is a memory that knows nothing yet.
func newMemory(window time.Duration, most int) *memory {
	return &memory{window: window, most: most, by: map[eventstore.UUID]eventstore.Seqno{}, filling: true, blind: true}
}

// knows is what memory says of a publication.
type knows uint8

const (
	absent  knows = iota // it is not there
	present              // it may be, at an offset
	unsure               // ask again when more has been read back
	beyond               // it may have been there: nobody can tell
)

// ask says if the publication with that first event, first tried at that time, is there.
// now is a lower bound of the store's clock.
func (m *memory) ask(id eventstore.UUID, tried, now time.Time) (knows, eventstore.Seqno) {
	if at, ok := m.by[id]; ok {
		return present, at
	}
	switch {
	case tried.Before(now.Add(-m.window)):
		return beyond, 0
	case m.blind:
		return unsure, 0
	case !tried.Add(-ahead).Before(m.floor):
		return absent, 0
	case m.filling:
		return unsure, 0
	}
	return beyond, 0
}

// room says if another one can be remembered. Where there are too many for the window, it is made shorter, but not for less
// than MinDedupWindow.
func (m *memory) room(now time.Time) bool {
	for len(m.by) >= m.most {
		if at, ok := m.oldest(); !ok || !at.Before(now.Add(-min(m.window, MinDedupWindow)-ahead)) {
			return false
		}
		m.drop()
	}
	return true
}

// forget drops what need not be known any more.
func (m *memory) forget(now time.Time) {
	before := now.Add(-m.window - ahead)
	for at, ok := m.oldest(); ok && at.Before(before); at, ok = m.oldest() {
		m.drop()
	}
}

func (m *memory) oldest() (time.Time, bool) {
	switch {
	case len(m.old) > 0:
		return m.old[len(m.old)-1].at, true
	case len(m.recent) > 0:
		return m.recent[0].at, true
	}
	return time.Time{}, false
}

// drop forgets the oldest one.
func (m *memory) drop() {
	var r remembered
	if n := len(m.old); n > 0 {
		r, m.old = m.old[n-1], m.old[:n-1]
	} else {
		r, m.recent = m.recent[0], m.recent[1:]
	}
	delete(m.by, r.id)
	if at := r.at.Add(time.Microsecond); at.After(m.floor) {
		m.floor = at
	}
	m.filling = false // what would be read now is older than what is no longer known
}

// add remembers one that was written just now. at is an upper bound of the time.
func (m *memory) add(id eventstore.UUID, at eventstore.Seqno, when time.Time) {
	m.by[id] = at
	m.recent = append(m.recent, remembered{id, when})
}

// fill takes entries that were read back, newest first, and says if there is no need for
// more: what is older lies before the window, or there is no room for it.
func (m *memory) fill(entries []eventstore.Entry, now time.Time) (enough bool) {
	if !m.filling {
		return true
	}
	for _, e := range entries {
		m.blind = false
		if e.Time.Before(now.Add(-m.window-ahead)) || len(m.by) >= m.most {
			m.filled(e.Time.Add(time.Microsecond))
			return true
		}
		// An older entry of the same moment may not have been read yet.
		m.floor = e.Time.Add(time.Microsecond)
		if _, part := e.Metadata[MetaPart]; !part {
			m.by[e.ID] = e.Seqno
			m.old = append(m.old, remembered{e.ID, e.Time})
		}
	}
	return false
}

// filled ends the filling: nothing older can be read, or need be.
func (m *memory) filled(floor time.Time) { m.floor, m.filling, m.blind = floor, false, false }
