// Messages as the words of eventstore: what consists of parts.

package wire

import (
	"crypto/sha256"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

func (r *reader) event(m *wattlev1.Event) (e eventstore.Event) {
	if !there(r, "event", m) {
		return e
	}
	e = eventstore.Event{ID: r.uuid("event.id", m.GetId()), Type: m.GetType(), Version: r.count("event.version", m.GetVersion()),
		ContentType: m.GetContentType(), Data: m.GetData()}
	if e.Data == nil {
		e.Data = []byte{}
	}
	if len(m.GetMetadata()) > 0 {
		e.Metadata = m.GetMetadata()
	}
	return e
}

func (r *reader) entry(m *wattlev1.Entry) (e eventstore.Entry) {
	if !there(r, "entry", m) {
		return e
	}
	return eventstore.Entry{Event: r.event(m.GetEvent()), Stream: eventstore.Stream(m.GetStream()),
		Seqno: number[eventstore.Seqno](r, "entry.seqno", m.GetSeqno()), Epoch: number[eventstore.Epoch](r, "entry.epoch", m.GetEpoch()),
		BatchID: r.uuid("entry.batch_id", m.GetBatchId()), Position: number[eventstore.Position](r, "entry.position", m.GetPosition()),
		Time: r.time("entry.time", m.GetTime())}
}

func (r *reader) mark(field string, m *wattlev1.Mark) eventstore.Mark {
	return eventstore.Mark{Seqno: number[eventstore.Seqno](r, field+".seqno", m.GetSeqno()), ID: r.uuid(field+".id", m.GetId())}
}

func (r *reader) positionMark(field string, m *wattlev1.PositionMark) eventstore.PositionMark {
	return eventstore.PositionMark{Position: number[eventstore.Position](r, field+".position", m.GetPosition()), ID: r.uuid(field+".id", m.GetId())}
}

func (r *reader) head(m *wattlev1.Head) (h eventstore.Head) {
	if !there(r, "head", m) {
		return h
	}
	return eventstore.Head{Epoch: number[eventstore.Epoch](r, "head.epoch", m.GetEpoch()), Holder: r.uuid("head.holder", m.GetHolder()),
		Last: r.mark("head.last", m.GetLast()), Trimmed: number[eventstore.Seqno](r, "head.trimmed", m.GetTrimmed())}
}

func (r *reader) token(m *wattlev1.Token) eventstore.Token {
	return eventstore.Token{Incarnation: r.uuid("token.incarnation", m.GetIncarnation()),
		Position: number[eventstore.Position](r, "token.position", m.GetPosition())}
}

func (r *reader) filter(m *wattlev1.Filter) eventstore.Filter {
	return eventstore.Filter{Categories: ToCategories(m.GetCategories()), Types: m.GetTypes(), Slots: each(r, m.GetSlots(), (*reader).slot),
		AcceptTrimmed: m.GetAcceptTrimmed()}
}

func (r *reader) announcement(m *wattlev1.Announcement) eventstore.Announcement {
	return eventstore.Announcement{Category: eventstore.Category(m.GetCategory()), Slot: r.slot(m.GetSlot()), Stream: eventstore.Stream(m.GetStream()),
		Seqno:    number[eventstore.Seqno](r, "announcement.seqno", m.GetSeqno()),
		Position: number[eventstore.Position](r, "announcement.position", m.GetPosition()), Traceparent: m.GetTraceparent()}
}

func (r *reader) batch(m *wattlev1.Batch) (b eventstore.Batch) {
	if !there(r, "batch", m) {
		return b
	}
	return eventstore.Batch{ID: r.uuid("batch.id", m.GetId()), Stream: eventstore.Stream(m.GetStream()),
		Epoch: number[eventstore.Epoch](r, "batch.epoch", m.GetEpoch()), Holder: r.uuid("batch.holder", m.GetHolder()), Claim: m.GetClaim(),
		After: r.mark("batch.after", m.GetAfter()), Events: each(r, m.GetEvents(), (*reader).event)}
}

func (r *reader) guard(m *wattlev1.Guard) (g eventstore.Guard) {
	if !there(r, "guard", m) {
		return g
	}
	return eventstore.Guard{Stream: eventstore.Stream(m.GetStream()), At: r.mark("guard.at", m.GetAt())}
}

func (r *reader) receipt(m *wattlev1.Receipt) (v eventstore.Receipt) {
	if !there(r, "receipt", m) || !there(r, "receipt.last", m.GetLast()) {
		return v
	}
	return eventstore.Receipt{Stream: eventstore.Stream(m.GetStream()), First: number[eventstore.Seqno](r, "receipt.first", m.GetFirst()),
		Last: r.mark("receipt.last", m.GetLast()), Fenced: m.GetFenced(), Replays: m.GetReplays()}
}

func (r *reader) snapshot(m *wattlev1.Snapshot) (sn eventstore.Snapshot) {
	if !there(r, "snapshot", m) {
		return sn
	}
	sn = eventstore.Snapshot{Stream: eventstore.Stream(m.GetStream()), At: r.mark("snapshot.at", m.GetAt()), Fingerprint: m.GetFingerprint(),
		ContentType: m.GetContentType(), Data: m.GetData(), Time: r.time("snapshot.time", m.GetTime())}
	if sn.Data == nil {
		sn.Data = []byte{}
	}
	switch n := len(m.GetChecksum()); n {
	case 0:
	case sha256.Size:
		sn.Checksum = [sha256.Size]byte(m.GetChecksum())
	default:
		r.wrong("snapshot.checksum", fmt.Sprintf("%d bytes, or none", sha256.Size), fmt.Sprintf("%d bytes", n))
	}
	return sn
}

func (r *reader) loaded(m *wattlev1.LoadResponse) eventstore.Loaded {
	l := eventstore.Loaded{Head: r.head(m.GetHead()), Skipped: clean(m.GetSkipped()), Entries: each(r, m.GetEntries(), (*reader).entry), End: m.GetEnd(),
		Incarnation: r.uuid("incarnation", m.GetIncarnation())}
	if m.GetSnapshot() != nil {
		sn := r.snapshot(m.GetSnapshot())
		l.Snapshot = &sn
	}
	return l
}

func (r *reader) feedPage(m *wattlev1.ReadFeedResponse) eventstore.FeedPage {
	return eventstore.FeedPage{Entries: each(r, m.GetEntries(), (*reader).entry), Through: r.positionMark("through", m.GetThrough()), End: m.GetEnd(),
		Horizon: number[eventstore.Position](r, "horizon", m.GetHorizon()), Drawn: number[eventstore.Position](r, "drawn", m.GetDrawn()),
		Incarnation: r.uuid("incarnation", m.GetIncarnation()), Timeline: m.GetTimeline()}
}

func (r *reader) hold(m *wattlev1.Hold) (h eventstore.Hold) {
	if !there(r, "hold", m) {
		return h
	}
	return eventstore.Hold{Name: m.GetName(), Category: eventstore.Category(m.GetCategory()), Stream: eventstore.Stream(m.GetStream()),
		Seqno: number[eventstore.Seqno](r, "hold.seqno", m.GetSeqno()), Position: number[eventstore.Position](r, "hold.position", m.GetPosition()),
		ID: r.uuid("hold.id", m.GetId())}
}

func (r *reader) categorySpec(m *wattlev1.CategorySpec) (c eventstore.CategorySpec) {
	if !there(r, "spec", m) {
		return c
	}
	c = eventstore.CategorySpec{Name: eventstore.Category(m.GetName()), TrimFreely: m.GetTrimFreely()}
	switch l := m.GetLayout(); l {
	case wattlev1.Layout_LAYOUT_UNSPECIFIED, wattlev1.Layout_LAYOUT_SHARED:
	case wattlev1.Layout_LAYOUT_DEDICATED:
		c.Layout = eventstore.Dedicated
	default:
		r.wrong("layout", "shared or dedicated", fmt.Sprint(int32(l)))
	}
	return c
}

func (r *reader) lease(m *wattlev1.Lease) (l eventstore.Lease) {
	if !there(r, "lease", m) {
		return l
	}
	return eventstore.Lease{Name: m.GetName(), Holder: r.uuid("lease.holder", m.GetHolder()), Epoch: number[eventstore.Epoch](r, "lease.epoch", m.GetEpoch()),
		Until: r.time("lease.until", m.GetUntil()), Left: r.duration("lease.left", m.GetLeft())}
}

func (r *reader) finding(m *wattlev1.Finding) (f eventstore.Finding) {
	if !there(r, "finding", m) {
		return f
	}
	f = eventstore.Finding{Check: clean(m.GetCheck()), Backend: clean(m.GetBackend()), Category: eventstore.Category(m.GetCategory()),
		Stream: eventstore.Stream(m.GetStream()), Seqno: number[eventstore.Seqno](r, "finding.seqno", m.GetSeqno()),
		Position: number[eventstore.Position](r, "finding.position", m.GetPosition()),
		Wanted:   clean(m.GetWanted()), Found: clean(m.GetFound()), Hint: clean(m.GetHint())}
	if s := m.GetSeverity(); s >= wattlev1.Severity_SEVERITY_OK && s <= wattlev1.Severity_SEVERITY_FAULT {
		f.Severity = eventstore.Severity(s - wattlev1.Severity_SEVERITY_OK)
	} else {
		r.wrong("severity", "ok, note, warning or fault", fmt.Sprint(int32(s)))
	}
	return f
}

// ToEvent reads an event, whose data is never nil. It refers to the message.
func ToEvent(m *wattlev1.Event) (eventstore.Event, error) { return read(m, (*reader).event) }

// ToEvents is ToEvent of each.
func ToEvents(m []*wattlev1.Event) ([]eventstore.Event, error) {
	return read(m, func(r *reader, m []*wattlev1.Event) []eventstore.Event { return each(r, m, (*reader).event) })
}

// ToEntry reads an entry. It refers to the message.
func ToEntry(m *wattlev1.Entry) (eventstore.Entry, error) { return read(m, (*reader).entry) }

// ToEntries is ToEntry of each.
func ToEntries(m []*wattlev1.Entry) ([]eventstore.Entry, error) {
	return read(m, func(r *reader, m []*wattlev1.Entry) []eventstore.Entry { return each(r, m, (*reader).entry) })
}

// ToMark reads a mark; nil is the zero one.
func ToMark(field string, m *wattlev1.Mark) (eventstore.Mark, error) {
	return read(m, func(r *reader, m *wattlev1.Mark) eventstore.Mark { return r.mark(field, m) })
}

// ToPositionMark reads a mark; nil is the zero one.
func ToPositionMark(field string, m *wattlev1.PositionMark) (eventstore.PositionMark, error) {
	return read(m, func(r *reader, m *wattlev1.PositionMark) eventstore.PositionMark { return r.positionMark(field, m) })
}

// ToHead reads a head, which must be there.
func ToHead(m *wattlev1.Head) (eventstore.Head, error) { return read(m, (*reader).head) }

// ToToken reads a token; nil is the zero one.
func ToToken(m *wattlev1.Token) (eventstore.Token, error) { return read(m, (*reader).token) }

// ToFilter reads a filter; nil is the zero one.
func ToFilter(m *wattlev1.Filter) (eventstore.Filter, error) { return read(m, (*reader).filter) }

// ToAnnouncement reads an announcement; nil is the empty one.
func ToAnnouncement(m *wattlev1.Announcement) (eventstore.Announcement, error) {
	return read(m, (*reader).announcement)
}

// ToBatch reads a batch.
func ToBatch(m *wattlev1.Batch) (eventstore.Batch, error) { return read(m, (*reader).batch) }

// ToAppend reads what an append consists of.
func ToAppend(batches []*wattlev1.Batch, guards []*wattlev1.Guard) (eventstore.Append, error) {
	return read(batches, func(r *reader, batches []*wattlev1.Batch) eventstore.Append {
		return eventstore.Append{Batches: each(r, batches, (*reader).batch), Guards: each(r, guards, (*reader).guard)}
	})
}

// ToAppended reads the answer to an append; see [Answers] for whether it is that.
func ToAppended(receipts []*wattlev1.Receipt, token *wattlev1.Token) (eventstore.Appended, error) {
	return read(receipts, func(r *reader, receipts []*wattlev1.Receipt) eventstore.Appended {
		return eventstore.Appended{Receipts: each(r, receipts, (*reader).receipt), Token: r.token(token)}
	})
}

// ToSnapshot reads a snapshot, which must be there.
func ToSnapshot(m *wattlev1.Snapshot) (eventstore.Snapshot, error) {
	return read(m, (*reader).snapshot)
}

// ToLoaded reads the answer to a load.
func ToLoaded(m *wattlev1.LoadResponse) (eventstore.Loaded, error) { return read(m, (*reader).loaded) }

// ToFeedPage reads a page of the feed.
func ToFeedPage(m *wattlev1.ReadFeedResponse) (eventstore.FeedPage, error) {
	return read(m, (*reader).feedPage)
}

// ToHold reads a hold, which must be there.
func ToHold(m *wattlev1.Hold) (eventstore.Hold, error) { return read(m, (*reader).hold) }

// ToHolds is ToHold of each.
func ToHolds(m []*wattlev1.Hold) ([]eventstore.Hold, error) {
	return read(m, func(r *reader, m []*wattlev1.Hold) []eventstore.Hold { return each(r, m, (*reader).hold) })
}

// ToCategorySpec reads what a category is, which must be there.
func ToCategorySpec(m *wattlev1.CategorySpec) (eventstore.CategorySpec, error) {
	return read(m, (*reader).categorySpec)
}

// ToCategorySpecs is ToCategorySpec of each.
func ToCategorySpecs(m []*wattlev1.CategorySpec) ([]eventstore.CategorySpec, error) {
	return read(m, func(r *reader, m []*wattlev1.CategorySpec) []eventstore.CategorySpec {
		return each(r, m, (*reader).categorySpec)
	})
}

// ToLease reads a lease, which must be there.
func ToLease(m *wattlev1.Lease) (eventstore.Lease, error) { return read(m, (*reader).lease) }

// ToLeases is ToLease of each.
func ToLeases(m []*wattlev1.Lease) ([]eventstore.Lease, error) {
	return read(m, func(r *reader, m []*wattlev1.Lease) []eventstore.Lease { return each(r, m, (*reader).lease) })
}

// ToLeaseUpdate reads what one holder does with its leases.
func ToLeaseUpdate(m *wattlev1.UpdateLeasesRequest) (eventstore.LeaseUpdate, error) {
	return read(m, func(r *reader, m *wattlev1.UpdateLeasesRequest) eventstore.LeaseUpdate {
		return eventstore.LeaseUpdate{Holder: r.uuid("holder", m.GetHolder()), TTL: r.duration("ttl", m.GetTtl()), Prefix: m.GetPrefix(),
			Renew: each(r, m.GetRenew(), (*reader).lease), Acquire: m.GetAcquire(), Release: each(r, m.GetRelease(), (*reader).lease)}
	})
}

// ToFinding reads what an examination found.
func ToFinding(m *wattlev1.Finding) (eventstore.Finding, error) { return read(m, (*reader).finding) }

// ToFindings is ToFinding of each.
func ToFindings(m []*wattlev1.Finding) ([]eventstore.Finding, error) {
	return read(m, func(r *reader, m []*wattlev1.Finding) []eventstore.Finding { return each(r, m, (*reader).finding) })
}

// ToProgress reads how far an examination has come; what is below 0 counts as 0.
func ToProgress(m *wattlev1.Progress) eventstore.Progress {
	return eventstore.Progress{Streams: max(m.GetStreams(), 0), Entries: max(m.GetEntries(), 0), Total: max(m.GetTotal(), 0)}
}
