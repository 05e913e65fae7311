// Iterating over more than one page.

package eventstore_test

import (
	"iter"
	"slices"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// Every entry comes once, in order, however many pages it takes; also where others
// that do not match stand between them.
func TestReadingOverPages(t *testing.T) {
	const n = 2*eventstore.DefaultPageEntries + 200
	s := newStore(t, nil)
	a := opening(n, "account-a", "account-b")
	for i := range n {
		if i%3 > 0 {
			a.Batches[0].Events[i].Type = "other"
		}
	}
	if _, err := s.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	seqnos := func(all iter.Seq2[eventstore.Entry, error], of eventstore.Stream) (got []eventstore.Seqno) {
		for e, err := range all {
			if err != nil {
				t.Fatal(err)
			}
			if e.Stream == of {
				got = append(got, e.Seqno)
			}
		}
		return got
	}
	var every, third []eventstore.Seqno
	for i := range eventstore.Seqno(n) {
		if every = append(every, i+1); i%3 == 0 {
			third = append(third, i+1)
		}
	}
	ctx := t.Context()
	backward := slices.Clone(every)
	slices.Reverse(backward)
	loaded, err := s.Load(ctx, "account-a", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ got, want []eventstore.Seqno }{
		"Read":          {seqnos(s.Read(ctx, "account-a", 0), "account-a"), every},
		"ReadBackward":  {seqnos(s.ReadBackward(ctx, "account-a", 0), "account-a"), backward},
		"Load":          {seqnos(loaded.Tail, "account-a"), every},
		"Feed":          {seqnos(s.Feed(ctx, 0, eventstore.Filter{}), "account-b"), every},
		"Feed filtered": {seqnos(s.Feed(ctx, 0, eventstore.Filter{Types: []string{"opened"}}), "account-a"), third},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %d entries, want %d", name, len(c.got), len(c.want))
		}
	}
}

// A sequence can be ranged over again, from its beginning.
func TestSequencesStartAnew(t *testing.T) {
	s := eventstore.New(memlog.New(nil), nil)
	ctx := t.Context()
	if err := s.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}); err != nil {
		t.Fatal(err)
	}
	b := eventstore.Batch{Stream: "account-a", Epoch: 1, Holder: eventstore.NewUUID(), Claim: true, Events: []eventstore.Event{{Type: "x"}, {Type: "y"}}}
	if _, err := s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
		t.Fatal(err)
	}
	for name, all := range map[string]iter.Seq2[eventstore.Entry, error]{
		"Read": s.Read(ctx, "account-a", 0), "ReadBackward": s.ReadBackward(ctx, "account-a", 0), "Feed": s.Feed(ctx, 0, eventstore.Filter{}),
	} {
		for round := range 2 {
			n := 0
			for _, err := range all {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != 2 {
				t.Errorf("%s, time %d: %d entries, want 2", name, round+1, n)
			}
		}
	}
}
