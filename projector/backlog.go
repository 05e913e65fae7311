// The backlog of a version: what is in the store and not handled yet, lane by lane, from
// one page of the feed.

package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// unhandled is what was read of a version's feed, or stream, behind its lowest lane. All
// places are positions, or seqnos of a stream.
type unhandled struct {
	after   uint64 // where reading began
	through uint64 // how far it came: all to be handled up to there is in entries
	until   uint64 // the last place that was given out when it began
	head    uint64
	entries []waiting
	gone    uint64 // entries behind after, none beyond this place, were trimmed; 0: none, or it is accepted
	foreign string // the store is not the one that the checkpoints are of
}

// waiting is an entry that some lane has not handled.
type waiting struct {
	slot  eventstore.Slot
	place uint64
	time  time.Time
}

// held says if appends under way kept it from being read to the end.
func (r *unhandled) held() bool { return r.through == r.head && r.head < r.until }

// read reads behind the lowest lane of a version.
func (x *examination) read(ctx context.Context, v *Version) (r unhandled, err error) {
	r = unhandled{after: v.lowest(), through: v.lowest()}
	if v.Scope.Stream != "" {
		err = x.readStream(ctx, v, &r)
	} else {
		err = x.readFeed(ctx, v, &r)
	}
	return r, err
}

// readFeed reads until it has seen all that the store had given out when it began, or as
// many entries as are looked at. An append under way holds the horizon below what has
// been committed behind it, so it is waited for, a moment.
func (x *examination) readFeed(ctx context.Context, v *Version, r *unhandled) error {
	f := eventstore.Filter{Categories: v.Scope.Categories, Types: v.Scope.Types, AcceptTrimmed: x.o.AcceptTrimmed}
	for try := 0; ; try++ {
		p, err := x.store.ReadFeed(ctx, eventstore.Position(r.through), f, max(1, x.o.Entries-len(r.entries)))
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed && !f.AcceptTrimmed {
			r.gone, f.AcceptTrimmed = uint64(e.FirstPosition), true
			p, err = x.store.ReadFeed(ctx, eventstore.Position(r.through), f, max(1, x.o.Entries-len(r.entries)))
		}
		if err != nil {
			return err
		}
		if try == 0 {
			r.until, r.foreign = uint64(p.Drawn), v.foreign(p)
		}
		for i := range p.Entries {
			e := &p.Entries[i]
			r.entries = append(r.entries, waiting{e.Stream.Slot(), uint64(e.Position), e.Time})
		}
		r.head = uint64(p.Horizon)
		r.through = max(r.through, uint64(p.Through.Position))
		if p.End {
			r.through = max(r.through, r.head)
		}
		if r.through >= r.until || len(r.entries) >= x.o.Entries || r.foreign != "" || try >= horizonTries {
			return nil
		}
		if p.End {
			if err := sleep(ctx, horizonPause); err != nil {
				return err
			}
		}
	}
}

// foreign says what is wrong if the store is not the one of the checkpoints.
func (v *Version) foreign(p eventstore.FeedPage) string {
	for i, c := range v.Lanes {
		switch {
		case !c.Incarnation.IsZero() && c.Incarnation != p.Incarnation:
			return fmt.Sprintf("lane %d is of store incarnation %s, this one is %s", i, c.Incarnation, p.Incarnation)
		case c.Position > p.Drawn:
			return fmt.Sprintf("lane %d has come to position %d, the store to %d only: it lost its end", i, c.Position, p.Drawn)
		}
	}
	return ""
}

// readStream is readFeed for one stream.
func (x *examination) readStream(ctx context.Context, v *Version, r *unhandled) error {
	h, err := x.store.Head(ctx, v.Scope.Stream)
	if err != nil {
		return err
	}
	r.head, r.until = uint64(h.Last.Seqno), uint64(h.Last.Seqno)
	if r.after > r.until {
		r.foreign = fmt.Sprintf("it has come to entry %d, the stream to %d only: it lost its end", r.after, r.until)
	}
	if uint64(h.Trimmed) > r.after && !x.o.AcceptTrimmed {
		r.gone = uint64(h.Trimmed)
	}
	r.through = max(r.through, uint64(h.Trimmed))
	for r.through < r.until && len(r.entries) < x.o.Entries {
		p, err := x.store.ReadFrom(ctx, v.Scope.Stream, eventstore.Seqno(r.through), x.o.Entries-len(r.entries))
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed && uint64(e.First) > r.through+1 {
			r.through = uint64(e.First) - 1
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range only(p.Entries, v.Scope.Types) {
			r.entries = append(r.entries, waiting{e.Stream.Slot(), uint64(e.Seqno), e.Time})
		}
		if len(p.Entries) == 0 {
			break
		}
		r.through = uint64(p.Entries[len(p.Entries)-1].Seqno)
	}
	return nil
}

// behind says if there may be something that a lane has not handled.
func (r *unhandled) behind(v *Version) bool {
	var h Health
	h.Lanes = make([]LaneHealth, len(v.Lanes))
	r.count(&h, v, nil, time.Time{})
	return h.Behind > 0 || h.More
}

// count counts what each lane of a version has not handled: of a shadow, what the live
// version has.
func (r *unhandled) count(h *Health, v, live *Version, now time.Time) {
	goals := make([]uint64, len(v.Lanes))
	for i, c := range v.Lanes {
		goals[i] = min(r.until, live.goal(i, len(v.Lanes), r.until))
		l, at := &h.Lanes[i], v.place(c)
		l.More = at < goals[i] && (r.through < goals[i] || at < r.after)
	}
	for _, e := range r.entries {
		i := LaneOf(e.slot, len(v.Lanes))
		if e.place <= v.place(v.Lanes[i]) || e.place > goals[i] {
			continue
		}
		l := &h.Lanes[i]
		if l.Behind++; l.Behind == 1 {
			l.Lag = max(0, now.Sub(e.time))
		}
	}
	for i := range h.Lanes {
		l := &h.Lanes[i]
		if l.More && l.Behind == 0 && len(r.entries) > 0 {
			l.Lag = max(0, now.Sub(r.entries[0].time))
		}
		h.Behind, h.More, h.Lag = h.Behind+l.Behind, h.More || l.More, max(h.Lag, l.Lag)
	}
}

// goal is how far a lane of so many of a shadow can come; until, if there is no live one.
func (v *Version) goal(lane, lanes int, until uint64) uint64 {
	if v == nil {
		return until
	}
	for i, c := range v.Lanes {
		if overlap(lane, lanes, i, len(v.Lanes)) {
			until = min(until, v.place(c))
		}
	}
	return until
}
