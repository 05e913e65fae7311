// Values by chance: over the wire, in both forms, and back they are what they were.

package wire

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

type chance struct{ *rand.Rand }

func (c chance) maybe() bool { return c.IntN(2) == 0 }

func (c chance) text() string {
	return []string{"", "a", "größe", "\u2028\"\\\x01<&>", "𝛌", strings.Repeat("x", 300)}[c.IntN(6)]
}

// name is a text that is shown: one printable line.
func (c chance) name() string { return []string{"", "a", "größe x", "𝛌\"<>"}[c.IntN(4)] }

func (c chance) id() (id eventstore.UUID) {
	if c.maybe() {
		return id
	}
	return eventstore.NameUUID(fmt.Sprint(c.Uint64()))
}

func (c chance) number() uint64 {
	return []uint64{0, 1, 1 << 53, 1<<53 + 1, eventstore.MaxNumber, c.Uint64N(eventstore.MaxNumber)}[c.IntN(6)]
}

func (c chance) moment() time.Time {
	if c.maybe() {
		return time.Time{}
	}
	return time.Unix(c.Int64N(1<<33)-1<<32, c.Int64N(1e6)*1000).UTC()
}

func (c chance) data() []byte { return [][]byte{{}, {0, 255, 10}, []byte(`{"a":1}`)}[c.IntN(3)] }

func some[T any](c chance, one func() T) []T {
	n := c.IntN(4)
	if n == 0 {
		return nil
	}
	values := make([]T, n)
	for i := range values {
		values[i] = one()
	}
	return values
}

func (c chance) meta() eventstore.Metadata {
	if c.maybe() {
		return nil
	}
	return eventstore.Metadata{"k": c.text(), "größe": ""}
}

func (c chance) stream() eventstore.Stream { return eventstore.Stream("loan-" + c.text()) }

func (c chance) event() eventstore.Event {
	return eventstore.Event{ID: c.id(), Type: c.text(), Version: int(c.Uint32N(1 << 31)), ContentType: c.text(), Data: c.data(), Metadata: c.meta()}
}

func (c chance) entry() eventstore.Entry {
	return eventstore.Entry{Event: c.event(), Stream: c.stream(), Seqno: eventstore.Seqno(c.number()), Epoch: eventstore.Epoch(c.number()),
		BatchID: c.id(), Position: eventstore.Position(c.number()), Time: c.moment()}
}

func (c chance) mark() eventstore.Mark {
	return eventstore.Mark{Seqno: eventstore.Seqno(c.number()), ID: c.id()}
}

func (c chance) positionMark() eventstore.PositionMark {
	return eventstore.PositionMark{Position: eventstore.Position(c.number()), ID: c.id()}
}

func (c chance) head() eventstore.Head {
	return eventstore.Head{Epoch: eventstore.Epoch(c.number()), Holder: c.id(), Last: c.mark(), Trimmed: eventstore.Seqno(c.number())}
}

func (c chance) token() eventstore.Token {
	return eventstore.Token{Incarnation: c.id(), Position: eventstore.Position(c.number())}
}

func (c chance) slot() eventstore.Slot { return eventstore.Slot(c.IntN(eventstore.Slots)) }

func (c chance) category() eventstore.Category { return eventstore.Category(c.text()) }

func (c chance) filter() eventstore.Filter {
	return eventstore.Filter{Categories: some(c, c.category), Types: some(c, c.text), Slots: some(c, c.slot), AcceptTrimmed: c.maybe()}
}

func (c chance) announcement() eventstore.Announcement {
	return eventstore.Announcement{Category: c.category(), Slot: c.slot(), Stream: c.stream(), Seqno: eventstore.Seqno(c.number()),
		Position: eventstore.Position(c.number()), Traceparent: c.text()}
}

func (c chance) batch() eventstore.Batch {
	return eventstore.Batch{ID: c.id(), Stream: c.stream(), Epoch: eventstore.Epoch(c.number()), Holder: c.id(), Claim: c.maybe(), After: c.mark(), Events: some(c, c.event)}
}

func (c chance) append() eventstore.Append {
	return eventstore.Append{Batches: some(c, c.batch), Guards: some(c, func() eventstore.Guard { return eventstore.Guard{Stream: c.stream(), At: c.mark()} })}
}

func (c chance) appended() eventstore.Appended {
	return eventstore.Appended{Token: c.token(), Receipts: some(c, func() eventstore.Receipt {
		return eventstore.Receipt{Stream: c.stream(), First: eventstore.Seqno(c.number()), Last: eventstore.Mark{Seqno: 1 + eventstore.Seqno(c.Uint32()), ID: c.id()}, Fenced: c.maybe(), Replays: c.maybe()}
	})}
}

func (c chance) snapshot() eventstore.Snapshot {
	sn := eventstore.Snapshot{Stream: c.stream(), At: c.mark(), Fingerprint: c.text(), ContentType: c.text(), Data: c.data(), Time: c.moment()}
	if c.maybe() {
		sn.Checksum[c.IntN(32)] = 7
	}
	return sn
}

func (c chance) loaded() eventstore.Loaded {
	l := eventstore.Loaded{Head: c.head(), Skipped: c.name(), Entries: some(c, c.entry), End: c.maybe(), Incarnation: c.id()}
	if c.maybe() {
		sn := c.snapshot()
		l.Snapshot = &sn
	}
	return l
}

func (c chance) feedPage() eventstore.FeedPage {
	return eventstore.FeedPage{Entries: some(c, c.entry), Through: c.positionMark(), End: c.maybe(), Horizon: eventstore.Position(c.number()),
		Drawn: eventstore.Position(c.number()), Incarnation: c.id(), Timeline: c.Uint64()}
}

func (c chance) hold() eventstore.Hold {
	return eventstore.Hold{Name: c.text(), Category: c.category(), Stream: c.stream(), Seqno: eventstore.Seqno(c.number()), Position: eventstore.Position(c.number()), ID: c.id()}
}

func (c chance) categorySpec() eventstore.CategorySpec {
	return eventstore.CategorySpec{Name: c.category(), Layout: eventstore.Layout(c.IntN(2)), TrimFreely: c.maybe()}
}

func (c chance) duration() time.Duration { return time.Duration(c.Int64N(1<<55) - 1<<54) }

func (c chance) lease() eventstore.Lease {
	return eventstore.Lease{Name: c.text(), Holder: c.id(), Epoch: eventstore.Epoch(c.number()), Until: c.moment(), Left: c.duration()}
}

func (c chance) leaseUpdate() eventstore.LeaseUpdate {
	return eventstore.LeaseUpdate{Holder: c.id(), TTL: c.duration(), Prefix: c.text(), Renew: some(c, c.lease), Acquire: some(c, c.text), Release: some(c, c.lease)}
}

func (c chance) finding() eventstore.Finding {
	return eventstore.Finding{Check: c.name(), Severity: eventstore.Severity(c.IntN(4)), Backend: c.name(), Category: c.category(), Stream: c.stream(),
		Seqno: eventstore.Seqno(c.number()), Position: eventstore.Position(c.number()), Wanted: c.name(), Found: c.name(), Hint: c.name()}
}

// same sends a value over the wire, in both forms, and compares.
func same[T any, M proto.Message](t *testing.T, seed uint64, value T, from func(T) M, to func(M) (T, error)) {
	t.Helper()
	m := from(value)
	if !reflect.ValueOf(m).IsNil() {
		fresh := func() M { return m.ProtoReflect().New().Interface().(M) }
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, value, err)
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, value, err)
		}
		binary, json := fresh(), fresh()
		if err := proto.Unmarshal(data, binary); err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(text, json); err != nil || !proto.Equal(binary, json) {
			t.Fatalf("seed %d: as JSON %v (%v), binary %v", seed, json, err, binary)
		}
		m = binary
	}
	if got, err := to(m); err != nil || !reflect.DeepEqual(got, value) {
		t.Fatalf("seed %d: %T comes back as\n%+v, %v\nwant\n%+v", seed, value, got, err, value)
	}
}

func TestByChance(t *testing.T) {
	first := rand.Uint64()
	for i := range uint64(400) {
		seed := first + i
		c := chance{rand.New(rand.NewPCG(seed, 1))}
		same(t, seed, c.event(), FromEvent, ToEvent)
		same(t, seed, c.entry(), FromEntry, ToEntry)
		same(t, seed, c.mark(), FromMark, func(m *wattlev1.Mark) (eventstore.Mark, error) { return ToMark("at", m) })
		same(t, seed, c.positionMark(), FromPositionMark, func(m *wattlev1.PositionMark) (eventstore.PositionMark, error) { return ToPositionMark("at", m) })
		same(t, seed, c.head(), FromHead, ToHead)
		same(t, seed, c.token(), FromToken, ToToken)
		same(t, seed, c.filter(), FromFilter, ToFilter)
		same(t, seed, c.announcement(), FromAnnouncement, ToAnnouncement)
		same(t, seed, c.batch(), FromBatch, ToBatch)
		same(t, seed, c.append(), FromAppend, func(m *wattlev1.AppendRequest) (eventstore.Append, error) {
			return ToAppend(m.GetBatches(), m.GetGuards())
		})
		same(t, seed, c.appended(), FromAppended, func(m *wattlev1.AppendResponse) (eventstore.Appended, error) {
			return ToAppended(m.GetReceipts(), m.GetToken())
		})
		same(t, seed, c.snapshot(), func(sn eventstore.Snapshot) *wattlev1.Snapshot { return FromSnapshot(&sn) }, ToSnapshot)
		same(t, seed, c.loaded(), FromLoaded, ToLoaded)
		same(t, seed, c.feedPage(), FromFeedPage, ToFeedPage)
		same(t, seed, c.hold(), FromHold, ToHold)
		same(t, seed, c.categorySpec(), FromCategorySpec, ToCategorySpec)
		same(t, seed, c.lease(), FromLease, ToLease)
		same(t, seed, c.leaseUpdate(), FromLeaseUpdate, ToLeaseUpdate)
		same(t, seed, c.finding(), FromFinding, ToFinding)
	}
}
