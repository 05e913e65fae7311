// Verify, one stream: the rules that its registry row and its entries must keep.
// Nothing here knows where they were read from.

package pglog

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
)

// maxLeadIn is how many entries of a batch may be missing before its first for that
// to be noticed by the IDs of those that follow.
const maxLeadIn = 16

// registryRow is what the registry says of a stream, and what hangs on it.
type registryRow struct {
	ordinal              int64
	key                  string
	slot                 int16
	epoch, last, trimmed int64
	lastTime             *int64 // microseconds since 1970; nil: infinite
	holder, lastID       uuid
	demand               bool
	snapshot             *int64 // its seqno
	snapshotID, marked   uuid
}

// storedEntry is an entry as it is stored, its payload only by size.
type storedEntry struct {
	position, seqno, epoch  int64
	time                    *int64 // as above; nil also for one that cannot be read
	category, version, size int32
	slot                    int16
	id, batch               uuid
	typ, contentType, meta  string
	unreadable              string // why, if it could not be read
}

// place is how far a stream has been checked: what the next entry must follow.
type place struct {
	begun bool // an entry was seen
	prev  storedEntry
	run   run // of entries with prev's batch
	// before is the run before that, for a batch that something stands in the middle of.
	before run
}

// run is a row of entries of one batch.
type run struct {
	batch  eventstore.UUID
	first  int64 // seqno of the batch's first entry
	whole  bool  // it is known to begin with the batch's first entry
	proved bool  // an ID was derived from the batch's
}

// streamCheck collects what is wrong with one stream.
type streamCheck struct {
	stream   eventstore.Stream
	category int32
	row      *registryRow
	place    place
	found    []eventstore.Finding
	entries  int64
	log      bool // of the dedicated layout: without positions, slots and category numbers
}

// fault adds a finding; seqno and position 0: of the stream as a whole.
func (c *streamCheck) fault(check string, e *storedEntry, wanted, found, hint string) {
	f := eventstore.Finding{Check: check, Severity: eventstore.SeverityFault, Category: c.stream.Category(), Stream: c.stream, Wanted: wanted, Found: found, Hint: hint}
	if e != nil {
		f.Seqno, f.Position = eventstore.Seqno(e.seqno), eventstore.Position(max(e.position, 0))
	}
	c.found = append(c.found, f)
}

// What to do about most findings: nothing in the store can make up for what is lost.
const (
	hintRestore  = "restore from a backup or a standby; keep the damaged store to see what became of it"
	hintRegistry = "the registry and the entries disagree: do not append before it is known which is right"
)

// registry checks the row of the registry by itself.
func (c *streamCheck) registry() {
	r := c.row
	if _, err := eventstore.ParseStream(string(c.stream)); err != nil {
		c.fault("stream-name", nil, "category-key", brief(err), hintRestore)
	}
	if want := int16(c.stream.Slot()); r.slot != want {
		c.fault("slot", nil, fmt.Sprintf("slot %d, of the key's SHA-256", want), fmt.Sprintf("%d in the registry", r.slot), "consumers of single slots miss this stream")
	}
	if r.last < 0 || r.trimmed < 0 || r.trimmed > r.last {
		c.fault("watermark", nil, "a watermark of at most the last seqno "+itoa(r.last), itoa(r.trimmed), hintRegistry)
	}
	if r.epoch < 0 || r.epoch == 0 && r.last > 0 || r.epoch > 0 && fromUUID(r.holder).IsZero() {
		c.fault("registry-epoch", nil, "an epoch of at least 1 with its holder", fmt.Sprintf("epoch %d of holder %v", r.epoch, fromUUID(r.holder)), hintRegistry)
	}
	if (r.last == 0) != fromUUID(r.lastID).IsZero() {
		c.fault("last-id", nil, "the ID of the last entry, zero only without one", fmt.Sprintf("%v at seqno %d", fromUUID(r.lastID), r.last), hintRegistry)
	}
	if r.lastTime == nil {
		c.fault("last-time", nil, "the time of the last entry", "infinity", hintRegistry)
	}
	c.snapshot()
}

// snapshot checks the place of the stream's snapshot.
func (c *streamCheck) snapshot() {
	r := c.row
	if r.snapshot == nil {
		if r.demand && r.trimmed > 0 {
			c.fault("trim-snapshot", nil, "a snapshot at or above the watermark "+itoa(r.trimmed), "none", hintRestore)
		}
		return
	}
	at := &storedEntry{seqno: *r.snapshot}
	switch marked := fromUUID(r.marked); {
	case *r.snapshot < 1 || *r.snapshot > r.last:
		c.fault("snapshot-head", at, "a snapshot at or below the head "+itoa(r.last), itoa(*r.snapshot), hintSnapshot)
	case !marked.IsZero() && marked != fromUUID(r.snapshotID),
		*r.snapshot == r.last && fromUUID(r.lastID) != fromUUID(r.snapshotID):
		if marked.IsZero() {
			marked = fromUUID(r.lastID)
		}
		c.fault("snapshot-mark", at, "a snapshot of entry "+marked.String(), "one of "+fromUUID(r.snapshotID).String(), hintSnapshot)
	}
	if r.demand && *r.snapshot < r.trimmed {
		c.fault("trim-snapshot", at, "a snapshot at or above the watermark "+itoa(r.trimmed), itoa(*r.snapshot), hintRestore)
	}
}

// entry checks the next entry.
func (c *streamCheck) entry(e *storedEntry) {
	c.entries++
	c.sequence(e)
	if e.unreadable != "" {
		c.fault("unreadable", e, "an entry that the server can read", e.unreadable, hintRestore)
		c.place.before, c.place.run = c.place.run, run{}
		c.place.begun, c.place.prev.seqno = true, e.seqno
		return
	}
	c.values(e)
	c.order(e)
	c.batch(e)
	c.place.begun, c.place.prev = true, *e
}

// sequence checks that an entry is the next one.
func (c *streamCheck) sequence(e *storedEntry) {
	next := max(c.row.trimmed, c.place.prev.seqno) + 1
	switch {
	case e.seqno == c.place.prev.seqno && c.place.begun:
		c.fault("duplicate", e, "every seqno once", "another entry with it", hintRestore)
	case e.seqno > next && next <= c.row.last:
		c.fault("gap", &storedEntry{seqno: next}, "entries without a gap", missing(next, min(e.seqno-1, c.row.last)), hintRestore)
	}
	if e.seqno > c.row.last {
		c.fault("above-head", e, "no entry above the last seqno "+itoa(c.row.last), "one", hintRegistry)
	}
}

func missing(from, to int64) string {
	if from == to {
		return "entry " + itoa(from) + " is missing"
	}
	return fmt.Sprintf("entries %d to %d are missing", from, to)
}

// values checks an entry by itself.
func (c *streamCheck) values(e *storedEntry) {
	if want := int16(c.stream.Slot()); !c.log && e.slot != want {
		c.fault("entry-slot", e, fmt.Sprintf("slot %d of its stream", want), fmt.Sprint(e.slot), "consumers of single slots miss it")
	}
	if e.category != c.category {
		c.fault("entry-category", e, fmt.Sprintf("category number %d of its stream", c.category), fmt.Sprint(e.category), hintRestore)
	}
	if !c.log && e.position < 1 {
		c.fault("position-order", e, "a position of at least 1", itoa(e.position), hintRestore)
	}
	meta, err := fromMetadata(e.meta)
	if err == nil && !utf8.ValidString(e.meta) {
		err = fmt.Errorf("it is no valid UTF-8")
	}
	if err != nil {
		c.fault("metadata", e, "metadata that is a JSON object of strings", brief(err), hintRestore)
	}
	event := eventstore.Event{ID: fromUUID(e.id), Type: e.typ, Version: int(e.version), ContentType: e.contentType, Metadata: meta}
	if err := eventstore.CheckEvent(&event, int(e.size)); err != nil {
		c.fault("event", e, "an event within the limits", brief(err), hintRestore)
	}
	if fromUUID(e.batch).IsZero() {
		c.fault("batch", e, "the ID of its batch", "the zero UUID", hintRestore)
	}
}

// order checks what never falls along a stream, and never lies above the registry's.
func (c *streamCheck) order(e *storedEntry) {
	p, r := &c.place.prev, c.row
	switch {
	case e.epoch < 1, e.epoch < p.epoch:
		c.fault("epoch", e, fmt.Sprintf("an epoch of at least %d", max(p.epoch, 1)), itoa(e.epoch), hintRestore)
	case e.epoch > r.epoch:
		c.fault("last-epoch", e, fmt.Sprintf("an epoch of at most the registry's %d", r.epoch), itoa(e.epoch), hintRegistry+"; a lower epoch lets fenced writers in")
	}
	switch {
	case e.time == nil:
		c.fault("time", e, "a time", "infinity", hintRestore)
	case p.time != nil && *e.time < *p.time:
		c.fault("time", e, "a time not before "+moment(*p.time), moment(*e.time), hintRestore)
	case r.lastTime != nil && *e.time > *r.lastTime:
		c.fault("last-time", e, "a time not behind the registry's "+moment(*r.lastTime), moment(*e.time), hintRegistry)
	}
	if !c.log && c.place.begun && e.position <= p.position && e.seqno != p.seqno {
		c.fault("position-order", e, fmt.Sprintf("a position above %d, that of entry %d", p.position, p.seqno), itoa(e.position), "readers of the feed see the entries in another order than the stream's")
	}
}

func moment(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano) }

// end checks the last entry against the registry.
func (c *streamCheck) end() {
	p, r := &c.place.prev, c.row
	next := max(r.trimmed, p.seqno) + 1
	if next <= r.last {
		c.fault("last-seqno", &storedEntry{seqno: next}, "entries through the registry's last seqno "+itoa(r.last), missing(next, r.last), hintRegistry)
		return
	}
	if !c.place.begun || p.seqno != r.last || p.unreadable != "" || p.time == nil {
		return
	}
	if p.id != r.lastID {
		c.fault("last-id", p, "the registry's last ID "+fromUUID(r.lastID).String(), fromUUID(p.id).String(), hintRegistry)
	}
	if r.lastTime != nil && *p.time < *r.lastTime {
		c.fault("last-time", p, "the registry's last time "+moment(*r.lastTime), moment(*p.time), hintRegistry)
	}
}

// brief is what is wrong, of an error of ours without its frame.
func brief(err error) string {
	if e, ok := err.(*eventstore.Error); ok {
		return "wanted " + e.Wanted + ", found " + e.Found
	}
	return err.Error()
}
