// Verify, one stream's batches: whether the entries of each stand together.

package pglog

import (
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// A batch is written at once, so its entries stand one behind the other, under one
// epoch and at one time. But that entries with one batch ID are one batch torn apart
// cannot be told from that ID alone: a caller who uses an ID twice is refused only where
// the batch would stand. It can be told where Store gave the events their IDs: the i-th
// is DeriveUUID(batch, i), and no other entry can have it. So:
//
//   - An entry whose ID is derived for another place in its batch than it has, or from
//     the batch beside its own, is a fault: one of them was changed or removed.
//   - Where the caller gave the IDs, a batch ID that comes again is only a warning.
//   - A batch of which the beginning was trimmed, or could not be read, is not judged.
//
// The last two batches are remembered, no more. The digest of a batch is not stored, so
// a payload that was changed into another valid one is not found.

// batch checks an entry's place in its batch.
func (c *streamCheck) batch(e *storedEntry) {
	p := &c.place
	id, batch := fromUUID(e.id), fromUUID(e.batch)
	if p.begun && c.row.trimmed > p.prev.seqno { // a trim has overtaken this walk
		p.run, p.before = run{}, run{}
	}
	if p.run.batch == batch {
		c.within(e, id)
		return
	}
	started := run{batch: batch, first: e.seqno}
	if started.whole = !p.run.batch.IsZero(); !p.begun {
		started.whole = c.row.trimmed == 0
	}
	c.begins(e, id, &started)
	p.before, p.run = p.run, started
}

// within checks an entry that has the batch ID of the one before it.
func (c *streamCheck) within(e *storedEntry, id eventstore.UUID) {
	r, prev := &c.place.run, &c.place.prev
	derived := r.whole && id == eventstore.DeriveUUID(r.batch, int(e.seqno-r.first))
	again := !derived && id == eventstore.DeriveUUID(r.batch, 0)
	switch {
	case again:
		c.reused(e, r)
		*r = run{batch: r.batch, first: e.seqno, whole: true, proved: true}
	case e.epoch != prev.epoch || e.time != nil && prev.time != nil && *e.time != *prev.time:
		if derived {
			c.fault("batch", e, fmt.Sprintf("one epoch and time in batch %v", r.batch),
				fmt.Sprintf("epoch %d behind epoch %d, %s behind %s", e.epoch, prev.epoch, momentOf(e), momentOf(prev)), hintRestore)
		} else {
			c.reused(e, r)
			*r = run{batch: r.batch, first: e.seqno, whole: r.whole}
		}
	}
	r.proved = r.proved || derived
}

func momentOf(e *storedEntry) string {
	if e.time == nil {
		return "no time"
	}
	return moment(*e.time)
}

// begins checks an entry that has another batch ID than the one before it.
func (c *streamCheck) begins(e *storedEntry, id eventstore.UUID, started *run) {
	prev, before := &c.place.run, &c.place.before
	started.proved = id == eventstore.DeriveUUID(started.batch, 0)
	if started.proved {
		if before.batch == started.batch && !before.batch.IsZero() {
			c.reused(e, before)
		}
		return
	}
	switch {
	case !prev.batch.IsZero() && prev.whole && id == eventstore.DeriveUUID(prev.batch, int(e.seqno-prev.first)):
		c.fault("batch", e, fmt.Sprintf("batch %v, from which its ID is derived", prev.batch), "batch "+started.batch.String(), hintRestore)
	case before.batch == started.batch && !before.batch.IsZero():
		if before.proved && id == eventstore.DeriveUUID(before.batch, int(e.seqno-before.first)) {
			c.fault("batch", e, fmt.Sprintf("batch %v in one piece", before.batch), "another in the middle of it", hintRestore)
			started.first = before.first
		} else {
			c.reused(e, before)
		}
	case started.whole:
		c.leadIn(e, id, started)
	}
}

// leadIn notices a batch that begins with an entry which is not its first.
func (c *streamCheck) leadIn(e *storedEntry, id eventstore.UUID, started *run) {
	for i := 1; i <= int(min(maxLeadIn, e.seqno-1)); i++ {
		if id == eventstore.DeriveUUID(started.batch, i) {
			c.fault("batch", e, fmt.Sprintf("batch %v from its first entry on", started.batch), fmt.Sprintf("its entry %d", i+1), hintRestore)
			started.first, started.proved = e.seqno-int64(i), true
			return
		}
	}
}

// reused warns of a batch ID that comes again.
func (c *streamCheck) reused(e *storedEntry, r *run) {
	c.fault("batch-reused", e, "every batch ID once", fmt.Sprintf("batch %v begins at %d too", r.batch, r.first),
		"a caller used the ID twice, or entries were changed")
	c.found[len(c.found)-1].Severity = eventstore.SeverityWarning
}
