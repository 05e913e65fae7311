// Messages that nobody of ours would send.

package wire

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// wantInvalid demands an error that says what was wanted and found, on one line.
func wantInvalid(t *testing.T, name string, err error) {
	t.Helper()
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Kind != eventstore.ErrInvalid || e.Wanted == "" || e.Found == "" {
		t.Errorf("%s: %v, want invalid, and why", name, err)
		return
	}
	if strings.ContainsAny(err.Error(), "\n\x00\x1b") || len(err.Error()) > 500 {
		t.Errorf("%s: %q is not one short line", name, err)
	}
}

func failing[T any](_ T, err error) error { return err }

func TestHostile(t *testing.T) {
	const huge = 1 << 63
	for name, err := range map[string]error{
		"UUID":               failing(ToEvent(&wattlev1.Event{Id: "x\n\x1b" + strings.Repeat("y", 1<<16)})),
		"UUID in braces":     failing(ToUUID("id", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}")),
		"version":            failing(ToEvent(&wattlev1.Event{Version: 1 << 31})),
		"no event":           failing(ToEntry(&wattlev1.Entry{})),
		"no events":          failing(ToEvents([]*wattlev1.Event{{}, nil})),
		"no entry":           failing(ToEntries([]*wattlev1.Entry{nil})),
		"seqno":              failing(ToEntry(&wattlev1.Entry{Event: &wattlev1.Event{}, Seqno: huge})),
		"epoch":              failing(ToEntry(&wattlev1.Entry{Event: &wattlev1.Event{}, Epoch: math.MaxUint64})),
		"position":           failing(ToEntry(&wattlev1.Entry{Event: &wattlev1.Event{}, Position: huge})),
		"batch ID":           failing(ToEntry(&wattlev1.Entry{Event: &wattlev1.Event{}, BatchId: "-"})),
		"time":               failing(ToEntry(&wattlev1.Entry{Event: &wattlev1.Event{}, Time: &timestamppb.Timestamp{Seconds: math.MaxInt64}})),
		"nanoseconds":        failing(ToTime("time", &timestamppb.Timestamp{Nanos: -1})),
		"mark":               failing(ToMark("after", &wattlev1.Mark{Seqno: huge})),
		"mark's ID":          failing(ToMark("after", &wattlev1.Mark{Seqno: 1, Id: "1"})),
		"position mark":      failing(ToPositionMark("after", &wattlev1.PositionMark{Position: huge})),
		"no head":            failing(ToHead(nil)),
		"head's epoch":       failing(ToHead(&wattlev1.Head{Epoch: huge})),
		"head's trimmed":     failing(ToHead(&wattlev1.Head{Trimmed: huge})),
		"head's last":        failing(ToHead(&wattlev1.Head{Last: &wattlev1.Mark{Seqno: huge}})),
		"token":              failing(ToToken(&wattlev1.Token{Position: huge})),
		"incarnation":        failing(ToToken(&wattlev1.Token{Incarnation: "x"})),
		"slot":               failing(ToFilter(&wattlev1.Filter{Slots: []uint32{0, 1024}})),
		"slots":              failing(ToSlots([]uint32{1 << 16})),
		"announced slot":     failing(ToAnnouncement(&wattlev1.Announcement{Slot: 1 << 20})),
		"announced seqno":    failing(ToAnnouncement(&wattlev1.Announcement{Seqno: huge})),
		"announced position": failing(ToAnnouncement(&wattlev1.Announcement{Position: huge})),
		"no batch":           failing(ToBatch(nil)),
		"batch's epoch":      failing(ToBatch(&wattlev1.Batch{Epoch: huge})),
		"batch's holder":     failing(ToBatch(&wattlev1.Batch{Holder: "me"})),
		"batch's event":      failing(ToAppend([]*wattlev1.Batch{{Events: []*wattlev1.Event{{Id: "1"}}}}, nil)),
		"no batches":         failing(ToAppend([]*wattlev1.Batch{nil}, nil)),
		"no guard":           failing(ToAppend(nil, []*wattlev1.Guard{nil})),
		"guard":              failing(ToAppend(nil, []*wattlev1.Guard{{At: &wattlev1.Mark{Seqno: huge}}})),
		"no receipt":         failing(ToAppended([]*wattlev1.Receipt{nil}, nil)),
		"receipt without":    failing(ToAppended([]*wattlev1.Receipt{{First: 1}}, nil)),
		"receipt's first":    failing(ToAppended([]*wattlev1.Receipt{{First: huge, Last: &wattlev1.Mark{}}}, nil)),
		"appended's token":   failing(ToAppended(nil, &wattlev1.Token{Position: huge})),
		"no snapshot":        failing(ToSnapshot(nil)),
		"checksum":           failing(ToSnapshot(&wattlev1.Snapshot{Checksum: []byte("short")})),
		"snapshot's time":    failing(ToSnapshot(&wattlev1.Snapshot{Time: &timestamppb.Timestamp{Seconds: math.MinInt64}})),
		"loaded without":     failing(ToLoaded(&wattlev1.LoadResponse{})),
		"loaded nil":         failing(ToLoaded(nil)),
		"loaded snapshot":    failing(ToLoaded(&wattlev1.LoadResponse{Head: &wattlev1.Head{}, Snapshot: &wattlev1.Snapshot{At: &wattlev1.Mark{Id: "x"}}})),
		"horizon":            failing(ToFeedPage(&wattlev1.ReadFeedResponse{Horizon: huge})),
		"drawn":              failing(ToFeedPage(&wattlev1.ReadFeedResponse{Drawn: huge})),
		"through":            failing(ToFeedPage(&wattlev1.ReadFeedResponse{Through: &wattlev1.PositionMark{Position: huge}})),
		"no hold":            failing(ToHolds([]*wattlev1.Hold{nil})),
		"hold's seqno":       failing(ToHold(&wattlev1.Hold{Seqno: huge})),
		"hold's position":    failing(ToHold(&wattlev1.Hold{Position: huge})),
		"no spec":            failing(ToCategorySpec(nil)),
		"layout":             failing(ToCategorySpecs([]*wattlev1.CategorySpec{{Layout: 8}})),
		"negative layout":    failing(ToCategorySpec(&wattlev1.CategorySpec{Layout: -1})),
		"no lease":           failing(ToLeases([]*wattlev1.Lease{nil})),
		"lease's epoch":      failing(ToLease(&wattlev1.Lease{Epoch: huge})),
		"lease's rest":       failing(ToLease(&wattlev1.Lease{Left: &durationpb.Duration{Seconds: math.MaxInt64}})),
		"ttl":                failing(ToLeaseUpdate(&wattlev1.UpdateLeasesRequest{Ttl: &durationpb.Duration{Seconds: 1, Nanos: -1}})),
		"long duration":      failing(ToDuration("ttl", &durationpb.Duration{Seconds: 300e9})),
		"renewed":            failing(ToLeaseUpdate(&wattlev1.UpdateLeasesRequest{Renew: []*wattlev1.Lease{nil}})),
		"severity":           failing(ToFinding(&wattlev1.Finding{})),
		"severities":         failing(ToFindings([]*wattlev1.Finding{{Severity: 77}})),
		"finding's seqno":    failing(ToFinding(&wattlev1.Finding{Severity: 1, Seqno: huge})),
		"count":              failing(ToCount("limit", math.MaxUint32)),
		"number":             failing(ToNumber[eventstore.Position]("after", huge)),
	} {
		wantInvalid(t, name, err)
	}
}

func TestAbsent(t *testing.T) {
	e, err := ToEvent(&wattlev1.Event{})
	if err != nil || e.Data == nil || e.Metadata != nil {
		t.Errorf("an event without data is %+v, %v", e, err)
	}
	e, err = ToEvent(&wattlev1.Event{Metadata: map[string]string{}})
	if err != nil || e.Metadata != nil {
		t.Errorf("an event with empty metadata is %+v, %v", e, err)
	}
	sn, err := ToSnapshot(&wattlev1.Snapshot{})
	if err != nil || sn.Data == nil {
		t.Errorf("a snapshot without data is %+v, %v", sn, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("x", 3600))
	want := time.Date(2026, 1, 2, 2, 4, 5, 123456000, time.UTC)
	if got, err := ToTime("time", FromTime(at)); err != nil || got != want {
		t.Errorf("a time comes back as %v, %v, want %v", got, err, want)
	}
	if got, err := ToTime("time", timestamppb.New(at)); err != nil || got != want {
		t.Errorf("a time of others comes as %v, %v, want %v", got, err, want)
	}
	for _, version := range []int{-1, math.MaxInt64} {
		if _, err := ToEvent(FromEvent(eventstore.Event{Version: version})); err == nil {
			t.Errorf("version %d passes", version)
		}
	}
	if n := FromCount(-1); n != 0 {
		t.Errorf("-1 is sent as %d", n)
	}
}

// decodeAll reads a message as every kind of message.
func decodeAll(data []byte, unmarshal func([]byte, proto.Message) error) {
	into := func(m proto.Message, read func()) {
		if unmarshal(data, m) == nil {
			read()
		}
	}
	var (
		request  wattlev1.AppendRequest
		response wattlev1.AppendResponse
		page     wattlev1.ReadFeedResponse
		loaded   wattlev1.LoadResponse
		leases   wattlev1.UpdateLeasesRequest
		hold     wattlev1.Hold
		finding  wattlev1.Finding
		spec     wattlev1.CategorySpec
		hint     wattlev1.Announcement
		filter   wattlev1.Filter
		detail   wattlev1.ErrorDetail
	)
	into(&request, func() { _, _ = ToAppend(request.GetBatches(), request.GetGuards()) })
	into(&response, func() { _, _ = ToAppended(response.GetReceipts(), response.GetToken()) })
	into(&page, func() { _, _ = ToFeedPage(&page) })
	into(&loaded, func() { _, _ = ToLoaded(&loaded) })
	into(&leases, func() { _, _ = ToLeaseUpdate(&leases) })
	into(&hold, func() { _, _ = ToHold(&hold) })
	into(&finding, func() { _, _ = ToFinding(&finding) })
	into(&spec, func() { _, _ = ToCategorySpec(&spec) })
	into(&hint, func() { _, _ = ToAnnouncement(&hint) })
	into(&filter, func() { _, _ = ToFilter(&filter) })
	into(&detail, func() {
		if e := toError("x", &detail, connect.CodeUnknown, nil); e != nil {
			_ = e.Error()
		}
	})
}

func FuzzDecode(f *testing.F) {
	batch := &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Id: eventstore.NameUUID("b").String(), Stream: "loan-a", Events: []*wattlev1.Event{{Type: "x"}}}}}
	data, err := proto.Marshal(batch)
	if err != nil {
		f.Fatal(err)
	}
	text, err := protojson.Marshal(batch)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(text)
	f.Add([]byte(`{"head":{"epoch":"18446744073709551615"},"left":"1e9s"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeAll(data, proto.Unmarshal)
		decodeAll(data, func(data []byte, m proto.Message) error { return protojson.Unmarshal(data, m) })
	})
}
