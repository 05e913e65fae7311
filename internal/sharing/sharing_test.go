package sharing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/internal/sharing"
)

const ttl = 3 * time.Second

func names(n int) (items []string) {
	for i := range n {
		items = append(items, fmt.Sprintf("item/%05d", i))
	}
	return items
}

// Members come and go, with more items than one call may carry: shares differ by one at
// most, nobody's are touched but for what is above the share, and all are had in the end.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, items := eventstore.New(memlog.New(nil), nil), names(2*eventstore.MaxLeases+1)
		member := func() *sharing.Member {
			return sharing.New(store, sharing.Options{TTL: ttl, Prefix: "x/", Seats: "seat/"})
		}
		has := map[*sharing.Member][]string{}
		share := func(m *sharing.Member, leave func([]string) []string) sharing.Shares {
			t.Helper()
			got, err := m.Share(t.Context(), sharing.Division{Items: items, Leave: leave})
			if err != nil {
				t.Fatal(err)
			}
			has[m] = nil
			for _, l := range got.Mine {
				has[m] = append(has[m], strings.TrimPrefix(l.Name, "x/"))
			}
			return got
		}
		a, b := member(), member()
		if share(a, nil); !slices.Equal(has[a], items) {
			t.Fatalf("alone: %d of %d", len(has[a]), len(items))
		}
		if got := share(b, nil); len(has[b]) != 0 || !got.Eager || got.Seat.Name != "x/seat/0001" {
			t.Fatalf("all are taken: %d, eager %v, seat %v", len(has[b]), got.Eager, got.Seat)
		}
		busy := items[len(items)-1]
		got := share(a, func(drop []string) []string { return slices.DeleteFunc(drop, func(s string) bool { return s == busy }) })
		if len(got.Mine) != eventstore.MaxLeases+1 || !got.Eager || slices.Contains(has[a], busy) {
			t.Errorf("%d are left, eager %v; one more is still worked on", len(got.Mine), got.Eager)
		}
		if share(b, nil); len(has[b]) != eventstore.MaxLeases-1 {
			t.Errorf("%d taken; one is still held", len(has[b]))
		}
		share(a, nil)
		if got := share(b, nil); len(has[b]) != eventstore.MaxLeases || got.Eager {
			t.Errorf("%d taken, eager %v", len(has[b]), got.Eager)
		}
		both := append(slices.Clone(has[a]), has[b]...)
		if slices.Sort(both); !slices.Equal(both, items) {
			t.Error("not all items, or one twice")
		}
		time.Sleep(ttl / 2)
		share(b, nil)
		time.Sleep(ttl / 2) // a is dead
		if !a.Expired() || b.Expired() {
			t.Errorf("expired: %v and %v", a.Expired(), b.Expired())
		}
		if share(b, nil); !slices.Equal(has[b], items) {
			t.Errorf("%d of %d when the other one is dead", len(has[b]), len(items))
		}
		if err := b.GiveUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if share(a, nil); !slices.Equal(has[a], items) {
			t.Errorf("%d of %d when the other one has left", len(has[a]), len(items))
		}
		if low, high := a.Clock().Now(); low.After(time.Now()) || high.Before(time.Now()) {
			t.Errorf("the store's clock is between %v and %v", low, high)
		}
	})
}

// One that stands aside keeps its seat and has nothing.
func TestStandAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := eventstore.New(memlog.New(nil), nil)
		m := sharing.New(store, sharing.Options{TTL: ttl, Prefix: "x/", Seats: "seat/"})
		d := sharing.Division{Items: names(3)}
		if got, err := m.Share(t.Context(), d); err != nil || len(got.Mine) != 3 {
			t.Fatal(got, err)
		}
		d.Items = d.Items[:2]
		if got, err := m.Share(t.Context(), d); err != nil || len(got.Mine) != 2 || len(got.All) != 3 {
			t.Errorf("one is no item any more: %v, %v", got, err)
		}
		d.Stand = func(context.Context, []eventstore.Lease) (bool, error) { return false, nil }
		if got, err := m.Share(t.Context(), d); err != nil || len(got.Mine) != 0 || got.Seat == nil || len(got.All) != 1 {
			t.Errorf("aside: %v, %v", got, err)
		}
	})
}
