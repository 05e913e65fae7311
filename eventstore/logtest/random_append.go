// Random: the steps that append, and the one that follows the feed.

package logtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"pgregory.net/rapid"
)

// newID gives out an ID that is the same when the history is run again.
func (m *machine) newID() eventstore.UUID {
	m.ids++
	return eventstore.NameUUID(fmt.Sprint(m.categories, m.ids))
}

func (m *machine) append(t *rapid.T) {
	m.send(t, eventstore.Append{Batches: []eventstore.Batch{m.batch(t, draw(t, "stream", m.streams))}})
}

// appendSeveral appends to several streams, with guards on others.
func (m *machine) appendSeveral(t *rapid.T) {
	var a eventstore.Append
	for _, s := range rapid.Permutation(m.streams).Draw(t, "streams") {
		switch st := m.model.stream(s); rapid.IntRange(0, 3).Draw(t, "part") {
		case 0, 1:
			a.Batches = append(a.Batches, m.batch(t, s))
		case 2:
			a.Guards = append(a.Guards, eventstore.Guard{Stream: s, At: m.mark(t, st)})
		}
	}
	if len(a.Batches) > 0 {
		m.send(t, a)
	}
}

// resend sends an append again: as it was, from another span, or with other
// content under the same IDs. What was trimmed is sent as it was written: whether
// the rest then proves another content depends on what is compared.
func (m *machine) resend(t *rapid.T) {
	if len(m.sent) == 0 {
		t.Skip("nothing was sent")
	}
	a := draw(t, "append", m.sent)
	a.Batches = slices.Clone(a.Batches)
	how := rapid.IntRange(0, 4).Draw(t, "how")
	for i := range a.Batches {
		a.Batches[i] = whole(a.Batches[i])
		b := &a.Batches[i]
		if st := m.model.stream(b.Stream); st != nil && st.head.Trimmed > b.After.Seqno {
			if was := st.standing(b); was != nil {
				*b = whole(*was)
			}
			continue
		}
		switch {
		case how == 1:
			b.Events[0].Metadata = eventstore.Metadata{eventstore.MetaTraceparent: fmt.Sprint("another span ", m.newID())}
		case how >= 2 && i == 0:
			m.alter(t, b)
		}
	}
	m.send(t, a)
}

// alter changes the content of a batch.
func (m *machine) alter(t *rapid.T, b *eventstore.Batch) {
	switch rapid.IntRange(0, 4).Draw(t, "alter") {
	case 0:
		b.Events[0].Data = []byte("other")
	case 1:
		b.Events[0].ID = m.newID()
	case 2:
		b.Events = append(b.Events, m.event(t))
	case 3:
		b.Events = b.Events[:max(1, len(b.Events)-1)]
	case 4:
		slices.Reverse(b.Events)
	}
}

// batch is one that goes through most of the time, and else breaks the rules of
// epochs or of marks.
func (m *machine) batch(t *rapid.T, s eventstore.Stream) eventstore.Batch {
	b := eventstore.Batch{ID: m.newID(), Stream: s}
	st := m.model.stream(s)
	if st == nil {
		st = &modelStream{}
	}
	b.Epoch, b.Holder = max(1, st.head.Epoch), st.head.Holder
	if b.Claim = st.head.Epoch == 0; b.Claim || b.Holder.IsZero() {
		b.Holder = draw(t, "holder", m.holders)
	}
	switch rapid.IntRange(0, 9).Draw(t, "epoch") {
	case 0: // a claim at the stream's epoch or below
		b.Claim, b.Epoch = true, max(1, st.head.Epoch-eventstore.Epoch(rapid.IntRange(0, min(1, int(st.head.Epoch))).Draw(t, "below")))
	case 1: // the other holder, or the same
		b.Holder = draw(t, "holder", m.holders)
	case 2: // an epoch that was not granted
		b.Epoch++
	case 3, 4, 5: // a claim
		b.Claim, b.Holder, b.Epoch = true, draw(t, "holder", m.holders), st.head.Epoch+1+eventstore.Epoch(rapid.IntRange(0, 1).Draw(t, "skipped"))
	}
	b.After = st.head.Last
	if rapid.IntRange(0, 3).Draw(t, "elsewhere") == 0 {
		b.After = m.mark(t, st)
	} else if !b.Claim && b.After.Seqno > 0 && rapid.IntRange(0, 3).Draw(t, "pipelined") == 0 {
		b.After.ID = eventstore.UUID{}
	}
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		b.Events = append(b.Events, m.event(t))
	}
	return whole(b)
}

func (m *machine) event(t *rapid.T) eventstore.Event {
	return eventstore.Event{ID: m.newID(), Type: draw(t, "type", []string{"a", "b"}), Version: 1, ContentType: "text/plain", Data: []byte{}}
}

// mark is that of some entry, or of none.
func (m *machine) mark(t *rapid.T, st *modelStream) eventstore.Mark {
	if st == nil {
		return eventstore.Mark{}
	}
	at := eventstore.Mark{Seqno: eventstore.Seqno(rapid.IntRange(0, len(st.entries)+2).Draw(t, "at"))}
	switch known := at.Seqno > 0 && int(at.Seqno) <= len(st.entries); rapid.IntRange(0, 3).Draw(t, "ID") {
	case 0: // none
	case 1:
		if at.Seqno > 0 {
			at.ID = m.newID()
		}
	default:
		if known {
			at.ID = st.entries[at.Seqno-1].event.ID
		}
	}
	return at
}

// send sends an append to the model and to all sides.
func (m *machine) send(t *rapid.T, a eventstore.Append) {
	m.sent = append(m.sent, a)
	place := len(m.model.order)
	receipts, refused := m.model.append(a)
	want := fmt.Sprintf("%s %+v", refusalOf(refused.kind, refused.stream), receipts)
	m.same(t, fmt.Sprintf("Append(%s guards %v)", describe(a.Batches), a.Guards), want, func(s *side) string {
		done, err := s.history.Append(m.ctx, s.store, a)
		return fmt.Sprintf("%s %+v", m.told(t, err), done.Receipts)
	})
	if len(m.model.order) > place {
		for _, s := range m.sides {
			s.locate(t, m, a)
		}
	}
}

// locate notes the positions of what was just written.
func (s *side) locate(t *rapid.T, m *machine, a eventstore.Append) {
	for _, b := range a.Batches {
		entries, err := readAll(m.ctx, s.store, b.Stream, b.After.Seqno)
		if err != nil || len(entries) != len(b.Events) {
			t.Fatalf("%s: reading back %s after %d: %d entries, %v, want %d", s.name, b.Stream, b.After.Seqno, len(entries), err, len(b.Events))
		}
		for _, e := range entries {
			s.at[m.model.stream(b.Stream).entries[e.Seqno-1]] = e.Position
		}
	}
}

// feed reads one page of the feed from some place, and holds it against the
// entries that are there. How many of them a log looks at is its own affair, as
// long as it gets on and says how far it got.
func (m *machine) feed(t *rapid.T) {
	f := eventstore.Filter{AcceptTrimmed: rapid.Bool().Draw(t, "accept trimmed")}
	f.Categories = [][]eventstore.Category{m.categories, m.categories[:1], m.categories[1:]}[rapid.IntRange(0, 2).Draw(t, "categories")]
	f.Types = [][]string{nil, {"a"}, {"a", "b"}, {"c"}}[rapid.IntRange(0, 3).Draw(t, "types")]
	if rapid.IntRange(0, 2).Draw(t, "slots") == 0 {
		f.Slots = []eventstore.Slot{m.streams[0].Slot()}
	}
	from, limit := rapid.IntRange(0, len(m.model.order)).Draw(t, "from"), rapid.IntRange(1, 8).Draw(t, "limit")
	trimmed := false
	for _, c := range f.Categories {
		trimmed = trimmed || from < m.model.trimmedTo(c) && !f.AcceptTrimmed
	}
	for _, s := range m.sides {
		after := eventstore.Position(0)
		if from > 0 {
			after = s.at[m.model.order[from-1]]
		}
		p, err := s.page(m, after, f, limit)
		if trimmed {
			wantKind(t, err, eventstore.ErrTrimmed)
			continue
		}
		if err != nil {
			t.Fatalf("%s: ReadFeed(%d, %+v, %d) = %v, want nil", s.name, after, f, limit, err)
		}
		m.checkPage(t, s, m.behind(s, after, f.Categories), f, limit, p)
	}
}

// page reads a page of the feed once the horizon has passed all that was acked.
func (s *side) page(m *machine, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	for {
		p, err := s.store.ReadFeed(m.ctx, after, f, limit)
		if err != nil || p.Horizon >= s.history.Token().Position {
			return p, err
		}
		time.Sleep(pollInterval)
	}
}

// behind returns the entries behind a position in the order that a side gave them.
// Within one append that order is the side's own.
func (m *machine) behind(s *side, after eventstore.Position, categories []eventstore.Category) []*modelEntry {
	all := slices.DeleteFunc(m.model.feed(0, categories), func(e *modelEntry) bool { return s.at[e] <= after })
	slices.SortFunc(all, func(a, b *modelEntry) int { return int(int64(s.at[a]) - int64(s.at[b])) })
	return all
}

func (m *machine) checkPage(t *rapid.T, s *side, candidates []*modelEntry, f eventstore.Filter, limit int, p eventstore.FeedPage) {
	t.Helper()
	passed := 0
	for passed < len(candidates) && s.at[candidates[passed]] <= p.Through.Position {
		passed++
	}
	var want []eventstore.UUID
	for _, e := range candidates[:passed] {
		if (len(f.Types) == 0 || slices.Contains(f.Types, e.event.Type)) && (len(f.Slots) == 0 || slices.Contains(f.Slots, e.stream.Slot())) {
			want = append(want, e.event.ID)
		}
	}
	real := p.Through == eventstore.PositionMark{}
	for e, at := range s.at {
		real = real || at == p.Through.Position && e.event.ID == p.Through.ID && slices.Contains(f.Categories, e.stream.Category())
	}
	switch {
	case !slices.Equal(ids(p.Entries), want):
		t.Fatalf("%s: page through %v holds %v, want %v", s.name, p.Through, ids(p.Entries), want)
	case passed > limit || passed == 0 && p.Through.Position == 0 && len(candidates) > 0:
		t.Fatalf("%s: page of %d got past %d of %d entries, to %v", s.name, limit, passed, len(candidates), p.Through)
	case p.End != (passed == len(candidates)):
		t.Fatalf("%s: page past %d of %d entries has End %t", s.name, passed, len(candidates), p.End)
	case !real || p.Horizon < p.Through.Position:
		t.Fatalf("%s: page through %v under horizon %d, want the mark of an entry", s.name, p.Through, p.Horizon)
	}
}
