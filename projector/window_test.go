// The digest of recent entries.

package projector

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/wattle-es/wattle/eventstore"
)

func entryAt(p uint64) eventstore.Entry {
	return eventstore.Entry{Position: eventstore.Position(p), Event: eventstore.Event{ID: eventstore.DeriveUUID(eventstore.UUID{1}, int(p))}}
}

// Sizes stay within bounds, spans are whole and rising, and what is encoded comes
// back, whatever the number of entries and the gaps between them.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recent []byte
		p, total := uint64(0), 0
		for range rapid.IntRange(1, 20).Draw(t, "pages") {
			var page []eventstore.Entry
			for range rapid.IntRange(0, 600).Draw(t, "entries") {
				p += rapid.Uint64Range(1, 5).Draw(t, "gap")
				page = append(page, entryAt(p))
			}
			total += len(page)
			recent = recentAfter(Checkpoint{Recent: recent}, 7, page)
		}
		w, ok := decodeWindow(recent)
		if !ok || len(recent) > MaxRecentBytes || w.filter != 7 || !bytes.Equal(w.encode(), recent) {
			t.Fatalf("%d bytes, ok %v, %+v", len(recent), ok, w)
		}
		n, last, classes := 0, w.start, map[uint64]int{}
		for _, s := range w.spans {
			n += int(s.count)
			classes[s.count]++
			if s.end <= last || s.count&(s.count-1) != 0 {
				t.Fatalf("span %+v behind %d", s, last)
			}
			last = s.end
		}
		for c, k := range classes {
			if k > spansPerSize {
				t.Fatalf("%d spans of %d", k, c)
			}
		}
		if n != total || total > 0 && uint64(last) != p {
			t.Fatalf("%d of %d entries, through %d of %d", n, total, last, p)
		}
	})
}

// A long history leaves a window of at least 2^15 entries and bounded bytes.
func TestWindowIsBounded(t *testing.T) {
	w := window{filter: 1}
	for p := uint64(1); p <= 300_000; p++ {
		e := entryAt(p)
		w.add(&e)
	}
	if n := len(w.spans); n >= maxSpans || len(w.encode()) > 1200 || w.spans[n-1].end-w.start < 1<<15 {
		t.Errorf("%d spans, %d bytes, from %d", n, len(w.encode()), w.start)
	}
	if _, ok := decodeWindow(w.encode()); !ok {
		t.Error("does not come back")
	}
}

// Past, an entry at a time, gives the digest that a page gives.
func TestPastDigestsAsThePage(t *testing.T) {
	from := Checkpoint{Recent: recentAfter(Checkpoint{}, 3, []eventstore.Entry{entryAt(1)})}
	page := []eventstore.Entry{entryAt(2), entryAt(5), entryAt(6)}
	to := from
	to.Recent = recentAfter(from, 3, page)
	at := from
	for _, e := range page {
		at = at.Past(e, to)
	}
	if !bytes.Equal(at.Recent, to.Recent) || at.Position != 6 || at.Seqno != 0 {
		t.Errorf("%v", at)
	}
}

func FuzzDecodeWindow(f *testing.F) {
	f.Add(recentAfter(Checkpoint{}, 3, []eventstore.Entry{entryAt(1), entryAt(9)}))
	f.Add([]byte{1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		w, ok := decodeWindow(b)
		if !ok {
			return
		}
		again, ok := decodeWindow(w.encode())
		if !ok || len(again.spans) != len(w.spans) || again.start != w.start {
			t.Fatalf("%x gives %+v, then %+v", b, w, again)
		}
		e := entryAt(uint64(w.start) + 1)
		if s := w.at(e.Position); s != nil {
			s.add(&e)
		}
	})
}
