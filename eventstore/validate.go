// Completing and checking an append, once for all backends.

package eventstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// complete returns a copy of a in which nothing is left to a default: batch and
// event IDs, versions, content types, trace metadata. The caller's values are not
// changed; payloads are not copied.
func complete(a Append, trace Metadata) Append {
	a.Batches = slices.Clone(a.Batches)
	for i := range a.Batches {
		b := &a.Batches[i]
		if b.ID.IsZero() {
			b.ID = NewUUID()
		}
		b.Events = slices.Clone(b.Events)
		for j := range b.Events {
			completeEvent(&b.Events[j], b.ID, j, trace)
		}
	}
	return a
}

func completeEvent(e *Event, batch UUID, i int, trace Metadata) {
	if e.ID.IsZero() {
		e.ID = DeriveUUID(batch, i)
	}
	if e.Version == 0 {
		e.Version = 1
	}
	if e.ContentType == "" {
		e.ContentType = defaultContentType
	}
	if e.Data == nil {
		e.Data = []byte{}
	}
	if len(e.Metadata) == 0 {
		e.Metadata = nil // as it is read back
	}
	if _, traced := e.Metadata[MetaTraceparent]; !traced {
		e.Metadata = e.Metadata.with(trace)
	}
}

// check refuses a complete append that breaks a rule, before anything is sent.
func (l Limits) check(a Append) error {
	switch {
	case len(a.Batches) > l.AppendBatches:
		return tooLarge("append", fmt.Sprintf("at most %d batches", l.AppendBatches), fmt.Sprint(len(a.Batches)))
	case len(a.Guards) > MaxAppendGuards:
		return tooLarge("append", fmt.Sprintf("at most %d guards", MaxAppendGuards), fmt.Sprint(len(a.Guards)))
	}
	size := 0
	for i := range a.Batches {
		b := &a.Batches[i]
		n, err := l.checkBatch(b)
		if err != nil {
			return inOp("append", b.Stream, err)
		}
		if size += n; size > l.AppendBytes {
			return inOp("append", b.Stream, tooLarge("append", fmt.Sprintf("at most %d bytes of data and metadata", l.AppendBytes), "more"))
		}
	}
	for _, g := range a.Guards {
		err := g.Stream.check()
		if err == nil {
			err = checkMark("guard", g.At)
		}
		if err != nil {
			return inOp("append", g.Stream, err)
		}
	}
	return a.CheckShape()
}

// CheckShape refuses an append that no log could write: no batch, a batch without
// events, a stream or a batch ID that stands in it twice. Store does it too; a Log
// does it so that nobody who calls it directly can harm a stream.
func (a Append) CheckShape() error {
	if len(a.Batches) == 0 {
		return inOp("append", "", invalid("append", "at least one batch", "none"))
	}
	if len(a.Batches) == 1 && len(a.Batches[0].Events) > 0 && len(a.Guards) == 0 {
		return nil // the usual, in which nothing can be twice
	}
	streams, ids := map[Stream]bool{}, map[UUID]bool{}
	for i := range a.Batches {
		b := &a.Batches[i]
		switch {
		case len(b.Events) == 0:
			return inOp("append", b.Stream, invalid("batch", "at least one event", "none"))
		case streams[b.Stream] || ids[b.ID]:
			return inOp("append", b.Stream, invalid("append", "every stream and batch ID once", "batch "+b.ID.String()+" repeats one"))
		}
		streams[b.Stream], ids[b.ID] = true, true
	}
	for _, g := range a.Guards {
		if streams[g.Stream] {
			return inOp("append", g.Stream, invalid("guard", "a stream that is not written and not guarded twice", string(g.Stream)))
		}
		streams[g.Stream] = true
	}
	return nil
}

func (l Limits) checkBatch(b *Batch) (size int, err error) {
	if err := b.Stream.check(); err != nil {
		return 0, err
	}
	switch n := len(b.Events); {
	case b.Epoch == 0:
		return 0, &Error{Kind: ErrZeroEpoch, Wanted: "an epoch of at least 1", Found: "0", Hint: "claim the loaded epoch plus one, or Fence first"}
	case b.Holder.IsZero():
		return 0, invalid("holder", "a UUID", "the zero UUID")
	case n == 0:
		return 0, invalid("batch", "at least one event", "none")
	case n > l.BatchEvents:
		return 0, tooLarge("batch", fmt.Sprintf("at most %d events", l.BatchEvents), fmt.Sprint(n))
	}
	if err := checkNumber("epoch", uint64(b.Epoch)); err != nil {
		return 0, err
	}
	if err := checkMark("after", b.After); err != nil {
		return 0, err
	}
	for i := range b.Events {
		n, err := l.checkEvent(&b.Events[i])
		if err != nil {
			return 0, atEvent(err, i)
		}
		size += n
	}
	return size, nil
}

func checkMark(what string, m Mark) error {
	if m.Seqno == 0 && !m.ID.IsZero() {
		return invalid(what, "no ID at seqno 0", m.ID.String())
	}
	return checkNumber(what, uint64(m.Seqno))
}

func (l Limits) checkEvent(e *Event) (size int, err error) {
	if err := checkText("type", e.Type, MaxTypeBytes); err != nil {
		return 0, err
	}
	if err := checkText("content type", e.ContentType, MaxContentTypeBytes); err != nil {
		return 0, err
	}
	const maxVersion = 1<<31 - 1
	if e.Version < 0 || e.Version > maxVersion {
		return 0, invalid("version", "1 to 2^31-1", fmt.Sprint(e.Version))
	}
	if len(e.Data) > l.EventBytes {
		return 0, tooLarge("data", fmt.Sprintf("at most %d bytes", l.EventBytes), fmt.Sprintf("%d bytes", len(e.Data)))
	}
	n, err := checkMetadata(e.Metadata)
	return n + len(e.Data), err
}

func checkMetadata(m Metadata) (size int, err error) {
	if len(m) > MaxMetadataKeys {
		return 0, tooLarge("metadata", fmt.Sprintf("at most %d keys", MaxMetadataKeys), fmt.Sprint(len(m)))
	}
	for _, k := range slices.Sorted(maps.Keys(m)) { // sorted: the same error every time
		if err := checkText("metadata key", k, MaxMetadataKeyBytes); err != nil {
			return 0, err
		}
		v := m[k]
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return 0, invalid("metadata", "valid UTF-8 without NUL under key "+k, fmt.Sprintf("%q", clip(v)))
		}
		size += len(k) + len(v)
	}
	if size > MaxMetadataBytes {
		return 0, tooLarge("metadata", fmt.Sprintf("at most %d bytes", MaxMetadataBytes), fmt.Sprint(size))
	}
	return size, nil
}

func atEvent(err error, i int) error {
	e := *err.(*Error)
	e.Wanted = fmt.Sprintf("event %d: %s", i, e.Wanted)
	return &e
}

// check refuses a filter that breaks a rule.
func (f Filter) check() error {
	if len(f.Categories) > MaxFilterNames || len(f.Types) > MaxFilterNames || len(f.Slots) > Slots {
		return tooLarge("filter", fmt.Sprintf("at most %d categories, %d types, %d slots", MaxFilterNames, MaxFilterNames, Slots), "more")
	}
	for _, c := range f.Categories {
		if err := c.check(); err != nil {
			return err
		}
	}
	for _, t := range f.Types {
		if err := checkText("type", t, MaxTypeBytes); err != nil {
			return err
		}
	}
	for _, s := range f.Slots {
		if s >= Slots {
			return invalid("slot", fmt.Sprintf("below %d", Slots), fmt.Sprint(s))
		}
	}
	return nil
}

// check refuses a hold that breaks a rule, and fills in its category.
func (h *Hold) check() error {
	if err := checkText("hold name", h.Name, MaxNameBytes); err != nil {
		return err
	}
	if h.Stream == "" {
		if h.Seqno != 0 {
			return invalid("hold", "a position for a whole category", "a seqno")
		}
		if err := h.Category.check(); err != nil {
			return err
		}
		return checkNumber("position", uint64(h.Position))
	}
	if err := h.Stream.check(); err != nil {
		return err
	}
	if h.Position != 0 || h.Category != "" && h.Category != h.Stream.Category() {
		return invalid("hold", "a seqno and no other category for one stream", "a position or another category")
	}
	h.Category = h.Stream.Category()
	return checkNumber("seqno", uint64(h.Seqno))
}

func (sn *Snapshot) check() error {
	if err := sn.Stream.check(); err != nil {
		return err
	}
	if err := checkText("fingerprint", sn.Fingerprint, MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("content type", sn.ContentType, MaxContentTypeBytes); err != nil {
		return err
	}
	switch {
	case sn.At.Seqno == 0 || sn.At.ID.IsZero():
		return invalid("snapshot", "the mark of an entry", sn.At.String())
	case sn.Fingerprint == AnyFingerprint:
		return invalid("snapshot", "a fingerprint of its own", AnyFingerprint)
	case len(sn.Data) > MaxSnapshotBytes:
		return tooLarge("snapshot", fmt.Sprintf("at most %d bytes", MaxSnapshotBytes), fmt.Sprint(len(sn.Data)))
	}
	return checkNumber("seqno", uint64(sn.At.Seqno))
}
