// Package memlog is the reference Log: everything in memory, one lock, nothing
// clever. It keeps every promise of the contract except that it forgets when the
// process ends, and the suite compares the other backends with it.
//
// Memory is bounded by what is appended and not trimmed; a trim gives it back.
package memlog

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Options of a Log; nil and the zero value are the defaults.
type Options struct {
	// Now is the store's clock, for the times of entries and for leases. Nil: time.Now.
	Now func() time.Time
}

// Log implements eventstore.Log, Categories, Streams, Snapshots, Holds and Leases.
type Log struct {
	now         func() time.Time
	incarnation eventstore.UUID

	mu         sync.RWMutex
	closed     bool
	position   eventstore.Position // last one given
	categories map[eventstore.Category]*category
	holds      map[holdKey]eventstore.Hold
	leases     map[string]eventstore.Lease
}

type category struct {
	spec      eventstore.CategorySpec
	streams   map[eventstore.Stream]*stream
	feed      []*record // in position order, trimmed ones among them until swept
	trimmed   int       // of these
	trimmedTo eventstore.Position
}

type stream struct {
	head     eventstore.Head
	slot     eventstore.Slot
	time     time.Time
	records  []*record // seqnos head.Trimmed+1 … head.Last.Seqno
	snapshot *eventstore.Snapshot
}

type record struct {
	eventstore.Entry
	trimmed bool
}

// New returns an empty Log.
func New(o *Options) *Log {
	l := &Log{now: time.Now, incarnation: eventstore.NewUUID(),
		categories: map[eventstore.Category]*category{}, holds: map[holdKey]eventstore.Hold{}, leases: map[string]eventstore.Lease{}}
	if o != nil && o.Now != nil {
		l.now = o.Now
	}
	return l
}

// Close makes every later call answer ErrClosed.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// enter refuses a call whose context has ended or whose log is closed.
func (l *Log) enter(ctx context.Context, op string, s eventstore.Stream) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.closed {
		return &eventstore.Error{Kind: eventstore.ErrClosed, Op: op, Stream: s}
	}
	return nil
}

// category returns a category or ErrNoSuchCategory.
func (l *Log) category(op string, name eventstore.Category, s eventstore.Stream) (*category, error) {
	c := l.categories[name]
	if c == nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrNoSuchCategory, Op: op, Stream: s, Category: name,
			Wanted: "category " + string(name), Found: "none of that name", Hint: "create the category first"}
	}
	return c, nil
}

// find returns category and stream; the stream is nil if it is a shared one that does
// not exist.
func (l *Log) find(ctx context.Context, op string, s eventstore.Stream) (*category, *stream, error) {
	if err := l.enter(ctx, op, s); err != nil {
		return nil, nil, err
	}
	c, err := l.category(op, s.Category(), s)
	if err != nil {
		return nil, nil, err
	}
	if c.spec.Layout == eventstore.Dedicated && c.streams[s] == nil {
		return nil, nil, eventstore.NoSuchStreamError(op, s)
	}
	return c, c.streams[s], nil
}

func (c *category) create(s eventstore.Stream) *stream {
	st := &stream{slot: s.Slot()}
	c.streams[s] = st
	return st
}

// headOf is the zero Head for a stream that does not exist.
func headOf(st *stream) eventstore.Head {
	if st == nil {
		return eventstore.Head{}
	}
	return st.head
}

// Append writes all batches or none.
func (l *Log) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := a.CheckShape(); err != nil {
		return eventstore.Appended{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "append", a.Batches[0].Stream); err != nil {
		return eventstore.Appended{}, err
	}
	write, err := l.decide(ctx, a)
	if err != nil {
		return eventstore.Appended{}, err
	}
	var done eventstore.Appended
	for i := range a.Batches {
		b := &a.Batches[i]
		c := l.categories[b.Stream.Category()]
		if write {
			l.write(c, b)
			done.Receipts = append(done.Receipts, b.Written())
		} else {
			r, _ := b.Judge(c.streams[b.Stream].seen(b)) // proved by decide
			done.Receipts = append(done.Receipts, r)
		}
		last := c.streams[b.Stream].at(b.Last())
		done.Token.Position = max(done.Token.Position, last.Position)
	}
	if done.Token.Position > 0 {
		done.Token.Incarnation = l.incarnation
	}
	return done, nil
}

// decide says whether the batches are to be written, are there already, or are refused.
func (l *Log) decide(ctx context.Context, a eventstore.Append) (write bool, err error) {
	var v eventstore.Verdict
	for i := range a.Batches {
		b := &a.Batches[i]
		_, st, err := l.find(ctx, "append", b.Stream)
		switch {
		case err != nil:
			v.Refuse(err)
		case b.Passes(headOf(st)):
			v.Pass()
		default:
			if _, err := b.Judge(st.seen(b)); err != nil {
				v.Refuse(err)
			} else {
				v.Prove(b, headOf(st))
			}
		}
	}
	for _, g := range a.Guards {
		_, st, err := l.find(ctx, "append", g.Stream)
		if err != nil {
			v.RefuseGuard(err)
		} else if !g.Passes(headOf(st)) {
			v.RefuseGuard(g.Refusal(headOf(st)))
		}
	}
	return v.Settle()
}

// seen gathers what Judge wants to know.
func (st *stream) seen(b *eventstore.Batch) eventstore.Seen {
	s := eventstore.Seen{Head: headOf(st)}
	if st == nil {
		return s
	}
	for n := max(b.After.Seqno, st.head.Trimmed+1); n <= min(b.Last()+1, st.head.Last.Seqno); n++ {
		s.Around = append(s.Around, st.at(n).Entry)
	}
	return s
}

// at returns the record of a seqno that is there.
func (st *stream) at(n eventstore.Seqno) *record { return st.records[n-st.head.Trimmed-1] }

func (l *Log) write(c *category, b *eventstore.Batch) {
	st := c.streams[b.Stream]
	if st == nil {
		st = c.create(b.Stream)
	}
	if now := l.now().UTC().Truncate(time.Microsecond); now.After(st.time) {
		st.time = now
	}
	st.head.Epoch, st.head.Holder = b.Epoch, b.Holder
	for i, e := range b.Events {
		e.Data = append([]byte{}, e.Data...) // the payload stays the caller's
		e.Metadata = maps.Clone(e.Metadata)
		r := &record{Entry: eventstore.Entry{Event: e, Stream: b.Stream, Seqno: b.After.Seqno + eventstore.Seqno(i) + 1,
			Epoch: b.Epoch, BatchID: b.ID, Time: st.time}}
		st.records = append(st.records, r)
		st.head.Last = r.Mark()
		if c.spec.Layout == eventstore.Shared {
			l.position++
			r.Position = l.position
			c.feed = append(c.feed, r)
		}
	}
}

// Fence grants the next epoch, or the one given.
func (l *Log) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, st, err := l.find(ctx, "fence", s)
	if err != nil {
		return eventstore.Head{}, err
	}
	h := headOf(st)
	granted, err := h.Grant(s, holder, at)
	if err != nil {
		return eventstore.Head{}, err
	}
	if st == nil {
		st = c.create(s)
	}
	st.head.Epoch, st.head.Holder = granted, holder
	return st.head, nil
}

// Head returns the head of a stream.
func (l *Log) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, st, err := l.find(ctx, "head", s)
	return headOf(st), err
}

// Trim removes entries as far as is allowed.
func (l *Log) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, st, err := l.find(ctx, "trim", s)
	if err != nil || st == nil {
		return eventstore.TrimResult{}, err
	}
	to, by := l.floor(c, st, s, through)
	if to <= st.head.Trimmed {
		return eventstore.TrimResult{Trimmed: st.head.Trimmed, StoppedBy: by}, nil
	}
	if !dry {
		c.remove(st, to)
	}
	return eventstore.TrimResult{Trimmed: to, StoppedBy: by}, nil
}

// floor returns how far a trim may go and what stops it there.
func (l *Log) floor(c *category, st *stream, s eventstore.Stream, through eventstore.Seqno) (eventstore.Seqno, string) {
	f := eventstore.TrimFloor{To: through}
	f.Head(st.head.Last.Seqno)
	if !c.spec.TrimFreely {
		f.Snapshot(st.snapshot)
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.holds), holdKey.compare) {
		switch h := l.holds[k]; {
		case k.stream == s:
			f.Hold(h, h.Seqno)
		case k.stream == "" && k.category == c.spec.Name:
			f.Hold(h, st.firstFrom(h.Position))
		}
	}
	return f.To, f.StoppedBy
}

// firstFrom returns the first seqno with a position of p or more.
func (st *stream) firstFrom(p eventstore.Position) eventstore.Seqno {
	i, _ := slices.BinarySearchFunc(st.records, p, func(r *record, p eventstore.Position) int {
		return int(int64(r.Position) - int64(p))
	})
	return st.head.Trimmed + 1 + eventstore.Seqno(i)
}

func (c *category) remove(st *stream, to eventstore.Seqno) {
	n := to - st.head.Trimmed
	for _, r := range st.records[:n] {
		r.trimmed = true
		c.trimmedTo = max(c.trimmedTo, r.Position)
	}
	st.records = slices.Clone(st.records[n:])
	st.head.Trimmed = to
	if c.trimmed += int(n); c.trimmed > len(c.feed)/2 {
		c.feed = slices.DeleteFunc(c.feed, func(r *record) bool { return r.trimmed })
		c.trimmed = 0
	}
}
