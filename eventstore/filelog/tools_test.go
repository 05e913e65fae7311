// Verify, Dump and Backup.

package filelog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// open opens a log that is closed with the test.
func open(t testing.TB, dir string, o *filelog.Options) (*filelog.Log, *eventstore.Store) {
	t.Helper()
	l, err := filelog.Open(dir, o)
	if err != nil {
		t.Fatalf("Open(%s) = %v", dir, err)
	}
	t.Cleanup(func() { l.Close() })
	return l, eventstore.New(l, nil)
}

// fill appends events to streams of a category, one a batch.
func fill(t testing.TB, s *eventstore.Store, category string, streams, events int) {
	t.Helper()
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: eventstore.Category(category), TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	for i := range streams {
		w := writer{t: t, store: s, stream: eventstore.Stream(fmt.Sprintf("%s-%d", category, i)), holder: eventstore.NewUUID()}
		for range events {
			w.append(1)
		}
	}
}

// writer appends to one stream.
type writer struct {
	t      testing.TB
	store  *eventstore.Store
	stream eventstore.Stream
	holder eventstore.UUID
	last   eventstore.Mark
}

func (w *writer) append(n int) {
	w.t.Helper()
	b := eventstore.Batch{Stream: w.stream, Epoch: 1, Holder: w.holder, Claim: w.last.Seqno == 0, After: w.last}
	for i := range n {
		b.Events = append(b.Events, eventstore.Event{Type: "filled", Data: fmt.Appendf(nil, `{"n":%d}`, int(w.last.Seqno)+i+1)})
	}
	done, err := w.store.Append(w.t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}})
	if err != nil {
		w.t.Fatalf("Append(%s) = %v", w.stream, err)
	}
	w.last = done.Receipts[0].Last
}

// findings verifies a directory.
func findings(t testing.TB, dir string) (all []eventstore.Finding) {
	t.Helper()
	for f, err := range filelog.Verify(t.Context(), dir, nil) {
		if err != nil {
			t.Fatalf("Verify = %v", err)
		}
		all = append(all, f)
	}
	return all
}

// everything reads the feed from the start.
func everything(t testing.TB, s *eventstore.Store) (all []eventstore.Entry) {
	t.Helper()
	for e, err := range s.Feed(t.Context(), 0, eventstore.Filter{AcceptTrimmed: true}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestVerifySound(t *testing.T) {
	dir := t.TempDir()
	l, s := open(t, dir, &filelog.Options{SegmentBytes: 8 << 10, ReclaimEvery: -1})
	fill(t, s, "sound", 20, 30)
	for i := range 20 {
		if _, err := s.Trim(t.Context(), eventstore.Stream(fmt.Sprintf("sound-%d", i)), 27, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []string{"trimmed", "reclaimed", "closed"} {
		switch step {
		case "reclaimed":
			if out, err := l.Reclaim(t.Context()); err != nil || out.Segments == 0 || out.Bytes == 0 {
				t.Fatalf("Reclaim = %+v, %v", out, err)
			}
		case "closed":
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if all := findings(t, dir); len(all) > 0 {
			t.Errorf("%s: %v", step, all)
		}
	}
	_, s = open(t, dir, nil)
	if all := everything(t, s); len(all) != 20*3 {
		t.Errorf("%d entries left, want 60", len(all))
	}
}

// TestVerifyBeside: appends, trims and rewriting go on beside an examination, by the
// owner and by another log, and cause no finding.
func TestVerifyBeside(t *testing.T) {
	dir := t.TempDir()
	l, s := open(t, dir, &filelog.Options{SegmentBytes: 4 << 10, ReclaimEvery: time.Millisecond})
	fill(t, s, "beside", 3, 50)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := writer{t: t, store: s, stream: "beside-moving", holder: eventstore.NewUUID()}
		for {
			select {
			case <-stop:
				return
			default:
			}
			w.append(5)
			if _, err := s.Trim(context.Background(), w.stream, w.last.Seqno-3, false); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 20 {
		if t.Failed() {
			break
		}
		if all := findings(t, dir); len(all) > 0 {
			t.Errorf("beside the owner: %v", all)
		}
		for f, err := range l.Verify(t.Context(), nil) {
			t.Errorf("by the owner: %v, %v", f, err)
		}
	}
	close(stop)
	<-done
}

func TestBackupBeside(t *testing.T) {
	dir := t.TempDir()
	_, s := open(t, dir, &filelog.Options{SegmentBytes: 4 << 10, ReclaimEvery: time.Millisecond})
	fill(t, s, "copied", 10, 30)
	var acked atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w := writer{t: t, store: s, stream: "copied-moving", holder: eventstore.NewUUID()}
		for {
			select {
			case <-stop:
				return
			default:
			}
			w.append(3)
			acked.Store(uint64(w.last.Seqno))
			if _, err := s.Trim(context.Background(), "copied-0", 20, false); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for i := range 10 {
		before := acked.Load()
		to := filepath.Join(t.TempDir(), fmt.Sprint(i))
		var last filelog.BackupProgress
		if err := filelog.Backup(t.Context(), dir, to, func(p filelog.BackupProgress) { last = p }); err != nil {
			t.Fatalf("Backup = %v", err)
		}
		if last.Done == 0 || last.Done != last.Total {
			t.Errorf("progress ends at %+v", last)
		}
		if all := findings(t, to); len(all) > 0 {
			t.Errorf("the copy: %v", all)
		}
		_, copied := open(t, to, nil)
		h, err := copied.Head(t.Context(), "copied-moving")
		if err != nil || uint64(h.Last.Seqno) < before {
			t.Errorf("the copy ends at %v (%v), %d was acked before", h.Last, err, before)
		}
		if n := len(everything(t, copied)); n < 10*30-20+int(before) {
			t.Errorf("the copy holds %d entries", n)
		}
	}
	close(stop)
	<-done
	if err := filelog.Backup(t.Context(), dir, dir, nil); err == nil {
		t.Error("a copy into a directory that is not empty")
	}
}

func TestDump(t *testing.T) {
	dir := t.TempDir()
	l, s := open(t, dir, &filelog.Options{SegmentBytes: 4 << 10, ReclaimEvery: -1})
	fill(t, s, "dumped", 2, 40)
	if _, err := s.Fence(t.Context(), "dumped-0", eventstore.NewUUID()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var text, lines bytes.Buffer
	if err := filelog.Dump(t.Context(), &text, dir, &filelog.DumpOptions{Data: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"manifest", "registry", "segment", "append", "fence", "create category", "index", `"dumped-1"`, `{"n":40}`, "filter of"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in the dump", want)
		}
	}
	if strings.Contains(text.String(), "DAMAGED") {
		t.Errorf("damage in a sound store:\n%s", text.String())
	}
	if err := filelog.Dump(t.Context(), &lines, dir, &filelog.DumpOptions{JSON: true}); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for d := json.NewDecoder(&lines); d.More(); {
		var l struct{ What string }
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		counts[l.What]++
	}
	if counts["append"] != 80 || counts["fence"] != 1 || counts["manifest"] != 1 || counts["index"] == 0 {
		t.Errorf("%v", counts)
	}
}
