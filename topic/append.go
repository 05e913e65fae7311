// Appending: a group of publications as one batch, until its outcome is known.

package topic

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// append writes a group as one batch and answers it. An error means that the partition is
// to be given up: it is somebody else's, or what is known of its log is wrong.
func (p *partition) append(ctx context.Context, group []*pending) error {
	batch := p.batch(group)
	unknown := false // an earlier try may yet be there
	for try := 0; ; try++ {
		done, err := p.b.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{batch}})
		switch {
		case err == nil:
			p.acknowledge(group, done.Receipts[0])
			if done.Receipts[0].Fenced {
				return fencedError(p)
			}
			return nil
		case isUnknown(err), unknown && undecided(err):
			unknown = true
			if !pause(ctx, min(resendMin<<min(try, 10), resendMax)) {
				p.fail(group, func(w *pending) error { return p.unknown(w.id, err) })
				return err
			}
			continue
		}
		return p.refused(ctx, group, err)
	}
}

// appendKnown appends in one step, and sends the same again, so many times at most, while
// the outcome of a try is not known. Then it is ErrUnknown, whatever was said of a later
// try that wrote nothing.
func appendKnown(ctx context.Context, store *eventstore.Store, batches []eventstore.Batch, tries int) (eventstore.Appended, error) {
	var unknown error
	for try := 1; ; try++ {
		done, err := store.Append(ctx, eventstore.Append{Batches: batches})
		switch {
		case err == nil:
			return done, nil
		case isUnknown(err):
			unknown = err
		case unknown == nil || !undecided(err):
			return done, err
		}
		if try == tries || !pause(ctx, resendMin) {
			return eventstore.Appended{}, unknown
		}
	}
}

// batch puts a group into one.
func (p *partition) batch(group []*pending) eventstore.Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	events := 0
	for _, w := range group {
		events += len(w.events)
	}
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: p.stream, Epoch: p.epoch, Holder: p.b.holder, After: p.head, Events: make([]eventstore.Event, 0, events)}
	for _, w := range group {
		b.Events = append(b.Events, w.events...)
	}
	return b
}

// undecided says if an error tells nothing of the try before it.
func undecided(err error) bool {
	for _, kind := range []error{eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrReadOnly, eventstore.ErrClosed,
		eventstore.ErrIsolation, eventstore.ErrNotMigrated, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	_, ours := errors.AsType[*eventstore.Error](err)
	return !ours
}

// refused answers a group that was not written.
func (p *partition) refused(ctx context.Context, group []*pending, err error) error {
	switch {
	case isUnprovable(err):
		p.fail(group, func(w *pending) error { return p.unprovable(w.id, "that the log was trimmed beyond it") })
		return err
	case isGone(err):
		p.fail(group, func(*pending) error { return noSuchTopic("publish", p.place.topic) })
		return err
	case refused(err): // by what it may be in a moment, for this broker too
		p.fail(group, func(*pending) error { return p.b.otherOwner(p.place) })
		return err
	case ctx.Err() != nil: // it had not begun
		p.fail(group, func(*pending) error { return p.b.otherOwner(p.place) })
		return ctx.Err()
	case len(group) > 1 && (errors.Is(err, eventstore.ErrInvalid) || errors.Is(err, eventstore.ErrTooLarge)):
		// It was checked, so this is not to be. It must still not fail the others.
		for i, w := range group {
			if err := p.append(ctx, []*pending{w}); err != nil {
				p.fail(group[i+1:], func(*pending) error { return p.b.otherOwner(p.place) })
				return err
			}
		}
		return nil
	}
	p.fail(group, func(*pending) error { return err })
	if errors.Is(err, eventstore.ErrBatchIDReused) {
		return err
	}
	return nil
}

func (p *partition) fail(group []*pending, why func(*pending) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range group {
		select {
		case <-w.done:
		default:
			p.settle(w, why(w))
		}
	}
}

// acknowledge answers a group that is durably there.
func (p *partition) acknowledge(group []*pending, r eventstore.Receipt) {
	p.mu.Lock()
	_, high := p.term.clock.Now()
	at, bytes := r.First, 0
	for _, w := range group {
		w.at, w.written = at, true
		if !w.tried.IsZero() {
			p.memory.add(w.first(), at, high)
		}
		at += eventstore.Seqno(len(w.events))
		bytes += w.size
		p.settle(w, nil)
	}
	p.head = r.Last
	p.sizes.add(r.Last.Seqno, int64(bytes))
	p.mu.Unlock()
	p.b.watches.grew(p.place)
}

func fencedError(p *partition) error {
	return &eventstore.Error{Kind: eventstore.ErrFenced, Op: "publish", Stream: p.stream, Wanted: "to be its owner", Found: "another one since"}
}

// recall reads back what was published lately, newest first, so that what is sent again
// is known. It ends when it has gone through the topic's window.
func (p *partition) recall(ctx context.Context) {
	p.mu.Lock()
	before, filling := p.taken+1, p.memory.filling
	p.mu.Unlock()
	for try := 0; filling; {
		page, err := p.readBack(ctx, before)
		if err != nil && !errors.Is(err, eventstore.ErrTrimmed) {
			if ctx.Err() == nil {
				p.b.logger.WarnContext(ctx, "cannot read back what was published lately; trying again", "stream", p.stream, "error", err)
			}
			if !pause(ctx, min(resendMin<<min(try, 10), resendMax)) {
				return
			}
			try++
			continue
		}
		try = 0
		filling = p.recalled(page, err != nil)
		if n := len(page.Entries); n > 0 {
			before = page.Entries[n-1].Seqno
		}
		p.signal() // what waited for it may go on
	}
}

// readBack reads a page, when it is this partition's turn.
func (p *partition) readBack(ctx context.Context, before eventstore.Seqno) (eventstore.Page, error) {
	select {
	case p.b.reading <- struct{}{}:
		defer func() { <-p.b.reading }()
		return p.b.store.ReadBackwardPage(ctx, p.stream, before, recallPage)
	case <-ctx.Done():
		return eventstore.Page{}, ctx.Err()
	}
}

// recalled takes one page, or that there is none since the log was trimmed. It says if
// there is more to read.
func (p *partition) recalled(page eventstore.Page, trimmed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	low, high := p.term.clock.Now()
	enough := p.memory.fill(page.Entries, low)
	switch n := len(page.Entries); {
	case enough:
	case trimmed && p.memory.blind:
		p.memory.filled(high) // all there was may be younger than this
	case n > 0 && page.End && page.Entries[n-1].Seqno == 1:
		p.memory.filled(time.Time{})
	case trimmed || page.End:
		p.memory.filled(p.memory.floor)
	default:
		return true
	}
	return false
}
