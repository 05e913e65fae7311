// Streams: their last entries, appends whose answers may be lost, and fences that keep
// steps waiting.

package logcheckpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// lastEntry is the head of a stream and the entry that stands there; entry is nil if
// there is none.
type lastEntry struct {
	head  eventstore.Head
	entry *eventstore.Entry
}

// last reads the last entry of a stream, as of the moment of its head.
func (c *Checkpoints) last(ctx context.Context, s eventstore.Stream) (l lastEntry, err error) {
	for n := range maxTries {
		if l.head, err = c.store.Head(ctx, s); err != nil || l.head.Last.Seqno == 0 {
			return l, err
		}
		p, err := c.store.ReadFrom(ctx, s, l.head.Last.Seqno-1, 1)
		switch {
		case errors.Is(err, eventstore.ErrTrimmed): // others have gone on meanwhile
		case err != nil:
			return l, err
		case len(p.Entries) == 0 || p.Entries[0].Mark() != l.head.Last:
			return l, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: opLoad, Stream: s, Wanted: "the last entry " + l.head.Last.String(), Found: "another one, or none"}
		default:
			l.entry = &p.Entries[0]
			return l, nil
		}
		if err := pause(ctx, n); err != nil {
			return l, err
		}
	}
	return l, overloaded(opLoad, "the stream goes on faster than it can be read")
}

// add adds events to an append, behind a mark of a stream.
func (c *Checkpoints) add(a *eventstore.Append, s eventstore.Stream, epoch eventstore.Epoch, after eventstore.Mark, events ...eventstore.Event) {
	a.Batches = append(a.Batches, eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: epoch + 1, Holder: c.holder, Claim: true,
		After: after, Events: events})
}

// append appends, and after a lost answer sends the same again until the log tells.
func (c *Checkpoints) append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	done, err := c.store.Append(ctx, a)
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrUnknown && e.Unprovable {
		gone := *e // it was never sent before: what was trimmed there is another's
		gone.Kind, gone.Unprovable = eventstore.ErrAlreadyWritten, false
		return done, &gone
	}
	unknown := err
	for n := 0; errors.Is(unknown, eventstore.ErrUnknown) && n < maxResends; n++ {
		if e := pause(ctx, n); e != nil {
			return done, unknown
		}
		done, err = c.store.Append(ctx, a)
		if err == nil || moved(err) {
			return done, err
		}
		// Anything else says nothing about the first time.
	}
	if unknown != nil {
		return done, unknown
	}
	return done, nil
}

// trim trims streams of which enough stands behind the last entry. It is no harm if that
// fails, but for space: the next one makes up for it.
func (c *Checkpoints) trim(ctx context.Context, done eventstore.Appended) {
	for _, r := range done.Receipts {
		if r.Last.Seqno%Keep != 0 || r.Last.Seqno <= Keep || c.isSkipped(r.Stream) {
			continue
		}
		if _, err := c.store.Trim(ctx, r.Stream, r.Last.Seqno-Keep, false); err != nil {
			c.store.Logger().WarnContext(ctx, "checkpoints not trimmed", "stream", r.Stream, "error", err)
		}
	}
}

// A frozen stream is held by an Update: its holder's UUID begins with these bytes.
var frozenBy = [4]byte{'f', 'r', 'z', 'n'}

func newFreezer() eventstore.UUID {
	u := eventstore.NewUUID()
	copy(u[:], frozenBy[:])
	return u
}

func frozen(h eventstore.Head) bool { return [4]byte(h.Holder[:4]) == frozenBy }

// thaw waits until a stream is not frozen, but no longer than patience: who froze it may
// be gone.
func (c *Checkpoints) thaw(ctx context.Context, s eventstore.Stream) error {
	h, err := c.store.Head(ctx, s)
	for until, n := time.Now().Add(patience), 0; err == nil && frozen(h) && time.Now().Before(until); n++ {
		if err := pause(ctx, n); err != nil {
			return err
		}
		before := h
		if h, err = c.store.Head(ctx, s); h.Epoch != before.Epoch {
			until = time.Now().Add(patience)
		}
	}
	return err
}

// pause waits before try n+1, or returns the context's error when it ends.
func pause(ctx context.Context, n int) error {
	d := min(firstPause<<min(n, 10), longPause)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
