// Cases: the feed, which never skips and never contradicts stream order.

package logtest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var feedCases = []testCase{
	{name: "pages over what was trimmed", rule: "pages of any size over several categories give every entry that is left, once, however many were trimmed between them", feed: true, run: feedOverTrimmed},
	{name: "order", rule: "positions rise over the whole store, and the feed agrees with every stream's order", feed: true, run: feedOrder},
	{name: "whole store", rule: "a feed without categories is every shared category's, new ones too", alone: true, feed: true, run: feedWholeStore},
	{name: "pages", rule: "whatever the page size, Through is the mark of a real entry of the categories, resuming there misses and repeats nothing, and End is told exactly at the end", alone: true, feed: true, run: feedPages},
	{name: "empty", rule: "a feed without entries is an empty page with End and no Through", feed: true, run: feedEmpty},
	{name: "filters", rule: "types and slots are filtered; Through passes entries that do not match", alone: true, feed: true, run: feedFilters},
	{name: "nothing matches", rule: "a filtered page that matches nothing still gets on, and ends", alone: true, feed: true, run: feedNothingMatches},
	{name: "beyond the end", rule: "after the last position there is an empty page with End", alone: true, feed: true, run: feedBeyondTheEnd},
	{name: "trimmed", rule: "below a category's trimmed-to position the feed says trimmed and where to read on, unless the reader takes snapshots", feed: true, run: feedTrimmed},
	{name: "trimmed elsewhere", rule: "a trim of one category does not concern readers of another", feed: true, run: feedTrimmedElsewhere},
	{name: "deleted category", rule: "a deleted category vanishes from the feed; made anew it starts afresh, with positions that still rise", feed: true, run: feedDeletedCategory},
	{name: "late commit", rule: "writer 1 holds, writer 2 commits, the reader polls, writer 1 commits: both are delivered, in order (R1)", alone: true, feed: true, run: feedLateCommit},
	{name: "rolled back", rule: "appends rolled back leave no gap and hold nobody up: 10 of them, then 100 more, and the reader reaches the head at once (P2)", alone: true, feed: true, run: feedRolledBack},
	{name: "refused", rule: "appends that are refused leave nothing in the feed and hold nobody up", feed: true, run: feedRefused},
	{name: "readers under load", rule: "readers that follow the feed while many append miss nothing, see nothing twice and nothing out of order (I8)", feed: true, run: feedUnderLoad},
}

// feedPage reads one page of the feed of the case's category.
func (e *env) feedPage(after eventstore.Position, f eventstore.Filter, limit int) eventstore.FeedPage {
	e.Helper()
	if len(f.Categories) == 0 {
		f.Categories = []eventstore.Category{e.category}
	}
	p, err := e.store.ReadFeed(e.ctx, after, f, limit)
	if err != nil {
		e.Fatalf("ReadFeed(%d, %+v, %d) = %v, want nil", after, f, limit, err)
	}
	return p
}

// settle waits until the horizon has passed everything acked.
func (e *env) settle() {
	e.Helper()
	until := e.history.Token().Position
	e.poll("the horizon passes what was acked", func() bool { return e.feedPage(0, eventstore.Filter{AcceptTrimmed: true}, 1).Horizon >= until })
}

// interleave writes entries of three streams in turns and returns all of them in
// the order of their positions.
func (e *env) interleave(batches int) []eventstore.Entry {
	e.Helper()
	ws := []*writer{e.writer(e.stream("x")), e.writer(e.stream("y")), e.writer(e.stream("z"))}
	for i := range batches {
		w := ws[i%3]
		b := w.batch(events(1 + i%2)...)
		for j := range b.Events {
			b.Events[j].Type = []string{"even", "odd"}[i%2]
		}
		w.send(b)
	}
	var all []eventstore.Entry
	for _, w := range ws {
		all = append(all, e.read(w.stream, 0)...)
	}
	slices.SortFunc(all, func(a, b eventstore.Entry) int { return int(int64(a.Position) - int64(b.Position)) })
	e.settle()
	return all
}

func feedOrder(e *env) {
	w, x := e.writer(e.stream("w")), e.writer(e.stream("x"))
	var want []eventstore.UUID
	last := eventstore.Position(0)
	for i := range 10 {
		from := []*writer{w, x}[i%2]
		done := from.send(from.batch(events(3)...))
		for _, entry := range e.read(from.stream, from.last.Seqno-3) {
			if entry.Position <= last {
				e.Errorf("%s/%d was appended behind position %d and got %d", entry.Stream, entry.Seqno, last, entry.Position)
			}
			last = entry.Position
			want = append(want, entry.ID)
		}
		if done.Token.Position < last {
			e.Errorf("token %v lies below the append's last position %d", done.Token, last)
		}
	}
	if got := ids(e.feed(0, eventstore.Filter{}, 7)); !slices.Equal(got, want) {
		e.Errorf("the feed's order = %v, want that of the appends %v", got, want)
	}
}

func feedWholeStore(e *env) {
	e.filled(e.stream("a"), 2)
	follow := func(after eventstore.Position) []eventstore.Entry {
		all, err := readFeed(e.ctx, e.store, after, eventstore.Filter{}, 2, e.history.Token().Position)
		if err != nil {
			e.Fatalf("ReadFeed = %v, want nil", err)
		}
		return all
	}
	before := follow(0)
	c := e.newCategory("new", false)
	e.filled(streamIn(c, "b"), 3)
	w := e.filled(e.stream("c"), 1)
	after := follow(before[1].Position)
	if len(before) != 2 || len(after) != 4 || after[0].Stream.Category() != c || after[3].Stream != w.stream {
		e.Errorf("the feed delivered %d entries, then %d, want 2, then the 3 of a new category and 1", len(before), len(after))
	}
}

func feedPages(e *env) {
	all := e.interleave(15)
	for _, limit := range []int{1, 2, len(all) - 1, len(all), len(all) + 1} {
		place := 0 // how many entries the pages have passed
		for {
			after := eventstore.Position(0)
			if place > 0 {
				after = all[place-1].Position
			}
			p := e.feedPage(after, eventstore.Filter{}, limit)
			n := len(p.Entries)
			if n == 0 || n > limit || place+n > len(all) || !slices.Equal(ids(p.Entries), ids(all[place:place+n])) {
				e.Fatalf("page of %d behind entry %d: %v, want the next ones of %v", limit, place, ids(p.Entries), ids(all))
			}
			if p.Through != p.Entries[n-1].PositionMark() || p.Horizon < p.Through.Position || p.Drawn < p.Horizon {
				e.Errorf("page through %v below horizon %d, want through %v", p.Through, p.Horizon, p.Entries[n-1].PositionMark())
			}
			place += n
			if p.End != (place == len(all)) {
				e.Errorf("page of %d through entry %d of %d: End %t", limit, place, len(all), p.End)
			}
			if p.End || place == len(all) {
				break
			}
		}
	}
}

func feedEmpty(e *env) {
	p := e.feedPage(0, eventstore.Filter{}, 10)
	if len(p.Entries) != 0 || !p.End || p.Through != (eventstore.PositionMark{}) || p.Incarnation.IsZero() {
		e.Errorf("page = %+v, want empty with End, no Through, and the store's incarnation", p)
	}
	e.fence(e.stream("a"), eventstore.NewUUID(), 0)
	if p := e.feedPage(0, eventstore.Filter{}, 10); len(p.Entries) != 0 || !p.End {
		e.Errorf("page after a fence = %+v, want empty with End", p)
	}
}

func feedFilters(e *env) {
	all := e.interleave(12)
	x, y := e.stream("x"), e.stream("y")
	for name, f := range map[string]eventstore.Filter{
		"everything":    {},
		"one type":      {Types: []string{"odd"}},
		"two types":     {Types: []string{"odd", "even", "other"}},
		"no such type":  {Types: []string{"other"}},
		"one slot":      {Slots: []eventstore.Slot{x.Slot()}},
		"two slots":     {Slots: []eventstore.Slot{x.Slot(), y.Slot()}},
		"type and slot": {Types: []string{"even"}, Slots: []eventstore.Slot{y.Slot()}},
		"twice":         {Categories: []eventstore.Category{e.category, e.category}, Types: []string{"odd", "odd"}},
	} {
		var want []eventstore.UUID
		for _, entry := range all {
			if (len(f.Types) == 0 || slices.Contains(f.Types, entry.Type)) && (len(f.Slots) == 0 || slices.Contains(f.Slots, entry.Stream.Slot())) {
				want = append(want, entry.ID)
			}
		}
		for _, limit := range []int{1, 3, 100} {
			if got := ids(e.feed(0, f, limit)); !slices.Equal(got, want) {
				e.Errorf("%s in pages of %d: %v, want %v", name, limit, got, want)
			}
		}
		if p := e.feedPage(0, f, 100); p.Through != all[len(all)-1].PositionMark() {
			e.Errorf("%s: through %v, want past entries that do not match to %v", name, p.Through, all[len(all)-1].PositionMark())
		}
	}
}

func feedNothingMatches(e *env) {
	all := e.interleave(12)
	after := eventstore.Position(0)
	f := eventstore.Filter{Types: []string{"other"}}
	for range all {
		p := e.feedPage(after, f, 2)
		if len(p.Entries) != 0 {
			e.Fatalf("page = %+v, want no entries", p)
		}
		if p.Through != (eventstore.PositionMark{}) && !slices.ContainsFunc(all, func(entry eventstore.Entry) bool { return entry.PositionMark() == p.Through }) {
			e.Fatalf("through %v is the mark of no entry", p.Through)
		}
		if p.End {
			return
		}
		if p.Through.Position <= after {
			e.Fatalf("page after %d got to %v and does not end", after, p.Through)
		}
		after = p.Through.Position
	}
	e.Errorf("the feed does not end after %d pages", len(all))
}

func feedBeyondTheEnd(e *env) {
	all := e.interleave(3)
	for _, after := range []eventstore.Position{all[len(all)-1].Position, eventstore.MaxNumber} {
		if p := e.feedPage(after, eventstore.Filter{}, 10); len(p.Entries) != 0 || !p.End || p.Through != (eventstore.PositionMark{}) {
			e.Errorf("page after %d = %+v, want empty with End and no Through", after, p)
		}
	}
}

func feedTrimmed(e *env) {
	all := e.interleave(12)
	x := e.stream("x")
	of := e.read(x, 0)
	e.trim(x, 3)
	trimmedTo := of[2].Position
	f := eventstore.Filter{Categories: []eventstore.Category{e.category}}
	for _, after := range []eventstore.Position{0, of[0].Position, trimmedTo - 1} {
		_, err := e.store.ReadFeed(e.ctx, after, f, 10)
		if got := wantKind(e, err, eventstore.ErrTrimmed); got.FirstPosition != trimmedTo || got.Category != e.category {
			e.Errorf("%v has FirstPosition %d of %q, want %d of %q", err, got.FirstPosition, got.Category, trimmedTo, e.category)
		}
	}
	var behind, still []eventstore.UUID
	for _, entry := range all {
		if entry.Position > trimmedTo {
			behind = append(behind, entry.ID)
		}
		if entry.Stream != x || entry.Seqno > 3 {
			still = append(still, entry.ID)
		}
	}
	if got := ids(e.feed(trimmedTo, f, 4)); !slices.Equal(got, behind) {
		e.Errorf("behind the trimmed-to position: %v, want %v", got, behind)
	}
	f.AcceptTrimmed = true
	if got := ids(e.feed(0, f, 4)); !slices.Equal(got, still) {
		e.Errorf("taking snapshots: %v, want what is still there %v", got, still)
	}
}

func feedTrimmedElsewhere(e *env) {
	c := e.newCategory("other", false)
	w := e.filled(streamIn(c, "a"), 3)
	e.trim(e.filled(e.stream("a"), 3).stream, 3)
	if got := e.feed(0, eventstore.Filter{Categories: []eventstore.Category{c}}, 10); len(got) != 3 || got[0].Stream != w.stream {
		e.Errorf("%d entries, want the 3 of %s", len(got), w.stream)
	}
	_, err := e.store.ReadFeed(e.ctx, 0, eventstore.Filter{Categories: []eventstore.Category{c, e.category}}, 10)
	if got := wantKind(e, err, eventstore.ErrTrimmed); got.Category != e.category {
		e.Errorf("%v is of %q, want %q", err, got.Category, e.category)
	}
}

func feedDeletedCategory(e *env) {
	c := e.newCategory("deleted", false)
	w := e.filled(streamIn(c, "a"), 3)
	both := eventstore.Filter{Categories: []eventstore.Category{e.category, c}}
	old := e.feed(0, both, 10)
	e.filled(e.stream("a"), 1)
	if err := e.store.DeleteCategory(e.ctx, c); err != nil {
		e.Fatalf("DeleteCategory = %v, want nil", err)
	}
	e.history.Forget(c)
	_, err := e.store.ReadFeed(e.ctx, 0, both, 10)
	wantKind(e, err, eventstore.ErrNoSuchCategory)
	if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c}); err != nil {
		e.Fatalf("CreateCategory = %v, want nil", err)
	}
	e.filled(w.stream, 2)
	got := e.feed(0, both, 10)
	if len(got) != 3 || got[1].Stream != w.stream || got[1].Seqno != 1 || got[1].Position <= old[len(old)-1].Position {
		e.Errorf("the feed delivers %d entries %v, want 1 and, above position %d, the 2 of the category made anew", len(got), got, old[len(old)-1].Position)
	}
}

func feedLateCommit(e *env) {
	x, y := e.writer(e.stream("x")), e.writer(e.stream("y"))
	var during []eventstore.Entry
	after := eventstore.Position(0)
	err := e.longTx(appendOf(x.batch(events(2)...)), func() {
		y.append(1)
		y.append(2)
		for range 5 {
			p := e.feedPage(after, eventstore.Filter{}, 10)
			during = append(during, p.Entries...)
			after = max(after, p.Through.Position)
		}
	}, true)
	if err != nil {
		e.Fatalf("append in a transaction = %v, want nil", err)
	}
	delivered := append(during, e.feed(after, eventstore.Filter{}, 10)...)
	compareFeed(e, delivered, map[eventstore.Stream][]eventstore.Entry{x.stream: e.read(x.stream, 0), y.stream: e.read(y.stream, 0)})
	if len(delivered) != 5 {
		e.Errorf("%d entries delivered, want 5", len(delivered))
	}
}

func feedRolledBack(e *env) {
	const n = 10
	var open atomic.Int32
	allOpen := make(chan struct{})
	together(n, func(i int) {
		w := &writer{e: e, stream: e.stream(fmt.Sprint(i)), holder: eventstore.NewUUID(), epoch: 1}
		err := e.longTx(appendOf(w.batch(events(2)...)), func() {
			if open.Add(1) == n {
				close(allOpen)
			}
			select {
			case <-allOpen:
			case <-time.After(time.Second): // the backend does not let so many be open at once
			}
		}, false)
		if err != nil {
			e.Errorf("append in a transaction that rolls back = %v, want nil", err)
		}
	})
	for i := range n {
		if h := e.head(e.stream(fmt.Sprint(i))); h != (eventstore.Head{}) {
			e.Errorf("head of a stream whose first append was rolled back = %+v, want zero", h)
		}
		e.filled(e.stream(fmt.Sprint(i)), 10)
	}
	delivered := 0
	for after := eventstore.Position(0); ; {
		p := e.feedPage(after, eventstore.Filter{}, 30)
		delivered += len(p.Entries)
		after = p.Through.Position
		if p.End {
			break
		}
	}
	if delivered != 10*n {
		e.Errorf("the reader got %d entries without waiting, want %d", delivered, 10*n)
	}
}

func feedRefused(e *env) {
	w := e.filled(e.stream("a"), 1)
	late := w.batch(events(1)...)
	late.After = eventstore.Mark{}
	for range 10 {
		e.refusedBatches(eventstore.ErrAlreadyWritten, e.writer(e.stream("b")).batch(events(1)...), late)
	}
	w.append(1)
	if got := e.feed(0, eventstore.Filter{}, 10); len(got) != 2 {
		e.Errorf("the feed delivers %d entries, want 2", len(got))
	}
}

func feedUnderLoad(e *env) {
	const writers, readers, size = 4, 2, 3
	var finished atomic.Bool
	together(1+readers, func(i int) {
		if i == 0 {
			defer finished.Store(true)
			e.alternate(writers, rounds(20), size)
			return
		}
		var delivered []eventstore.Entry
		f := eventstore.Filter{Categories: []eventstore.Category{e.category}}
		for after, end := eventstore.Position(0), false; !end; {
			last := finished.Load()
			p, err := e.store.ReadFeed(e.ctx, after, f, 5*i)
			yield()
			if err != nil {
				e.Errorf("ReadFeed(%d) = %v, want nil", after, err)
				return
			}
			delivered = append(delivered, p.Entries...)
			after = max(after, p.Through.Position)
			end = last && p.End && p.Horizon >= e.history.Token().Position
		}
		found := map[eventstore.Stream][]eventstore.Entry{}
		for w := range writers {
			found[e.stream(fmt.Sprint(w))], _ = readAll(e.ctx, e.store, e.stream(fmt.Sprint(w)), 0)
		}
		compareFeed(e, delivered, found)
	})
}

func feedOverTrimmed(e *env) {
	second := e.newCategory("second", true)
	for i := range 8 { // one stream after the other
		w := e.writer(streamIn([]eventstore.Category{e.category, second}[i%2], fmt.Sprint(i)))
		for range 10 {
			w.append(1)
		}
		e.trim(w.stream, eventstore.Seqno([]int{8, 0, 10, 7}[i%4]))
	}
	f := eventstore.Filter{Categories: []eventstore.Category{e.category, second}, AcceptTrimmed: true}
	want := e.feed(0, f, 1000)
	for _, limit := range []int{1, 2, 3, 4, 7} {
		var got []eventstore.Entry
		for after, pages := eventstore.Position(0), 0; pages < 100; pages++ {
			p, err := e.store.ReadFeed(e.ctx, after, f, limit)
			if err != nil {
				e.Fatalf("ReadFeed(%d, %d at a time) = %v", after, limit, err)
			}
			got = append(got, p.Entries...)
			if p.End {
				break
			}
			after = p.Through.Position
		}
		if len(got) != len(want) {
			e.Errorf("%d entries, %d at a time, want %d", len(got), limit, len(want))
		}
		for i := range min(len(got), len(want)) {
			if got[i].PositionMark() != want[i].PositionMark() {
				e.Errorf("entry %d, %d at a time, is %v, want %v", i, limit, got[i].PositionMark(), want[i].PositionMark())
				break
			}
		}
	}
}
