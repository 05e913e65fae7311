// Leases seen beside the owner of the store.

package filelog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// A log that was opened read-only lists leases as the owner has written them, and changes
// none.
func TestLeasesBesideOwner(t *testing.T) {
	dir := t.TempDir()
	owner, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	beside, err := filelog.Open(dir, &filelog.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	mine, theirs := eventstore.New(owner, nil), eventstore.New(beside, nil)
	holder := eventstore.NewUUID()
	lease, granted, err := mine.AcquireLease(t.Context(), "a/1", holder, time.Minute)
	if err != nil || !granted {
		t.Fatal(granted, err)
	}
	list := func() []eventstore.Lease {
		t.Helper()
		all, err := theirs.UpdateLeases(t.Context(), eventstore.LeaseUpdate{Holder: eventstore.NewUUID(), Prefix: "a/"})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := list(); len(all) != 1 || all[0].Holder != holder || all[0].Epoch != lease.Epoch || all[0].Left <= 0 || all[0].Left > time.Minute {
		t.Errorf("found %+v, want that of %v", all, holder)
	}
	if _, err := theirs.UpdateLeases(t.Context(), eventstore.LeaseUpdate{Holder: eventstore.NewUUID(), Prefix: "a/", Acquire: []string{"a/2"}}); !errors.Is(err, eventstore.ErrReadOnly) {
		t.Errorf("acquired beside the owner: %v", err)
	}
	if err := mine.ReleaseLease(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if all := list(); len(all) != 1 || all[0].Left != 0 {
		t.Errorf("found %+v, want one that has run out", all)
	}
}
