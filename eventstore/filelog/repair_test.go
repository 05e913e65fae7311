// Repair: nothing that was acked is lost in silence.

package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// damagedStore makes a closed store of several segments with 6 streams of 30 entries,
// one of them trimmed, fenced at 9, held and with a lease.
func damagedStore(t *testing.T) (dir string) {
	dir = t.TempDir()
	l, s := open(t, dir, &filelog.Options{SegmentBytes: 4 << 10, ReclaimEvery: -1})
	fill(t, s, "kept", 6, 30)
	if _, err := s.Trim(t.Context(), "kept-0", 10, false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FenceAt(t.Context(), "kept-1", 9, eventstore.NewUUID()); err != nil {
		t.Fatal(err)
	}
	if err := s.SetHold(t.Context(), eventstore.Hold{Name: "archive", Category: "kept", Stream: "kept-2", Seqno: 3}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// files returns the files of a store with an ending, in order.
func files(t *testing.T, dir, ending string) (names []string) {
	all, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// change changes a file.
func change(t *testing.T, name string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 4; return b }
}

func faults(all []eventstore.Finding) (n int) {
	for _, f := range all {
		if f.Severity == eventstore.SeverityFault {
			n++
		}
	}
	return n
}

func TestRepair(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		lost   bool // of what was acked, or perhaps
	}{
		{"nothing", func(*testing.T, string) {}, false},
		{"a record", func(t *testing.T, dir string) { change(t, files(t, dir, ".log")[1], flip(1000)) }, true},
		{"the last record", func(t *testing.T, dir string) {
			change(t, slices.Max(files(t, dir, ".log")), func(b []byte) []byte { b[len(b)-12] ^= 1; return b })
		}, true},
		{"a page of zeros", func(t *testing.T, dir string) {
			change(t, files(t, dir, ".log")[2], func(b []byte) []byte { clear(b[1024:1536]); return b })
		}, true},
		{"the head of a segment", func(t *testing.T, dir string) { change(t, files(t, dir, ".log")[1], flip(20)) }, false},
		{"a segment is gone", func(t *testing.T, dir string) { os.Remove(files(t, dir, ".log")[1]) }, true},
		{"a segment is short", func(t *testing.T, dir string) {
			change(t, files(t, dir, ".log")[1], func(b []byte) []byte { return b[:len(b)/2] })
		}, true},
		{"an index", func(t *testing.T, dir string) { change(t, files(t, dir, ".idx")[0], flip(100)) }, false},
		{"the registry", func(t *testing.T, dir string) { change(t, files(t, dir, ".reg")[0], flip(100)) }, true},
		{"the registry is gone", func(t *testing.T, dir string) { os.Remove(files(t, dir, ".reg")[0]) }, true},
		{"the manifest", func(t *testing.T, dir string) { change(t, filepath.Join(dir, "MANIFEST"), flip(30)) }, false},
		{"the manifest is gone", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "MANIFEST")) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := damagedStore(t)
			before := snapshot(t, dir)
			c.damage(t, dir)
			damaged := contents(t, dir)
			dry, err := filelog.Repair(t.Context(), dir, &filelog.RepairOptions{DryRun: true})
			if err != nil {
				t.Fatalf("dry: %v", err)
			}
			if after := contents(t, dir); !equalContents(damaged, after) {
				t.Fatal("a dry run changed files")
			}
			done, err := filelog.Repair(t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if faults(dry) != faults(done) || c.lost != (faults(done) > 0) {
				t.Errorf("dry %d faults, done %d, wanted some: %t\n%v", faults(dry), faults(done), c.lost, done)
			}
			for _, f := range findings(t, dir) {
				if f.Severity > eventstore.SeverityNote && f.Check != "index" {
					t.Errorf("after the repair: %+v", f)
				}
			}
			if again, err := filelog.Repair(t.Context(), dir, nil); err != nil || len(again) > 0 {
				t.Errorf("a second repair: %v, %v", again, err)
			}
			compare(t, dir, before)
		})
	}
}

// snapshot reads all streams of a sound store.
func snapshot(t *testing.T, dir string) map[eventstore.Stream][]eventstore.Entry {
	l, s := open(t, dir, &filelog.Options{ReclaimEvery: -1})
	defer l.Close()
	all := map[eventstore.Stream][]eventstore.Entry{}
	for i := range 6 {
		name := eventstore.Stream(fmt.Sprintf("kept-%d", i))
		h, err := s.Head(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range s.Read(t.Context(), name, h.Trimmed) {
			if err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], e)
		}
	}
	return all
}

// compare: every stream is there as it was behind its watermark, is ErrTrimmed below, and
// goes on where it was; what can no longer be reached is in a file; no epoch fell.
func compare(t *testing.T, dir string, before map[eventstore.Stream][]eventstore.Entry) {
	aside := []byte{}
	for _, name := range files(t, dir, ".jsonl.damaged") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		aside = append(aside, b...)
	}
	_, s := open(t, dir, nil)
	found, total := 0, 0
	for name, was := range before {
		h, err := s.Head(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readStream(t, s, name, h.Trimmed)
		if err != nil {
			t.Errorf("%s behind %d: %v", name, h.Trimmed, err)
		}
		if h.Trimmed > 0 {
			if _, err := readStream(t, s, name, 0); !errors.Is(err, eventstore.ErrTrimmed) {
				t.Errorf("%s from the start: %v, want trimmed", name, err)
			}
		}
		for _, e := range was {
			i := slices.IndexFunc(all, func(o eventstore.Entry) bool { return o.Seqno == e.Seqno })
			switch {
			case i >= 0 && (all[i].ID != e.ID || !bytes.Equal(all[i].Data, e.Data) || all[i].Position != e.Position || !all[i].Time.Equal(e.Time)):
				t.Errorf("%s %d is %v, was %v", name, e.Seqno, all[i], e)
			case i < 0 && e.Seqno > h.Trimmed && e.Seqno <= h.Last.Seqno:
				t.Errorf("%s %d is missing and not below the watermark %d", name, e.Seqno, h.Trimmed)
			case i >= 0 || strings.Contains(string(aside), e.ID.String()):
				found++
			}
		}
		total += len(was)
		if name == "kept-1" && h.Epoch < 9 {
			t.Errorf("epoch of %s = %d, 9 was granted", name, h.Epoch)
		}
		w := writer{t: t, store: s, stream: name, holder: eventstore.NewUUID(), last: h.Last}
		w.claim(h.Epoch + 1)
	}
	const segment = 40 // entries in a segment, which is the most that a case damages
	if found < total-segment {
		t.Errorf("%d of %d entries are there or put aside", found, total)
	}
}

func (w *writer) claim(epoch eventstore.Epoch) {
	w.t.Helper()
	_, err := w.store.Append(w.t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: w.stream, Epoch: epoch, Holder: w.holder, Claim: true,
		After: w.last, Events: []eventstore.Event{{Type: "after", Data: []byte("{}")}}}}})
	if err != nil {
		w.t.Errorf("append after the repair: %v", err)
	}
}

func readStream(t *testing.T, s *eventstore.Store, name eventstore.Stream, after eventstore.Seqno) (all []eventstore.Entry, err error) {
	for e, err := range s.Read(t.Context(), name, after) {
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

func contents(t *testing.T, dir string) map[string][]byte {
	all := map[string][]byte{}
	for _, name := range files(t, dir, "") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

func equalContents(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			return false
		}
	}
	return true
}

// A segment that is lost is told as that: tools do not look for a replacement for ever.
func TestSegmentLost(t *testing.T) {
	dir := damagedStore(t)
	lost := files(t, dir, ".log")[1]
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	if all := findings(t, dir); !slices.ContainsFunc(all, func(f eventstore.Finding) bool {
		return f.Check == "segment" && f.Severity == eventstore.SeverityFault && strings.Contains(f.Wanted, filepath.Base(lost))
	}) {
		t.Errorf("found %v", all)
	}
	if err := filelog.Backup(t.Context(), dir, filepath.Join(t.TempDir(), "copy"), nil); err == nil {
		t.Error("a copy of what is not there")
	}
	if _, err := filelog.Open(dir, &filelog.Options{ReadOnly: true}); !errors.Is(err, eventstore.ErrCorrupt) {
		t.Errorf("opened read-only: %v", err)
	}
}
