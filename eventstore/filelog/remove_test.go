// Removing a store, and nothing else.

package filelog_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// stored makes a store of a few segments in a directory.
func stored(t *testing.T, dir string) {
	t.Helper()
	l, err := filelog.Open(dir, &filelog.Options{SegmentBytes: filelog.MinSegmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b := eventstore.Batch{Stream: eventstore.Stream("a-" + eventstore.NewUUID().String()), Claim: true, Epoch: 1, Holder: eventstore.NewUUID(),
			Events: []eventstore.Event{{Type: "x", Data: make([]byte, 1000)}}}
		if _, err := s.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func exists(t *testing.T, dir string) bool {
	t.Helper()
	found, err := filelog.IsStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if exists(t, dir) {
		t.Error("there is none yet")
	}
	if err := filelog.Remove(dir); !errors.Is(err, eventstore.ErrInvalid) || exists(t, dir) {
		t.Errorf("of no directory: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	for range 2 { // the second store is a new one
		stored(t, dir)
		if names := namesIn(t, dir); !exists(t, dir) || len(names) < 6 {
			t.Fatalf("wanted a store of several segments, found %q", names)
		}
		if err := filelog.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if names := namesIn(t, dir); exists(t, dir) || !slices.Equal(names, []string{"LOCK"}) {
			t.Errorf("it left %q", names)
		}
	}
}

// What is not the store's is never touched, nor the store beside it.
func TestRemoveRefuses(t *testing.T) {
	for name, put := range map[string]func(dir string) error{
		"notes.txt": func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600) },
		"app.log":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "app.log"), nil, 0o600) },
		"photos":    func(dir string) error { return os.Mkdir(filepath.Join(dir, "photos"), 0o700) },
		"0000000000000000999.0.log": func(dir string) error {
			return os.Symlink("MANIFEST", filepath.Join(dir, "0000000000000000999.0.log"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stored(t, dir)
			if err := put(dir); err != nil {
				t.Fatal(err)
			}
			before := namesIn(t, dir)
			if err := filelog.Remove(dir); !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("wanted it refused, found %v", err)
			}
			if after := namesIn(t, dir); !slices.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
		})
	}
	for name, manifest := range map[string]string{"no manifest": "", "a manifest of something else": "include README.md\n"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, data := range map[string]string{"MANIFEST": manifest, "0000000000000000001.0.log": "records"} {
				if data == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := namesIn(t, dir)
			if err := filelog.Remove(dir); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("wanted it refused, found %v", err)
			}
			if after := namesIn(t, dir); !slices.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
		})
	}
}

// A store that is open is not removed from under its owner; one whose removal was
// interrupted can be.
func TestRemoveOwnedAndHalfGone(t *testing.T) {
	dir := t.TempDir()
	stored(t, dir)
	l, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := namesIn(t, dir)
	if err := filelog.Remove(dir); !errors.Is(err, eventstore.ErrUnavailable) || !errors.Is(err, filelog.ErrOwned) {
		t.Errorf("while it is open: %v", err)
	}
	if after := namesIn(t, dir); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "0000000000000000001.0.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := filelog.Open(dir, nil); !errors.Is(err, eventstore.ErrCorrupt) {
		t.Errorf("half of it gone: %v", err)
	}
	if err := filelog.Remove(dir); err != nil || exists(t, dir) {
		t.Errorf("half of it gone: %v", err)
	}
}

// Opening removes what a crash left of a store, and nothing that only looks like it.
func TestOpenLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	others := []string{"app.log", "search.idx", "windows.reg", "1.0.log", "0000000000000000001.x.log", "0000000000000000001.0.log.bak"}
	for range 2 { // created, then opened
		for _, name := range others {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		reopened(t, dir)
		for _, name := range others {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "mine" {
				t.Errorf("%s holds %q, %v", name, b, err)
			}
		}
	}
	left := filepath.Join(dir, "0000000000000000001.7.log")
	if err := os.WriteFile(left, []byte("of a rewrite that never came to its end"), 0o600); err != nil {
		t.Fatal(err)
	}
	reopened(t, dir)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("wanted what was left removed, found %v", err)
	}
}

func reopened(t *testing.T, dir string) {
	t.Helper()
	l, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
