// Cases: trimming, and the holds and snapshots that keep it back.

package logtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

var trimCases = []testCase{
	{name: "trim", rule: "a trim removes entries through a seqno, keeps the rest, and only ever goes forward", run: trimForward},
	{name: "dry", rule: "a dry trim tells what would be removed and changes nothing", run: trimDry},
	{name: "all trimmed", rule: "after everything was trimmed the next seqno follows, none is reused, and marks of the last entry still hold", run: trimAll},
	{name: "list of trimmed", rule: "every stream of which no entry is left is listed once, whatever the pages, and no other one", run: listTrimmed},
	{name: "behind snapshots", rule: "where snapshots are demanded a trim never passes the last durable one, and says so", run: trimBehindSnapshots},
	{name: "hold on a stream", rule: "a trim never passes a hold: the marked entry and all behind it stay, and the hold is named", run: trimHold},
	{name: "hold on a category", rule: "a hold at a position covers every stream of its category, and no other category", feed: true, run: trimCategoryHold},
	{name: "lowest of several", rule: "of several holds the lowest counts and is named; released or moved, the next one does", run: trimLowestHold},
	{name: "hold over what is gone", rule: "registering a hold over what was trimmed is refused as trimmed", run: holdOverTrimmed},
	{name: "hold moves", rule: "a hold moves forward, and back as far as everything is still there", run: holdMoves},
	{name: "list of holds", rule: "holds are listed by name, category and stream, as they were set; releasing one that is not there is nil", feed: true, run: listHolds},
	{name: "hold ahead", rule: "a hold above the head, or on a stream that does not exist, holds what comes", run: holdAhead},
	{name: "racing", rule: "registering a hold and trimming exclude each other: the hold stands and everything from its mark on is there, or it was refused (I14)", run: holdRacingTrim},
	{name: "trim racing readers", rule: "a reader that a trim overtakes is told, and never reads a hole (I9)", run: trimRacingReaders},
}

// wantTrim trims and compares how far it went and what is said to have stopped it.
func (e *env) wantTrim(s eventstore.Stream, through, want eventstore.Seqno, stoppedBy string) {
	e.Helper()
	for _, dry := range []bool{true, false} {
		r, err := e.store.Trim(e.ctx, s, through, dry)
		if err != nil || r.Trimmed != want || !strings.Contains(r.StoppedBy, stoppedBy) || (stoppedBy == "") != (r.StoppedBy == "") {
			e.Errorf("Trim(%q, %d, dry %t) = %+v, %v, want it trimmed through %d, stopped by %q", s, through, dry, r, err, want, stoppedBy)
		}
	}
}

func (e *env) hold(h eventstore.Hold) {
	e.Helper()
	if err := e.store.SetHold(e.ctx, h); err != nil {
		e.Fatalf("SetHold(%+v) = %v, want nil", h, err)
	}
}

func (e *env) release(name string, c eventstore.Category, s eventstore.Stream) {
	e.Helper()
	if err := e.store.ReleaseHold(e.ctx, name, c, s); err != nil {
		e.Fatalf("ReleaseHold(%q, %q, %q) = %v, want nil", name, c, s, err)
	}
}

func trimForward(e *env) {
	w := e.filled(e.stream("a"), 10)
	other := e.filled(e.stream("b"), 10)
	for _, t := range []struct{ through, want eventstore.Seqno }{{0, 0}, {1, 1}, {4, 4}, {2, 4}, {4, 4}, {9, 9}, {0, 9}} {
		r, err := e.store.Trim(e.ctx, w.stream, t.through, false)
		if err != nil || r.Trimmed != t.want || e.head(w.stream).Trimmed != t.want {
			e.Errorf("Trim(%d) = %+v, %v, head %+v, want it trimmed through %d", t.through, r, err, e.head(w.stream), t.want)
		}
		if got := seqnos(e.read(w.stream, t.want)); !slices.Equal(got, span(t.want+1, 10)) {
			e.Errorf("after Trim(%d): %v, want %d to 10", t.through, got, t.want+1)
		}
	}
	if r, err := e.store.Trim(e.ctx, w.stream, eventstore.MaxNumber, false); err != nil || r.Trimmed != 10 {
		e.Errorf("Trim(2^63-1) = %+v, %v, want it trimmed through the head, 10", r, err)
	}
	if got := len(e.read(other.stream, 0)); got != 10 {
		e.Errorf("%d entries in the other stream, want 10", got)
	}
}

func trimDry(e *env) {
	w := e.filled(e.stream("a"), 10)
	before := e.head(w.stream)
	r, err := e.store.Trim(e.ctx, w.stream, 6, true)
	if err != nil || r.Trimmed != 6 || e.head(w.stream) != before || len(e.read(w.stream, 0)) != 10 {
		e.Errorf("dry Trim(6) = %+v, %v, head %+v, want it to tell 6 and change nothing", r, err, e.head(w.stream))
	}
	e.trim(w.stream, 8)
	if r, err := e.store.Trim(e.ctx, w.stream, 6, true); err != nil || r.Trimmed != 8 {
		e.Errorf("dry Trim(6) after Trim(8) = %+v, %v, want 8", r, err)
	}
}

func trimAll(e *env) {
	w := e.filled(e.stream("a"), 5)
	e.trim(w.stream, 5)
	guarded := appendOf(e.writer(e.stream("b")).batch(events(1)...))
	guarded.Guards = []eventstore.Guard{{Stream: w.stream, At: w.last}}
	if _, err := e.append(guarded); err != nil {
		e.Errorf("append guarded by the trimmed last entry = %v, want nil", err)
	}
	wrong := w.batch(events(1)...)
	wrong.After.ID = eventstore.NewUUID()
	e.refusedBatches(eventstore.ErrDiverged, wrong)
	for _, after := range []eventstore.Mark{{}, {Seqno: 4}} {
		b := w.batch(events(2)...)
		b.After = after
		e.refusedBatches(map[eventstore.Seqno]error{0: eventstore.ErrUnknown, 4: eventstore.ErrAlreadyWritten}[after.Seqno], b)
	}
	if r := w.append(2); r.First != 6 {
		e.Errorf("the first append after all was trimmed = %+v, want it at 6", r)
	}
	claim := e.writer(w.stream)
	claim.append(1)
	e.trim(w.stream, 8)
	e.fence(w.stream, eventstore.NewUUID(), 0)
	if r := e.writer(w.stream).append(1); r.First != 9 {
		e.Errorf("the first append after all was trimmed and fenced = %+v, want it at 9", r)
	}
}

func trimBehindSnapshots(e *env) {
	c := e.newCategory("aggregate", false)
	w := e.filled(streamIn(c, "a"), 10)
	e.wantTrim(w.stream, 5, 0, "snapshot")
	e.saveAt(w.stream, e.markAt(w.stream, 4), "state")
	e.wantTrim(w.stream, 3, 3, "")
	e.wantTrim(w.stream, 9, 4, "snapshot")
	e.saveAt(w.stream, w.last, "state")
	e.wantTrim(w.stream, 10, 10, "")
	w.append(2)
	e.wantTrim(w.stream, 12, 10, "snapshot")
}

func trimHold(e *env) {
	w := e.filled(e.stream("a"), 10)
	e.hold(eventstore.Hold{Name: "archive", Stream: w.stream, Seqno: 5})
	e.wantTrim(w.stream, 3, 3, "")
	e.wantTrim(w.stream, 4, 4, "")
	e.wantTrim(w.stream, 9, 4, `"archive"`)
	other := e.filled(e.stream("b"), 3)
	e.wantTrim(other.stream, 2, 2, "")
	e.release("archive", "", w.stream)
	e.wantTrim(w.stream, 9, 9, "")
	zero := e.filled(e.stream("c"), 3)
	e.hold(eventstore.Hold{Name: "all", Stream: zero.stream})
	e.wantTrim(zero.stream, 2, 0, `"all"`)
}

func trimCategoryHold(e *env) {
	x, y := e.filled(e.stream("x"), 4), e.filled(e.stream("y"), 4)
	x.append(4)
	y.append(4)
	late := e.filled(e.stream("late"), 3)
	other := e.filled(streamIn(e.newCategory("other", true), "a"), 5)
	e.hold(eventstore.Hold{Name: "projector", Category: e.category, Position: e.read(y.stream, 1)[0].Position}) // y/2
	e.wantTrim(x.stream, 8, 4, `"projector"`)
	e.wantTrim(y.stream, 8, 1, `"projector"`)
	e.wantTrim(late.stream, 3, 0, `"projector"`)
	e.wantTrim(other.stream, 4, 4, "")
	e.release("projector", e.category, "")
	e.wantTrim(y.stream, 7, 7, "")
	c := e.newCategory("held", true)
	e.hold(eventstore.Hold{Name: "everything", Category: c})
	held := e.filled(streamIn(c, "a"), 3)
	e.wantTrim(held.stream, 3, 0, `"everything"`)
}

// reaching returns a hold that reaches down to an entry: one on the category, where
// there are positions, else one on the stream.
func (e *env) reaching(name string, at eventstore.Entry) eventstore.Hold {
	if inFeed(e.log) {
		return eventstore.Hold{Name: name, Category: e.category, Position: at.Position}
	}
	return eventstore.Hold{Name: name, Stream: at.Stream, Seqno: at.Seqno}
}

func trimLowestHold(e *env) {
	w := e.filled(e.stream("a"), 20)
	middle := e.reaching("middle", e.read(w.stream, 9)[0])
	e.hold(eventstore.Hold{Name: "low", Stream: w.stream, Seqno: 5})
	e.hold(middle)
	e.hold(eventstore.Hold{Name: "high", Stream: w.stream, Seqno: 15})
	e.wantTrim(w.stream, 20, 4, `"low"`)
	e.hold(eventstore.Hold{Name: "low", Stream: w.stream, Seqno: 12})
	e.wantTrim(w.stream, 20, 9, `"middle"`)
	e.release("middle", middle.Category, middle.Stream)
	e.wantTrim(w.stream, 20, 11, `"low"`)
	e.release("low", "", w.stream)
	e.wantTrim(w.stream, 20, 14, `"high"`)
	e.release("high", "", w.stream)
	e.wantTrim(w.stream, 20, 20, "")
}

func holdOverTrimmed(e *env) {
	w := e.filled(e.stream("a"), 10)
	all := e.read(w.stream, 0)
	e.trim(w.stream, 5)
	for _, at := range []eventstore.Seqno{0, 1, 5} {
		err := e.store.SetHold(e.ctx, eventstore.Hold{Name: "late", Stream: w.stream, Seqno: at})
		if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 6 || got.Stream != w.stream {
			e.Errorf("hold at %d: %v has First %d, want 6 of %s", at, err, got.First, w.stream)
		}
	}
	for _, at := range []eventstore.Position{0, all[4].Position} {
		if !inFeed(e.log) {
			break
		}
		err := e.store.SetHold(e.ctx, eventstore.Hold{Name: "late", Category: e.category, Position: at})
		if got := wantKind(e, err, eventstore.ErrTrimmed); got.FirstPosition != all[4].Position || got.Category != e.category {
			e.Errorf("hold at position %d: %v has FirstPosition %d, want %d", at, err, got.FirstPosition, all[4].Position)
		}
	}
	e.wantTrim(w.stream, 7, 7, "") // the refused holds hold nothing
	e.hold(eventstore.Hold{Name: "late", Stream: w.stream, Seqno: 8})
	e.hold(e.reaching("late too", all[8]))
	e.wantTrim(w.stream, 10, 7, `"late"`)
}

func holdMoves(e *env) {
	w := e.filled(e.stream("a"), 10)
	for _, move := range []struct{ to, trimmed eventstore.Seqno }{{3, 2}, {7, 6}, {9, 8}} {
		e.hold(eventstore.Hold{Name: "reader", Stream: w.stream, Seqno: move.to})
		e.wantTrim(w.stream, 10, move.trimmed, `"reader"`)
	}
	e.hold(eventstore.Hold{Name: "reader", Stream: w.stream, Seqno: 10})
	e.hold(eventstore.Hold{Name: "reader", Stream: w.stream, Seqno: 9}) // all of it is still there
	err := e.store.SetHold(e.ctx, eventstore.Hold{Name: "reader", Stream: w.stream, Seqno: 8})
	wantKind(e, err, eventstore.ErrTrimmed)
	e.wantTrim(w.stream, 10, 8, `"reader"`) // a move that is refused leaves the hold where it was
}

func listHolds(e *env) {
	w := e.filled(e.stream("a"), 3)
	all := e.read(w.stream, 0)
	prefix := string(e.category)
	want := []eventstore.Hold{
		{Name: prefix + " 1", Category: e.category, Position: all[1].Position, ID: all[1].ID},
		{Name: prefix + " 1", Category: e.category, Stream: w.stream, Seqno: 2, ID: all[1].ID},
		{Name: prefix + " 1", Category: e.category, Stream: e.stream("b")},
		{Name: prefix + " 2", Category: e.category, Stream: w.stream, Seqno: 3},
	}
	for _, i := range []int{2, 0, 3, 1} {
		h := want[i]
		if i == 1 {
			h.Category = "" // the stream's
		}
		e.hold(h)
	}
	e.release("no such hold", e.category, "")
	e.release("no such hold", "", w.stream)
	e.release(prefix+" 2", e.category, "") // the one of that name is on a stream
	list := func() []eventstore.Hold {
		holds, err := e.store.ListHolds(e.ctx)
		if err != nil {
			e.Fatalf("ListHolds = %v, want nil", err)
		}
		return slices.DeleteFunc(holds, func(h eventstore.Hold) bool { return h.Category != e.category })
	}
	if got := list(); !slices.Equal(got, want) {
		e.Errorf("ListHolds = %+v, want %+v", got, want)
	}
	e.release(prefix+" 1", "", w.stream)
	if got, want := list(), slices.Delete(want, 1, 2); !slices.Equal(got, want) {
		e.Errorf("ListHolds after a release = %+v, want %+v", got, want)
	}
}

func holdAhead(e *env) {
	s := e.stream("a")
	e.hold(eventstore.Hold{Name: "ahead", Stream: s, Seqno: 3})
	w := e.filled(s, 5)
	e.wantTrim(s, 5, 2, `"ahead"`)
	if !inFeed(e.log) {
		return
	}
	c := e.newCategory("empty", true)
	e.hold(eventstore.Hold{Name: "ahead", Category: c, Position: e.read(w.stream, 4)[0].Position})
	e.wantTrim(e.filled(streamIn(c, "b"), 2).stream, 2, 0, `"ahead"`)
}

func holdRacingTrim(e *env) {
	const entries, holds = 10, 4
	for round := range rounds(20) {
		w := e.filled(e.stream(fmt.Sprint(round)), entries)
		all := e.read(w.stream, 0)
		held := make([]eventstore.Seqno, holds) // what each hold that was registered holds
		together(1+holds, func(i int) {
			if i == holds {
				for n := range eventstore.Seqno(entries) {
					if _, err := e.store.Trim(e.ctx, w.stream, n+1, false); err != nil {
						e.Errorf("Trim = %v, want nil", err)
					}
				}
				return
			}
			h := eventstore.Hold{Name: fmt.Sprint("racing ", round, i), Stream: w.stream, Seqno: eventstore.Seqno(2 + 2*i)}
			if i%2 == 1 {
				h = e.reaching(h.Name, all[h.Seqno-1])
			}
			if wonOr(e, e.store.SetHold(e.ctx, h), eventstore.ErrTrimmed) {
				held[i] = eventstore.Seqno(2 + 2*i)
			}
		})
		trimmed := e.head(w.stream).Trimmed
		for i, at := range held {
			if at > 0 && trimmed >= at {
				e.Errorf("hold %d at %d was registered, and the stream is trimmed through %d", i, at, trimmed)
			}
			h := e.reaching(fmt.Sprint("racing ", round, i), all[0])
			if i%2 == 0 {
				h.Stream = w.stream
			}
			e.release(h.Name, e.category, h.Stream)
		}
	}
}

func trimRacingReaders(e *env) {
	w := e.filled(e.stream("a"), 200)
	together(3, func(i int) {
		for n := range eventstore.Seqno(200) {
			if i == 0 {
				if _, err := e.store.Trim(e.ctx, w.stream, n+1, false); err != nil {
					e.Errorf("Trim(%d) = %v, want nil", n+1, err)
				}
				continue
			}
			p, err := e.store.ReadFrom(e.ctx, w.stream, n, 50)
			if err != nil {
				wonOr(e, err, eventstore.ErrTrimmed)
			} else if got := seqnos(p.Entries); len(got) == 0 && n < 200 || !slices.Equal(got, span(n+1, n+eventstore.Seqno(len(got)))) {
				e.Errorf("read after %d while it is trimmed: %v", n, got)
			}
		}
	})
}

func listTrimmed(e *env) {
	var want, slotted []eventstore.Stream
	slot := e.stream("0").Slot()
	for i := range 9 {
		w := e.filled(e.stream(fmt.Sprint(i)), 3)
		e.trim(w.stream, eventstore.Seqno(i%3)+1) // every third through its last entry
		if i%3 != 2 {
			continue
		}
		if want = append(want, w.stream); len(want) == 2 {
			slot = w.stream.Slot()
		}
	}
	back := e.filled(e.stream("back"), 1)
	e.trim(back.stream, 1)
	back.append(1)
	e.fence(e.stream("fenced"), eventstore.NewUUID(), 0) // without an entry
	elsewhere := e.filled(streamIn(e.newCategory("another", true), "a"), 1)
	e.trim(elsewhere.stream, 1)
	for _, s := range want {
		if s.Slot() == slot {
			slotted = append(slotted, s)
		}
	}
	for _, limit := range []int{1, 2, 5, 11, 100} {
		e.wantTrimmed(nil, limit, want)
		e.wantTrimmed([]eventstore.Slot{slot}, limit, slotted)
	}
}

// wantTrimmed lists the trimmed streams of the category by pages.
func (e *env) wantTrimmed(slots []eventstore.Slot, limit int, want []eventstore.Stream) {
	e.Helper()
	var all []eventstore.Stream
	for next, pages := "", 0; pages < 100; pages++ {
		p, err := e.store.ListTrimmed(e.ctx, e.category, slots, next, limit)
		if err != nil || len(p.Streams) > limit {
			e.Fatalf("ListTrimmed(%v, %q, %d) = %d streams, %v, want at most %d", slots, next, limit, len(p.Streams), err, limit)
		}
		all = append(all, p.Streams...)
		if next = p.Next; next == "" {
			break
		}
	}
	slices.Sort(all)
	if !slices.Equal(all, want) {
		e.Errorf("trimmed streams in slots %v, %d at a time: %q, want %q", slots, limit, all, want)
	}
}
