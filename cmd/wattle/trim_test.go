// wattle trim: how far it comes, and what stops it.

package main

import (
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

func TestTrim(t *testing.T) {
	t.Parallel()
	dir := inFiles(t) // its category trims behind snapshots
	store := "file:" + dir
	wattle(t, "trim", "kept-a", "--store", store).wants(t, exitUsage, "--through, --keep or --older-than")
	wattle(t, "trim", "kept-none", "--keep", "1", "--store", store).wants(t, exitNotFound)
	wattle(t, "trim", "kept-a", "--through", "3", "--store", store).wants(t, 0, "removed 0 entries", "wanted 3, stopped by no snapshot yet")
	l, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	h, err := s.Head(t.Context(), "kept-a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: "kept-a", At: h.Last, Fingerprint: "x", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetHold(t.Context(), eventstore.Hold{Name: "archive", Category: "kept", Stream: "kept-a", Seqno: 4}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wattle(t, "trim", "kept-a", "--through", "2", "--dry-run", "--store", store).wants(t, 0, "would remove 2 entries, through 2\n")
	wattle(t, "trim", "kept-a", "--keep", "3", "--store", store).wants(t, 0, "removed 2 entries, through 2\n")
	wattle(t, "trim", "kept-a", "--keep", "0", "--older-than", "1h", "--store", store).wants(t, 0, "removed 0 entries, through 2\n")
	got := unmarshal[trimmedJSON](t, wattle(t, "trim", "kept-a", "--through", "5", "-o", "json", "--store", store).wants(t, 0))
	if want := (trimmedJSON{"kept-a", 2, 3, 5, `hold "archive" at 4`, false}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
