// model: what a log must answer, written from the promises alone. It keeps
// everything that was ever written, trimmed or not, so where a log has to prove
// something from what is left the model simply knows it.

package logtest

import (
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// model is a log without positions and times: the place of an entry in order
// stands for its position.
type model struct {
	categories map[eventstore.Category]*modelCategory
	order      []*modelEntry // of the whole store, in the order of the appends
}

type modelCategory struct {
	trimFreely bool
	streams    map[eventstore.Stream]*modelStream
	holds      map[modelHold]int // seqno, or place in the order, of the first entry held
}

type modelHold struct {
	name   string
	stream eventstore.Stream // empty: the category
}

type modelStream struct {
	head     eventstore.Head
	entries  []*modelEntry       // all since seqno 1
	snapshot eventstore.Snapshot // zero if there is none
}

type modelEntry struct {
	event  eventstore.Event
	batch  *eventstore.Batch // that it was written with
	stream eventstore.Stream
	seqno  eventstore.Seqno
	place  int // in the order
}

// refusal is the kind of an error and the stream that it is about.
type refusal struct {
	kind   error
	stream eventstore.Stream
}

// rank of the kinds, the highest first.
var rank = []error{eventstore.ErrNoSuchCategory, eventstore.ErrBatchIDReused, eventstore.ErrFenced, eventstore.ErrDiverged,
	eventstore.ErrAlreadyWritten, eventstore.ErrGap, eventstore.ErrUnknown, eventstore.ErrGuard}

func (m *model) create(spec eventstore.CategorySpec) error {
	switch c := m.categories[spec.Name]; {
	case c != nil && c.trimFreely != spec.TrimFreely:
		return eventstore.ErrInvalid
	case c != nil:
		return nil
	}
	m.categories[spec.Name] = &modelCategory{trimFreely: spec.TrimFreely, streams: map[eventstore.Stream]*modelStream{}, holds: map[modelHold]int{}}
	return nil
}

func (m *model) delete(c eventstore.Category) error {
	if m.categories[c] == nil {
		return eventstore.ErrNoSuchCategory
	}
	delete(m.categories, c)
	return nil
}

// stream returns a stream, an empty one if it does not exist, and nil if its
// category does not.
func (m *model) stream(s eventstore.Stream) *modelStream {
	c := m.categories[s.Category()]
	if c == nil {
		return nil
	}
	if st := c.streams[s]; st != nil {
		return st
	}
	return &modelStream{}
}

// append says what becomes of an append and carries it out.
func (m *model) append(a eventstore.Append) ([]eventstore.Receipt, refusal) {
	var refusals []refusal
	var proved []eventstore.Stream
	for _, b := range a.Batches {
		there, kind := m.judge(b)
		switch {
		case there:
			proved = append(proved, b.Stream)
		case kind != nil:
			refusals = append(refusals, refusal{kind, b.Stream})
		}
	}
	all := len(proved) == len(a.Batches)
	for _, g := range a.Guards {
		switch st := m.stream(g.Stream); {
		case all: // it went through when the guards held
		case st == nil:
			refusals = append(refusals, refusal{eventstore.ErrNoSuchCategory, g.Stream})
		case st.head.Last != g.At:
			refusals = append(refusals, refusal{eventstore.ErrGuard, g.Stream})
		}
	}
	for _, kind := range rank {
		if i := slices.IndexFunc(refusals, func(r refusal) bool { return r.kind == kind }); i >= 0 {
			return nil, refusals[i]
		}
	}
	if len(proved) > 0 && !all {
		return nil, refusal{eventstore.ErrBatchIDReused, proved[0]}
	}
	receipts := make([]eventstore.Receipt, len(a.Batches))
	for i, b := range a.Batches {
		if !all {
			m.write(b)
		}
		h := m.stream(b.Stream).head
		last := eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}
		receipts[i] = eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1, Last: last, Replays: all,
			Fenced: h.Epoch != b.Epoch || h.Holder != b.Holder}
	}
	return receipts, refusal{}
}

// judge says if a batch is there already; else kind is why it may not be written.
func (m *model) judge(b eventstore.Batch) (there bool, kind error) {
	st := m.stream(b.Stream)
	if st == nil {
		return false, eventstore.ErrNoSuchCategory
	}
	return st.judge(&b)
}

func (st *modelStream) judge(b *eventstore.Batch) (there bool, kind error) {
	if was := st.standing(b); was != nil {
		switch {
		case st.head.Trimmed > b.After.Seqno: // some of it cannot be compared
			return false, eventstore.ErrUnknown
		case was != b && !sameContent(*was, *b):
			return false, eventstore.ErrBatchIDReused
		}
		return true, nil
	}
	h := st.head
	if b.Last() <= h.Trimmed && (b.Last() < h.Last.Seqno || h.Last.ID == b.Events[len(b.Events)-1].ID) {
		return false, eventstore.ErrUnknown // it could have been there: all of its place was trimmed
	}
	return false, st.rank(b)
}

// standing is the batch that was written where b would stand, under b's ID; nil if
// there is none.
func (st *modelStream) standing(b *eventstore.Batch) *eventstore.Batch {
	if b.After.Seqno >= eventstore.Seqno(len(st.entries)) {
		return nil
	}
	if was := st.entries[b.After.Seqno].batch; was.ID == b.ID && was.After.Seqno == b.After.Seqno {
		return was
	}
	return nil
}

// rank says why a batch that is not there may not be written.
func (st *modelStream) rank(b *eventstore.Batch) error {
	h := st.head
	if mine := b.Epoch == h.Epoch && b.Holder == h.Holder; b.Claim && b.Epoch <= h.Epoch || !b.Claim && !mine {
		return eventstore.ErrFenced
	}
	return st.place(b.After)
}

// place says why an append may not stand behind a mark.
func (st *modelStream) place(after eventstore.Mark) error {
	marked, top := !after.ID.IsZero(), st.head.Last.Seqno
	switch {
	case after.Seqno > top && marked, marked && st.known(after.Seqno) && st.entries[after.Seqno-1].event.ID != after.ID:
		return eventstore.ErrDiverged
	case after.Seqno > top:
		return eventstore.ErrGap
	case after.Seqno < top:
		return eventstore.ErrAlreadyWritten
	}
	return nil
}

// known says if the ID of an entry can still be compared.
func (st *modelStream) known(n eventstore.Seqno) bool {
	return n > 0 && n <= st.head.Last.Seqno && (n > st.head.Trimmed || n == st.head.Last.Seqno)
}

func (m *model) write(b eventstore.Batch) {
	st := m.stream(b.Stream)
	m.categories[b.Stream.Category()].streams[b.Stream] = st
	st.head.Epoch, st.head.Holder = b.Epoch, b.Holder
	for _, e := range b.Events {
		entry := &modelEntry{event: e, batch: &b, stream: b.Stream, seqno: st.head.Last.Seqno + 1, place: len(m.order)}
		st.entries = append(st.entries, entry)
		m.order = append(m.order, entry)
		st.head.Last = eventstore.Mark{Seqno: entry.seqno, ID: e.ID}
	}
}

func (m *model) fence(s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	st := m.stream(s)
	switch {
	case st == nil:
		return eventstore.Head{}, eventstore.ErrNoSuchCategory
	case at == 0:
		at = st.head.Epoch + 1
	case at < st.head.Epoch || at == st.head.Epoch && holder != st.head.Holder:
		return eventstore.Head{}, eventstore.ErrFenced
	}
	st.head.Epoch, st.head.Holder = at, holder
	m.categories[s.Category()].streams[s] = st
	return st.head, nil
}

// trim returns how far a trim goes and whether a hold or a snapshot stops it.
func (m *model) trim(s eventstore.Stream, through eventstore.Seqno, dry bool) (to eventstore.Seqno, stopped bool, err error) {
	st := m.stream(s)
	if st == nil {
		return 0, false, eventstore.ErrNoSuchCategory
	}
	to = min(through, st.head.Last.Seqno)
	floor := func(n eventstore.Seqno) {
		if n < to {
			to, stopped = n, true
		}
	}
	c := m.categories[s.Category()]
	if !c.trimFreely {
		floor(st.snapshot.At.Seqno)
	}
	for h, at := range c.holds {
		for _, e := range st.entries {
			if h.stream == s && int(e.seqno) >= at || h.stream == "" && e.place >= at {
				floor(e.seqno - 1)
			}
		}
	}
	if to = max(to, st.head.Trimmed); !dry {
		st.head.Trimmed = to
	}
	return to, stopped, nil
}

// trimmedTo is the place behind the last entry of a category that was trimmed.
func (m *model) trimmedTo(c eventstore.Category) int {
	to := 0
	for _, st := range m.categories[c].streams {
		if n := st.head.Trimmed; n > 0 {
			to = max(to, st.entries[n-1].place+1)
		}
	}
	return to
}

// hold registers a hold at a seqno of a stream or at a place of the order.
func (m *model) hold(name string, c eventstore.Category, s eventstore.Stream, at int) error {
	switch {
	case m.categories[c] == nil:
		return eventstore.ErrNoSuchCategory
	case s != "" && m.stream(s).head.Trimmed > 0 && at <= int(m.stream(s).head.Trimmed):
		return eventstore.ErrTrimmed
	case s == "" && at < m.trimmedTo(c):
		return eventstore.ErrTrimmed
	}
	m.categories[c].holds[modelHold{name, s}] = at
	return nil
}

func (m *model) saveSnapshot(sn eventstore.Snapshot) error {
	st := m.stream(sn.Stream)
	switch {
	case st == nil:
		return eventstore.ErrNoSuchCategory
	case sn.At.Seqno > st.head.Last.Seqno, st.known(sn.At.Seqno) && st.entries[sn.At.Seqno-1].event.ID != sn.At.ID:
		return eventstore.ErrDiverged
	case st.snapshot.At.Seqno <= sn.At.Seqno:
		st.snapshot = sn
	}
	return nil
}

// load returns the snapshot to start from, a zero one for none, or ErrTrimmed.
func (m *model) load(s eventstore.Stream, fingerprint string) (sn eventstore.Snapshot, err error) {
	st := m.stream(s)
	if st == nil {
		return sn, eventstore.ErrNoSuchCategory
	}
	sn = st.snapshot
	if sn.Fingerprint != fingerprint {
		sn = eventstore.Snapshot{}
	}
	if sn.At.Seqno < st.head.Trimmed {
		return sn, eventstore.ErrTrimmed
	}
	return sn, nil
}

// feed returns the entries of categories from a place on that are still there.
func (m *model) feed(from int, categories []eventstore.Category) (all []*modelEntry) {
	for _, e := range m.order[from:] {
		c := m.categories[e.stream.Category()]
		if c == nil || !slices.Contains(categories, e.stream.Category()) {
			continue
		}
		if st := c.streams[e.stream]; st != nil && e.seqno > st.head.Trimmed && e.seqno <= st.head.Last.Seqno && st.entries[e.seqno-1] == e {
			all = append(all, e)
		}
	}
	return all
}
