// Cases: reading one stream, forward and backward.

package logtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/wattle-es/wattle/eventstore"
)

var readCases = []testCase{
	{name: "order and paging", rule: "entries come in seqno order whatever the page size; End is told exactly at the head", run: orderAndPaging},
	{name: "beyond the head", rule: "a read at or beyond the head is an empty page with End", run: beyondTheHead},
	{name: "absent stream", rule: "a shared stream that does not exist reads as empty and has the zero head", run: readAbsent},
	{name: "large pages", rule: "a page ends with the entry that passes MaxPageBytes; paging goes on behind it", run: largePages},
	{name: "below the trim point", rule: "100 entries trimmed below 80: reading from 0 with page 10 and page 1 says trimmed, first is 80, then 80…; never an empty page before the end (R4)", run: belowTheTrimPoint},
	{name: "all trimmed", rule: "a stream of which everything was trimmed reads as trimmed below its head, and as empty from there", run: readAllTrimmed},
	{name: "backward", rule: "backward reading gives the same entries, newest first, whatever the page size, natively and through Store's fallback", run: backward},
	{name: "backward, trimmed", rule: "backward reading ends at the first entry still there and says trimmed below it, natively and through Store's fallback", run: backwardTrimmed},
	{name: "parallel batches", rule: "5,000 events written by many in parallel batches are read strictly in order each way (R2)", run: parallelBatches},
	{name: "readers see a prefix", rule: "while writers append, every read is a gap-free prefix that only grows (I8)", run: readersSeePrefix},
}

// pages reads a stream after a seqno with pages of limit entries, and holds each
// page against the rules for pages.
func (e *env) pages(s eventstore.Stream, after eventstore.Seqno, limit int) []eventstore.Entry {
	e.Helper()
	var all []eventstore.Entry
	for {
		p, err := e.store.ReadFrom(e.ctx, s, after, limit)
		if err != nil {
			e.Fatalf("ReadFrom(%q, %d, %d) = %v, want nil", s, after, limit, err)
		}
		if n := len(p.Entries); n > limit || n == 0 && !p.End {
			e.Fatalf("ReadFrom(%q, %d, %d): %d entries, End %t", s, after, limit, n, p.End)
		}
		all = append(all, p.Entries...)
		if p.End {
			return all
		}
		after = all[len(all)-1].Seqno
	}
}

func orderAndPaging(e *env) {
	w := e.writer(e.stream("a"))
	for _, n := range []int{1, 5, 9, 10} {
		w.append(n)
	}
	for _, limit := range []int{1, 2, 10, 24, 25, 26, eventstore.MaxPageEntries} {
		for _, after := range []eventstore.Seqno{0, 1, 24, 25} {
			if got := seqnos(e.pages(w.stream, after, limit)); !slices.Equal(got, span(after+1, 25)) {
				e.Errorf("after %d in pages of %d: %v, want %d to 25", after, limit, got, after+1)
			}
		}
	}
	p, err := e.store.ReadFrom(e.ctx, w.stream, 15, 10)
	if err != nil || len(p.Entries) != 10 || !p.End {
		e.Errorf("the page that ends at the head: %d entries, End %t, %v; want 10 and End", len(p.Entries), p.End, err)
	}
	p, err = e.store.ReadFrom(e.ctx, w.stream, 14, 10)
	if err != nil || len(p.Entries) != 10 || p.End {
		e.Errorf("the page that ends before the head: %d entries, End %t, %v; want 10 and not End", len(p.Entries), p.End, err)
	}
}

func beyondTheHead(e *env) {
	w := e.filled(e.stream("a"), 3)
	for _, after := range []eventstore.Seqno{3, 4, 1000, eventstore.MaxNumber} {
		p, err := e.store.ReadFrom(e.ctx, w.stream, after, 10)
		if err != nil || len(p.Entries) != 0 || !p.End {
			e.Errorf("ReadFrom after %d of 3 = %+v, %v, want an empty page with End", after, p, err)
		}
	}
}

func readAbsent(e *env) {
	s := e.stream("absent")
	for _, after := range []eventstore.Seqno{0, 5} {
		p, err := e.store.ReadFrom(e.ctx, s, after, 10)
		if err != nil || len(p.Entries) != 0 || !p.End {
			e.Errorf("ReadFrom after %d = %+v, %v, want an empty page with End", after, p, err)
		}
		p, err = e.store.ReadBackwardPage(e.ctx, s, after, 10)
		if err != nil || len(p.Entries) != 0 || !p.End {
			e.Errorf("ReadBackwardPage before %d = %+v, %v, want an empty page with End", after, p, err)
		}
	}
	if h := e.head(s); h != (eventstore.Head{}) {
		e.Errorf("head = %+v, want zero", h)
	}
	if r, err := e.store.Trim(e.ctx, s, 5, false); err != nil || r.Trimmed != 0 {
		e.Errorf("Trim = %+v, %v, want nothing trimmed", r, err)
	}
}

func largePages(e *env) {
	w := e.writer(e.stream("a"))
	const entries, size = 12, 1 << 20
	data := bytes.Repeat([]byte{7}, size)
	for range entries {
		w.send(w.batch(eventstore.Event{Type: "t", Data: data}))
	}
	after := eventstore.Seqno(0)
	for page := 0; ; page++ {
		p, err := e.store.ReadFrom(e.ctx, w.stream, after, eventstore.MaxPageEntries)
		if err != nil || len(p.Entries) == 0 || page > entries {
			e.Fatalf("page %d after %d: %d entries, %v", page, after, len(p.Entries), err)
		}
		if n := len(p.Entries); (n-1)*size >= eventstore.MaxPageBytes {
			e.Errorf("page %d holds %d entries of %d bytes, want it to end once it is over %d", page, n, size, eventstore.MaxPageBytes)
		}
		after = p.Entries[len(p.Entries)-1].Seqno
		if p.End {
			break
		}
	}
	if after != entries {
		e.Errorf("the last page ends at %d, want %d", after, entries)
	}
	if inFeed(e.log) {
		if got := e.feed(0, eventstore.Filter{}, eventstore.MaxPageEntries); len(got) != entries {
			e.Errorf("the feed delivers %d entries, want %d", len(got), entries)
		}
	}
	if back := e.backwardPages(e.store, w.stream, 0, eventstore.MaxPageEntries); len(back) != entries {
		e.Errorf("backward reading gives %d entries, want %d", len(back), entries)
	}
}

func belowTheTrimPoint(e *env) {
	w := e.filled(e.stream("a"), 100)
	e.trim(w.stream, 79)
	for _, limit := range []int{10, 1} {
		for _, after := range []eventstore.Seqno{0, 40, 78} {
			_, err := e.store.ReadFrom(e.ctx, w.stream, after, limit)
			if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 80 || got.Stream != w.stream {
				e.Errorf("%v has First %d, want 80", err, got.First)
			}
		}
		if got := seqnos(e.pages(w.stream, 79, limit)); !slices.Equal(got, span(80, 100)) {
			e.Errorf("after 79 in pages of %d: %v, want 80 to 100", limit, got)
		}
	}
}

func readAllTrimmed(e *env) {
	w := e.filled(e.stream("a"), 5)
	e.trim(w.stream, 5)
	for _, after := range []eventstore.Seqno{0, 4} {
		_, err := e.store.ReadFrom(e.ctx, w.stream, after, 10)
		if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 6 {
			e.Errorf("%v has First %d, want 6", err, got.First)
		}
	}
	if p, err := e.store.ReadFrom(e.ctx, w.stream, 5, 10); err != nil || len(p.Entries) != 0 || !p.End {
		e.Errorf("ReadFrom after the head = %+v, %v, want an empty page with End", p, err)
	}
	want := eventstore.Head{Epoch: w.epoch, Holder: w.holder, Last: w.last, Trimmed: 5}
	if h := e.head(w.stream); h != want {
		e.Errorf("head = %+v, want %+v", h, want)
	}
}

// plainLog hides what a log implements beside Log, so that Store falls back.
type plainLog struct{ eventstore.Log }

// backwards are the two ways in which a Store reads backward.
func (e *env) backwards() map[string]*eventstore.Store {
	return map[string]*eventstore.Store{"as it is": e.store, "fallback": eventstore.New(plainLog{e.log}, nil)}
}

// backwardPages reads backward with pages of limit entries.
func (e *env) backwardPages(store *eventstore.Store, s eventstore.Stream, before eventstore.Seqno, limit int) []eventstore.Entry {
	e.Helper()
	var all []eventstore.Entry
	for {
		p, err := store.ReadBackwardPage(e.ctx, s, before, limit)
		if err != nil {
			e.Fatalf("ReadBackwardPage(%q, %d, %d) = %v, want nil", s, before, limit, err)
		}
		if n := len(p.Entries); n > limit || n == 0 && !p.End {
			e.Fatalf("ReadBackwardPage(%q, %d, %d): %d entries, End %t", s, before, limit, n, p.End)
		}
		all = append(all, p.Entries...)
		if p.End {
			return all
		}
		before = all[len(all)-1].Seqno
	}
}

func backward(e *env) {
	w := e.filled(e.stream("a"), 20)
	w.append(5)
	for name, store := range e.backwards() {
		for _, limit := range []int{1, 7, 24, 25, 26, eventstore.MaxPageEntries} {
			for before, first := range map[eventstore.Seqno]eventstore.Seqno{0: 25, 26: 25, eventstore.MaxNumber: 25, 25: 24, 10: 9, 2: 1} {
				got := e.backwardPages(store, w.stream, before, limit)
				slices.Reverse(got)
				if !slices.Equal(seqnos(got), span(1, first)) || !slices.Equal(ids(got), ids(e.read(w.stream, 0))[:first]) {
					e.Errorf("%s: before %d in pages of %d: %v, want 1 to %d backward", name, before, limit, seqnos(got), first)
				}
			}
		}
		if p, err := store.ReadBackwardPage(e.ctx, w.stream, 1, 10); err != nil || len(p.Entries) != 0 || !p.End {
			e.Errorf("%s: before 1 = %+v, %v, want an empty page with End", name, p, err)
		}
	}
}

func backwardTrimmed(e *env) {
	w := e.filled(e.stream("a"), 20)
	e.trim(w.stream, 12)
	for name, store := range e.backwards() {
		for _, limit := range []int{1, 3, 8, 9} {
			got := e.backwardPages(store, w.stream, 0, limit)
			slices.Reverse(got)
			if !slices.Equal(seqnos(got), span(13, 20)) {
				e.Errorf("%s: in pages of %d: %v, want 20 down to 13", name, limit, seqnos(got))
			}
		}
		for _, before := range []eventstore.Seqno{2, 12, 13} {
			_, err := store.ReadBackwardPage(e.ctx, w.stream, before, 5)
			if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 13 {
				e.Errorf("%s: before %d: %v has First %d, want 13", name, before, err, got.First)
			}
		}
	}
	e.trim(w.stream, 20)
	for name, store := range e.backwards() {
		_, err := store.ReadBackwardPage(e.ctx, w.stream, 0, 5)
		if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 21 {
			e.Errorf("%s: all trimmed: %v has First %d, want 21", name, err, got.First)
		}
	}
}

func parallelBatches(e *env) {
	const writers, size = 10, 10
	batches := max(2, rounds(50)) / 2 * 2
	e.alternate(writers, batches, size)
	for i := range writers {
		s := e.stream(fmt.Sprint(i))
		want := eventstore.Seqno(batches * size)
		if got := seqnos(e.read(s, 0)); !slices.Equal(got, span(1, want)) {
			e.Errorf("%s: forward %v, want 1 to %d", s, got, want)
		}
		back := e.backwardPages(e.store, s, 0, 33)
		slices.Reverse(back)
		if !slices.Equal(seqnos(back), span(1, want)) {
			e.Errorf("%s: backward %v, want %d to 1", s, seqnos(back), want)
		}
	}
}

// alternate lets writers fill a stream each with batches of size events, all at once.
func (e *env) alternate(writers, batches, size int) {
	together(writers, func(i int) {
		w := &writer{e: e, stream: e.stream(fmt.Sprint(i)), holder: eventstore.NewUUID(), epoch: 1}
		for range batches {
			done, err := e.append(appendOf(w.batch(events(size)...)))
			if err != nil {
				e.Errorf("Append = %v, want nil", err)
				return
			}
			w.wrote(done.Receipts[0])
		}
	})
}

func readersSeePrefix(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	s := e.stream("0")
	var acked atomic.Uint64
	const readers = 3
	together(1+readers, func(i int) {
		if i == 0 {
			defer cancel()
			w := &writer{e: e, stream: s, holder: eventstore.NewUUID(), epoch: 1}
			for range rounds(50) {
				done, err := e.append(appendOf(w.batch(events(3)...)))
				if err != nil {
					e.Errorf("Append = %v, want nil", err)
					return
				}
				w.wrote(done.Receipts[0])
				acked.Store(uint64(w.last.Seqno))
			}
			return
		}
		seen := 0
		for ctx.Err() == nil {
			least := int(acked.Load())
			all, err := readAll(e.ctx, e.store, s, 0)
			yield()
			n := len(all)
			if err != nil || n < least || n < seen || n%3 != 0 || !slices.Equal(seqnos(all), span(1, eventstore.Seqno(n))) {
				e.Errorf("read %v, %v while %d were acked and %d seen before", seqnos(all), err, least, seen)
				return
			}
			seen = n
		}
	})
}
