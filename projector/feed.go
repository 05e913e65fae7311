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
	snapshots   bool              // what is gone is told, see look
}

func newFeed(store *eventstore.Store, f eventstore.Filter, limit int, snapshots bool) *feed {
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
	return &feed{store: store, filter: f, limit: limit, fingerprint: h.Sum32(), snapshots: snapshots}
}

// read reads one page for all lanes, which have one number of lanes in common.
func (f *feed) read(ctx context.Context, at []cursor) ([]look, error) {
	after, filter := lowest(at), f.filter
	filter.Slots = slotsOfAll(at)
	p, gone, err := f.page(ctx, after, filter, min(f.limit*min(len(at), maxPageLanes), eventstore.MaxPageEntries))
	if err != nil {
		return nil, err
	}
	if err := rising(after, p); err != nil {
		return nil, err
	}
	looks := make([]look, len(at))
	for i, entries := range divide(at, p.Entries) {
		if looks[i], err = f.advance(ctx, at[i], p, entries); err != nil {
			return nil, err
		}
		looks[i].passGone(gone)
	}
	return looks, nil
}

// page reads a page. If entries behind it are gone, and it is asked for, it says through
// where: what is gone of the page is then below that.
func (f *feed) page(ctx context.Context, after eventstore.Position, filter eventstore.Filter, limit int) (p eventstore.FeedPage, gone eventstore.Position, err error) {
	if !f.snapshots {
		p, err = f.store.ReadFeed(ctx, after, filter, limit)
		return p, 0, err
	}
	filter.AcceptTrimmed = false
	p, err = f.store.ReadFeed(ctx, after, filter, limit)
	refused, ok := errors.AsType[*eventstore.Error](err)
	if !ok || refused.Kind != eventstore.ErrTrimmed {
		return p, 0, err
	}
	filter.AcceptTrimmed = true
	if p, err = f.store.ReadFeed(ctx, after, filter, limit); err != nil {
		return p, 0, err
	}
	gone, err = f.gone(ctx, max(after, refused.FirstPosition))
	return p, gone, err
}

// gone is the highest position that was trimmed in a category, or after, if that is higher.
func (f *feed) gone(ctx context.Context, after eventstore.Position) (eventstore.Position, error) {
	for {
		_, err := f.store.ReadFeed(ctx, after, eventstore.Filter{Categories: f.filter.Categories}, 1)
		refused, ok := errors.AsType[*eventstore.Error](err)
		if !ok || refused.Kind != eventstore.ErrTrimmed {
			return after, err
		}
		if refused.FirstPosition <= after {
			return after, outOfOrder("read feed", "", "what was trimmed to lie above "+after.String(), refused.FirstPosition.String())
		}
		after = refused.FirstPosition
	}
}

// passGone notes through where entries are gone. A look that found the end of the feed
// beyond that has passed it, though no entry may stand there whose mark could tell.
func (l *look) passGone(gone eventstore.Position) {
	l.gone = uint64(gone)
	if l.end && l.next.Position < gone && gone <= l.horizon {
		l.next.Position, l.next.Mark = gone, eventstore.PositionMark{Position: gone}
	}
}

// advance is what a page means to one lane, whose entries in it are given.
func (f *feed) advance(ctx context.Context, c cursor, p eventstore.FeedPage, entries []eventstore.Entry) (look, error) {
	from := c.at
	if err := f.sameStore(from, p); err != nil {
		return look{}, err
	}
	if from.Timeline != 0 && p.Timeline != from.Timeline {
		// The server failed over under us: what was proved before holds no longer.
		if err := f.resume(ctx, c); err != nil {
			return look{}, err
		}
	}
	next := from
	next.Incarnation, next.Timeline = p.Incarnation, p.Timeline
	if p.Through.Position > 0 && p.Through.Position >= from.Position {
		next.Position, next.Mark = p.Through.Position, p.Through
	}
	if p.Timeline != 0 {
		next.Recent = recentAfter(from, f.fingerprint, entries)
	}
	return look{entries: entries, next: next, end: p.End, horizon: p.Horizon}, nil
}

// lowest is the lowest position of some lanes.
func lowest(at []cursor) eventstore.Position {
	low := at[0].at.Position
	for _, c := range at {
		low = min(low, c.at.Position)
	}
	return low
}

// slotsOfAll are the slots of some lanes; nil: all.
func slotsOfAll(at []cursor) []eventstore.Slot {
	if len(at) == at[0].lanes {
		return nil
	}
	var all []eventstore.Slot
	for _, c := range at {
		all = append(all, slotsOf(c.lane, c.lanes)...)
	}
	return all
}

// divide gives each lane its entries behind its cursor.
func divide(at []cursor, entries []eventstore.Entry) [][]eventstore.Entry {
	if at[0].lanes == 1 {
		return [][]eventstore.Entry{entries}
	}
	mine := make([]int, at[0].lanes) // 1 + index in at, by lane
	for i, c := range at {
		mine[c.lane] = i + 1
	}
	all := make([][]eventstore.Entry, len(at))
	for _, e := range entries {
		if i := mine[LaneOf(e.Stream.Slot(), len(mine))] - 1; i >= 0 && e.Position > at[i].at.Position {
			all[i] = append(all[i], e)
		}
	}
	return all
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

func (f *feed) resume(ctx context.Context, c cursor) error {
	at, after := c.at, c.at.Position
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
	return f.resumeWindow(ctx, c, p.Timeline)
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
func (f *feed) resumeWindow(ctx context.Context, c cursor, timeline uint64) error {
	at := c.at
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
	return f.compare(ctx, w, c)
}

// compare reads the window again and counts it into the same spans.
func (f *feed) compare(ctx context.Context, w window, c cursor) error {
	got := w.empty()
	trimmed, err := f.below(ctx, c, w.start, func(e *eventstore.Entry) {
		if s := got.at(e.Position); s != nil {
			s.add(e)
		}
	})
	if err != nil {
		return err
	}
	if from, want, have, differs := w.differs(got, trimmed); differs {
		return f.diverged(fmt.Sprintf("behind a failover or restore the %d entries that were handled after position %d through %d", want.count, from, want.end),
			fmt.Sprintf("%d entries, not the same", have.count))
	}
	return nil
}

// below reads what a lane handles behind a position and through its mark. trimmed is
// where it had to begin because what stands before it is gone.
func (f *feed) below(ctx context.Context, c cursor, after eventstore.Position, each func(*eventstore.Entry)) (trimmed eventstore.Position, err error) {
	filter := f.filter
	filter.AcceptTrimmed = false
	filter.Slots = slotsOf(c.lane, c.lanes)
	for after < c.at.Mark.Position {
		p, err := f.readThrough(ctx, c.at, after, filter, eventstore.MaxPageEntries)
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed && e.FirstPosition > after {
			trimmed, after = e.FirstPosition, e.FirstPosition
			continue
		}
		if err != nil {
			return 0, err
		}
		for i := range p.Entries {
			if p.Entries[i].Position <= c.at.Mark.Position {
				each(&p.Entries[i])
			}
		}
		if p.End || p.Through.Position == 0 {
			break
		}
		after = p.Through.Position
	}
	return trimmed, nil
}

// digest reads the window below a checkpoint again. It need not reach back as far as
// one that grew: what can be lost in a failover was written while the marked entry was.
func (f *feed) digest(ctx context.Context, c cursor) ([]byte, error) {
	if c.at.Timeline == 0 || c.at.Mark.ID.IsZero() {
		return nil, nil
	}
	w := window{filter: f.fingerprint}
	if c.at.Mark.Position > digestReach {
		w.start = c.at.Mark.Position - digestReach
	}
	trimmed, err := f.below(ctx, c, w.start, func(e *eventstore.Entry) { w.add(e) })
	w.start = max(w.start, trimmed)
	return w.encode(), err
}

func (f *feed) covers(ctx context.Context, at []cursor, t eventstore.Token) (bool, backlog, error) {
	filter := f.filter
	filter.AcceptTrimmed = !f.snapshots // what is gone is not the reader's write, if no snapshot brings it
	filter.Slots = slotsOfAll(at)
	p, err := f.store.ReadFeed(ctx, lowest(at), filter, f.limit)
	if f.snapshots && errors.Is(err, eventstore.ErrTrimmed) {
		return false, backlog{more: true}, nil
	}
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
		if behind(at, &e) {
			b.entries, b.last, b.lane = b.entries+1, e.Position, LaneOf(e.Stream.Slot(), at[0].lanes)
		}
	}
	if p.End {
		b.more = p.Horizon < t.Position
	} else {
		b.more = p.Through.Position < t.Position
	}
	return b.entries == 0 && !b.more, b, nil
}

// behind says if a lane has not come to an entry.
func behind(at []cursor, e *eventstore.Entry) bool {
	if len(at) == 1 {
		return true // as it was asked for
	}
	lane := LaneOf(e.Stream.Slot(), at[0].lanes)
	for _, c := range at {
		if c.lane == lane {
			return e.Position > c.at.Position
		}
	}
	return false
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

func (f *feed) placeOf(e *eventstore.Entry) uint64 { return uint64(e.Position) }

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
