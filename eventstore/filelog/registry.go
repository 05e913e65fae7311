// The registry: what is known of a store without reading its entries. Records are
// decided on it and applied to it, when they are written and when they are replayed.

package filelog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

type registry struct {
	position   uint64 // of the last record applied, all its positions included
	categories map[eventstore.Category]*category
	numbers    map[uint32]*category
	streams    map[eventstore.Stream]*stream
	ordinals   []*stream // by ordinal; nil: none, or it was dropped
	lastNumber uint32    // of a category
	holds      map[holdKey]eventstore.Hold
	leases     map[string]eventstore.Lease
	snapshots  map[uint64]bool // positions of those that are kept
}

type category struct {
	number    uint32
	spec      eventstore.CategorySpec
	trimmedTo eventstore.Position
}

func (c *category) dedicated() bool { return c.spec.Layout == eventstore.Dedicated }

// stream is some 110 bytes, its name, and its places in a map and a slice: about 220
// bytes in all.
type stream struct {
	name     eventstore.Stream
	category *category
	head     eventstore.Head
	time     int64 // of the last entry, in microseconds since 1970
	snapshot *snapshotRef
	ordinal  uint32
	slot     eventstore.Slot
}

func (st *stream) ref() streamRef { return streamRef{st.ordinal, st.category.number, st.name} }

// snapshotRef is where the kept snapshot of a stream stands.
type snapshotRef struct {
	at       eventstore.Mark
	position uint64
}

type holdKey struct {
	name     string
	category eventstore.Category
	stream   eventstore.Stream
}

func (k holdKey) compare(o holdKey) int {
	return cmp.Or(strings.Compare(k.name, o.name), cmp.Compare(k.category, o.category), cmp.Compare(k.stream, o.stream))
}

func keyOf(h eventstore.Hold) holdKey { return holdKey{h.Name, h.Category, h.Stream} }

func newRegistry() *registry {
	return &registry{categories: map[eventstore.Category]*category{}, numbers: map[uint32]*category{}, streams: map[eventstore.Stream]*stream{},
		ordinals: make([]*stream, 1), holds: map[holdKey]eventstore.Hold{}, leases: map[string]eventstore.Lease{},
		snapshots: map[uint64]bool{}}
}

// category returns a category or ErrNoSuchCategory.
func (r *registry) category(op string, name eventstore.Category, s eventstore.Stream) (*category, error) {
	c := r.categories[name]
	if c == nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrNoSuchCategory, Op: op, Stream: s, Category: name,
			Wanted: "category " + string(name), Found: "none of that name", Hint: "create the category first"}
	}
	return c, nil
}

// find returns category and stream; the stream is nil if it is a shared one that does
// not exist.
func (r *registry) find(op string, s eventstore.Stream) (*category, *stream, error) {
	c, err := r.category(op, s.Category(), s)
	if err != nil {
		return nil, nil, err
	}
	st := r.streams[s]
	if st == nil && c.dedicated() {
		return nil, nil, eventstore.NoSuchStreamError(op, s)
	}
	return c, st, nil
}

// headOf is the zero Head for a stream that does not exist.
func headOf(st *stream) eventstore.Head {
	if st == nil {
		return eventstore.Head{}
	}
	return st.head
}

// at returns the stream of an ordinal, nil if there is none.
func (r *registry) at(ordinal uint32) *stream {
	if int(ordinal) >= len(r.ordinals) {
		return nil
	}
	return r.ordinals[ordinal]
}

// apply carries out what a record says. Its positions are from position on, span of
// them. A record that does not fit is a fault of the files.
func (r *registry) apply(b body, position, span uint64) error {
	if position <= r.position {
		return fmt.Errorf("%w: position %d behind %d", errDamaged, position, r.position)
	}
	if err := r.change(b, position); err != nil {
		return err
	}
	r.position = position + span - 1
	return nil
}

func (r *registry) change(b body, position uint64) error {
	switch b := b.(type) {
	case appendBody:
		return r.appended(b)
	case fenceBody:
		st, err := r.reach(b.streamRef)
		if err != nil {
			return err
		}
		st.head.Epoch, st.head.Holder = b.epoch, b.holder
	case trimBody:
		return r.known(b.streamRef, func(st *stream) {
			st.head.Trimmed = b.through
			st.category.trimmedTo = max(st.category.trimmedTo, b.position)
		})
	case snapshotBody:
		return r.known(b.streamRef, func(st *stream) { r.keepSnapshot(st, &snapshotRef{b.snapshot.At, position}) })
	case createCategoryBody:
		return r.createCategory(b)
	case deleteCategoryBody:
		return r.deleteCategory(b.number)
	case createStreamsBody:
		for _, ref := range b.streams {
			if _, err := r.reach(ref); err != nil {
				return err
			}
		}
	case dropStreamBody:
		return r.known(b.streamRef, r.drop)
	case setHoldBody:
		r.holds[keyOf(b.hold)] = b.hold
	case releaseHoldBody:
		delete(r.holds, b.holdKey)
	case leaseBody:
		for _, l := range b.leases {
			r.leases[l.Name] = l
		}
	}
	return nil
}

// reach returns a stream, which is created if its ordinal is new.
func (r *registry) reach(ref streamRef) (*stream, error) {
	if st := r.at(ref.ordinal); st != nil {
		if st.name != ref.name {
			return nil, fmt.Errorf("%w: stream %d is %q and %q", errDamaged, ref.ordinal, st.name, ref.name)
		}
		return st, nil
	}
	c := r.numbers[ref.category]
	if c == nil || c.spec.Name != ref.name.Category() || r.streams[ref.name] != nil || int(ref.ordinal) < len(r.ordinals) {
		return nil, fmt.Errorf("%w: stream %d, %q in category %d, cannot be created", errDamaged, ref.ordinal, ref.name, ref.category)
	}
	st := &stream{name: ref.name, category: c, ordinal: ref.ordinal, slot: ref.name.Slot()}
	r.put(st)
	return st, nil
}

// put enters a stream. Ordinals that are left out stay empty.
func (r *registry) put(st *stream) {
	for uint64(len(r.ordinals)) <= uint64(st.ordinal) {
		r.ordinals = append(r.ordinals, nil)
	}
	r.ordinals[st.ordinal] = st
	r.streams[st.name] = st
}

// known calls f with a stream that must be there.
func (r *registry) known(ref streamRef, f func(*stream)) error {
	st := r.at(ref.ordinal)
	if st == nil || st.name != ref.name {
		return fmt.Errorf("%w: no stream %d, %q", errDamaged, ref.ordinal, ref.name)
	}
	f(st)
	return nil
}

func (r *registry) appended(a appendBody) error {
	for i := range a.batches {
		b := &a.batches[i]
		st, err := r.reach(b.streamRef)
		if err != nil {
			return err
		}
		if b.count == 0 || b.first != st.head.Last.Seqno+1 {
			return fmt.Errorf("%w: %d entries from %d of %q, whose last one is %d", errDamaged, b.count, b.first, b.name, st.head.Last.Seqno)
		}
		st.head.Epoch, st.head.Holder = b.epoch, b.holder
		st.head.Last = eventstore.Mark{Seqno: b.last(), ID: b.lastID}
		st.time = b.time
	}
	return nil
}

func (r *registry) createCategory(b createCategoryBody) error {
	if r.categories[b.spec.Name] != nil || r.numbers[b.number] != nil {
		return fmt.Errorf("%w: category %q, number %d, created twice", errDamaged, b.spec.Name, b.number)
	}
	c := &category{number: b.number, spec: b.spec}
	r.categories[b.spec.Name], r.numbers[b.number] = c, c
	r.lastNumber = max(r.lastNumber, b.number)
	return nil
}

func (r *registry) deleteCategory(number uint32) error {
	c := r.numbers[number]
	if c == nil {
		return fmt.Errorf("%w: no category %d", errDamaged, number)
	}
	for _, st := range r.ordinals {
		if st != nil && st.category == c {
			r.remove(st)
		}
	}
	maps.DeleteFunc(r.holds, func(k holdKey, _ eventstore.Hold) bool { return k.category == c.spec.Name })
	delete(r.categories, c.spec.Name)
	delete(r.numbers, number)
	return nil
}

// keepSnapshot replaces the snapshot that is kept of a stream.
func (r *registry) keepSnapshot(st *stream, sn *snapshotRef) {
	if st.snapshot != nil {
		delete(r.snapshots, st.snapshot.position)
	}
	if st.snapshot = sn; sn != nil {
		r.snapshots[sn.position] = true
	}
}

// remove removes a stream; its ordinal stays empty for ever.
func (r *registry) remove(st *stream) {
	r.keepSnapshot(st, nil)
	r.ordinals[st.ordinal] = nil
	delete(r.streams, st.name)
}

// drop removes a stream and its holds.
func (r *registry) drop(st *stream) {
	r.remove(st)
	maps.DeleteFunc(r.holds, func(k holdKey, _ eventstore.Hold) bool { return k.stream == st.name })
}

// holdsOver returns the holds that cover a stream, ordered by name.
func (r *registry) holdsOver(st *stream) []eventstore.Hold {
	var all []holdKey
	for k := range r.holds {
		if k.stream == st.name || k.stream == "" && k.category == st.category.spec.Name {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, holdKey.compare)
	out := make([]eventstore.Hold, len(all))
	for i, k := range all {
		out[i] = r.holds[k]
	}
	return out
}

// matches says if an entry of a stream is what a filter asks for, its category aside.
func matches(f *eventstore.Filter, st *stream, eventType string) bool {
	return (len(f.Types) == 0 || slices.Contains(f.Types, eventType)) && (len(f.Slots) == 0 || slices.Contains(f.Slots, st.slot))
}
