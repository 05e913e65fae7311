// Answers that belong to another question.

package wire

import (
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

func entriesAt(s eventstore.Stream, seqnos ...eventstore.Seqno) (all []eventstore.Entry) {
	for _, n := range seqnos {
		all = append(all, eventstore.Entry{Stream: s, Seqno: n, Position: eventstore.Position(10 * n)})
	}
	return all
}

func page(through eventstore.Position, end bool, seqnos ...eventstore.Seqno) eventstore.FeedPage {
	return eventstore.FeedPage{Entries: entriesAt("a-a", seqnos...), Through: eventstore.PositionMark{Position: through}, End: end}
}

func loaded(at, head eventstore.Seqno, end bool, seqnos ...eventstore.Seqno) eventstore.Loaded {
	l := eventstore.Loaded{Head: eventstore.Head{Last: eventstore.Mark{Seqno: head}}, End: end, Entries: entriesAt("a-a", seqnos...)}
	if at > 0 {
		l.Snapshot = &eventstore.Snapshot{Stream: "a-a", At: eventstore.Mark{Seqno: at}}
	}
	return l
}

func TestFits(t *testing.T) {
	for name, err := range map[string]error{
		"a page":           Follows("a-a", 4, entriesAt("a-a", 5, 6)),
		"an empty page":    Follows("a-a", 4, nil),
		"backward":         Precedes("a-a", 7, entriesAt("a-a", 6, 5)),
		"from the head":    Precedes("a-a", 0, entriesAt("a-a", 9, 8)),
		"above the head":   Precedes("a-a", 100, entriesAt("a-a", 9, 8)),
		"a feed page":      Continues(40, page(70, true, 5, 7)),
		"further":          Continues(40, page(80, false, 5, 7)),
		"nothing matched":  Continues(40, page(80, false)),
		"nothing there":    Continues(40, page(0, true)),
		"a loaded stream":  Loads("a-a", loaded(0, 2, true, 1, 2)),
		"part of one":      Loads("a-a", loaded(0, 3, false, 1, 2)),
		"with a snapshot":  Loads("a-a", loaded(2, 3, true, 3)),
		"only a snapshot":  Loads("a-a", loaded(3, 3, true)),
		"an absent stream": Loads("a-a", loaded(0, 0, true)),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMisfits(t *testing.T) {
	other := loaded(2, 3, true, 3)
	other.Snapshot.Stream = "a-b"
	for name, err := range map[string]error{
		"other stream":            Follows("a-a", 0, entriesAt("a-b", 1)),
		"a hole":                  Follows("a-a", 0, entriesAt("a-a", 1, 3)),
		"twice":                   Follows("a-a", 0, entriesAt("a-a", 1, 1)),
		"too early":               Follows("a-a", 4, entriesAt("a-a", 4, 5)),
		"backward, a hole":        Precedes("a-a", 7, entriesAt("a-a", 6, 4)),
		"backward, forward":       Precedes("a-a", 7, entriesAt("a-a", 5, 6)),
		"backward, not below":     Precedes("a-a", 7, entriesAt("a-a", 7)),
		"backward, other":         Precedes("a-a", 7, entriesAt("a-b", 6)),
		"backward, seqno 0":       Precedes("a-a", 0, entriesAt("a-a", 0)),
		"feed, before":            Continues(50, page(70, true, 5, 7)),
		"feed, order":             Continues(0, page(70, true, 7, 5)),
		"feed, through before":    Continues(0, page(60, true, 5, 7)),
		"feed, none through":      Continues(0, page(0, true, 5)),
		"feed, stands still":      Continues(40, page(40, false)),
		"feed, nowhere":           Continues(40, page(0, false)),
		"feed, backward":          Continues(40, page(30, true)),
		"load, other stream":      Loads("a-b", loaded(0, 2, true, 1, 2)),
		"load, other snapshot":    Loads("a-a", other),
		"load, snapshot above":    Loads("a-a", loaded(4, 3, true)),
		"load, hole behind it":    Loads("a-a", loaded(1, 3, true, 3)),
		"load, beyond the head":   Loads("a-a", loaded(0, 2, false, 1, 2, 3)),
		"load, not at the end":    Loads("a-a", loaded(0, 3, true, 1, 2)),
		"load, snapshot and none": Loads("a-a", loaded(2, 3, true)),
	} {
		wantInvalid(t, name, err)
	}
}
