// wattle verify, dump and backup on stores in files, sound, in use and damaged.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// inFiles makes a closed store of ten streams of five entries in segments of 4 KiB.
func inFiles(t *testing.T) (dir string) {
	dir = t.TempDir()
	l, err := filelog.Open(dir, &filelog.Options{SegmentBytes: 4 << 10, ReclaimEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	for _, key := range strings.Fields("a b c d e f g h i j") {
		b := eventstore.Batch{Stream: eventstore.Stream("kept-" + key), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true}
		for range 5 {
			b.Events = append(b.Events, eventstore.Event{Type: "filled", Data: []byte(`"` + strings.Repeat(key, 100) + `"`)})
		}
		if _, err := s.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFilesSound(t *testing.T) {
	t.Parallel()
	dir := inFiles(t)
	wattle(t, "verify", "--store", "file:"+dir).wants(t, 0, "10 streams, 50 entries of file:"+dir, "0 faults, 0 warnings, 0 notes")
	wattle(t, "verify", "--repair", "--store", "file:"+dir).wants(t, 0, "nothing to repair")
	wattle(t, "verify", "--store", "file:"+filepath.Join(dir, "none")).wants(t, exitNotMigrated)
	wattle(t, "dump", dir).wants(t, 0, "manifest", `"kept-j"`, "filled", "append")
	if r := wattle(t, "dump", dir, "--data").wants(t, 0, strings.Repeat("j", 100)); strings.Contains(r.out, "DAMAGED") {
		t.Error(r.out)
	}
	if r := wattle(t, "dump", dir, "-o", "json").wants(t, 0, `"what":"append"`); strings.Contains(r.out, "damage") {
		t.Error(r.out)
	}

	l, err := filelog.Open(dir, nil) // all of it works beside the owner
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := filepath.Join(t.TempDir(), "copy")
	wattle(t, "backup", dir, to).wants(t, 0, "copied "+dir+" to "+to)
	wattle(t, "backup", dir, to).wants(t, exitUsage, "an empty directory")
	wattle(t, "verify", "--store", "file:"+to).wants(t, 0, "10 streams, 50 entries")
	done := unmarshal[backupJSON](t, wattle(t, "backup", dir, filepath.Join(t.TempDir(), "json"), "-o", "json").wants(t, 0))
	if done.From != dir || done.Bytes == 0 {
		t.Errorf("%+v", done)
	}
	wattle(t, "verify", "--store", "file:"+dir).wants(t, 0, "0 faults")
}

func TestFilesDamaged(t *testing.T) {
	t.Parallel()
	dir := inFiles(t)
	store := "file:" + dir
	all, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	b, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	b[1500] ^= 1
	if err := os.WriteFile(all[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	wattle(t, "verify", "--store", store).wants(t, exitFound, "fault ", "record", filepath.Base(all[0]))
	wattle(t, "dump", dir).wants(t, 0, "DAMAGED")
	wattle(t, "backup", dir, filepath.Join(t.TempDir(), "copy")).wants(t, exitFailure, "corrupt", filepath.Base(all[0]))
	wattle(t, "verify", "--repair", "--store", store).wants(t, exitRefused, "fault ", "lost for good", "--yes")
	wattle(t, "verify", "--store", store).wants(t, exitFound) // nothing was done
	repaired := unmarshal[repairedJSON](t, wattle(t, "verify", "--repair", "--yes", "-o", "json", "--store", store).wants(t, 0))
	if !repaired.Repaired || repaired.Faults < 2 || len(repaired.Findings) < 3 {
		t.Errorf("%+v", repaired)
	}
	wattle(t, "verify", "--store", store).wants(t, 0, "0 faults", "aside")
	if err := os.Remove(filepath.Join(dir, "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	wattle(t, "verify", "--store", store).wants(t, exitFound, "fault ", "MANIFEST")
	wattle(t, "verify", "--repair", "--yes", "--store", store).wants(t, 0, "repaired ")
	wattle(t, "verify", "--store", store).wants(t, 0, "0 faults")
	wattle(t, "verify", "--repair", "--yes", "--store", "mem:").wants(t, exitUsage, "a store in files")
}
