// FollowFeed at the server: the entries of the feed, and those that are appended later.

package remotelog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// feedCall is what a follower of the feed asks for.
type feedCall struct {
	after     eventstore.PositionMark
	filter    eventstore.Filter
	bytes     int
	heartbeat time.Duration
	visible   func(eventstore.Category) bool // nil: all are; entries of others are passed over
}

// feedMessage is what it is sent.
type feedMessage struct {
	entries     []eventstore.Entry
	through     eventstore.PositionMark // zero: no further than before
	end         bool
	incarnation eventstore.UUID
}

// feedFollower is one FollowFeed that is served.
type feedFollower struct {
	*streams
	feedCall
	ear   *ear
	limit pageLimit
	out   *sender
	send  func(feedMessage) error

	at          eventstore.PositionMark // how far it was read
	told        eventstore.PositionMark // how far the caller was told
	end         bool                    // the caller was told that nothing stands behind that
	began       bool
	incarnation eventstore.UUID
	relook      time.Duration // how soon to look again: the horizon is below what was announced
}

// followFeed sends the entries of the feed behind a mark until ctx ends, and only returns
// an error. The first message comes at once, empty if need be.
func (s *streams) followFeed(ctx context.Context, c feedCall, send func(feedMessage) error) error {
	const op = "follow feed"
	leave, err := s.enter(op)
	if err != nil {
		return err
	}
	defer leave()
	c.bytes, c.heartbeat = s.clamp(c.bytes, c.heartbeat)
	f := &feedFollower{streams: s, feedCall: c, ear: newEar(true), at: c.after, told: c.after, limit: pageLimit{bytes: c.bytes}, out: s.sender(ctx, op), send: send}
	defer f.out.Close()
	defer s.hub.add(f.ear, categoryKeys(c.filter.Categories)...)()
	if unlink, err := s.hub.connect(ctx); err == nil { // without it the poll tells
		defer unlink()
	}
	defer s.poll.join("", c.filter.Categories...)()
	return inStream(ctx, op, f.run(ctx))
}

func (f *feedFollower) run(ctx context.Context) error {
	prove := true
	for {
		if prove {
			if err := f.prove(ctx); err != nil {
				return err
			}
		}
		page, err := f.read(ctx)
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

// read returns the next page.
func (f *feedFollower) read(ctx context.Context) (eventstore.FeedPage, error) {
	done, err := f.turn(ctx)
	if err != nil {
		return eventstore.FeedPage{}, err
	}
	defer done()
	page, err := f.store.ReadFeed(ctx, f.at.Position, f.filter, f.limit.next())
	if err != nil {
		return page, err
	}
	f.limit.saw(page.Entries)
	if f.visible != nil {
		page.Entries = slices.DeleteFunc(slices.Clone(page.Entries), func(e eventstore.Entry) bool { return !f.visible(e.Stream.Category()) })
	}
	if len(page.Entries) == 0 && !page.End { // little of it matches: look at more at once
		f.limit.limit = min(2*f.limit.limit, eventstore.DefaultPageEntries)
	}
	if page.End && uint64(page.Horizon) < f.ear.hinted.Load() {
		f.relook = min(max(2*f.relook, minRelook), f.o.PollInterval)
	} else {
		f.relook = 0
	}
	return page, f.sameStore(page)
}

// sameStore compares what every page tells with those before it.
func (f *feedFollower) sameStore(page eventstore.FeedPage) error {
	switch {
	case f.incarnation.IsZero():
		f.incarnation = page.Incarnation
	case page.Incarnation != f.incarnation:
		return f.diverged("store incarnation "+f.incarnation.String(), "incarnation "+page.Incarnation.String())
	}
	if page.Drawn < f.at.Position {
		return f.diverged("a store that has come to position "+f.at.Position.String(), "one that has come to "+page.Drawn.String())
	}
	return nil
}

func (f *feedFollower) diverged(wanted, found string) error {
	e := &eventstore.Error{Kind: eventstore.ErrDiverged, Op: f.out.Op, Wanted: wanted, Found: found,
		Hint: "the store was restored, replaced or failed over with loss; what was read belongs to another history"}
	if len(f.filter.Categories) > 0 {
		e.Category = f.filter.Categories[0]
	}
	return e
}

// pass sends a page in messages. Each says how far the caller is when it has it: the last
// but one of them through its last entry, the last of them as far as was looked.
func (f *feedFollower) pass(ctx context.Context, page eventstore.FeedPage) error {
	if page.Through.Position > f.at.Position {
		f.at = page.Through
	}
	f.ear.passed(0, f.at.Position)
	for rest := page.Entries; len(rest) > 0; {
		n := cutBytes(rest, f.bytes)
		now := rest[:n]
		rest = rest[n:]
		m := feedMessage{entries: now, through: now[n-1].PositionMark()}
		if len(rest) == 0 {
			m.through, m.end = f.at, page.End
		}
		if err := f.tell(ctx, m); err != nil {
			return err
		}
	}
	if !f.began || page.End && !f.end || f.told != f.at && time.Since(f.out.Last()) >= throughPause {
		return f.tell(ctx, feedMessage{through: f.at, end: page.End})
	}
	return nil
}

func (f *feedFollower) tell(ctx context.Context, m feedMessage) error {
	m.incarnation = f.incarnation
	through := m.through
	if through == f.told {
		m.through = eventstore.PositionMark{}
	}
	if err := f.out.send(ctx, func() error { return f.send(m) }); err != nil {
		return err
	}
	f.began, f.told, f.end = true, through, m.end
	return nil
}

// wait returns when there may be something to read, having said meanwhile how far it was
// read.
func (f *feedFollower) wait(ctx context.Context) error {
	var relook <-chan time.Time
	if f.relook > 0 { // what was announced is there, behind an append in flight
		t := time.NewTimer(f.relook)
		defer t.Stop()
		relook = t.C
	}
	timer := time.NewTimer(f.quiet())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.draining:
			return goingAway(f.out.Op)
		case <-f.ear.ready:
			return nil
		case <-relook:
			return nil
		case <-timer.C:
			if err := f.tell(ctx, feedMessage{through: f.at, end: true}); err != nil {
				return err
			}
			timer.Reset(f.quiet())
		}
	}
}

// quiet is how long nothing need be sent.
func (f *feedFollower) quiet() time.Duration {
	if f.told != f.at {
		return max(throughPause-time.Since(f.out.Last()), time.Millisecond)
	}
	return f.heartbeat
}

// prove sees to it that the entry at the follower's place is still the one that it was.
func (f *feedFollower) prove(ctx context.Context) error {
	if f.at.ID.IsZero() || f.at.Position == 0 {
		return nil // that it is not beyond the end, every page tells
	}
	done, err := f.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	page, err := f.readThrough(ctx, eventstore.Filter{Categories: f.filter.Categories, AcceptTrimmed: true})
	if err != nil {
		return err
	}
	if len(page.Entries) > 0 && page.Entries[0].PositionMark() == f.at {
		return nil
	}
	_, err = f.store.ReadFeed(ctx, f.at.Position-1, eventstore.Filter{Categories: f.filter.Categories}, 1)
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed {
		return nil // the marked entry may be among what is gone; reading on tells if anything behind it is
	}
	if err != nil {
		return err
	}
	found := "no entry there"
	if len(page.Entries) > 0 {
		found = "entry " + page.Entries[0].PositionMark().String()
	}
	return f.diverged("entry "+f.at.String(), found)
}

// readThrough reads the entry at the follower's place. An append in flight can hold the
// horizon below it for a moment, and then an entry that is there would look lost.
func (f *feedFollower) readThrough(ctx context.Context, filter eventstore.Filter) (eventstore.FeedPage, error) {
	for range horizonTries {
		page, err := f.store.ReadFeed(ctx, f.at.Position-1, filter, 1)
		if err == nil {
			err = f.sameStore(page)
		}
		if err != nil || page.Horizon >= f.at.Position {
			return page, err
		}
		if !sleep(ctx, horizonPause) {
			return page, context.Cause(ctx)
		}
	}
	return eventstore.FeedPage{}, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: f.out.Op, Wanted: "the horizon to come to position " + f.at.Position.String(),
		Found: "an append in flight that holds it below", Hint: "try again; a watchdog ends what holds it for too long"}
}
