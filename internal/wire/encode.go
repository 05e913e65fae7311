// The words of eventstore as messages.

package wire

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// FromUUID returns the 36 characters of a UUID, "" for the zero one.
func FromUUID(u eventstore.UUID) string {
	if u.IsZero() {
		return ""
	}
	return u.String()
}

// FromTime returns a time to the microsecond, nil for the zero one.
func FromTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Truncate(time.Microsecond))
}

// FromDuration returns a duration, nil for 0.
func FromDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// FromCount returns a number of something; what does not fit is the nearest that does.
func FromCount(n int) uint32 { return uint32(min(max(n, 0), math.MaxInt32)) }

// all makes a message of each.
func all[T, M any](values []T, message func(T) M) []M {
	if len(values) == 0 {
		return nil
	}
	messages := make([]M, len(values))
	for i := range values {
		messages[i] = message(values[i])
	}
	return messages
}

// FromStreams and the like return names as strings.
func FromStreams(streams []eventstore.Stream) []string {
	return all(streams, func(s eventstore.Stream) string { return string(s) })
}

// FromCategories returns names as strings.
func FromCategories(categories []eventstore.Category) []string {
	return all(categories, func(c eventstore.Category) string { return string(c) })
}

// FromSlots returns slots as numbers.
func FromSlots(slots []eventstore.Slot) []uint32 {
	return all(slots, func(s eventstore.Slot) uint32 { return uint32(s) })
}

// FromEvent refers to the event's data and metadata.
func FromEvent(e eventstore.Event) *wattlev1.Event {
	version := uint32(math.MaxUint32) // of no event: it is refused where it is read
	if e.Version >= 0 && e.Version <= math.MaxInt32 {
		version = uint32(e.Version)
	}
	return &wattlev1.Event{Id: FromUUID(e.ID), Type: e.Type, Version: version, ContentType: e.ContentType, Data: e.Data, Metadata: e.Metadata}
}

// FromEvents is FromEvent of each.
func FromEvents(events []eventstore.Event) []*wattlev1.Event { return all(events, FromEvent) }

// FromEntry refers to the entry's data and metadata.
func FromEntry(e eventstore.Entry) *wattlev1.Entry {
	return &wattlev1.Entry{Event: FromEvent(e.Event), Stream: string(e.Stream), Seqno: uint64(e.Seqno), Epoch: uint64(e.Epoch),
		BatchId: FromUUID(e.BatchID), Position: uint64(e.Position), Time: FromTime(e.Time)}
}

// FromEntries is FromEntry of each.
func FromEntries(entries []eventstore.Entry) []*wattlev1.Entry { return all(entries, FromEntry) }

// FromMark returns nil for the zero mark.
func FromMark(m eventstore.Mark) *wattlev1.Mark {
	if m == (eventstore.Mark{}) {
		return nil
	}
	return &wattlev1.Mark{Seqno: uint64(m.Seqno), Id: FromUUID(m.ID)}
}

// FromPositionMark returns nil for the zero mark.
func FromPositionMark(m eventstore.PositionMark) *wattlev1.PositionMark {
	if m == (eventstore.PositionMark{}) {
		return nil
	}
	return &wattlev1.PositionMark{Position: uint64(m.Position), Id: FromUUID(m.ID)}
}

// FromHead never returns nil: a head that is not there is an answer that is not.
func FromHead(h eventstore.Head) *wattlev1.Head {
	return &wattlev1.Head{Epoch: uint64(h.Epoch), Holder: FromUUID(h.Holder), Last: FromMark(h.Last), Trimmed: uint64(h.Trimmed)}
}

// FromToken returns nil for the zero token.
func FromToken(t eventstore.Token) *wattlev1.Token {
	if t == (eventstore.Token{}) {
		return nil
	}
	return &wattlev1.Token{Incarnation: FromUUID(t.Incarnation), Position: uint64(t.Position)}
}

// FromFilter returns nil for the zero filter.
func FromFilter(f eventstore.Filter) *wattlev1.Filter {
	if len(f.Categories)+len(f.Types)+len(f.Slots) == 0 && !f.AcceptTrimmed {
		return nil
	}
	return &wattlev1.Filter{Categories: FromCategories(f.Categories), Types: f.Types, Slots: FromSlots(f.Slots), AcceptTrimmed: f.AcceptTrimmed}
}

// FromAnnouncement makes an empty message of the empty announcement.
func FromAnnouncement(a eventstore.Announcement) *wattlev1.Announcement {
	return &wattlev1.Announcement{Category: string(a.Category), Slot: uint32(a.Slot), Stream: string(a.Stream),
		Seqno: uint64(a.Seqno), Position: uint64(a.Position), Traceparent: a.Traceparent}
}

// FromBatch refers to the events' data and metadata.
func FromBatch(b eventstore.Batch) *wattlev1.Batch {
	return &wattlev1.Batch{Id: FromUUID(b.ID), Stream: string(b.Stream), Epoch: uint64(b.Epoch), Holder: FromUUID(b.Holder), Claim: b.Claim,
		After: FromMark(b.After), Events: FromEvents(b.Events)}
}

// FromBatches is FromBatch of each.
func FromBatches(batches []eventstore.Batch) []*wattlev1.Batch { return all(batches, FromBatch) }

// FromGuards makes a message of each guard.
func FromGuards(guards []eventstore.Guard) []*wattlev1.Guard {
	return all(guards, func(g eventstore.Guard) *wattlev1.Guard {
		return &wattlev1.Guard{Stream: string(g.Stream), At: FromMark(g.At)}
	})
}

// FromAppend refers to the events' data and metadata.
func FromAppend(a eventstore.Append) *wattlev1.AppendRequest {
	return &wattlev1.AppendRequest{Batches: FromBatches(a.Batches), Guards: FromGuards(a.Guards)}
}

// FromReceipts makes a message of each receipt.
func FromReceipts(receipts []eventstore.Receipt) []*wattlev1.Receipt {
	return all(receipts, func(r eventstore.Receipt) *wattlev1.Receipt {
		return &wattlev1.Receipt{Stream: string(r.Stream), First: uint64(r.First), Last: FromMark(r.Last), Fenced: r.Fenced, Replays: r.Replays}
	})
}

// FromAppended is the answer to an append.
func FromAppended(a eventstore.Appended) *wattlev1.AppendResponse {
	return &wattlev1.AppendResponse{Receipts: FromReceipts(a.Receipts), Token: FromToken(a.Token)}
}

// FromSnapshot returns nil for none. It refers to the snapshot's data.
func FromSnapshot(sn *eventstore.Snapshot) *wattlev1.Snapshot {
	if sn == nil {
		return nil
	}
	m := &wattlev1.Snapshot{Stream: string(sn.Stream), At: FromMark(sn.At), Fingerprint: sn.Fingerprint, ContentType: sn.ContentType,
		Data: sn.Data, Time: FromTime(sn.Time)}
	if sn.Checksum != [len(sn.Checksum)]byte{} {
		m.Checksum = sn.Checksum[:]
	}
	return m
}

// FromLoaded refers to the data of snapshot and entries.
func FromLoaded(l eventstore.Loaded) *wattlev1.LoadResponse {
	return &wattlev1.LoadResponse{Head: FromHead(l.Head), Snapshot: FromSnapshot(l.Snapshot), Skipped: l.Skipped,
		Entries: FromEntries(l.Entries), End: l.End, Incarnation: FromUUID(l.Incarnation)}
}

// FromFeedPage refers to the entries' data.
func FromFeedPage(p eventstore.FeedPage) *wattlev1.ReadFeedResponse {
	return &wattlev1.ReadFeedResponse{Entries: FromEntries(p.Entries), Through: FromPositionMark(p.Through), End: p.End,
		Horizon: uint64(p.Horizon), Drawn: uint64(p.Drawn), Incarnation: FromUUID(p.Incarnation), Timeline: p.Timeline}
}

// FromHold is a hold.
func FromHold(h eventstore.Hold) *wattlev1.Hold {
	return &wattlev1.Hold{Name: h.Name, Category: string(h.Category), Stream: string(h.Stream), Seqno: uint64(h.Seqno),
		Position: uint64(h.Position), Id: FromUUID(h.ID)}
}

// FromHolds is FromHold of each.
func FromHolds(holds []eventstore.Hold) []*wattlev1.Hold { return all(holds, FromHold) }

// FromCategorySpec is what a category is. A layout that there is not stays one.
func FromCategorySpec(c eventstore.CategorySpec) *wattlev1.CategorySpec {
	return &wattlev1.CategorySpec{Name: string(c.Name), Layout: wattlev1.Layout(c.Layout) + wattlev1.Layout_LAYOUT_SHARED, TrimFreely: c.TrimFreely}
}

// FromCategorySpecs is FromCategorySpec of each.
func FromCategorySpecs(specs []eventstore.CategorySpec) []*wattlev1.CategorySpec {
	return all(specs, FromCategorySpec)
}

// FromLease is a lease.
func FromLease(l eventstore.Lease) *wattlev1.Lease {
	return &wattlev1.Lease{Name: l.Name, Holder: FromUUID(l.Holder), Epoch: uint64(l.Epoch), Until: FromTime(l.Until), Left: FromDuration(l.Left)}
}

// FromLeases is FromLease of each.
func FromLeases(leases []eventstore.Lease) []*wattlev1.Lease { return all(leases, FromLease) }

// FromLeaseUpdate is what one holder does with its leases.
func FromLeaseUpdate(u eventstore.LeaseUpdate) *wattlev1.UpdateLeasesRequest {
	return &wattlev1.UpdateLeasesRequest{Holder: FromUUID(u.Holder), Ttl: FromDuration(u.TTL), Prefix: u.Prefix,
		Renew: FromLeases(u.Renew), Acquire: u.Acquire, Release: FromLeases(u.Release)}
}

// FromFinding is what an examination found.
func FromFinding(f eventstore.Finding) *wattlev1.Finding {
	return &wattlev1.Finding{Check: f.Check, Severity: wattlev1.Severity(f.Severity) + wattlev1.Severity_SEVERITY_OK, Backend: f.Backend,
		Category: string(f.Category), Stream: string(f.Stream), Seqno: uint64(f.Seqno), Position: uint64(f.Position),
		Wanted: f.Wanted, Found: f.Found, Hint: f.Hint}
}

// FromFindings is FromFinding of each.
func FromFindings(findings []eventstore.Finding) []*wattlev1.Finding {
	return all(findings, FromFinding)
}

// FromProgress is how far an examination has come.
func FromProgress(p eventstore.Progress) *wattlev1.Progress {
	return &wattlev1.Progress{Streams: p.Streams, Entries: p.Entries, Total: p.Total}
}
