// Examining what surrounds a store, and measuring it.

package filelog_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// examined returns what Examine found, by check.
func examined(t *testing.T, dir string) map[string]eventstore.Finding {
	t.Helper()
	all, err := filelog.Examine(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]eventstore.Finding{}
	for _, f := range all {
		if found[f.Check].Check != "" {
			t.Errorf("check %s twice", f.Check)
		}
		found[f.Check] = f
	}
	return found
}

func TestExamine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	none := examined(t, dir)
	if f := none["store"]; f.Severity != eventstore.SeverityFault || f.Found != "none" || len(none) != 1 {
		t.Errorf("of no store: %+v", none)
	}
	stored(t, dir)
	sound := examined(t, dir)
	for _, check := range []string{"store", "modes", "others", "open", "segments", "reclaimable"} {
		if f := sound[check]; f.Check != check || f.Severity != eventstore.SeverityOK || f.Wanted != "" || f.Found == "" {
			t.Errorf("of a sound store: %+v", f)
		}
	}
	for name := range sound { // the machine may have little room
		if f := sound[name]; f.Severity > eventstore.SeverityWarning || f.Severity > eventstore.SeverityNote && name != "free-space" {
			t.Errorf("of a sound store: %+v", f)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(filepath.Join(dir, "MANIFEST"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := examined(t, dir)["modes"]; f.Severity != eventstore.SeverityWarning || f.Found != "MANIFEST with mode 0644" || !strings.Contains(f.Hint, dir) {
		t.Errorf("with a mode that is not right: %+v", f)
	}
}

// The owner is told where the system tells it, and is not disturbed.
func TestExamineOwner(t *testing.T) {
	dir := t.TempDir()
	if runtime.GOOS != "linux" {
		stored(t, dir)
		if f := examined(t, dir)["owner"]; f.Severity != eventstore.SeverityNote || !strings.Contains(f.Found, runtime.GOOS) {
			t.Errorf("where it is not told: %+v", f)
		}
		return
	}
	l, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := examined(t, dir)["owner"]; !strings.Contains(f.Found, "has it open") || !strings.HasPrefix(f.Found, "process ") || !strings.Contains(f.Found, filepath.Base(os.Args[0])) {
		t.Errorf("while it is open: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if f := examined(t, dir)["owner"]; !strings.HasPrefix(f.Found, "no process") {
		t.Errorf("when it is closed: %+v", f)
	}
}

// What was trimmed is dead until it has been reclaimed.
func TestSpace(t *testing.T) {
	dir := t.TempDir()
	stored(t, dir)
	l, err := filelog.Open(dir, &filelog.Options{SegmentBytes: filelog.MinSegmentBytes, ReclaimEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	measure := func(l *filelog.Log) filelog.Space {
		t.Helper()
		s, err := l.Space(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	whole := measure(l)
	if whole.Segments < 3 || whole.Bytes < 10_000 || whole.Dead > whole.Bytes/4 || whole.Reclaimable != 0 {
		t.Errorf("with everything in it: %+v", whole)
	}
	if err := l.DeleteCategory(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	dead := measure(l)
	if dead.Reclaimable < 8000 || dead.Dead < dead.Reclaimable || dead.Bytes < whole.Bytes {
		t.Errorf("with everything deleted: %+v", dead)
	}
	beside, err := filelog.Open(dir, &filelog.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	if got := measure(beside); got != dead {
		t.Errorf("read beside it: %+v, wanted %+v", got, dead)
	}
	if _, err := l.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, log := range []*filelog.Log{l, beside} {
		if got := measure(log); got.Reclaimable != 0 || got.Bytes > dead.Bytes-dead.Reclaimable {
			t.Errorf("when it is reclaimed: %+v", got)
		}
	}
}
