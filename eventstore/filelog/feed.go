// Reading the feed.

package filelog

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// ReadFeed returns entries after a position. Everything is written by one writer, in
// order, and shown when it is durable, so the horizon is the last position shown. The
// data of entries shares memory as in ReadFrom.
func (l *Log) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if err := l.begin(ctx, "read feed", ""); err != nil {
		return eventstore.FeedPage{}, err
	}
	for try := 0; ; try++ {
		p, err := l.feedPage(after, &f, limit)
		if again, err := l.retry(err, try); !again {
			return p, err
		}
	}
}

// feedView is what a read of the feed works on.
type feedView struct {
	log      *Log
	filter   *eventstore.Filter
	numbers  []uint32 // of the categories, or allShared
	segments []*segment
	horizon  uint64
}

func (l *Log) feedPage(after eventstore.Position, f *eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	v, err := l.viewFeed(after, f)
	if err != nil {
		return eventstore.FeedPage{}, err
	}
	at := eventstore.Position(v.horizon)
	r := feedReader{view: v, after: after, limit: limit, decoder: decoder{names: map[string]string{}},
		out: eventstore.FeedPage{Horizon: at, Drawn: at, Incarnation: l.incarnation}}
	if err := r.run(); err != nil {
		return eventstore.FeedPage{}, unavailable("read feed", "", err)
	}
	if err := v.stillThere(after); err != nil {
		return eventstore.FeedPage{}, err
	}
	return r.out, nil
}

func (l *Log) viewFeed(after eventstore.Position, f *eventstore.Filter) (*feedView, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.released {
		return nil, closedError("read feed", "")
	}
	v := &feedView{log: l, filter: f, segments: l.segments, horizon: l.reg.position}
	return v, v.resolve(after)
}

// resolve finds the categories and refuses those that the filter may not ask for.
func (v *feedView) resolve(after eventstore.Position) error {
	reg := v.log.reg
	v.numbers = nil
	for _, name := range v.filter.Categories {
		c, err := reg.category("read feed", name, "")
		if err != nil {
			return err
		}
		if c.dedicated() {
			return eventstore.NotInFeedError("read feed", name)
		}
		v.numbers = append(v.numbers, c.number)
	}
	if len(v.numbers) == 0 {
		v.numbers = []uint32{allShared}
	}
	if v.filter.AcceptTrimmed {
		return nil
	}
	for _, name := range v.named() {
		if c := reg.categories[name]; after < c.trimmedTo {
			return eventstore.TrimmedFeedError(name, after, c.trimmedTo)
		}
	}
	return nil
}

// named returns the categories of the filter, by name.
func (v *feedView) named() []eventstore.Category {
	if len(v.filter.Categories) > 0 {
		return slices.Sorted(slices.Values(v.filter.Categories))
	}
	var all []eventstore.Category
	for name := range v.log.reg.categories {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// stillThere refuses a page of which something was trimmed, or whose categories were
// deleted, while it was read.
func (v *feedView) stillThere(after eventstore.Position) error {
	v.log.mu.RLock()
	defer v.log.mu.RUnlock()
	return v.resolve(after)
}

// mergePlaces returns the places of several categories in order, each record once. of
// gives at most limit of one. Where a category has more, the others end there too: what
// is trimmed counts for no entry, so a page can get further than its limit.
func mergePlaces(numbers []uint32, limit int, of func(uint32) []place) []place {
	if len(numbers) == 1 {
		return of(numbers[0])
	}
	var all []place
	through := uint64(math.MaxUint64)
	for _, c := range numbers {
		some := of(c)
		if len(some) == limit {
			through = min(through, some[limit-1].position)
		}
		all = append(all, some...)
	}
	all = slices.DeleteFunc(all, func(p place) bool { return p.position > through })
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.position, b.position) })
	return slices.CompactFunc(all, func(a, b place) bool { return a.offset == b.offset })
}

// feedReader gathers entries of the feed behind a position.
type feedReader struct {
	view    *feedView
	after   eventstore.Position // of the last entry looked at
	passed  uint64              // position of the last record looked at
	limit   int                 // entries still to be looked at
	bytes   int
	more    bool // there is another entry behind those looked at
	out     eventstore.FeedPage
	decoder decoder
}

func (r *feedReader) full() bool { return r.limit <= 0 || r.bytes >= eventstore.MaxPageBytes }

func (r *feedReader) run() error {
	for _, s := range r.view.segments {
		if s.end > 0 && s.end <= uint64(r.after) {
			continue
		}
		if err := r.segment(s); err != nil {
			return err
		}
		if r.more {
			return nil
		}
	}
	r.out.End = true
	return nil
}

// segment goes through the places of one segment.
func (r *feedReader) segment(s *segment) error {
	f, err := s.use()
	if err != nil {
		return err
	}
	defer s.release()
	for !r.more {
		all, err := r.places(s, f)
		if err != nil || len(all) == 0 {
			return err
		}
		if err := r.records(s, f, all); err != nil {
			return err
		}
	}
	return nil
}

// places returns the next places to look at. One more than entries are wanted tells
// whether there is more.
func (r *feedReader) places(s *segment, f vfs.File) (all []place, err error) {
	after := max(uint64(r.after), r.passed)
	limit := min(max(r.limit, 0), maxPlaces) + 2
	all = mergePlaces(r.view.numbers, limit, func(c uint32) (some []place) {
		if err == nil {
			some, err = r.view.log.places(s, f, c, after, limit)
		}
		return some
	})
	seen := 0 // records looked at, or wholly passed
	for i, p := range all {
		if p.position <= r.passed || i+1 < len(all) && all[i+1].position <= uint64(r.after)+1 {
			seen = i + 1
		}
	}
	all = all[seen:]
	for i, p := range all {
		if p.position > r.view.horizon {
			return all[:i], err
		}
	}
	return all, err
}

// maxPlaces bounds how many places are looked up at a time.
const maxPlaces = 1024

// records looks at the entries of records.
func (r *feedReader) records(s *segment, f vfs.File, all []place) error {
	if r.out.Entries == nil { // about one a record, as a rule
		r.out.Entries = make([]eventstore.Entry, 0, max(min(r.limit, len(all)), 0))
	}
	reader := spanReader{segment: s, file: f, spans: make([]span, len(all))}
	for i, p := range all {
		reader.spans[i] = span{int64(p.offset), int64(p.size)}
	}
	for _, p := range all {
		_, b, err := reader.next()
		if err != nil {
			return err
		}
		if err := r.record(b); err != nil {
			return corrupt("read feed", s.name(), int64(p.offset), p.position, err)
		}
		if r.more {
			return nil
		}
		r.passed = p.position
	}
	return nil
}

// record looks at the entries of one record.
func (r *feedReader) record(body []byte) error {
	d := &r.decoder
	d.b, d.err = body, nil
	for range d.count(40) {
		var b batch
		d.batchHead(&b)
		st := r.view.stream(&b)
		for j := range b.count {
			if r.more {
				return d.err
			}
			position := b.position + eventstore.Position(j)
			if st.stream == nil || b.position == 0 || position <= r.after || b.first+eventstore.Seqno(j) <= st.trimmed {
				d.skipEvent()
				continue
			}
			if r.full() {
				r.more = true
				return d.err
			}
			r.look(&b, j, st.stream)
		}
	}
	return d.end()
}

// look reads an entry, notes that it was looked at, and gathers it if it matches.
func (r *feedReader) look(b *batch, j int, st *stream) {
	n := len(r.out.Entries)
	r.out.Entries = append(r.out.Entries, eventstore.Entry{})
	e := &r.out.Entries[n]
	r.decoder.event(&e.Event)
	b.place(e, st.name, j)
	r.limit--
	r.after = e.Position
	r.out.Through = e.PositionMark()
	if matches(r.view.filter, st, e.Type) {
		r.bytes += len(e.Data)
	} else {
		r.out.Entries[n] = eventstore.Entry{}
		r.out.Entries = r.out.Entries[:n]
	}
}

// feedStream is what the feed wants to know of a stream: nil if it, or its category, is
// not in the feed.
type feedStream struct {
	stream  *stream
	trimmed eventstore.Seqno
}

// stream returns the stream of a batch.
func (v *feedView) stream(b *batch) feedStream {
	if !slices.Contains(v.numbers, b.category) && v.numbers[0] != allShared {
		return feedStream{}
	}
	v.log.mu.RLock()
	defer v.log.mu.RUnlock()
	st := v.log.reg.at(b.ordinal)
	if st == nil {
		return feedStream{}
	}
	return feedStream{st, st.head.Trimmed}
}

// firstFrom returns the first seqno of a stream with a position of p or more, one above
// the last if there is none. The writer calls it.
func (l *Log) firstFrom(st *stream, p eventstore.Position) (eventstore.Seqno, error) {
	lo, hi := st.head.Trimmed+1, st.head.Last.Seqno+1
	for lo < hi { // positions rise along a stream
		mid := lo + (hi-lo)/2
		page, err := l.page("trim", st.name, mid-1, 1)
		if err != nil {
			return 0, err
		}
		if len(page.Entries) == 0 {
			return 0, corrupt("trim", "index", 0, 0, errMissing{st.name, mid})
		}
		if page.Entries[0].Position >= p {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo, nil
}
