// memory: the IDs of the last commands of a stream, and what each wrote.

package aggregate

import (
	"encoding/binary"

	"github.com/wattle-es/wattle/eventstore"
)

// remembered is a command that is in the history, with the place of its events.
// Only commands with an ID of their own are remembered.
type remembered struct {
	ID       eventstore.UUID     `json:"id"`
	First    eventstore.Seqno    `json:"first"`
	Last     eventstore.Seqno    `json:"last"`
	Event    eventstore.UUID     `json:"event"`              // ID of its last event
	Position eventstore.Position `json:"position,omitempty"` // of its last event; 0 in the dedicated layout
}

func (r remembered) mark() eventstore.Mark { return eventstore.Mark{Seqno: r.Last, ID: r.Event} }

// memory is what a stream's history says about commands. It goes into snapshots.
type memory struct {
	Commands []remembered `json:"commands,omitempty"` // oldest first
	// Through is the seqno of the last event of a forgotten command, 0 if none was
	// forgotten.
	Through eventstore.Seqno `json:"forgotten,omitempty"`
	// Minted is the highest time in the ID of a forgotten command, in Unix
	// milliseconds: a command with a higher one is not among the forgotten. It
	// compares IDs with IDs, so no two clocks have to agree.
	Minted uint64 `json:"minted,omitempty"`
}

// add notes a command, and forgets the oldest beyond limit.
func (m *memory) add(r remembered, limit int) {
	m.Commands = append(m.Commands, r)
	for len(m.Commands) > limit {
		oldest := m.Commands[0]
		m.Commands = m.Commands[1:]
		m.Through = max(m.Through, oldest.Last)
		if ms, ok := minted(oldest.ID); ok {
			m.Minted = max(m.Minted, ms)
		}
	}
}

// see notes the command of an entry that is folded. The events of one command
// stand side by side, in one batch.
func (m *memory) see(e *eventstore.Entry, limit int) {
	id, ok := commandOf(e)
	if !ok {
		return
	}
	if n := len(m.Commands) - 1; n >= 0 && m.Commands[n].ID == id && m.Commands[n].Last+1 == e.Seqno {
		m.Commands[n].Last, m.Commands[n].Event, m.Commands[n].Position = e.Seqno, e.ID, e.Position
		return
	}
	m.add(remembered{ID: id, First: e.Seqno, Last: e.Seqno, Event: e.ID, Position: e.Position}, limit)
}

// find returns the command with this ID; the first, should there be several.
func (m *memory) find(id eventstore.UUID) (remembered, bool) {
	for _, r := range m.Commands {
		if r.ID == id {
			return r, true
		}
	}
	return remembered{}, false
}

// mayHaveForgotten says if the ID tells that its command may be among the forgotten.
func (m *memory) mayHaveForgotten(id eventstore.UUID) bool {
	ms, ok := minted(id)
	return ok && m.Through > 0 && ms <= m.Minted
}

// knowsAllFrom says if every command with an event at or above n is remembered.
func (m *memory) knowsAllFrom(n eventstore.Seqno) bool { return m.Through < n }

func (m *memory) bytes() int { return cap(m.Commands) * commandBytes }

// commandOf returns the command ID in an entry's metadata.
func commandOf(e *eventstore.Entry) (eventstore.UUID, bool) {
	s, ok := e.Metadata[eventstore.MetaCommand]
	if !ok {
		return eventstore.UUID{}, false
	}
	id, err := eventstore.ParseUUID(s)
	return id, err == nil && !id.IsZero()
}

// minted returns the Unix milliseconds in a UUIDv7.
func minted(id eventstore.UUID) (ms uint64, ok bool) {
	return binary.BigEndian.Uint64(id[:8]) >> 16, id[6]>>4 == 7
}
