// Check: the invariants that hold after every history.

package logtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Check holds a store against what its clients were told, after all of them have
// been answered:
//
//   - an acked batch is there once, byte-equal; a refused one is not; an unknown
//     one is wholly there once or wholly absent;
//   - seqnos are 1…n without a gap; below the trim point a read says so and where
//     the rest begins; the head agrees with the last entry;
//   - epochs and times never fall along a stream, nobody was told an epoch that
//     another holds, and no grant was lost;
//   - the feed is the union of the streams, in an order that agrees with each, and
//     positions are unique; dedicated entries have none.
//
// It looks at the streams of the history only.
func Check(t reporter, store *eventstore.Store, h *History) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fault := range h.faults {
		t.Errorf("%s", fault)
	}
	streams := h.byStream()
	found := map[eventstore.Stream][]eventstore.Entry{}
	for _, s := range slices.Sorted(maps.Keys(streams)) {
		c := streamCheck{reporter: t, ctx: ctx, store: store, stream: s, grants: h.grants[s], told: streams[s]}
		found[s] = c.run()
	}
	if inFeed(store.Log()) {
		checkFeed(t, ctx, store, found, h.token.Position)
	}
}

// byStream sorts what was told by stream, without the streams of categories that
// do not exist.
func (h *History) byStream() map[eventstore.Stream][]*told {
	streams := map[eventstore.Stream][]*told{}
	for _, t := range h.batches {
		streams[t.batch.Stream] = append(streams[t.batch.Stream], t)
	}
	for s := range h.grants {
		if _, ok := streams[s]; !ok {
			streams[s] = nil
		}
	}
	return streams
}

// streamCheck holds one stream against what was told about it.
type streamCheck struct {
	reporter
	ctx    context.Context
	store  *eventstore.Store
	stream eventstore.Stream
	grants map[eventstore.Epoch]eventstore.UUID
	told   []*told

	head    eventstore.Head
	entries []eventstore.Entry
}

func (c *streamCheck) run() []eventstore.Entry {
	c.Helper()
	var err error
	if c.head, err = c.store.Head(c.ctx, c.stream); err != nil {
		if wantKind(c, err, eventstore.ErrNoSuchCategory) != nil {
			c.nothingAcked()
		}
		return nil
	}
	if c.entries, err = readAll(c.ctx, c.store, c.stream, c.head.Trimmed); err != nil {
		c.fault("read after %d: %v", c.head.Trimmed, err)
		return nil
	}
	c.checkSeqnos()
	c.checkOrder()
	c.checkTrimPoint()
	c.checkGrants()
	for _, t := range c.told {
		c.checkTold(t)
	}
	return c.entries
}

func (c *streamCheck) fault(format string, args ...any) {
	c.Helper()
	c.Errorf("%s: %s", c.stream, fmt.Sprintf(format, args...))
}

func (c *streamCheck) nothingAcked() {
	c.Helper()
	for _, t := range c.told {
		if t.acked {
			c.fault("batch %v was acked, and the category does not exist", t.batch.ID)
		}
	}
}

// checkSeqnos: 1…n without a gap behind the trim point, through the head.
func (c *streamCheck) checkSeqnos() {
	c.Helper()
	want := span(c.head.Trimmed+1, c.head.Last.Seqno)
	if got := seqnos(c.entries); !slices.Equal(got, want) {
		c.fault("seqnos %v, want %v as of head %+v", got, want, c.head)
		return
	}
	if n := len(c.entries); n > 0 && c.entries[n-1].Mark() != c.head.Last {
		c.fault("last entry %v, head says %v", c.entries[n-1].Mark(), c.head.Last)
	}
}

// checkOrder: what never falls along a stream, and what every entry carries.
func (c *streamCheck) checkOrder() {
	c.Helper()
	seen := map[eventstore.UUID]bool{}
	var before eventstore.Entry
	for _, e := range c.entries {
		switch {
		case e.Stream != c.stream:
			c.fault("entry %d says that it is of %s", e.Seqno, e.Stream)
		case e.Epoch < before.Epoch || e.Epoch == 0 || e.Epoch > c.head.Epoch:
			c.fault("entry %d has epoch %d behind %d under head %d", e.Seqno, e.Epoch, before.Epoch, c.head.Epoch)
		case inFeed(c.store.Log()) && e.Position <= before.Position || !inFeed(c.store.Log()) && e.Position != 0:
			c.fault("entry %d has position %d behind %d", e.Seqno, e.Position, before.Position)
		case e.Time.Before(before.Time):
			c.fault("entry %d has time %v behind %v", e.Seqno, e.Time, before.Time)
		case e.Time.Location() != time.UTC || e.Time.Nanosecond()%1000 != 0 || e.Time.IsZero():
			c.fault("entry %d has time %v, want UTC and microseconds", e.Seqno, e.Time)
		case seen[e.ID]:
			c.fault("entry %d repeats event %v", e.Seqno, e.ID)
		case e.Data == nil || e.Metadata != nil && len(e.Metadata) == 0:
			c.fault("entry %d has data %v and metadata %v, want empty data not nil and empty metadata nil", e.Seqno, e.Data, e.Metadata)
		}
		seen[e.ID], before = true, e
	}
}

// checkTrimPoint: what is below is said to be trimmed, with where the rest begins.
func (c *streamCheck) checkTrimPoint() {
	c.Helper()
	if c.head.Trimmed == 0 {
		return
	}
	_, err := c.store.ReadFrom(c.ctx, c.stream, c.head.Trimmed-1, 1)
	if e := wantKind(c, err, eventstore.ErrTrimmed); e != nil && e.First != c.head.Trimmed+1 {
		c.fault("%v has First %d, want %d", err, e.First, c.head.Trimmed+1)
	}
}

// checkGrants: no grant was lost.
func (c *streamCheck) checkGrants() {
	c.Helper()
	for epoch, holder := range c.grants {
		if c.head.Epoch < epoch || c.head.Epoch == epoch && c.head.Holder != holder {
			c.fault("epoch %d was granted to %v, head is %+v", epoch, holder, c.head)
		}
	}
}

// checkTold: acked is there once and byte-equal, refused is absent, unknown is one
// of the two.
func (c *streamCheck) checkTold(t *told) {
	c.Helper()
	var there []eventstore.Entry
	for _, e := range c.entries {
		if e.BatchID == t.batch.ID {
			there = append(there, e)
		}
	}
	b := t.batch
	switch {
	case !t.acked && !t.unknown:
		if len(there) > 0 {
			c.fault("batch %v was refused, and %v of it are there", b.ID, seqnos(there))
		}
	case !t.acked && len(there) == 0:
	default:
		c.checkThere(b, there)
	}
}

// checkThere: all of the batch that was not trimmed stands where it was told to be.
func (c *streamCheck) checkThere(b eventstore.Batch, there []eventstore.Entry) {
	c.Helper()
	want := span(max(b.After.Seqno, c.head.Trimmed)+1, b.Last())
	if got := seqnos(there); !slices.Equal(got, want) {
		c.fault("batch %v stands at %v, want %v (trimmed through %d)", b.ID, got, want, c.head.Trimmed)
		return
	}
	for _, e := range there {
		sent := b.Events[e.Seqno-b.After.Seqno-1]
		if !sameEvent(untraced(e.Event), untraced(sent)) || e.Epoch != b.Epoch {
			c.fault("entry %d at epoch %d is %s, acked was at epoch %d %s", e.Seqno, e.Epoch, brief(e.Event), b.Epoch, brief(sent))
		}
	}
}

// brief describes an event on one line.
func brief(e eventstore.Event) string {
	return fmt.Sprintf("{%v %q v%d %q %d bytes %.60q %.200q}", e.ID, e.Type, e.Version, e.ContentType, len(e.Data), e.Data, fmt.Sprint(e.Metadata))
}

// checkFeed: the feed is the union of the streams, in an order that agrees with
// each; positions are unique.
func checkFeed(t reporter, ctx context.Context, store *eventstore.Store, found map[eventstore.Stream][]eventstore.Entry, until eventstore.Position) {
	t.Helper()
	var f eventstore.Filter
	f.AcceptTrimmed = true
	for s, entries := range found {
		if len(entries) > 0 && !slices.Contains(f.Categories, s.Category()) {
			f.Categories = append(f.Categories, s.Category())
		}
	}
	if len(f.Categories) == 0 {
		return
	}
	const limit = 97 // so that most feeds take several pages
	all, err := readFeed(ctx, store, 0, f, limit, until)
	if err != nil {
		t.Errorf("feed: %v", err)
		return
	}
	compareFeed(t, all, found)
}

// compareFeed compares what a feed delivered with the streams.
func compareFeed(t reporter, delivered []eventstore.Entry, found map[eventstore.Stream][]eventstore.Entry) {
	t.Helper()
	got := map[eventstore.Stream][]eventstore.UUID{}
	last := eventstore.Position(0)
	for _, e := range delivered {
		if e.Position <= last {
			t.Errorf("feed: %s/%d at position %d stands behind position %d", e.Stream, e.Seqno, e.Position, last)
		}
		last = e.Position
		got[e.Stream] = append(got[e.Stream], e.ID)
	}
	for s, entries := range found {
		if want := ids(entries); !slices.Equal(got[s], want) {
			t.Errorf("feed: %s has %d entries %v, the stream has %d: %v", s, len(got[s]), got[s], len(want), want)
		}
	}
}
