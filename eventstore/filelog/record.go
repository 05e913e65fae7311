// Records: everything that changes a store, each kind with its body.

package filelog

import (
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// kind says what a record is. The numbers are on disk.
type kind uint32

const (
	kindAppend kind = iota + 1
	kindFence
	kindTrim
	kindSnapshot
	kindCreateCategory
	kindDeleteCategory
	kindCreateStreams
	kindDropStream
	kindSetHold
	kindReleaseHold
	kindLease
	kinds // behind the last one
)

var kindNames = [kinds]string{"", "append", "fence", "trim", "snapshot", "create category", "delete category", "create streams",
	"drop stream", "set hold", "release hold", "lease"}

func (k kind) String() string {
	if k > 0 && k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// body is the content of a record.
type body interface {
	kind() kind
	encode(*encoder)
}

// streamRef names a stream and its place in the registry, so that a record can be
// understood alone and found by a number.
type streamRef struct {
	ordinal  uint32 // of the stream, never used again
	category uint32 // number of the category, never used again
	name     eventstore.Stream
}

func (e *encoder) ref(r streamRef) {
	e.uint(uint64(r.ordinal))
	e.uint(uint64(r.category))
	e.string(string(r.name))
}

func (d *decoder) ref() streamRef {
	return streamRef{uint32(d.uint()), uint32(d.uint()), eventstore.Stream(d.string())}
}

// appendBody is one append: all its batches, or none.
type appendBody struct{ batches []batch }

// batch is what was written to one stream.
type batch struct {
	streamRef
	epoch    eventstore.Epoch
	holder   eventstore.UUID
	id       eventstore.UUID
	time     int64               // microseconds since 1970
	first    eventstore.Seqno    // of events[0]
	position eventstore.Position // of events[0]; 0: the category has no positions
	count    int                 // of events
	lastID   eventstore.UUID     // of the last event
	events   []eventstore.Event  // the caller's until they are encoded, then nil; decoded where somebody asked for them
}

func (b *batch) last() eventstore.Seqno { return b.first + eventstore.Seqno(b.count) - 1 }

// lastPosition is 0 for a category without positions.
func (b *batch) lastPosition() eventstore.Position {
	if b.position == 0 {
		return 0
	}
	return b.position + eventstore.Position(b.count) - 1
}

// entry returns the entry of the i-th event, which is ev.
func (b *batch) entry(i int, ev eventstore.Event) eventstore.Entry {
	e := eventstore.Entry{Event: ev}
	b.place(&e, b.name, i)
	return e
}

// place gives the i-th event its place in a stream of a name. Entries are big: readers
// have them filled in where they are to stay.
func (b *batch) place(e *eventstore.Entry, name eventstore.Stream, i int) {
	e.Stream, e.Seqno, e.Epoch, e.BatchID = name, b.first+eventstore.Seqno(i), b.epoch, b.id
	e.Time = time.UnixMicro(b.time).UTC()
	if b.position > 0 {
		e.Position = b.position + eventstore.Position(i)
	}
}

// What of an event is not the usual.
const (
	hasVersion = 1 << iota
	hasContentType
	hasMetadata
)

const usualContentType = "application/json"

func (appendBody) kind() kind { return kindAppend }

func (a appendBody) encode(e *encoder) {
	e.uint(uint64(len(a.batches)))
	var keys []string
	for i := range a.batches {
		b := &a.batches[i]
		e.ref(b.streamRef)
		e.uint(uint64(b.epoch))
		e.uuid(b.holder)
		e.uuid(b.id)
		e.int(b.time)
		e.uint(uint64(b.first))
		e.uint(uint64(b.position))
		e.uint(uint64(b.count))
		for j := range b.events {
			keys = e.event(&b.events[j], keys)
		}
	}
}

// event leaves out what is usual: version 1, JSON, no metadata. Not so an ID that could
// be derived: that would cost every reader a hash an entry, for 16 bytes.
func (e *encoder) event(ev *eventstore.Event, keys []string) []string {
	var has byte
	if ev.Version != 1 {
		has |= hasVersion
	}
	if ev.ContentType != usualContentType {
		has |= hasContentType
	}
	if len(ev.Metadata) > 0 {
		has |= hasMetadata
	}
	e.byte(has)
	e.uuid(ev.ID)
	e.string(ev.Type)
	if has&hasVersion != 0 {
		e.uint(uint64(ev.Version))
	}
	if has&hasContentType != 0 {
		e.string(ev.ContentType)
	}
	if has&hasMetadata != 0 {
		keys = e.metadata(ev.Metadata, keys)
	}
	e.bytes(ev.Data)
	return keys
}

// batchHead reads a batch up to its events, but for the name of its stream, which is
// returned: most readers know it from the registry.
func (d *decoder) batchHead(b *batch) (name []byte) {
	b.ordinal, b.category = uint32(d.uint()), uint32(d.uint())
	name = d.bytes()
	b.epoch = eventstore.Epoch(d.uint())
	b.holder = d.uuid()
	b.id = d.uuid()
	b.time = d.int()
	b.first = eventstore.Seqno(d.uint())
	b.position = eventstore.Position(d.uint())
	b.count = d.count(19) // an event takes at least its flags, its ID and two lengths
	return name
}

// event reads an event into one that is empty.
func (d *decoder) event(ev *eventstore.Event) {
	has := d.byte()
	ev.ID = d.uuid()
	ev.Type = d.string()
	ev.Version, ev.ContentType = 1, usualContentType
	if has&hasVersion != 0 {
		ev.Version = int(d.uint())
	}
	if has&hasContentType != 0 {
		ev.ContentType = d.string()
	}
	if has&hasMetadata != 0 {
		ev.Metadata = d.metadata()
	}
	ev.Data = d.bytes()
}

// skipEvent passes over an event.
func (d *decoder) skipEvent() {
	has := d.byte()
	d.take(16)
	d.bytes()
	if has&hasVersion != 0 {
		d.uint()
	}
	if has&hasContentType != 0 {
		d.bytes()
	}
	if has&hasMetadata != 0 {
		for range 2 * d.count(2) {
			d.bytes()
		}
	}
	d.bytes()
}

func decodeAppend(d *decoder) (appendBody, error) {
	a := appendBody{batches: make([]batch, d.count(40))}
	for i := range a.batches {
		b := &a.batches[i]
		b.name = eventstore.Stream(d.batchHead(b))
		b.events = make([]eventstore.Event, b.count)
		for j := range b.events {
			d.event(&b.events[j])
			b.lastID = b.events[j].ID
		}
	}
	return a, d.end()
}

// fenceBody grants an epoch.
type fenceBody struct {
	streamRef
	epoch  eventstore.Epoch
	holder eventstore.UUID
}

func (fenceBody) kind() kind { return kindFence }
func (f fenceBody) encode(e *encoder) {
	e.ref(f.streamRef)
	e.uint(uint64(f.epoch))
	e.uuid(f.holder)
}

// trimBody removes the entries of a stream through a seqno.
type trimBody struct {
	streamRef
	through  eventstore.Seqno
	position eventstore.Position // of that entry; 0: the category has no positions
}

func (trimBody) kind() kind { return kindTrim }
func (t trimBody) encode(e *encoder) {
	e.ref(t.streamRef)
	e.uint(uint64(t.through))
	e.uint(uint64(t.position))
}

// snapshotBody keeps a snapshot.
type snapshotBody struct {
	streamRef
	snapshot eventstore.Snapshot
}

func (snapshotBody) kind() kind { return kindSnapshot }
func (s snapshotBody) encode(e *encoder) {
	e.ref(s.streamRef)
	e.mark(s.snapshot.At)
	e.string(s.snapshot.Fingerprint)
	e.string(s.snapshot.ContentType)
	e.int(s.snapshot.Time.UnixMicro())
	e.b = append(e.b, s.snapshot.Checksum[:]...)
	e.bytes(s.snapshot.Data)
}

// createCategoryBody creates a category under a number.
type createCategoryBody struct {
	number uint32
	spec   eventstore.CategorySpec
}

func (createCategoryBody) kind() kind { return kindCreateCategory }
func (c createCategoryBody) encode(e *encoder) {
	e.uint(uint64(c.number))
	e.spec(c.spec)
}

func (e *encoder) spec(s eventstore.CategorySpec) {
	e.string(string(s.Name))
	e.byte(byte(s.Layout))
	e.bool(s.TrimFreely)
}

func (d *decoder) spec() eventstore.CategorySpec {
	return eventstore.CategorySpec{Name: eventstore.Category(d.string()), Layout: eventstore.Layout(d.byte()), TrimFreely: d.bool()}
}

// deleteCategoryBody removes a category and all that is in it.
type deleteCategoryBody struct{ number uint32 }

func (deleteCategoryBody) kind() kind          { return kindDeleteCategory }
func (c deleteCategoryBody) encode(e *encoder) { e.uint(uint64(c.number)) }

// createStreamsBody creates streams, empty and at epoch 0.
type createStreamsBody struct{ streams []streamRef }

func (createStreamsBody) kind() kind { return kindCreateStreams }
func (c createStreamsBody) encode(e *encoder) {
	e.uint(uint64(len(c.streams)))
	for _, r := range c.streams {
		e.ref(r)
	}
}

// dropStreamBody removes a stream.
type dropStreamBody struct{ streamRef }

func (dropStreamBody) kind() kind          { return kindDropStream }
func (c dropStreamBody) encode(e *encoder) { e.ref(c.streamRef) }

// setHoldBody registers or moves a hold.
type setHoldBody struct{ hold eventstore.Hold }

func (setHoldBody) kind() kind          { return kindSetHold }
func (h setHoldBody) encode(e *encoder) { e.hold(h.hold) }

func (e *encoder) hold(h eventstore.Hold) {
	e.string(h.Name)
	e.string(string(h.Category))
	e.string(string(h.Stream))
	e.uint(uint64(h.Seqno))
	e.uint(uint64(h.Position))
	e.uuid(h.ID)
}

func (d *decoder) hold() eventstore.Hold {
	return eventstore.Hold{Name: d.string(), Category: eventstore.Category(d.string()), Stream: eventstore.Stream(d.string()),
		Seqno: eventstore.Seqno(d.uint()), Position: eventstore.Position(d.uint()), ID: d.uuid()}
}

// releaseHoldBody removes a hold.
type releaseHoldBody struct{ holdKey }

func (releaseHoldBody) kind() kind { return kindReleaseHold }
func (h releaseHoldBody) encode(e *encoder) {
	e.string(h.name)
	e.string(string(h.category))
	e.string(string(h.stream))
}

// leaseBody is leases as they stand from now on. Until is zero when one was given back.
type leaseBody struct{ leases []eventstore.Lease }

func (leaseBody) kind() kind { return kindLease }
func (l leaseBody) encode(e *encoder) {
	e.uint(uint64(len(l.leases)))
	for _, lease := range l.leases {
		e.lease(lease)
	}
}

// leastLease is how many bytes a lease takes at least: an empty name, a holder, an epoch
// and a flag.
const leastLease = 1 + 16 + 1 + 1

func (e *encoder) lease(l eventstore.Lease) {
	e.string(l.Name)
	e.uuid(l.Holder)
	e.uint(uint64(l.Epoch))
	e.bool(!l.Until.IsZero())
	if !l.Until.IsZero() {
		e.int(l.Until.UnixNano())
	}
}

func (d *decoder) lease() eventstore.Lease {
	l := eventstore.Lease{Name: d.string(), Holder: d.uuid(), Epoch: eventstore.Epoch(d.uint())}
	if d.bool() {
		l.Until = time.Unix(0, d.int()).UTC()
	}
	return l
}

// decodeBody reads the body of a record. What it returns shares b.
func decodeBody(k kind, b []byte) (body, error) {
	d := &decoder{b: b}
	var out body
	switch k {
	case kindAppend:
		return decodeAppend(d)
	case kindFence:
		out = fenceBody{d.ref(), eventstore.Epoch(d.uint()), d.uuid()}
	case kindTrim:
		out = trimBody{d.ref(), eventstore.Seqno(d.uint()), eventstore.Position(d.uint())}
	case kindSnapshot:
		out = d.snapshot()
	case kindCreateCategory:
		out = createCategoryBody{uint32(d.uint()), d.spec()}
	case kindDeleteCategory:
		out = deleteCategoryBody{uint32(d.uint())}
	case kindCreateStreams:
		c := createStreamsBody{streams: make([]streamRef, d.count(3))}
		for i := range c.streams {
			c.streams[i] = d.ref()
		}
		out = c
	case kindDropStream:
		out = dropStreamBody{d.ref()}
	case kindSetHold:
		out = setHoldBody{d.hold()}
	case kindReleaseHold:
		out = releaseHoldBody{holdKey{d.string(), eventstore.Category(d.string()), eventstore.Stream(d.string())}}
	case kindLease:
		l := leaseBody{leases: make([]eventstore.Lease, d.count(leastLease))}
		for i := range l.leases {
			l.leases[i] = d.lease()
		}
		out = l
	default:
		return nil, errMalformed
	}
	return out, d.end()
}

func (d *decoder) snapshot() snapshotBody {
	s := snapshotBody{streamRef: d.ref()}
	s.snapshot = eventstore.Snapshot{Stream: s.name, At: d.mark(), Fingerprint: d.string(), ContentType: d.string()}
	s.snapshot.Time = time.UnixMicro(d.int()).UTC()
	copy(s.snapshot.Checksum[:], d.take(32))
	s.snapshot.Data = d.bytes()
	return s
}
