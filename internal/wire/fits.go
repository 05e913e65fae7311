// Whether an answer can be one to what was asked. A server, or what stands between, that
// mixes up answers must not have its caller believe them.

package wire

import (
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

func unfit(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: wanted, Found: found}
}

// Answers says if receipts can be those of an append: one for each batch, in their order,
// of its stream, seqnos and last event.
func Answers(a eventstore.Append, done eventstore.Appended) error {
	if len(done.Receipts) != len(a.Batches) {
		return unfit(fmt.Sprintf("%d receipts", len(a.Batches)), fmt.Sprint(len(done.Receipts)))
	}
	for i, r := range done.Receipts {
		b := &a.Batches[i]
		want := eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1, Last: eventstore.Mark{Seqno: b.Last(), ID: r.Last.ID}, Fenced: r.Fenced, Replays: r.Replays}
		if n := len(b.Events); n > 0 && !b.Events[n-1].ID.IsZero() {
			want.Last.ID = b.Events[n-1].ID
		}
		if r != want {
			return unfit(fmt.Sprintf("receipt %d of %q, %d to %v", i, clean(string(want.Stream)), want.First, want.Last),
				fmt.Sprintf("%q, %d to %v", clean(string(r.Stream)), r.First, r.Last))
		}
	}
	return nil
}

// Follows says if entries can be those of a stream behind a seqno.
func Follows(s eventstore.Stream, after eventstore.Seqno, entries []eventstore.Entry) error {
	for i := range entries {
		if e := &entries[i]; e.Stream != s || e.Seqno != after+1 {
			return unfit(fmt.Sprintf("entry %d of %q", after+1, s), fmt.Sprintf("%d of %q", e.Seqno, clean(string(e.Stream))))
		}
		after++
	}
	return nil
}

// Precedes says if entries can be those of a stream below a seqno, 0: from the head,
// newest first.
func Precedes(s eventstore.Stream, before eventstore.Seqno, entries []eventstore.Entry) error {
	for i := range entries {
		e := &entries[i]
		if e.Stream != s || e.Seqno == 0 || i > 0 && e.Seqno != before-1 || before > 0 && e.Seqno >= before {
			return unfit(fmt.Sprintf("an entry of %q below %d", s, before), fmt.Sprintf("%d of %q", e.Seqno, clean(string(e.Stream))))
		}
		before = e.Seqno
	}
	return nil
}

// Continues says if a page can be one of the feed behind a position: positions rise, and
// it gets further unless it is the end.
func Continues(after eventstore.Position, p eventstore.FeedPage) error {
	last := after
	for i := range p.Entries {
		if at := p.Entries[i].Position; at <= last {
			return unfit(fmt.Sprintf("a position above %d", last), at.String())
		}
		last = p.Entries[i].Position
	}
	through := p.Through.Position
	if through == 0 && last == after && p.End {
		return nil
	}
	if through < last || through <= after {
		return unfit(fmt.Sprintf("a page through %d or further", max(last, after+1)), through.String())
	}
	return nil
}

// Loads says if a loaded stream can be one.
func Loads(s eventstore.Stream, l eventstore.Loaded) error {
	after := eventstore.Seqno(0)
	if sn := l.Snapshot; sn != nil {
		if after = sn.At.Seqno; sn.Stream != s || after > l.Head.Last.Seqno {
			return unfit(fmt.Sprintf("a snapshot of %q at no more than %d", s, l.Head.Last.Seqno), fmt.Sprintf("one of %q at %d", clean(string(sn.Stream)), after))
		}
	}
	if err := Follows(s, after, l.Entries); err != nil {
		return err
	}
	if after += eventstore.Seqno(len(l.Entries)); after > l.Head.Last.Seqno || l.End && after != l.Head.Last.Seqno {
		return unfit("entries through the head, "+l.Head.Last.Seqno.String(), "through "+after.String())
	}
	return nil
}
