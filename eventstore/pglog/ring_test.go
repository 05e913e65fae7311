// The pure rules of the dedicated layout, without a database.

package pglog

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

func TestRing(t *testing.T) {
	for _, c := range []struct {
		name          string
		ring          ring
		trimmed, last eventstore.Seqno
		dead          bool
		turned        ring
	}{
		{"new, nothing trimmed", newRing, 0, 0, false, newRing},
		{"new, entries, nothing trimmed", newRing, 0, 9, false, newRing},
		{"the first trim leaves the half", newRing, 1, 9, false, ring{from: 10, full: true, half: 1}},
		{"all of it trimmed: dead as soon as it is left", newRing, 9, 9, false, ring{from: 10, full: true, half: 1}},
		{"left behind, not yet passed", ring{from: 10, full: true, half: 1}, 8, 12, false, ring{from: 10, full: true, half: 1}},
		{"left behind, passed exactly", ring{from: 10, full: true, half: 1}, 9, 12, true, ring{from: 10, full: true, half: 1}},
		{"left behind, passed by far: emptied first", ring{from: 10, full: true, half: 1}, 12, 12, true, ring{from: 10, full: true, half: 1}},
		{"emptied, trim below the half that is written", ring{from: 10, half: 1}, 9, 12, false, ring{from: 10, half: 1}},
		{"emptied, trim reaches into it", ring{from: 10, half: 1}, 10, 12, false, ring{from: 13, full: true}},
		{"emptied, nothing in it yet", ring{from: 10, half: 1}, 9, 9, false, ring{from: 10, half: 1}},
		{"no bits left", ring{from: 10, half: 1}, 11, maxRing, false, ring{from: 10, half: 1}},
	} {
		if got := c.ring.dead(c.trimmed); got != c.dead {
			t.Errorf("%s: dead %v, want %v", c.name, got, c.dead)
		}
		if got := c.ring.turned(c.trimmed, c.last); got != c.turned {
			t.Errorf("%s: turned %+v, want %+v", c.name, got, c.turned)
		}
		if got := ringOf(c.ring.number()); got != c.ring {
			t.Errorf("%s: number %d reads back as %+v, want %+v", c.name, c.ring.number(), got, c.ring)
		}
	}
	if newRing.number() == 0 {
		t.Error("a dedicated stream's ring is 0, which means shared")
	}
	full := ring{from: maxRing, full: true, half: 1}
	if got := ringOf(full.number()); full.number() < 0 || got != full {
		t.Errorf("the highest ring is %d and reads back as %+v", full.number(), got)
	}
	if got := full.emptied(); got != (ring{from: maxRing, half: 1}) {
		t.Errorf("emptied: %+v", got)
	}
}

// TestRingNeverLosesEntries goes through trims of a log step by step: what is emptied
// is trimmed, whatever the order of trims, appends and attempts to empty.
func TestRingNeverLosesEntries(t *testing.T) {
	const steps = 7
	for history := range 3 * 3 * 3 * 3 * 3 * 3 * 3 {
		r := newRing
		halves := [2][]eventstore.Seqno{}
		last, trimmed := eventstore.Seqno(0), eventstore.Seqno(0)
		for h, i := history, 0; i < steps; h, i = h/3, i+1 {
			switch h % 3 {
			case 0:
				for range 2 {
					last++
					halves[r.half] = append(halves[r.half], last)
				}
			case 1:
				trimmed = min(trimmed+3, last)
				r = r.turned(trimmed, last)
			case 2:
				if r.dead(trimmed) {
					for _, n := range halves[1-r.half] {
						if n > trimmed {
							t.Fatalf("history %d: %d was emptied, trimmed is %d", history, n, trimmed)
						}
					}
					halves[1-r.half] = nil
					r = r.emptied().turned(trimmed, last)
				}
			}
			there := 0
			for _, half := range halves {
				for _, n := range half {
					if n > trimmed {
						there++
					}
				}
			}
			if there != int(last-trimmed) {
				t.Fatalf("history %d: %d entries behind %d, head %d", history, there, trimmed, last)
			}
		}
	}
}

func TestChunks(t *testing.T) {
	for _, c := range []struct{ bytes, chunks int }{
		{0, 1}, {1, 1}, {chunkBytes - 1, 1}, {chunkBytes, 1}, {chunkBytes + 1, 2}, {2 * chunkBytes, 2}, {2*chunkBytes + 1, 3},
		{eventstore.MaxEventBytes, (eventstore.MaxEventBytes + chunkBytes - 1) / chunkBytes},
	} {
		body := bytes.Repeat([]byte("0123456789abcdef"), c.bytes/16+1)[:c.bytes]
		chunks := chunksOf(body)
		if len(chunks) != c.chunks || LogRows(c.bytes) != c.chunks || !bytes.Equal(bytes.Join(chunks, nil), body) {
			t.Errorf("%d bytes: %d chunks, want %d that make the body", c.bytes, len(chunks), c.chunks)
		}
		for i, chunk := range chunks {
			if len(chunk) > chunkBytes || len(chunk) == 0 && c.bytes > 0 || i < len(chunks)-1 && len(chunk) != chunkBytes {
				t.Errorf("%d bytes: chunk %d of %d has %d", c.bytes, i, len(chunks), len(chunk))
			}
		}
	}
	// A row with the longest names fits the page: 24 of header, 8 of alignment at most.
	const row = 24 + 4*8 + 4*4 + 2*16 + 2*(4+eventstore.MaxTypeBytes) + 4 + chunkBytes + 8
	if row > 8160 {
		t.Errorf("a row may have %d bytes, a page takes 8160", row)
	}
}

// TestPieces: entries are put together from chunks, and what does not fit is damage.
func TestPieces(t *testing.T) {
	row := func(seqno int64, chunk int32, body string) logRow {
		r := logRow{seqno: &seqno, chunk: &chunk, body: []byte(body)}
		if chunk == 0 {
			typ, content, epoch, version, split := "t", "c", int64(1), int32(1), int32(0)
			at := time.Unix(0, 0)
			r.typ, r.contentType, r.epoch, r.version, r.split, r.time = &typ, &content, &epoch, &version, &split, &at
		}
		return r
	}
	long := row(7, 0, "x")
	*long.split = 2
	for _, c := range []struct {
		name string
		rows []logRow
		want []string
		bad  bool
	}{
		{"nothing", []logRow{{}}, nil, false},
		{"one", []logRow{row(1, 0, "a")}, []string{"a"}, false},
		{"cut", []logRow{row(1, 0, "a"), row(1, 1, "b"), row(1, 2, "c"), row(2, 0, "")}, []string{"abc", ""}, false},
		{"begins in the middle", []logRow{row(1, 1, "b")}, nil, true},
		{"chunk missing", []logRow{row(1, 0, "a"), row(1, 2, "c")}, nil, true},
		{"chunk of another", []logRow{row(1, 0, "a"), row(2, 1, "b")}, nil, true},
		{"metadata longer than the body", []logRow{long}, nil, true},
	} {
		p := pieces{stream: "a-b"}
		var err error
		for _, r := range c.rows {
			if err = p.add(r); err != nil {
				break
			}
		}
		if err == nil {
			err = p.flush()
		}
		var got []string
		for _, e := range p.entries {
			got = append(got, string(e.Data))
		}
		if (err != nil) != c.bad || !c.bad && !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q, error %v", c.name, got, err, c.want, c.bad)
		}
	}
}
