// Following the feed: which timers are pending, and how far the log's clock has come.

package timer

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// view is what a scheduler knows of the category. It is a hint where to look; all of
// it is thrown away and read anew when in doubt.
type view struct {
	pending map[string]*item
	wall    *queue
	log     *queue
	ready   map[*item]bool // log timers that are due
	// The feed is read in up to three stages. First the timers alone, from the start:
	// what is pending at its end. If log timers are among them, both kinds of category
	// from before the oldest of these, so that the clock's entries are seen in their
	// place. Then whatever comes.
	scanned  bool                // the first stage is over
	built    bool                // the end of the feed was reached: nothing is missing
	merged   bool                // the followed categories are read too
	position eventstore.Position // read through
	overfull bool                // there are more log timers than it may have

	incarnation eventstore.UUID
	timeline    uint64
}

func newView(limit int) *view {
	return &view{pending: map[string]*item{}, wall: newQueue(limit), log: newQueue(limit), ready: map[*item]bool{}}
}

// forget takes a timer out, wherever it is.
func (v *view) forget(it *item) {
	if v.pending[it.name] == it {
		delete(v.pending, it.name)
	}
	v.queueOf(it).remove(it)
	delete(v.ready, it)
}

func (v *view) queueOf(it *item) *queue {
	if it.log {
		return v.log
	}
	return v.wall
}

// note takes in an entry of a timer: set is nil if the timer is over.
func (v *view) note(name string, seqno eventstore.Seqno, set *item) {
	if known := v.pending[name]; known != nil {
		if known.seqno >= seqno {
			return // read again
		}
		v.forget(known)
	}
	switch {
	case set == nil:
		return
	case set.log && v.log.Len() >= v.log.limit:
		v.overfull = true // with only some at hand their clock cannot be told
		return
	}
	v.pending[name] = set
	v.add(set)
}

// add puts a timer into its queue, and forgets those that are left out for it.
func (v *view) add(it *item) {
	for _, out := range v.queueOf(it).add(it) {
		delete(v.pending, out.name)
	}
}

// tick moves the log's clock: timers that were set before the entry and are due by it
// are ready.
func (v *view) tick(e *eventstore.Entry) {
	now := e.Time.UnixMicro()
	for it := v.log.due(now); it != nil; it = v.log.due(now) {
		it.by = &Cause{Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, Time: e.Time}
		v.ready[it] = true
	}
}

// put gives a timer back that could not be fired.
func (v *view) put(it *item) {
	switch {
	case v.pending[it.name] != it:
	case it.by != nil:
		v.ready[it] = true
	default:
		v.add(it)
	}
}

// read takes in one page. end says that nothing stood behind it.
func (s *Scheduler) read(ctx context.Context) (end bool, err error) {
	v := s.view
	f := eventstore.Filter{Categories: []eventstore.Category{s.o.Category}, AcceptTrimmed: true}
	if v.merged {
		f.Categories = append(f.Categories, s.o.LogCategories...)
	}
	p, err := s.store.ReadFeed(ctx, v.position, f, 0)
	if err != nil {
		return false, err
	}
	if !v.incarnation.IsZero() && (p.Incarnation != v.incarnation || p.Timeline != v.timeline) || p.Drawn < v.position {
		s.logger.WarnContext(ctx, "timers are read anew: the store is of another history", "category", s.o.Category)
		s.view = newView(s.o.MaxPending)
		return false, nil
	}
	v.incarnation, v.timeline = p.Incarnation, p.Timeline
	for i := range p.Entries {
		if merge := s.take(ctx, &p.Entries[i]); merge {
			// The first log timer: from behind it on the clock counts.
			v.merged, v.position = true, p.Entries[i].Position
			return false, nil
		}
	}
	v.position = max(v.position, p.Through.Position)
	if p.End {
		s.reachedEnd()
	}
	return p.End && v.built, nil
}

// take takes in an entry; merge says that it set a log timer in a feed without the
// categories that are its clock.
func (s *Scheduler) take(ctx context.Context, e *eventstore.Entry) (merge bool) {
	v := s.view
	if e.Stream.Category() != s.o.Category {
		v.tick(e)
		return false
	}
	t, _, err := decode(e)
	if err != nil {
		s.logger.ErrorContext(ctx, "entry in a category of timers cannot be read; no timer is set by it", "stream", e.Stream, "seqno", e.Seqno, "error", err)
		return false
	}
	if t.State != Pending {
		v.note(t.Name, e.Seqno, nil)
		return false
	}
	log := t.Clock == Log
	if log && len(s.o.LogCategories) == 0 {
		s.logger.ErrorContext(ctx, "timer on the log's clock does not fire: this scheduler follows no LogCategories", "stream", e.Stream)
		v.note(t.Name, e.Seqno, nil)
		return false
	}
	v.note(t.Name, e.Seqno, itemOf(&t, e))
	return log && v.scanned && !v.merged
}

// reachedEnd is the end of a stage.
func (s *Scheduler) reachedEnd() {
	v := s.view
	if v.scanned {
		v.built = true
		v.merged = v.merged && v.log.Len()+len(v.ready) > 0
		return
	}
	v.scanned = true
	if v.log.Len() == 0 {
		v.built = true
		return
	}
	// Log timers are taken in again, each in its place between the clock's entries.
	oldest := v.log.items[0].position
	for _, it := range slices.Clone(v.log.items) {
		oldest = min(oldest, it.position)
		v.forget(it)
	}
	v.merged, v.position = true, oldest-1
}

// refill reads the timers again for those of the wall's clock that were left out, in
// the order in which they are due. It takes in as many as there is room for: each time it
// gets further, whatever has become of those that it takes in.
func (s *Scheduler) refill(ctx context.Context) error {
	v := s.view
	from, through := v.wall.beyond, v.position
	v.wall.beyond = unlimited
	for at := eventstore.Position(0); at < through; {
		p, err := s.store.ReadFeed(ctx, at, eventstore.Filter{Categories: []eventstore.Category{s.o.Category}, AcceptTrimmed: true}, 0)
		if err != nil {
			v.wall.beyond = from
			return err
		}
		for i := range p.Entries {
			e := &p.Entries[i]
			t, _, err := decode(e)
			if err != nil || e.Position > through {
				continue
			}
			it := itemOf(&t, e)
			if t.State != Pending || it.log || it.order().compare(from) < 0 {
				it = nil
			}
			v.note(t.Name, e.Seqno, it)
		}
		if p.End {
			break
		}
		at = p.Through.Position
	}
	return nil
}

// itemOf is what is remembered of a timer; nothing of the page it was read from.
func itemOf(t *Timer, e *eventstore.Entry) *item {
	return &item{name: strings.Clone(t.Name), due: t.Due.UnixMicro(), seqno: e.Seqno, position: e.Position, at: -1, log: t.Clock == Log}
}

// next returns when the first timer of the wall's clock is due.
func (v *view) next() (time.Time, bool) {
	if len(v.wall.items) == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(v.wall.items[0].due).UTC(), true
}
