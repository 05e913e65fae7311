// Following at the client: what arrives is checked, so that no entry comes twice and none
// is missing, and what ended is taken up again behind the last entry.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// FollowedFeed is a piece of the feed as FollowFeed yields it.
type FollowedFeed struct {
	Entries []eventstore.Entry // may be none: what does not match was passed
	// Through is how far this came: what a reader keeps, and goes on from.
	Through     eventstore.PositionMark
	End         bool // nothing stood between Through and the horizon
	Incarnation eventstore.UUID
}

// streamChecker checks the entries of a stream that is followed.
type streamChecker struct {
	stream eventstore.Stream
	at     eventstore.Mark // of the last one
}

func (c *streamChecker) next(e *eventstore.Entry) error {
	switch {
	case e.Stream != c.stream:
		return corruptFollow(c.stream, "entries of this stream", "one of "+string(e.Stream))
	case e.Seqno != c.at.Seqno+1:
		return corruptFollow(c.stream, "entry "+(c.at.Seqno+1).String(), "entry "+e.Seqno.String())
	case e.ID.IsZero():
		return corruptFollow(c.stream, "entry "+e.Seqno.String()+" with an ID", "none")
	}
	c.at = e.Mark()
	return nil
}

func corruptFollow(s eventstore.Stream, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "follow", Stream: s, Wanted: wanted, Found: found,
		Hint: "the server has sent what no log holds"}
}

// feedChecker checks what comes of a feed that is followed.
type feedChecker struct {
	filter      eventstore.Filter
	at          eventstore.PositionMark
	incarnation eventstore.UUID
	began       bool // a piece was yielded
	end         bool // the last one had this
}

// next checks a message and fills in how far it came; news says if there is anything in it.
func (c *feedChecker) next(m *FollowedFeed) (news bool, err error) {
	switch {
	case m.Incarnation.IsZero():
		return false, corruptFollow("", "the incarnation of the store", "none")
	case !c.incarnation.IsZero() && m.Incarnation != c.incarnation:
		return false, &eventstore.Error{Kind: eventstore.ErrDiverged, Op: "follow feed", Wanted: "store incarnation " + c.incarnation.String(),
			Found: "incarnation " + m.Incarnation.String(), Hint: "the store was restored or replaced; what was read belongs to another history"}
	}
	at := c.at.Position
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Position <= at {
			return false, corruptFollow(e.Stream, "a position above "+at.String(), e.Position.String())
		}
		if e.ID.IsZero() || !c.matches(e) {
			return false, corruptFollow(e.Stream, "entries that the filter asks for", fmt.Sprintf("entry %v of type %q", e.PositionMark(), e.Type))
		}
		at = e.Position
	}
	switch {
	case m.Through.Position == 0 && len(m.Entries) == 0:
		m.Through = c.at
	case m.Through.Position < at:
		return false, corruptFollow("", "to get through position "+at.String(), m.Through.String())
	}
	news = len(m.Entries) > 0 || m.Through.Position > c.at.Position || m.End && !c.end || !c.began
	c.at, c.end, c.began, c.incarnation = m.Through, m.End, true, m.Incarnation
	return news, nil
}

func (c *feedChecker) matches(e *eventstore.Entry) bool {
	f := &c.filter
	return (len(f.Categories) == 0 || slices.Contains(f.Categories, e.Stream.Category())) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(len(f.Slots) == 0 || slices.Contains(f.Slots, e.Stream.Slot()))
}

// follow yields the entries of a stream. open begins a message stream behind a mark,
// read reads a message.
func followStream[M any](ctx context.Context, t tail[M], stream eventstore.Stream, after eventstore.Mark,
	open func(context.Context, eventstore.Mark) (receiver[M], error), read func(*M) ([]eventstore.Entry, error)) iter.Seq2[eventstore.Entry, error] {
	return func(yield func(eventstore.Entry, error) bool) {
		t, c := t, streamChecker{stream: stream, at: after}
		t.open = func(ctx context.Context) (receiver[M], error) { return open(ctx, c.at) }
		err := t.each(ctx, func(m *M) error {
			entries, err := read(m)
			if err != nil {
				return err
			}
			for i := range entries {
				if err := c.next(&entries[i]); err != nil {
					return err
				}
				if !yield(entries[i], nil) {
					return errStop
				}
			}
			return nil
		})
		if !errors.Is(err, errStop) {
			yield(eventstore.Entry{}, err)
		}
	}
}

// followFeed yields what comes of the feed.
func followFeed[M any](ctx context.Context, t tail[M], after eventstore.PositionMark, f eventstore.Filter,
	open func(context.Context, eventstore.PositionMark) (receiver[M], error), read func(*M) (FollowedFeed, error)) iter.Seq2[FollowedFeed, error] {
	return func(yield func(FollowedFeed, error) bool) {
		t, c := t, feedChecker{filter: f, at: after}
		t.open = func(ctx context.Context) (receiver[M], error) { return open(ctx, c.at) }
		err := t.each(ctx, func(m *M) error {
			piece, err := read(m)
			if err != nil {
				return err
			}
			news, err := c.next(&piece)
			if err != nil {
				return err
			}
			if news && !yield(piece, nil) {
				return errStop
			}
			return nil
		})
		if !errors.Is(err, errStop) {
			yield(FollowedFeed{}, err)
		}
	}
}
