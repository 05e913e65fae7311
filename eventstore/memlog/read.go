// Reading: a page of a stream, a page of the feed, load.

package memlog

import (
	"context"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// ReadFrom returns the entries of a stream after a seqno.
func (l *Log) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, st, err := l.find(ctx, "read", s)
	if err != nil {
		return eventstore.Page{}, err
	}
	return st.page("read", s, after, limit)
}

func (st *stream) page(op string, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	h := headOf(st)
	if after < h.Trimmed {
		return eventstore.Page{}, eventstore.TrimmedError(op, s, after+1, h)
	}
	if after >= h.Last.Seqno {
		return eventstore.Page{End: true}, nil
	}
	var p eventstore.Page
	bytes := 0
	for n := after + 1; n <= h.Last.Seqno && len(p.Entries) < limit && bytes < eventstore.MaxPageBytes; n++ {
		p.Entries = append(p.Entries, st.at(n).Entry)
		bytes += len(st.at(n).Data)
	}
	p.End = after+eventstore.Seqno(len(p.Entries)) == h.Last.Seqno
	return p, nil
}

// ReadFeed returns entries after a position. Everything is committed under the
// lock, so the horizon is the last position given.
func (l *Log) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.enter(ctx, "read feed", ""); err != nil {
		return eventstore.FeedPage{}, err
	}
	feeds, err := l.feeds(after, f)
	if err != nil {
		return eventstore.FeedPage{}, err
	}
	p := eventstore.FeedPage{Horizon: l.position, Drawn: l.position, Incarnation: l.incarnation}
	bytes := 0
	for ; limit > 0 && bytes < eventstore.MaxPageBytes; limit-- {
		r := next(feeds)
		if r == nil {
			break
		}
		p.Through = r.PositionMark()
		if matches(f, &r.Entry) {
			p.Entries = append(p.Entries, r.Entry)
			bytes += len(r.Data)
		}
	}
	p.End = next(peek(feeds)) == nil
	return p, nil
}

// feeds returns, for each category of the filter, its records after a position.
func (l *Log) feeds(after eventstore.Position, f eventstore.Filter) ([][]*record, error) {
	names := slices.Clone(f.Categories)
	if len(names) == 0 {
		for name, c := range l.categories {
			if c.spec.Layout == eventstore.Shared {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var feeds [][]*record
	for _, name := range slices.Compact(names) {
		c, err := l.category("read feed", name, "")
		if err != nil {
			return nil, err
		}
		if c.spec.Layout == eventstore.Dedicated {
			return nil, eventstore.NotInFeedError("read feed", name)
		}
		if after < c.trimmedTo && !f.AcceptTrimmed {
			return nil, eventstore.TrimmedFeedError(name, after, c.trimmedTo)
		}
		i, _ := slices.BinarySearchFunc(c.feed, after+1, func(r *record, p eventstore.Position) int {
			return int(int64(r.Position) - int64(p))
		})
		feeds = append(feeds, c.feed[i:])
	}
	return feeds, nil
}

// next takes the record with the lowest position off its feed.
func next(feeds [][]*record) *record {
	lowest := -1
	for i := range feeds {
		for len(feeds[i]) > 0 && feeds[i][0].trimmed {
			feeds[i] = feeds[i][1:]
		}
		if len(feeds[i]) > 0 && (lowest < 0 || feeds[i][0].Position < feeds[lowest][0].Position) {
			lowest = i
		}
	}
	if lowest < 0 {
		return nil
	}
	r := feeds[lowest][0]
	feeds[lowest] = feeds[lowest][1:]
	return r
}

func peek(feeds [][]*record) [][]*record { return slices.Clone(feeds) }

func matches(f eventstore.Filter, e *eventstore.Entry) bool {
	return (len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) &&
		(len(f.Slots) == 0 || slices.Contains(f.Slots, e.Stream.Slot()))
}

// Load returns head, usable snapshot and the entries behind it.
func (l *Log) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, st, err := l.find(ctx, "load", s)
	if err != nil {
		return eventstore.Loaded{}, err
	}
	out := eventstore.Loaded{Head: headOf(st), Incarnation: l.incarnation}
	after := eventstore.Seqno(0)
	if st != nil && st.snapshot != nil && fingerprint != "" {
		if out.Skipped = st.snapshot.Usable(fingerprint, st.head, st.idAt(st.snapshot.At.Seqno)); out.Skipped == "" {
			sn := *st.snapshot
			out.Snapshot, after = &sn, sn.At.Seqno
		}
	}
	p, err := st.page("load", s, after, limit)
	out.Entries, out.End = p.Entries, p.End
	return out, err
}

// idAt returns the ID of an entry, zero if it is not there.
func (st *stream) idAt(n eventstore.Seqno) eventstore.UUID {
	if st == nil || n <= st.head.Trimmed || n > st.head.Last.Seqno {
		return eventstore.UUID{}
	}
	return st.at(n).ID
}
