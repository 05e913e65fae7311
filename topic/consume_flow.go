// The flow of one Consume: turn by turn a page of each partition that has something.

package topic

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// flow reads partitions in turn. A turn is one page, however much there is: a busy
// partition does not starve the others. All is done by the goroutine that ranges over
// Consume, so nothing is read ahead of a loop body that is slow, and at most one page is
// held.
type flow struct {
	c         *consumers
	spec      Spec
	w         *waiter
	cursors   []*cursor // by partition; nil: not consumed
	last      int       // partition of the last turn
	yield     func(Delivery) bool
	m         *member // nil: without a name
	heartbeat time.Duration

	silent time.Time // since when nothing was yielded
	failed time.Time // since when the store does not answer; zero: it does
	pause  time.Duration
}

// cursor is a place in a partition.
type cursor struct {
	at    eventstore.Mark // of the last message delivered; without an ID if that is not known
	epoch eventstore.Epoch
	fresh bool // nothing read yet, and to begin with the first that is still there
	more  bool // there was more behind the last page

	read time.Time // when the last page was; a log that has lost its end since may have grown again
}

// begin sets the cursors of a flow without a name.
func (f *flow) begin(ctx context.Context, q Consumption) error {
	for _, p := range q.Places {
		f.set(p.Partition, &cursor{at: eventstore.Mark{Seqno: p.Offset}})
	}
	if q.Only {
		return nil
	}
	if q.Start == New {
		return f.beginNew(ctx)
	}
	for p, cur := range f.cursors {
		if cur == nil {
			f.set(p, &cursor{fresh: true})
		}
	}
	return nil
}

// beginNew sets the other cursors to the heads, and says when that is done: what is
// published from then on is delivered.
func (f *flow) beginNew(ctx context.Context) error {
	heads, err := f.c.heads(ctx, f.spec)
	if err != nil {
		return err
	}
	for p, cur := range f.cursors {
		if cur == nil {
			f.set(p, &cursor{at: heads[p].Last})
		}
	}
	return f.tell(Delivery{})
}

// heads returns the heads of all partitions.
func (c *consumers) heads(ctx context.Context, spec Spec) ([]eventstore.Head, error) {
	heads := make([]eventstore.Head, spec.Partitions)
	err := each(spec.Partitions, func(p int) (err error) {
		heads[p], err = c.store.Head(ctx, streamOf(spec.Name, p))
		return gone("consume", spec.Name, err)
	})
	return heads, err
}

func (f *flow) set(partition int, cur *cursor) {
	f.cursors[partition] = cur
	f.w.look(partition)
}

// run goes on until something fails or the loop body has had enough.
func (f *flow) run(ctx context.Context) error {
	f.silent = time.Now()
	for ctx.Err() == nil {
		if err := f.assign(); err != nil {
			return err
		}
		p, ok := 0, f.rested()
		if ok {
			p, ok = f.next()
		}
		if !ok {
			if err := f.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err := f.outage(ctx, p, f.turn(ctx, p)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// next is the partition whose turn it is.
func (f *flow) next() (partition int, ok bool) {
	partition, ok = f.w.take(f.last, func(p int) (consumed, more bool) {
		cur := f.cursors[p]
		return cur != nil, cur != nil && cur.more
	})
	if ok {
		f.last = partition
	}
	return partition, ok
}

// turn delivers a page of a partition.
func (f *flow) turn(ctx context.Context, p int) error {
	cur, stream := f.cursors[p], streamOf(f.spec.Name, p)
	began := time.Now()
	page, err := f.read(ctx, cur, stream)
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed && cur.fresh {
		cur.at, cur.more = eventstore.Mark{Seqno: e.First - 1}, true
		return nil
	}
	if err != nil {
		return gone("consume", f.spec.Name, err)
	}
	cur.fresh, cur.read = false, began
	if len(page.Entries) == 0 {
		return f.atEnd(ctx, p, stream)
	}
	cur.more = !page.End
	if err := f.deliver(p, cur, page); err != nil {
		return err
	}
	if !cur.more && f.cursors[p] == cur {
		f.w.idle(p, cur.at)
	}
	return nil
}

// read reads the page behind a cursor. If the last one was read a while ago, the message at
// the cursor is read along, and has to be the one that was delivered.
func (f *flow) read(ctx context.Context, cur *cursor, stream eventstore.Stream) (eventstore.Page, error) {
	store := f.c.store
	if cur.at.ID.IsZero() || time.Since(cur.read) < proveAfter {
		return store.ReadFrom(ctx, stream, cur.at.Seqno, pageEntries)
	}
	page, err := store.ReadFrom(ctx, stream, cur.at.Seqno-1, pageEntries+1)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed): // the message is: there is nothing to compare
		return store.ReadFrom(ctx, stream, cur.at.Seqno, pageEntries)
	case err != nil || len(page.Entries) == 0:
		return page, err
	case page.Entries[0].Mark() != cur.at:
		h, err := store.Head(ctx, stream)
		if err != nil {
			return page, err
		}
		return page, eventstore.DivergedError("consume", stream, cur.at, h)
	}
	page.Entries = page.Entries[1:]
	return page, nil
}

// atEnd looks why there was nothing behind a cursor: it stands at the head, or the head
// has fallen behind it.
func (f *flow) atEnd(ctx context.Context, p int, stream eventstore.Stream) error {
	cur := f.cursors[p]
	h, err := f.c.store.Head(ctx, stream)
	if err != nil {
		return gone("consume", f.spec.Name, err)
	}
	switch other := !cur.at.ID.IsZero() && h.Last.ID != cur.at.ID; {
	case h.Last.Seqno < cur.at.Seqno, h.Last.Seqno == cur.at.Seqno && other:
		return eventstore.DivergedError("consume", stream, cur.at, h)
	case h.Last.Seqno > cur.at.Seqno: // published since
		cur.more = true
		return nil
	}
	cur.at, cur.more = h.Last, false
	f.w.idle(p, cur.at)
	return nil
}

// deliver yields a page, in pieces.
func (f *flow) deliver(p int, cur *cursor, page eventstore.Page) error {
	for rest := page.Entries; len(rest) > 0; {
		var piece []eventstore.Entry
		piece, rest = cutBytes(rest, MaxDeliveryBytes)
		through := piece[len(piece)-1].Mark()
		if f.m != nil {
			var v verdict
			switch piece, v = f.m.deliver(p, cur.epoch, piece); v {
			case notMine:
				f.cursors[p] = nil
				return nil
			case notNow:
				cur.more = true
				return nil
			}
		}
		cur.at = through
		end := page.End && len(rest) == 0
		if len(piece) > 0 {
			if err := f.tell(Delivery{Partition: p, Messages: messages(p, piece), End: end}); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutBytes takes entries off until their payload passes a mark.
func cutBytes(all []eventstore.Entry, most int) (piece, rest []eventstore.Entry) {
	bytes := 0
	for i := range all {
		if bytes += len(all[i].Data); bytes >= most {
			return all[:i+1], all[i+1:]
		}
	}
	return all, nil
}

func (f *flow) tell(d Delivery) error {
	ok := f.yield(d)
	f.silent = time.Now()
	if !ok {
		return errStopped
	}
	return nil
}

// wait returns when there may be something to do, after a sign of life if it has been
// silent for long. Its timers are all there is while nothing happens.
func (f *flow) wait(ctx context.Context) error {
	left := time.NewTimer(time.Until(f.silent.Add(f.heartbeat)))
	defer left.Stop()
	var changed <-chan struct{}
	if f.m != nil {
		changed = f.m.changed
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.w.shown:
	case <-changed:
	case <-left.C:
		if f.m != nil && !f.m.healthy() {
			f.silent = time.Now() // no sign of life from one that cannot work
			return nil
		}
		return f.tell(Delivery{})
	}
	return nil
}

// outage passes over a failure that may pass by itself: for as long as a lease would have
// lasted the turn is tried again.
func (f *flow) outage(ctx context.Context, p int, err error) error {
	if err == nil {
		f.failed, f.pause = time.Time{}, 0
		return nil
	}
	if !temporary(err) {
		return err
	}
	if f.failed.IsZero() {
		f.failed = time.Now()
	}
	if time.Since(f.failed) > f.c.o.ttl {
		return err
	}
	f.w.look(p)
	f.pause = min(max(2*f.pause, minRetryPause), maxRetryPause)
	pause(ctx, f.pause)
	return ctx.Err()
}

// messages are entries as consumers see them.
func messages(partition int, entries []eventstore.Entry) []Message {
	all := make([]Message, len(entries))
	for i, e := range entries {
		all[i] = Message{Event: e.Event, Partition: partition, Offset: e.Seqno, Time: e.Time}
		all[i].Key, all[i].Metadata = e.Metadata[MetaKey], plain(e.Metadata)
	}
	return all
}

// plain returns metadata without what a topic put there; nil if nothing else was.
func plain(m eventstore.Metadata) eventstore.Metadata {
	if len(m) == 0 {
		return nil
	}
	m = maps.Clone(m)
	for _, key := range []string{MetaKey, MetaPart} {
		delete(m, key)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
