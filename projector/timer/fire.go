// Firing: the fenced append behind the entry that set the timer.

package timer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// fireDue fires what is due, until nothing is or until time is up. If some could not be
// fired the others are all the same, and it returns an error of one that could not.
func (s *Scheduler) fireDue(ctx context.Context, until time.Time) (more bool, err error) {
	for {
		due := s.due(fireRound)
		if len(due) == 0 {
			return false, nil
		}
		if err := s.fireAll(ctx, due); err != nil {
			return true, err
		}
		if len(due) < fireRound {
			return false, nil
		}
		if expired(until) {
			return true, nil
		}
	}
}

// due takes out up to most timers that are due.
func (s *Scheduler) due(most int) []*item {
	due := slices.SortedFunc(maps.Keys(s.view.ready), func(a, b *item) int { return a.order().compare(b.order()) })
	due = due[:min(len(due), most)]
	for _, it := range due {
		delete(s.view.ready, it)
	}
	now := s.o.Now().UnixMicro()
	for len(due) < most {
		it := s.view.wall.due(now)
		if it == nil {
			break
		}
		due = append(due, it)
	}
	return due
}

// fireAll fires timers side by side. It returns when all have been tried.
func (s *Scheduler) fireAll(ctx context.Context, due []*item) error {
	failed := make([]error, len(due))
	var running sync.WaitGroup
	slots := make(chan struct{}, FireSide)
	for i, it := range due {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			failed[i] = s.fire(ctx, it)
		})
	}
	running.Wait()
	var first error
	for i, it := range due {
		switch err := failed[i]; {
		case err == nil:
			s.view.forget(it)
		case isKind(err, eventstore.ErrCorrupt, eventstore.ErrTooLarge, eventstore.ErrInvalid):
			// One timer is no reason to keep the others waiting. It is tried again when
			// the feed is read anew.
			s.logger.ErrorContext(ctx, "timer cannot be fired", "timer", it.name, "generation", it.seqno, "error", err)
			s.view.forget(it)
		default:
			s.view.put(it)
			if first == nil || !outage(err) {
				first = err
			}
		}
	}
	return first
}

// fire fires a generation of a timer, and returns nil if that is over: fired by this
// call or another, cancelled, rescheduled. It goes by what it reads in the stream.
func (s *Scheduler) fire(ctx context.Context, it *item) error {
	stream, err := eventstore.NewStream(s.o.Category, it.name)
	if err != nil {
		return err
	}
	p, err := s.store.ReadFrom(ctx, stream, it.seqno-1, 1)
	switch {
	case isKind(err, eventstore.ErrTrimmed):
		return nil // over for long
	case err != nil:
		return err
	case len(p.Entries) == 0:
		return s.lost(stream, it, "none")
	}
	set := &p.Entries[0]
	t, r, err := decode(set)
	switch {
	case err != nil:
		return err
	case t.State != Pending || (t.Clock == Log) != it.log || t.Due.UnixMicro() != it.due:
		return s.lost(stream, it, "another entry")
	}
	b, err := fired(set, &r, it.by, s.holder)
	if err != nil {
		return err
	}
	return s.append(ctx, b)
}

// fired is the batch that fires a timer. Whoever makes it makes the same one, so that
// of several that are sent one is written and the others are proved by it.
func fired(set *eventstore.Entry, r *record, by *Cause, holder eventstore.UUID) (eventstore.Batch, error) {
	f := *r
	f.Generation, f.By = set.Seqno, by
	e, err := f.event(Fired)
	e.Metadata = causedBy(set)
	id := eventstore.DeriveUUID(set.ID, 1)
	e.ID = eventstore.DeriveUUID(id, 0)
	return eventstore.Batch{ID: id, Stream: set.Stream, Epoch: set.Epoch + 1, Holder: holder, Claim: true,
		After: set.Mark(), Events: []eventstore.Event{e}}, err
}

// append writes a fired entry, or finds that the generation is over. After a lost answer
// it is no use to wait here: the next round sends the same.
func (s *Scheduler) append(ctx context.Context, b eventstore.Batch) error {
	for try := 1; ; try++ {
		done, err := s.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		if err == nil {
			if !done.Receipts[0].Replays {
				s.fired.Add(1)
			}
			return nil
		}
		e, ok := errors.AsType[*eventstore.Error](err)
		switch {
		case !ok || e.Head == nil:
			return err
		case e.Head.Last.Seqno > b.After.Seqno:
			return nil // the stream has gone on behind this generation
		case e.Kind == eventstore.ErrFenced && e.Head.Last == b.After && try < epochTries:
			b.Epoch = e.Head.Epoch + 1 // somebody has fenced the stream and written nothing
		default:
			return err
		}
	}
}

// lost is the error of a timer that was seen and stands there no more.
func (s *Scheduler) lost(stream eventstore.Stream, it *item, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrDiverged, Op: "fire timer", Stream: stream,
		Wanted: "entry " + it.seqno.String() + ", which set the timer", Found: found, Hint: "the timers are read anew"}
}
