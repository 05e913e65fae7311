// Following one stream by its seqnos.

package projector

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

// stream follows one stream. A mark of a stream proves all that is before it, so
// neither incarnation nor timeline is needed, and it works in the dedicated
// layout, where entries have no position.
type stream struct {
	store         *eventstore.Store
	stream        eventstore.Stream
	types         []string
	limit         int
	acceptTrimmed bool
	snapshots     bool // what was trimmed is begun with a snapshot
	bare          bool // or, where there is none, without one
}

func (s *stream) read(ctx context.Context, at []cursor) ([]look, error) {
	l, err := s.look(ctx, at[0].at)
	return []look{l}, err
}

func (s *stream) look(ctx context.Context, from Checkpoint) (look, error) {
	p, after, err := s.page(ctx, from)
	if err != nil {
		return look{}, err
	}
	if s.snapshots && after > from.Seqno {
		if l, ok, err := s.begin(ctx, from); ok || err != nil {
			return l, err
		}
	}
	next := from
	if after > from.Seqno {
		next.Seqno, next.Mark = after, eventstore.PositionMark{Position: from.Position}
	}
	for _, e := range p.Entries {
		if e.Seqno != after+1 {
			return look{}, outOfOrder("read", s.stream, "entry "+(after+1).String(), e.Seqno.String())
		}
		after = e.Seqno
		next.Seqno, next.Position, next.Mark = e.Seqno, e.Position, e.PositionMark()
	}
	return look{entries: only(p.Entries, s.types), next: next, end: p.End}, nil
}

// begin is a look at the snapshot, which stands for what was trimmed.
func (s *stream) begin(ctx context.Context, from Checkpoint) (l look, ok bool, err error) {
	_, sn, err := s.store.Snapshot(ctx, s.stream)
	if errors.Is(err, eventstore.ErrTrimmed) && s.bare {
		return l, false, nil
	}
	if err != nil || sn == nil || sn.At.Seqno <= from.Seqno {
		return l, false, err
	}
	next := from
	next.Seqno, next.Mark = sn.At.Seqno, eventstore.PositionMark{Position: from.Position, ID: sn.At.ID}
	return look{entries: []eventstore.Entry{entryOf(sn, 0)}, next: next}, true, nil
}

// page reads behind a checkpoint, or behind what was trimmed if that is accepted.
func (s *stream) page(ctx context.Context, from Checkpoint) (eventstore.Page, eventstore.Seqno, error) {
	if from.Seqno > 0 && !from.Mark.ID.IsZero() {
		if p, ok, err := s.behindMark(ctx, from); ok || err != nil {
			return p, from.Seqno, err
		}
	}
	return s.behind(ctx, from.Seqno)
}

// behind reads behind a seqno, or behind what was trimmed if that is accepted.
func (s *stream) behind(ctx context.Context, after eventstore.Seqno) (eventstore.Page, eventstore.Seqno, error) {
	for {
		p, err := s.store.ReadFrom(ctx, s.stream, after, s.limit)
		e, ok := errors.AsType[*eventstore.Error](err)
		if !ok || e.Kind != eventstore.ErrTrimmed || !s.acceptTrimmed || e.First <= after+1 {
			return p, after, err
		}
		after = e.First - 1
	}
}

// behindMark reads the marked entry again together with those behind it: a failover
// between two looks can go unseen, and what stands behind a mark that is not there is
// of another history. ok is false if the marked entry is trimmed or fills a page.
func (s *stream) behindMark(ctx context.Context, from Checkpoint) (p eventstore.Page, ok bool, err error) {
	p, err = s.store.ReadFrom(ctx, s.stream, from.Seqno-1, min(s.limit+1, eventstore.MaxPageEntries))
	if errors.Is(err, eventstore.ErrTrimmed) {
		return p, false, nil
	}
	if err != nil {
		return p, false, err
	}
	if marked := (eventstore.Mark{Seqno: from.Seqno, ID: from.Mark.ID}); len(p.Entries) == 0 || p.Entries[0].Mark() != marked {
		return p, false, s.diverged(marked, p)
	}
	p.Entries = p.Entries[1:]
	return p, len(p.Entries) > 0 || p.End, nil
}

func (s *stream) diverged(marked eventstore.Mark, p eventstore.Page) error {
	found := "no entry there"
	if len(p.Entries) > 0 {
		found = "entry " + p.Entries[0].Mark().String()
	}
	return diverged("", s.stream, "entry "+marked.String(), found)
}

func (s *stream) resume(ctx context.Context, c cursor) error {
	at := c.at
	if at.Seqno == 0 {
		return nil
	}
	h, err := s.store.Head(ctx, s.stream)
	if err != nil {
		return err
	}
	marked := eventstore.Mark{Seqno: at.Seqno, ID: at.Mark.ID}
	switch {
	case h.Last.Seqno < at.Seqno, h.Last.Seqno == at.Seqno && !marked.ID.IsZero() && h.Last.ID != marked.ID:
		return diverged("", s.stream, "entry "+marked.String(), "head "+h.Last.String())
	case h.Last.Seqno == at.Seqno || marked.ID.IsZero():
		return nil
	}
	p, err := s.store.ReadFrom(ctx, s.stream, at.Seqno-1, 1)
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed &&
		(s.acceptTrimmed || e.First <= at.Seqno+1) {
		return nil // only the marked entry and those before it are gone
	}
	if err != nil {
		return err
	}
	if len(p.Entries) == 0 || p.Entries[0].Mark() != marked {
		return s.diverged(marked, p)
	}
	return nil
}

func (s *stream) digest(context.Context, cursor) ([]byte, error) { return nil, nil }

func (s *stream) covers(ctx context.Context, at []cursor, t eventstore.Token) (bool, backlog, error) {
	// One look at the feed tells which store this is.
	f, err := s.store.ReadFeed(ctx, t.Position, eventstore.Filter{Categories: s.categories(), AcceptTrimmed: true}, 1)
	if err != nil {
		return false, backlog{}, err
	}
	if f.Incarnation != t.Incarnation {
		return false, backlog{}, foreignToken(t, f.Incarnation)
	}
	p, after, err := s.behind(ctx, at[0].at.Seqno)
	if s.snapshots && after > at[0].at.Seqno {
		return false, backlog{more: true}, nil // a snapshot brings it
	}
	if err != nil {
		return false, backlog{}, err
	}
	var b backlog
	for _, e := range only(p.Entries, s.types) {
		if e.Position > t.Position {
			return b.entries == 0, b, nil
		}
		b.entries, b.last = b.entries+1, e.Position
	}
	b.more = !p.End && p.Entries[len(p.Entries)-1].Position < t.Position
	return b.entries == 0 && !b.more, b, nil
}

func (s *stream) holds(at Checkpoint) []eventstore.Hold {
	return []eventstore.Hold{{Stream: s.stream, Seqno: at.Seqno, ID: at.Mark.ID}}
}

func (s *stream) behindTrim(h eventstore.Hold, at Checkpoint, refused *eventstore.Error) (eventstore.Hold, bool) {
	if refused.First <= h.Seqno || refused.First > at.Seqno+1 && !s.acceptTrimmed {
		return h, false
	}
	h.Seqno, h.ID = refused.First, eventstore.UUID{}
	return h, true
}

func (s *stream) place(at Checkpoint) uint64 { return uint64(at.Seqno) }

func (s *stream) placeOf(e *eventstore.Entry) uint64 { return uint64(e.Seqno) }

func (s *stream) hinted(a eventstore.Announcement) (uint64, bool) {
	return uint64(a.Seqno), a.Stream == "" || a.Stream == s.stream
}

func (s *stream) categories() []eventstore.Category {
	return []eventstore.Category{s.stream.Category()}
}

func (s *stream) name() string { return string(s.stream) }
