package eventstore_test

import (
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

func TestLastBefore(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	start := now
	s := eventstore.New(memlog.New(&memlog.Options{Now: func() time.Time { return now }}), nil)
	ctx := t.Context()
	if err := s.CreateCategory(ctx, eventstore.CategorySpec{Name: "account", TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	want := func(at time.Time, seqno eventstore.Seqno) {
		t.Helper()
		if got, err := s.LastBefore(ctx, "account-a", at); err != nil || got != seqno {
			t.Errorf("LastBefore(%v) = %d, %v, want %d", at.Sub(start), got, err, seqno)
		}
	}
	want(start, 0) // no such stream
	b := eventstore.Batch{Stream: "account-a", Epoch: 1, Holder: eventstore.NewUUID(), Claim: true, Events: make([]eventstore.Event, 2)}
	for i := range 10 { // entries 2i+1 and 2i+2 at i minutes
		now = start.Add(time.Duration(i) * time.Minute)
		b.Events = []eventstore.Event{{Type: "x"}, {Type: "x"}}
		done, err := s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		if err != nil {
			t.Fatal(err)
		}
		b.After, b.Claim = done.Receipts[0].Last, false
	}
	for i := range eventstore.Seqno(10) {
		want(start.Add(time.Duration(i)*time.Minute), 2*i)
		want(start.Add(time.Duration(i)*time.Minute+1), 2*i+2)
	}
	if _, err := s.Trim(ctx, "account-a", 7, false); err != nil {
		t.Fatal(err)
	}
	want(start, 7)
	want(start.Add(5*time.Minute), 10)
	if _, err := s.Trim(ctx, "account-a", 20, false); err != nil {
		t.Fatal(err)
	}
	want(start.Add(time.Hour), 20)
}
