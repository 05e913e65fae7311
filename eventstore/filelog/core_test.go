// What a log in files does all day, as one test: it also runs as WebAssembly.

package filelog_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

func TestCore(t *testing.T) {
	dir := t.TempDir()
	o := &filelog.Options{SegmentBytes: 4 << 10, ReclaimEvery: -1}
	var want []eventstore.Entry
	for round := range 4 {
		l, s := open(t, dir, o)
		if got := everything(t, s); !sameEntries(got, want) {
			t.Fatalf("round %d: opened with %d entries, %d were there at the end", round, len(got), len(want))
		}
		category := fmt.Sprintf("core%d", round)
		fill(t, s, category, 4, 25)
		stream := eventstore.Stream(category + "-2")
		if _, err := s.Fence(t.Context(), stream, eventstore.NewUUID()); err != nil {
			t.Fatal(err)
		}
		h, err := s.Head(t.Context(), stream)
		if err != nil || h.Epoch != 2 || h.Last.Seqno != 25 {
			t.Fatalf("Head = %+v, %v", h, err)
		}
		data := []byte("state")
		if err := s.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: stream, At: h.Last, Fingerprint: "f", ContentType: "text/plain", Data: data, Checksum: sha256.Sum256(data)}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if _, err := s.Trim(t.Context(), eventstore.Stream(fmt.Sprintf("%s-%d", category, i)), 22, false); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := l.Reclaim(t.Context()); err != nil || out.Bytes == 0 {
			t.Fatalf("Reclaim = %+v, %v", out, err)
		}
		want = everything(t, s)
		if len(want) != 12*(round+1) {
			t.Fatalf("round %d: %d entries left, want %d", round, len(want), 12*(round+1))
		}
		if _, err := readStream(t, s, stream, 3); !errors.Is(err, eventstore.ErrTrimmed) {
			t.Errorf("a read below the watermark: %v", err)
		}
		if loaded, err := s.Load(t.Context(), stream, "f"); err != nil || loaded.Snapshot == nil || string(loaded.Snapshot.Data) != "state" {
			t.Errorf("Load = %+v, %v", loaded, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if all := findings(t, dir); len(all) > 0 {
			t.Errorf("round %d: %v", round, all)
		}
	}
}

func sameEntries(a, b []eventstore.Entry) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Position != b[i].Position || a[i].Stream != b[i].Stream || a[i].Seqno != b[i].Seqno || !a[i].Time.Equal(b[i].Time) {
			return false
		}
	}
	return true
}
