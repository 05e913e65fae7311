// Parked keys whose waiting entries were trimmed.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// parkedAndTrimmed parks the key of account-k and other-k at the third entry of the first, with
// more behind it in both, and trims them.
func parkedAndTrimmed(t *testing.T, o projector.Options, through map[eventstore.Stream]eventstore.Seqno) (*env, *picky, *projector.Projector) {
	t.Helper()
	e := newEnv(t, nil)
	h := newPicky(func(e eventstore.Entry) error {
		if e.Seqno == 3 && e.Stream == "account-k" {
			return errBad
		}
		return nil
	})
	o.Tries, o.NoHold, o.Categories = 1, true, []eventstore.Category{"other"}
	p := projector.New(e.store, "p", "account", h, &o)
	e.deposit("account-k", 4)
	e.deposit("other-k", 4)
	e.deposit("account-k", 4)
	if _, err := p.CatchUp(t.Context(), 0); err != nil || len(versions(t, h)[0].Parked) != 1 {
		t.Fatal(err, versions(t, h))
	}
	for s, n := range through {
		_, err := e.store.Trim(t.Context(), s, n, false)
		e.ok(err)
	}
	return e, h, p
}

// What is wanted of a parked key is done also where it waited for what is gone: skipping
// gives up the entry at fault and all that was trimmed with it, with a record; a projector
// that goes on without what was trimmed does so here.
func TestParkedKeyThatWasTrimmed(t *testing.T) {
	a, b := eventstore.Stream("account-k"), eventstore.Stream("other-k")
	for name, c := range map[string]struct {
		o       projector.Options
		through map[eventstore.Stream]eventstore.Seqno
		skip    bool
		parked  int
		handled int    // of the 12 entries, 2 of which come before the one at fault
		records string // of the entries given up
	}{
		"skipped, the entry at fault":        {through: map[eventstore.Stream]eventstore.Seqno{a: 3}, skip: true, handled: 11, records: "account-k/3"},
		"skipped, and some behind it":        {through: map[eventstore.Stream]eventstore.Seqno{a: 6}, skip: true, handled: 8, records: "account-k/3"},
		"skipped, all of it":                 {through: map[eventstore.Stream]eventstore.Seqno{a: 8, b: 4}, skip: true, handled: 2, records: "account-k/3 other-k/1"},
		"skipped, some of the other stream":  {through: map[eventstore.Stream]eventstore.Seqno{b: 2}, skip: true, handled: 9, records: "other-k/1 account-k/3"},
		"retried":                            {through: map[eventstore.Stream]eventstore.Seqno{a: 3}, parked: 1, handled: 2},
		"retried, and gone on without":       {o: projector.Options{AcceptTrimmed: true}, through: map[eventstore.Stream]eventstore.Seqno{a: 3}, handled: 11, records: "account-k/3"},
		"skipped, and no snapshot":           {o: projector.Options{Snapshots: true}, through: map[eventstore.Stream]eventstore.Seqno{a: 8}, skip: true, handled: 6, records: "account-k/3"},
		"retried, the other stream, and all": {o: projector.Options{AcceptTrimmed: true}, through: map[eventstore.Stream]eventstore.Seqno{a: 8, b: 2}, handled: 4, records: "account-k/3 other-k/1"},
	} {
		t.Run(name, func(t *testing.T) {
			e, h, p := parkedAndTrimmed(t, c.o, c.through)
			admin := projector.NewAdmin(e.store, h)
			for range 2 { // nothing more happens at the second time
				if len(versions(t, h)[0].Parked) == 0 {
					break
				}
				if c.skip {
					e.ok(admin.Skip(t.Context(), "p", 1, "k", "gone"))
				} else {
					_, err := admin.Retry(t.Context(), "p", 1, "")
					e.ok(err)
				}
				_, err := p.CatchUp(t.Context(), 0)
				e.ok(err)
			}
			if n := len(versions(t, h)[0].Parked); n != c.parked {
				t.Errorf("%d keys parked, want %d: %+v", n, c.parked, versions(t, h)[0].Parked)
			}
			if n := h.count(); n != c.handled {
				t.Errorf("%d entries handled, want %d", n, c.handled)
			}
			records, err := admin.Skipped(t.Context(), "p", 1)
			e.ok(err)
			var got []string
			for _, k := range records {
				got = append(got, fmt.Sprintf("%s/%d", k.Stream, k.Seqno))
				if k.Note == "" {
					t.Errorf("record without a reason: %+v", k)
				}
			}
			if s := strings.Join(got, " "); s != c.records {
				t.Errorf("records %q, want %q", s, c.records)
			}
			if c.parked > 0 {
				if cause := versions(t, h)[0].Parked[0].Cause; !strings.Contains(cause, "trimmed") {
					t.Errorf("cause %q", cause)
				}
			}
		})
	}
}

// One entry is skipped, also if the worker fails between giving up what is gone and
// handling what is left.
func TestSkippedOnceWhereItWasTrimmed(t *testing.T) {
	e, h, p := parkedAndTrimmed(t, projector.Options{}, map[eventstore.Stream]eventstore.Seqno{"account-k": 3})
	e.ok(projector.NewAdmin(e.store, h).Skip(t.Context(), "p", 1, "k", "gone"))
	h.before = func(_ context.Context, s projector.Step) error {
		if len(s.Batch) > 0 {
			return errOutage
		}
		return nil
	}
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatal(err)
	}
	h.before = nil
	_, err := p.CatchUp(t.Context(), 0)
	e.ok(err)
	if n := h.count(); n != 11 {
		t.Errorf("%d entries handled, want 11", n)
	}
}

// The one that is parked for good no longer fills the lane.
func TestTrimmedKeysMakeRoom(t *testing.T) {
	e := newEnv(t, nil)
	h := newPicky(func(e eventstore.Entry) error {
		if e.Type == "renamed" {
			return errBad
		}
		return nil
	})
	p := projector.New(e.store, "p", "account", h, &projector.Options{Tries: 1, NoHold: true, MaxParked: 2})
	for i := range 3 {
		e.append(stream(i), Renamed{"x"})
	}
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrOverloaded) {
		t.Fatal(err)
	}
	admin := projector.NewAdmin(e.store, h)
	for i := range 2 {
		_, err := e.store.Trim(t.Context(), stream(i), 1, false)
		e.ok(err)
		e.ok(admin.Skip(t.Context(), "p", 1, stream(i).Key(), "gone"))
	}
	_, err := p.CatchUp(t.Context(), 0)
	e.ok(err)
	if all := versions(t, h)[0].Parked; len(all) != 1 || all[0].StreamKey != stream(2).Key() {
		t.Errorf("parked %+v", all)
	}
}
