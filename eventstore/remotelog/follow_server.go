// Follow at the server: the entries of one stream, and those that are appended later.

package remotelog

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// followCall is what a follower of a stream asks for.
type followCall struct {
	stream    eventstore.Stream
	after     eventstore.Mark
	bytes     int
	heartbeat time.Duration
}

// follower is one Follow that is served.
type follower struct {
	*streams
	followCall
	ear   *ear
	at    eventstore.Mark // of the last entry sent
	limit pageLimit
	out   *sender
	send  func(entries []eventstore.Entry, end bool) error
}

// follow sends the entries of a stream behind a mark until ctx ends, and only returns an
// error. The first message comes at once, empty if need be.
func (s *streams) follow(ctx context.Context, c followCall, send func([]eventstore.Entry, bool) error) error {
	const op = "follow"
	leave, err := s.enter(op)
	if err != nil {
		return err
	}
	defer leave()
	c.bytes, c.heartbeat = s.clamp(c.bytes, c.heartbeat)
	f := &follower{streams: s, followCall: c, ear: newEar(false), at: c.after, limit: pageLimit{bytes: c.bytes}, out: s.sender(ctx, op), send: send}
	defer f.out.Close()
	category := c.stream.Category()
	defer s.hub.add(f.ear, string(c.stream), streamsOf(category))()
	if unlink, err := s.hub.connect(ctx); err == nil { // without it the poll tells
		defer unlink()
	}
	defer s.poll.join(c.stream, category)()
	return inStream(ctx, op, f.run(ctx))
}

// clamp puts what a caller asks for within the bounds.
func (s *streams) clamp(bytes int, heartbeat time.Duration) (int, time.Duration) {
	if bytes <= 0 || bytes > s.o.MessageBytes {
		bytes = s.o.MessageBytes
	}
	return bytes, s.beat(heartbeat)
}

func (s *streams) beat(d time.Duration) time.Duration {
	if d <= 0 {
		return DefaultHeartbeat
	}
	return min(max(d, s.minHeartbeat), MaxHeartbeat)
}

func (f *follower) run(ctx context.Context) error {
	prove := true
	for {
		page, err := f.read(ctx, prove)
		if err != nil {
			return err
		}
		if err := f.pass(ctx, page); err != nil {
			return err
		}
		if prove = false; !page.End {
			continue
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
		prove = f.ear.doubt.Swap(false)
	}
}

// pass sends a page in messages.
func (f *follower) pass(ctx context.Context, page eventstore.Page) error {
	for rest := page.Entries; ; {
		n := cutBytes(rest, f.bytes)
		now := rest[:n]
		rest = rest[n:]
		end := page.End && len(rest) == 0
		if err := f.out.send(ctx, func() error { return f.send(now, end) }); err != nil {
			return err
		}
		if n > 0 {
			last := &now[n-1]
			f.at = last.Mark()
			f.ear.passed(last.Seqno, last.Position)
		}
		if len(rest) == 0 {
			return nil
		}
	}
}

// cutBytes is how many entries make one message: through the one that passes the bound.
func cutBytes(entries []eventstore.Entry, bytes int) int {
	for i := range entries {
		if bytes -= entrySize(&entries[i]); bytes <= 0 {
			return i + 1
		}
	}
	return len(entries)
}

func entrySize(e *eventstore.Entry) int {
	n := len(e.Data)
	for k, v := range e.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// wait returns when there may be something to read, having sent heartbeats meanwhile.
func (f *follower) wait(ctx context.Context) error {
	timer := time.NewTimer(f.heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.draining:
			return goingAway(f.out.Op)
		case <-f.ear.ready:
			return nil
		case <-timer.C:
			if err := f.out.send(ctx, func() error { return f.send(nil, true) }); err != nil {
				return err
			}
			timer.Reset(f.heartbeat)
		}
	}
}

// read returns the next page; with prove it sees to it that the entry at the follower's
// place is still the one that it was.
func (f *follower) read(ctx context.Context, prove bool) (eventstore.Page, error) {
	done, err := f.turn(ctx)
	if err != nil {
		return eventstore.Page{}, err
	}
	defer done()
	limit := f.limit.next()
	if !prove || f.at.Seqno == 0 {
		page, err := f.store.ReadFrom(ctx, f.stream, f.at.Seqno, limit)
		f.limit.saw(page.Entries)
		return page, err
	}
	page, err := f.store.ReadFrom(ctx, f.stream, f.at.Seqno-1, limit+1)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed):
		return f.trimmed(ctx, limit)
	case err != nil:
		return page, err
	case len(page.Entries) == 0:
		return page, f.diverged(ctx, "a stream that ends before it")
	case page.Entries[0].Seqno != f.at.Seqno || !f.at.ID.IsZero() && page.Entries[0].ID != f.at.ID:
		return page, f.diverged(ctx, "entry "+page.Entries[0].Mark().String())
	}
	f.at.ID = page.Entries[0].ID
	page.Entries = page.Entries[1:]
	f.limit.saw(page.Entries)
	return page, nil
}

// trimmed reads on where the entry at the follower's place is gone.
func (f *follower) trimmed(ctx context.Context, limit int) (eventstore.Page, error) {
	page, err := f.store.ReadFrom(ctx, f.stream, f.at.Seqno, limit)
	if err != nil || len(page.Entries) > 0 {
		return page, err
	}
	h, err := f.store.Head(ctx, f.stream)
	if err == nil && (h.Last.Seqno < f.at.Seqno || h.Last.Seqno == f.at.Seqno && !f.at.ID.IsZero() && h.Last.ID != f.at.ID) {
		err = f.diverged(ctx, "a stream that ends with entry "+h.Last.String())
	}
	return page, err
}

func (f *follower) diverged(ctx context.Context, found string) error {
	e := &eventstore.Error{Kind: eventstore.ErrDiverged, Op: f.out.Op, Stream: f.stream, Wanted: "entry " + f.at.String(), Found: found,
		Hint: "the store was restored, replaced or failed over with loss; what was read belongs to another history"}
	if h, err := f.store.Head(ctx, f.stream); err == nil {
		e.Head = &h
	}
	return e
}

// turn waits until a page may be read.
func (s *streams) turn(ctx context.Context) (done func(), err error) {
	select {
	case s.reads <- struct{}{}:
		return func() { <-s.reads }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.draining:
		return nil, goingAway("follow")
	}
}

// pageLimit chooses how many entries to ask for, so that a page is about a message: a
// log's own pages may hold 8 MiB for each follower.
type pageLimit struct {
	bytes int
	limit int
}

func (p *pageLimit) next() int {
	if p.limit == 0 {
		p.limit = firstLimit
	}
	return p.limit
}

// saw learns from a page.
func (p *pageLimit) saw(entries []eventstore.Entry) {
	bytes := 0
	for i := range entries {
		bytes += entrySize(&entries[i])
	}
	switch {
	case len(entries) > 0 && bytes > p.bytes:
		p.limit = max(1, len(entries)*p.bytes/bytes)
	case len(entries) >= p.limit && bytes < p.bytes/2:
		p.limit = min(2*p.limit, eventstore.DefaultPageEntries)
	}
}
