// Cases: what only dedicated streams show.

package logtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

var dedicatedCases = []testCase{
	{name: "create streams", rule: "creating is idempotent, for many at once too, changes nothing that is there, and is refused before anything is created", run: createStreams},
	{name: "never created", rule: "every operation on a dedicated stream that was never created answers ErrNoSuchStream and creates nothing", run: neverCreated},
	{name: "not in the feed", rule: "dedicated entries have no position and no token, and are in no feed; asking for it is refused", run: notInFeed},
	{name: "drop stream", rule: "a dropped stream is gone with entries, snapshot and holds; made anew it starts afresh", run: dropStream},
	{name: "mixed", rule: "an append over shared and dedicated streams is atomic, and its token is that of the shared entries", run: mixedLayouts},
	{name: "large and empty", rule: "payloads and metadata of every size come back byte-equal, empty ones too", run: dedicatedSizes},
	{name: "trim to the head", rule: "a log that a trim has emptied goes on at the next seqno, again and again", run: trimToHead},
}

// dedicatedLayout is the layout that makes a dedicated category on this log: the
// harness of Dedicated turns layouts round.
func (e *env) dedicatedLayout() eventstore.Layout {
	if inFeed(e.log) {
		return eventstore.Dedicated
	}
	return eventstore.Shared
}

// dedicated returns the env with another category, which is dedicated, on a log that
// creates no stream by itself.
func (e *env) dedicated() *env {
	e.Helper()
	c := freshCategory("dedicated")
	if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c, Layout: e.dedicatedLayout(), TrimFreely: true}); err != nil {
		e.Fatalf("CreateCategory(%q, dedicated) = %v, want nil", c, err)
	}
	other := *e
	if d, wrapped := e.log.(*dedicatedLog); wrapped {
		other.log = d.fullLog
		other.store = eventstore.New(d.fullLog, nil)
	}
	other.category = c
	other.history = NewHistory()
	return &other
}

// check holds what happened on the dedicated category against the invariants.
func (e *env) checkDedicated() {
	e.Helper()
	Check(e, eventstore.New(dedicatedOn(e.log), nil), e.history)
}

func (e *env) createStreams(streams ...eventstore.Stream) {
	e.Helper()
	if err := e.store.CreateStreams(e.ctx, streams...); err != nil {
		e.Fatalf("CreateStreams(%q) = %v, want nil", streams, err)
	}
}

func createStreams(e *env) {
	d := e.dedicated()
	var many []eventstore.Stream
	for i := range 20 {
		many = append(many, d.stream(fmt.Sprint(i)))
	}
	many = append(many, many[3]) // one that stands there twice
	d.createStreams(many...)
	d.createStreams()
	w := d.filled(many[3], 2)
	together(4, func(int) { d.createStreams(many...) })
	if h := d.head(many[3]); h.Last != w.last || h.Epoch != 1 {
		e.Errorf("head after creating it again = %+v, want that of before: %v", h, w.last)
	}
	if h := d.head(many[7]); h != (eventstore.Head{}) {
		e.Errorf("head of a new stream = %+v, want zero", h)
	}
	fresh := d.stream("fresh")
	for _, bad := range []struct {
		stream eventstore.Stream
		kind   error
	}{{streamIn("nosuch"+e.category, "a"), eventstore.ErrNoSuchCategory}, {streamIn(sharedCategory(e), "a"), eventstore.ErrInvalid}, {"noname", eventstore.ErrInvalid}} {
		wantKind(e, d.store.CreateStreams(e.ctx, fresh, bad.stream), bad.kind)
	}
	_, err := d.store.Head(e.ctx, fresh)
	wantKind(e, err, eventstore.ErrNoSuchStream)
	wantKind(e, d.store.DropStream(e.ctx, streamIn(sharedCategory(e), "a")), eventstore.ErrInvalid)
	d.checkDedicated()
}

// sharedCategory returns a new category of the shared layout.
func sharedCategory(e *env) eventstore.Category {
	e.Helper()
	c := freshCategory("shared")
	if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c, Layout: eventstore.Dedicated - e.dedicatedLayout(), TrimFreely: true}); err != nil {
		e.Fatalf("CreateCategory(%q, shared) = %v, want nil", c, err)
	}
	return c
}

func neverCreated(e *env) {
	d := e.dedicated()
	s := d.stream("a")
	d.createStreams(d.stream("fine")) // which everyCall appends to
	for name, call := range everyCall(d, d.category, s) {
		switch name {
		case "ListCategories", "ListHolds", "CreateCategory", "DeleteCategory", "ReleaseHold", "AcquireLease", "RenewLease", "ReleaseLease",
			"CreateStreams", "ReadFeed", "SetHold, category":
			continue // not about a stream, or creating it
		}
		err := call()
		if got := wantKind(e, err, eventstore.ErrNoSuchStream); got.Stream != s || got.Hint == "" {
			e.Errorf("%s: %v names stream %q, want %q and a hint", name, err, got.Stream, s)
		}
	}
	_, err := d.store.Head(e.ctx, s)
	wantKind(e, err, eventstore.ErrNoSuchStream)
}

func notInFeed(e *env) {
	d := e.dedicated()
	d.createStreams(d.stream("a"))
	done := d.writer(d.stream("a"))
	got := done.send(done.batch(events(3)...))
	if got.Token != (eventstore.Token{}) {
		e.Errorf("token of an append to a dedicated stream = %+v, want none", got.Token)
	}
	for _, entry := range d.read(d.stream("a"), 0) {
		if entry.Position != 0 {
			e.Errorf("entry %d has position %d, want none", entry.Seqno, entry.Position)
		}
	}
	_, err := d.store.ReadFeed(e.ctx, 0, eventstore.Filter{Categories: []eventstore.Category{d.category}}, 10)
	wantKind(e, err, eventstore.ErrInvalid)
	for _, p := range []eventstore.Position{0, 3} {
		wantKind(e, d.store.SetHold(e.ctx, eventstore.Hold{Name: "h", Category: d.category, Position: p}), eventstore.ErrInvalid)
	}
	all, err := readFeed(e.ctx, d.store, 0, eventstore.Filter{AcceptTrimmed: true}, 500, 0)
	if err != nil || slices.ContainsFunc(all, func(entry eventstore.Entry) bool { return entry.Stream.Category() == d.category }) {
		e.Errorf("feed of everything: %v, want it without category %s", err, d.category)
	}
	d.checkDedicated()
}

func dropStream(e *env) {
	d := e.dedicated()
	s := d.stream("a")
	d.createStreams(s, d.stream("b"))
	kept := d.filled(d.stream("b"), 2)
	w := d.filled(s, 5)
	d.saveAt(s, w.last, "state")
	d.hold(eventstore.Hold{Name: "h", Stream: s, Seqno: 2})
	if err := d.store.DropStream(e.ctx, s); err != nil {
		e.Fatalf("DropStream = %v, want nil", err)
	}
	wantKind(e, d.store.DropStream(e.ctx, s), eventstore.ErrNoSuchStream)
	_, err := d.append(appendOf(w.batch(events(1)...)))
	wantKind(e, err, eventstore.ErrNoSuchStream)
	d.history = NewHistory() // what was acked is gone
	d.createStreams(s)
	wantLoaded(e, d.load(s, fingerprint, 10), eventstore.Head{}, 0, nil, true)
	again := d.writer(s)
	if again.append(3); again.last.Seqno != 3 {
		e.Errorf("the stream made anew is at %v, want 3", again.last)
	}
	d.wantTrim(s, 3, 3, "") // the hold went with the stream
	kept.e = d
	kept.append(1)
	d.checkDedicated()
}

func mixedLayouts(e *env) {
	d := e.dedicated()
	shared := streamIn(sharedCategory(e), "a")
	d.createStreams(d.stream("a"), d.stream("b"))
	one := func(s eventstore.Stream, after eventstore.Mark, epoch eventstore.Epoch, holder eventstore.UUID) eventstore.Batch {
		return eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: epoch, Holder: holder, Claim: true, After: after, Events: events(2)}
	}
	me := eventstore.NewUUID()
	a := eventstore.Append{Batches: []eventstore.Batch{one(d.stream("a"), eventstore.Mark{}, 1, me), one(shared, eventstore.Mark{}, 1, me), one(d.stream("b"), eventstore.Mark{}, 1, me)}}
	done, err := d.store.Append(e.ctx, a)
	if err != nil || done.Token.Position == 0 || len(done.Receipts) != 3 {
		e.Fatalf("Append(mixed) = %+v, %v, want three receipts and a token", done, err)
	}
	again, err := d.store.Append(e.ctx, a)
	if err != nil || !again.Receipts[0].Replays || again.Token != done.Token {
		e.Errorf("resent = %+v, %v, want it proved with token %+v", again, err, done.Token)
	}
	// A refusal of one is a refusal of all, whichever layout it is of.
	for i := range 3 {
		b := slices.Clone(a.Batches)
		for j := range b {
			b[j] = one(b[j].Stream, done.Receipts[j].Last, 2, me)
		}
		b[i].Epoch = 1
		_, err := d.store.Append(e.ctx, eventstore.Append{Batches: b})
		wantKind(e, err, eventstore.ErrFenced)
	}
	guarded := eventstore.Append{Batches: []eventstore.Batch{one(d.stream("a"), done.Receipts[0].Last, 2, me)},
		Guards: []eventstore.Guard{{Stream: shared, At: done.Receipts[1].Last}, {Stream: d.stream("b")}}}
	_, err = d.store.Append(e.ctx, guarded)
	wantKind(e, err, eventstore.ErrGuard)
	guarded.Guards[1].At = done.Receipts[2].Last
	if _, err = d.store.Append(e.ctx, guarded); err != nil {
		e.Errorf("Append with guards on both layouts = %v, want nil", err)
	}
	for s, want := range map[eventstore.Stream]int{d.stream("a"): 4, shared: 2, d.stream("b"): 2} {
		if got := d.read(s, 0); len(got) != want {
			e.Errorf("%s has %d entries, want %d", s, len(got), want)
		}
	}
}

func dedicatedSizes(e *env) {
	d := e.dedicated()
	s := d.stream("a")
	d.createStreams(s)
	w := d.writer(s)
	var all []eventstore.Event
	for _, n := range []int{0, 1, 900, 4000, 7000, 7500, 7679, 7680, 7681, 8000, 8160, 8192, 15_360, 15_361, 50_000, 1 << 20} {
		ev := event("")
		ev.Data = bytes.Repeat([]byte{byte(n), 0, 0xff, byte(n >> 8)}, n/4+1)[:n]
		all = append(all, ev)
	}
	large := event("x")
	large.Type, large.ContentType = strings.Repeat("t", eventstore.MaxTypeBytes), strings.Repeat("c", eventstore.MaxContentTypeBytes)
	large.Metadata = eventstore.Metadata{"k": strings.Repeat("\x01", eventstore.MaxMetadataBytes-1)} // six bytes each as JSON
	none := eventstore.Event{Type: "none"}
	w.send(w.batch(all...))
	w.send(w.batch(large, none, large))
	for limit := 1; limit < 8; limit += 3 {
		var got []eventstore.Entry
		for after := eventstore.Seqno(0); after < w.last.Seqno; {
			p, err := d.store.ReadFrom(e.ctx, s, after, limit)
			if err != nil || len(p.Entries) == 0 {
				e.Fatalf("ReadFrom(%d, %d) = %d entries, %v", after, limit, len(p.Entries), err)
			}
			got = append(got, p.Entries...)
			after += eventstore.Seqno(len(p.Entries))
		}
		if want := span(1, w.last.Seqno); !slices.Equal(seqnos(got), want) {
			e.Errorf("pages of %d: %v, want %v", limit, seqnos(got), want)
		}
	}
	p, err := d.store.ReadBackwardPage(e.ctx, s, 0, 4)
	if want := []eventstore.Seqno{19, 18, 17, 16}; err != nil || !slices.Equal(seqnos(p.Entries), want) {
		e.Errorf("backward: %v, %v, want %v", seqnos(p.Entries), err, want)
	}
	d.checkDedicated() // byte by byte
}

func trimToHead(e *env) {
	d := e.dedicated()
	s := d.stream("a")
	d.createStreams(s)
	w := d.writer(s)
	for range 7 {
		w.append(3)
		d.trim(s, w.last.Seqno)
		if h := d.head(s); h.Last != w.last || h.Trimmed != w.last.Seqno {
			e.Fatalf("head %+v, want all of %v trimmed", h, w.last)
		}
		p, err := d.store.ReadFrom(e.ctx, s, w.last.Seqno, 10)
		if err != nil || len(p.Entries) != 0 || !p.End {
			e.Fatalf("read behind the head = %+v, %v, want the end", p, err)
		}
	}
	w.append(2)
	d.trim(s, w.last.Seqno-1)
	w.append(1)
	if got := d.read(s, w.last.Seqno-2); len(got) != 2 || got[1].Seqno != 24 {
		e.Errorf("read %v, want 23 and 24", seqnos(got))
	}
	d.checkDedicated()
}
