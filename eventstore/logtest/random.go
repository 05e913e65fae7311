// Random: random histories on a log, on the model and on a second log side by side.

package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"pgregory.net/rapid"
)

// Random runs random histories of appends, fences, trims, holds, snapshots, loads
// and reads on a log, on the model, and on a second log if there is an oracle, one
// step after the other, and demands the same answers of all: receipts, kinds of
// errors with their facts, pages. After every history the invariants are checked.
//
// A failure is shrunk, and its seed printed. The flags -rapid.checks and
// -rapid.steps set the number of histories and of steps in each (100 and about 30).
func Random(t *testing.T, h Harness, oracle func(testing.TB) eventstore.Log) {
	logs := []eventstore.Log{h.Open(t)}
	if oracle != nil {
		logs = append(logs, likewise(logs[0], oracle(t)))
	}
	histories := 1
	if soak() {
		histories = 10
	}
	for range histories {
		rapid.Check(t, func(t *rapid.T) { runHistory(t, logs) })
	}
}

// side is one of the logs that run beside the model.
type side struct {
	name    string
	log     eventstore.Log
	store   *eventstore.Store
	history *History
	at      map[*modelEntry]eventstore.Position
}

// machine runs one history. Its methods that have the signature of an action are
// the steps, see [rapid.T.Repeat].
type machine struct {
	ctx        context.Context
	model      model
	sides      []*side
	categories []eventstore.Category // the first trims freely
	streams    []eventstore.Stream
	holders    []eventstore.UUID
	sent       []eventstore.Append // whatever became of them
	ids        int                 // how many were given out
	steps      int                 // how many were taken
}

func runHistory(t *rapid.T, logs []eventstore.Log) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	m := &machine{ctx: ctx, model: model{categories: map[eventstore.Category]*modelCategory{}},
		holders: []eventstore.UUID{eventstore.NewUUID(), eventstore.NewUUID()}}
	for i, log := range logs {
		m.sides = append(m.sides, &side{name: []string{"the log", "the oracle"}[i], log: log, store: eventstore.New(log, nil), history: NewHistory(), at: map[*modelEntry]eventstore.Position{}})
	}
	for _, name := range []string{"free", "strict"} {
		c := freshCategory(name)
		m.categories = append(m.categories, c)
		m.streams = append(m.streams, streamIn(c, "x"), streamIn(c, "y"))
		m.create(t, eventstore.CategorySpec{Name: c, TrimFreely: name == "free"})
	}
	steps := map[string]func(*rapid.T){
		"": m.checkHead, "append": m.append, "append more": m.append, "append several": m.appendSeveral, "resend": m.resend,
		"fence": m.fence, "trim": m.trim, "hold": m.hold, "release": m.release, "snapshot": m.snapshot, "load": m.load,
		"read": m.read, "read backward": m.readBackward, "category": m.recreate,
	}
	if m.inFeed() {
		steps["feed"] = m.feed
	}
	t.Repeat(steps)
	for range m.streams {
		m.checkHead(t)
	}
	for _, s := range m.sides {
		Check(t, s.store, s.history)
		if err := errors.Join(s.store.DeleteCategory(ctx, m.categories[0]), s.store.DeleteCategory(ctx, m.categories[1])); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
}

func (m *machine) inFeed() bool { return inFeed(m.sides[0].log) }

// same demands that every side answers as the model does.
func (m *machine) same(t *rapid.T, op, want string, answer func(*side) string) {
	t.Helper()
	for _, s := range m.sides {
		if got := answer(s); got != want {
			t.Fatalf("%s on %s =\n%s\nwant\n%s", op, s.name, got, want)
		}
	}
}

// told describes an error by its kind and stream, and holds its other facts
// against the model.
func (m *machine) told(t *rapid.T, err error) string {
	t.Helper()
	if err == nil {
		return "nil"
	}
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok {
		t.Fatalf("error = %T %v, want an *eventstore.Error", err, err)
	}
	st := m.model.stream(e.Stream)
	switch {
	case e.Head != nil && *e.Head != st.head:
		t.Fatalf("%v has head %+v, want %+v", err, *e.Head, st.head)
	case e.Kind == eventstore.ErrTrimmed && e.Stream != "" && e.First != st.head.Trimmed+1:
		t.Fatalf("%v has First %d, want %d", err, e.First, st.head.Trimmed+1)
	case e.Unprovable != (e.Kind == eventstore.ErrUnknown):
		t.Fatalf("%v has Unprovable %t", err, e.Unprovable)
	}
	return fmt.Sprintf("%v of %q", e.Kind, e.Stream)
}

// refusalOf describes what the model says, as told does.
func refusalOf(kind error, s eventstore.Stream) string {
	if kind == nil {
		return "nil"
	}
	return fmt.Sprintf("%v of %q", kind, s)
}

func (m *machine) create(t *rapid.T, spec eventstore.CategorySpec) {
	kind := m.model.create(spec)
	m.same(t, fmt.Sprintf("CreateCategory(%+v)", spec), refusalOf(kind, ""), func(s *side) string {
		return m.told(t, s.store.CreateCategory(m.ctx, spec))
	})
}

// recreate deletes a category, and creates it anew, or tries another spec.
func (m *machine) recreate(t *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(t, "category")
	c := m.categories[i]
	if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
		kind := m.model.delete(c)
		m.same(t, "DeleteCategory", refusalOf(kind, ""), func(s *side) string {
			s.history.Forget(c)
			return m.told(t, s.store.DeleteCategory(m.ctx, c))
		})
		if rapid.Bool().Draw(t, "unknown for a moment") {
			m.append(t)
			m.fence(t)
			m.trim(t)
			m.load(t)
		}
	}
	m.create(t, eventstore.CategorySpec{Name: c, TrimFreely: i == 0})
	if rapid.Bool().Draw(t, "other spec") {
		m.create(t, eventstore.CategorySpec{Name: c, TrimFreely: i != 0})
	}
}

// checkHead compares the head of one stream, of each in turn.
func (m *machine) checkHead(t *rapid.T) {
	m.steps++
	stream := m.streams[m.steps%len(m.streams)]
	h := m.model.stream(stream).head
	m.same(t, "Head of "+string(stream), fmt.Sprintf("%+v", h), func(s *side) string {
		h, err := s.store.Head(m.ctx, stream)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%+v", h)
	})
}

func (m *machine) fence(t *rapid.T) {
	stream, holder := draw(t, "stream", m.streams), draw(t, "holder", m.holders)
	at := eventstore.Epoch(0)
	if st := m.model.stream(stream); st != nil && rapid.Bool().Draw(t, "at an epoch") {
		at = max(2, st.head.Epoch+eventstore.Epoch(rapid.IntRange(0, 3).Draw(t, "above"))) - 1
	}
	h, kind := m.model.fence(stream, holder, at)
	m.same(t, fmt.Sprintf("Fence(%s, %v, %d)", stream, holder, at), fmt.Sprintf("%s %+v", refusalOf(kind, stream), h), func(s *side) string {
		h, err := s.history.Fence(m.ctx, s.store, stream, holder, at)
		return fmt.Sprintf("%s %+v", m.told(t, err), h)
	})
}

func (m *machine) trim(t *rapid.T) {
	stream := draw(t, "stream", m.streams)
	st := m.model.stream(stream)
	through, dry := eventstore.Seqno(5), rapid.Bool().Draw(t, "dry")
	if st != nil {
		through = eventstore.Seqno(rapid.IntRange(0, int(st.head.Last.Seqno)+1).Draw(t, "through"))
	}
	to, stopped, kind := m.model.trim(stream, through, dry)
	beyond := st != nil && through > st.head.Last.Seqno // whether the head is named is not said
	want := fmt.Sprintf("%s %d, stopped %t", refusalOf(kind, stream), to, stopped || beyond)
	m.same(t, fmt.Sprintf("Trim(%s, %d, %t)", stream, through, dry), want, func(s *side) string {
		r, err := s.store.Trim(m.ctx, stream, through, dry)
		return fmt.Sprintf("%s %d, stopped %t", m.told(t, err), r.Trimmed, r.StoppedBy != "" || beyond)
	})
}

// hold holds a stream at a seqno, or a category at a place of the order.
func (m *machine) hold(t *rapid.T) {
	h := eventstore.Hold{Name: draw(t, "name", []string{"archive", "projector"}), Category: draw(t, "category", m.categories)}
	place := 0
	if !m.inFeed() || rapid.Bool().Draw(t, "on a stream") {
		h.Stream = draw(t, "stream", m.streams)
		h.Category = h.Stream.Category()
		h.Seqno = eventstore.Seqno(rapid.IntRange(0, int(m.model.stream(h.Stream).head.Last.Seqno)+1).Draw(t, "seqno"))
		place = int(h.Seqno)
	} else {
		place = rapid.IntRange(0, len(m.model.order)).Draw(t, "place")
	}
	kind := m.model.hold(h.Name, h.Category, h.Stream, place)
	m.same(t, fmt.Sprintf("SetHold(%+v, place %d)", h, place), refusalOf(kind, h.Stream), func(s *side) string {
		h := h
		if h.Stream == "" && place > 0 {
			h.Position = s.at[m.model.order[place-1]] + 1
		}
		return m.told(t, s.store.SetHold(m.ctx, h))
	})
}

func (m *machine) release(t *rapid.T) {
	name, c := draw(t, "name", []string{"archive", "projector"}), draw(t, "category", m.categories)
	stream := draw(t, "stream", append([]eventstore.Stream{""}, m.streams...))
	if stream != "" {
		c = stream.Category()
	}
	delete(m.model.categories[c].holds, modelHold{name, stream})
	m.same(t, "ReleaseHold", "nil", func(s *side) string { return m.told(t, s.store.ReleaseHold(m.ctx, name, c, stream)) })
}

// snapshot keeps a snapshot, at an entry of this history or of another.
func (m *machine) snapshot(t *rapid.T) {
	stream := draw(t, "stream", m.streams)
	st := m.model.stream(stream)
	at := eventstore.Mark{Seqno: eventstore.Seqno(rapid.IntRange(1, len(st.entries)+1).Draw(t, "at")), ID: m.newID()}
	if int(at.Seqno) <= len(st.entries) && rapid.IntRange(0, 4).Draw(t, "another history") > 0 {
		at.ID = st.entries[at.Seqno-1].event.ID
	}
	sn := eventstore.Snapshot{Stream: stream, At: at, Fingerprint: draw(t, "fingerprint", []string{"v1", "v2"}), Data: []byte(at.String())}
	kind := m.model.saveSnapshot(sn)
	m.same(t, fmt.Sprintf("SaveSnapshot(%s at %v)", stream, at), refusalOf(kind, stream), func(s *side) string {
		return m.told(t, s.store.SaveSnapshot(m.ctx, sn))
	})
}

func (m *machine) load(t *rapid.T) {
	stream, fingerprint, limit := draw(t, "stream", m.streams), draw(t, "fingerprint", []string{"", "v1", "v2"}), rapid.IntRange(1, 12).Draw(t, "limit")
	sn, kind := m.model.load(stream, fingerprint)
	want := refusalOf(kind, stream)
	if kind == nil {
		st := m.model.stream(stream)
		want += fmt.Sprintf(" %+v, snapshot at %v, %s", st.head, sn.At, describePage(st.page(sn.At.Seqno, limit)))
	}
	m.same(t, fmt.Sprintf("Load(%s, %q, %d)", stream, fingerprint, limit), want, func(s *side) string {
		l, err := s.log.(eventstore.Snapshots).Load(m.ctx, stream, fingerprint, limit)
		if err != nil {
			return m.told(t, err)
		}
		at := eventstore.Mark{}
		if l.Snapshot != nil {
			at = l.Snapshot.At
			if string(l.Snapshot.Data) != at.String() {
				t.Fatalf("%s: the snapshot at %v is %q", s.name, at, l.Snapshot.Data)
			}
		}
		return fmt.Sprintf("nil %+v, snapshot at %v, %s", l.Head, at, describePage(ids(l.Entries), l.End))
	})
}

// page is what a page of a stream holds, and whether it ends at the head.
func (st *modelStream) page(after eventstore.Seqno, limit int) ([]eventstore.UUID, bool) {
	var page []eventstore.UUID
	for _, e := range st.entries[min(int(after), len(st.entries)):] {
		if len(page) == limit {
			return page, false
		}
		page = append(page, e.event.ID)
	}
	return page, true
}

func describePage(ids []eventstore.UUID, end bool) string { return fmt.Sprintf("%v End %t", ids, end) }

func (m *machine) read(t *rapid.T) {
	stream, limit := draw(t, "stream", m.streams), rapid.IntRange(1, 12).Draw(t, "limit")
	st := m.model.stream(stream)
	after := eventstore.Seqno(rapid.IntRange(0, len(st.entries)+2).Draw(t, "after"))
	want := describePage(st.page(after, limit))
	if after < st.head.Trimmed {
		want = refusalOf(eventstore.ErrTrimmed, stream)
	}
	m.same(t, fmt.Sprintf("ReadFrom(%s, %d, %d)", stream, after, limit), want, func(s *side) string {
		p, err := s.store.ReadFrom(m.ctx, stream, after, limit)
		if err != nil {
			return m.told(t, err)
		}
		return describePage(ids(p.Entries), p.End)
	})
}

func (m *machine) readBackward(t *rapid.T) {
	stream, limit := draw(t, "stream", m.streams), rapid.IntRange(1, 12).Draw(t, "limit")
	st := m.model.stream(stream)
	before := eventstore.Seqno(rapid.IntRange(0, len(st.entries)+2).Draw(t, "before"))
	end := int(before) - 1
	if before == 0 || end > len(st.entries) {
		end = len(st.entries)
	}
	all := st.entries[min(int(st.head.Trimmed), end):end]
	var page []eventstore.UUID
	for _, e := range slices.Backward(all) {
		if len(page) < limit {
			page = append(page, e.event.ID)
		}
	}
	want := describePage(page, len(page) == len(all))
	if len(all) == 0 && st.head.Trimmed > 0 {
		want = refusalOf(eventstore.ErrTrimmed, stream)
	}
	for _, plain := range []bool{true, false} {
		m.same(t, fmt.Sprintf("ReadBackwardPage(%s, %d, %d), fallback %t", stream, before, limit, plain), want, func(s *side) string {
			store := s.store
			if plain {
				store = eventstore.New(plainLog{s.log}, nil)
			}
			p, err := store.ReadBackwardPage(m.ctx, stream, before, limit)
			if err != nil {
				return m.told(t, err)
			}
			return describePage(ids(p.Entries), p.End)
		})
	}
}

// draw takes one of a list.
func draw[T any](t *rapid.T, what string, from []T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, what)]
}
