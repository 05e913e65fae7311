// Following categories through the feed.

package projector

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

type feed struct {
	store       *eventstore.Store
	filter      eventstore.Filter // what is handled
	limit       int               // entries of a page
	fingerprint uint32            // of the filter
}

func newFeed(store *eventstore.Store, f eventstore.Filter, limit int) *feed {
	slices.Sort(f.Categories)
	f.Categories = slices.Compact(f.Categories)
	slices.Sort(f.Types)
	h := fnv.New32a()
	for _, c := range f.Categories {
		h.Write([]byte(c + "\x00"))
	}
	h.Write([]byte{0}) // no category is empty: the two lists cannot run together
	for _, t := range f.Types {
		h.Write([]byte(t + "\x00"))
	}
	return &feed{store: store, filter: f, limit: limit, fingerprint: h.Sum32()}
}

func (f *feed) read(ctx context.Context, from Checkpoint) (look, error) {
	p, err := f.store.ReadFeed(ctx, from.Position, f.filter, f.limit)
	if err != nil {
		return look{}, err
	}
	if err := f.sameStore(from, p); err != nil {
		return look{}, err
	}
	if from.Timeline != 0 && p.Timeline != from.Timeline {
		// The server failed over under us: what was proved before holds no longer.
		if err := f.resume(ctx, from); err != nil {
			return look{}, err
		}
	}
	if err := rising(from.Position, p); err != nil {
		return look{}, err
	}
	next := from
	next.Incarnation, next.Timeline = p.Incarnation, p.Timeline
	if p.Through.Position > 0 {
		next.Position, next.Mark = p.Through.Position, p.Through
	}
	if p.Timeline != 0 {
		next.Recent = recentAfter(from.Recent, f.fingerprint, p.Entries)
	}
	return look{entries: p.Entries, next: next, end: p.End, horizon: p.Horizon}, nil
}

// rising refuses a page that goes back or stands still.
func rising(after eventstore.Position, p eventstore.FeedPage) error {
	for _, e := range p.Entries {
		if e.Position <= after {
			return outOfOrder("read feed", e.Stream, "a position above "+after.String(), e.Position.String())
		}
		after = e.Position
	}
	if p.Through.Position != 0 && p.Through.Position < after {
		return outOfOrder("read feed", "", "to get through position "+after.String(), p.Through.String())
	}
	return nil
}

// sameStore compares what every page tells with the checkpoint.
func (f *feed) sameStore(at Checkpoint, p eventstore.FeedPage) error {
	switch {
	case !at.Incarnation.IsZero() && p.Incarnation != at.Incarnation:
		return f.diverged("store incarnation "+at.Incarnation.String(), "incarnation "+p.Incarnation.String())
	case p.Drawn < at.Position:
		return f.diverged("a store that has come to position "+at.Position.String(), "one that has come to "+p.Drawn.String())
	}
	return nil
}

func (f *feed) resume(ctx context.Context, at Checkpoint) error {
	after := at.Position
	if !at.Mark.ID.IsZero() {
		after = at.Mark.Position - 1
	}
	p, err := f.readThrough(ctx, at, after, eventstore.Filter{Categories: f.filter.Categories, AcceptTrimmed: true}, 1)
	if err != nil {
		return err
	}
	if !at.Mark.ID.IsZero() && (len(p.Entries) == 0 || p.Entries[0].PositionMark() != at.Mark) {
		if err := f.trimmedMark(ctx, at, p); err != nil {
			return err
		}
	}
	if len(at.Recent) == 0 {
		return nil
	}
	return f.resumeWindow(ctx, at, p.Timeline)
}

// readThrough reads a page whose horizon has come to the checkpoint's position. An
// append in flight can hold it below for a moment, and then an entry that is there
// would look lost.
func (f *feed) readThrough(ctx context.Context, at Checkpoint, after eventstore.Position, filter eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	for range horizonTries {
		p, err := f.store.ReadFeed(ctx, after, filter, limit)
		if err == nil {
			err = f.sameStore(at, p)
		}
		if err != nil || p.Horizon >= at.Position {
			return p, err
		}
		timer := time.NewTimer(horizonPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return p, ctx.Err()
		}
	}
	return eventstore.FeedPage{}, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "project", Category: f.filter.Categories[0],
		Wanted: "the horizon to come to position " + at.Position.String(), Found: "an append in flight that holds it below", Hint: "try again; a watchdog ends what holds it for too long"}
}

// horizonTries times horizonPause is how long readThrough waits: some 2 s.
const (
	horizonTries = 200
	horizonPause = 10 * time.Millisecond
)

// trimmedMark tells a marked entry that was trimmed from one that was lost. When
// nothing above the mark is gone too, nothing was missed.
func (f *feed) trimmedMark(ctx context.Context, at Checkpoint, p eventstore.FeedPage) error {
	_, err := f.store.ReadFeed(ctx, at.Mark.Position-1, eventstore.Filter{Categories: f.filter.Categories}, 1)
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed {
		if f.filter.AcceptTrimmed || e.FirstPosition <= at.Mark.Position {
			return nil
		}
		return err
	}
	if err != nil {
		return err
	}
	found := "no entry there"
	if len(p.Entries) > 0 {
		found = "entry " + p.Entries[0].PositionMark().String()
	}
	return f.diverged("entry "+at.Mark.String(), found)
}

// resumeWindow compares the window below the mark if the server's history has changed.
func (f *feed) resumeWindow(ctx context.Context, at Checkpoint, timeline uint64) error {
	w, ok := decodeWindow(at.Recent)
	switch {
	case !ok:
		return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "project", Wanted: "the digest of recent entries in the checkpoint",
			Found: fmt.Sprintf("%d bytes that are none", len(at.Recent)), Hint: "rebuild the projection under a new version"}
	case timeline == at.Timeline || len(w.spans) == 0:
		return nil
	case w.filter != f.fingerprint:
		return f.diverged("proof that a failover or restore lost nothing",
			"a checkpoint made with other categories or types")
	}
	return f.compare(ctx, w, at)
}

// compare reads the window again and counts it into the same spans.
func (f *feed) compare(ctx context.Context, w window, at Checkpoint) error {
	filter := f.filter
	filter.AcceptTrimmed = false
	got, after, trimmed := w.empty(), w.start, eventstore.Position(0)
	for after < at.Mark.Position {
		p, err := f.readThrough(ctx, at, after, filter, eventstore.MaxPageEntries)
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed && e.FirstPosition > after {
			trimmed, after = e.FirstPosition, e.FirstPosition
			continue
		}
		if err != nil {
			return err
		}
		for i := range p.Entries {
			if s := got.at(p.Entries[i].Position); s != nil {
				s.add(&p.Entries[i])
			}
		}
		if p.End || p.Through.Position == 0 {
			break
		}
		after = p.Through.Position
	}
	if from, want, have, differs := w.differs(got, trimmed); differs {
		return f.diverged(fmt.Sprintf("behind a failover or restore the %d entries that were handled after position %d through %d", want.count, from, want.end),
			fmt.Sprintf("%d entries, not the same", have.count))
	}
	return nil
}

func (f *feed) covers(ctx context.Context, at Checkpoint, t eventstore.Token) (bool, backlog, error) {
	filter := f.filter
	filter.AcceptTrimmed = true // what is gone is not the reader's write
	p, err := f.store.ReadFeed(ctx, at.Position, filter, f.limit)
	if err != nil {
		return false, backlog{}, err
	}
	if p.Incarnation != t.Incarnation {
		return false, backlog{}, foreignToken(t, p.Incarnation)
	}
	var b backlog
	for _, e := range p.Entries {
		if e.Position > t.Position {
			return b.entries == 0, b, nil
		}
		b.entries, b.last = b.entries+1, e.Position
	}
	if p.End {
		b.more = p.Horizon < t.Position
	} else {
		b.more = p.Through.Position < t.Position
	}
	return b.entries == 0 && !b.more, b, nil
}

func (f *feed) holds(at Checkpoint) []eventstore.Hold {
	var all []eventstore.Hold
	for _, c := range f.filter.Categories {
		all = append(all, eventstore.Hold{Category: c, Position: at.Position, ID: at.Mark.ID})
	}
	return all
}

func (f *feed) behindTrim(h eventstore.Hold, at Checkpoint, refused *eventstore.Error) (eventstore.Hold, bool) {
	gone := refused.FirstPosition
	if gone < h.Position || gone > at.Position && !f.filter.AcceptTrimmed {
		return h, false
	}
	h.Position, h.ID = gone+1, eventstore.UUID{}
	return h, true
}

func (f *feed) place(at Checkpoint) uint64 { return uint64(at.Position) }

func (f *feed) hinted(a eventstore.Announcement) (uint64, bool) {
	return uint64(a.Position), a.Category == "" || slices.Contains(f.filter.Categories, a.Category)
}

func (f *feed) categories() []eventstore.Category { return f.filter.Categories }

func (f *feed) name() string {
	names := make([]string, len(f.filter.Categories))
	for i, c := range f.filter.Categories {
		names[i] = string(c)
	}
	return strings.Join(names, ",")
}

func (f *feed) diverged(wanted, found string) error {
	return diverged(f.filter.Categories[0], "", wanted, found)
}

func diverged(c eventstore.Category, s eventstore.Stream, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrDiverged, Op: "project", Category: c, Stream: s, Wanted: wanted, Found: found,
		Hint: "the store was restored, replaced or failed over with loss after the checkpoint was made; rebuild the projection under a new version"}
}
