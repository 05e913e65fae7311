// Reading through a Store: pages, iterators, load, backward with its fallback.

package eventstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// ReadFrom returns one page of a stream; see [Log.ReadFrom]. limit 0 means
// DefaultPageEntries, more than MaxPageEntries means that.
func (s *Store) ReadFrom(ctx context.Context, stream Stream, after Seqno, limit int) (Page, error) {
	err := stream.check()
	if err == nil {
		err = checkNumber("after", uint64(after))
	}
	if err != nil {
		return Page{}, inOp("read", stream, err)
	}
	return s.log.ReadFrom(ctx, stream, after, pageLimit(limit))
}

// ReadFeed returns one page of the feed; see [Log.ReadFeed]. limit as in ReadFrom.
func (s *Store) ReadFeed(ctx context.Context, after Position, f Filter, limit int) (FeedPage, error) {
	err := f.check()
	if err == nil {
		err = checkNumber("after", uint64(after))
	}
	if err != nil {
		return FeedPage{}, inOp("read feed", "", err)
	}
	return s.log.ReadFeed(ctx, after, f, pageLimit(limit))
}

// Read yields the entries of a stream after a seqno, in order, until the head. An
// error ends the sequence. The loop body may call the Store.
func (s *Store) Read(ctx context.Context, stream Stream, after Seqno) iter.Seq2[Entry, error] {
	return pages(after, func(after Seqno) (Page, error) { return s.ReadFrom(ctx, stream, after, 0) })
}

// pages yields the entries of page after page; the next one is that of the last
// entry's seqno.
func pages(at Seqno, next func(at Seqno) (Page, error)) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		at := at // the sequence may be ranged over again
		for {
			page, err := next(at)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
				at = e.Seqno
			}
			if page.End {
				return
			}
		}
	}
}

// Feed yields the entries after a position that match the filter, in position
// order, until the horizon. An error ends the sequence. The loop body may call the
// Store.
func (s *Store) Feed(ctx context.Context, after Position, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		after := after // as in pages
		for {
			page, err := s.ReadFeed(ctx, after, f, 0)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if page.End {
				return
			}
			after = page.Through.Position
		}
	}
}

// ReadBackward yields the entries of a stream below a seqno, newest first (0: from
// the head), down to the first that is still there. An error ends the sequence.
func (s *Store) ReadBackward(ctx context.Context, stream Stream, before Seqno) iter.Seq2[Entry, error] {
	return pages(before, func(before Seqno) (Page, error) { return s.ReadBackwardPage(ctx, stream, before, 0) })
}

// ReadBackwardPage returns one page of a stream, newest first; see
// [BackwardReader]. Logs that do not implement it are read forward, a page at a
// time: seqnos have no gaps, so the page's place is known.
func (s *Store) ReadBackwardPage(ctx context.Context, stream Stream, before Seqno, limit int) (Page, error) {
	err := stream.check()
	if err == nil {
		err = checkNumber("before", uint64(before))
	}
	if err != nil {
		return Page{}, inOp("read backward", stream, err)
	}
	limit = pageLimit(limit)
	if b, ok := s.log.(BackwardReader); ok {
		return b.ReadBackward(ctx, stream, before, limit)
	}
	return readBackward(ctx, s.log, stream, before, limit)
}

func readBackward(ctx context.Context, log Log, stream Stream, before Seqno, limit int) (Page, error) {
	h, err := log.Head(ctx, stream)
	if err != nil {
		return Page{}, err
	}
	if before == 0 || before > h.Last.Seqno {
		before = h.Last.Seqno + 1
	}
	first := h.Trimmed + 1
	switch {
	case before == 1 || before == first && h.Trimmed == h.Last.Seqno:
		if h.Trimmed == 0 {
			return Page{End: true}, nil
		}
		return Page{}, TrimmedError("read backward", stream, before, h)
	case before <= first:
		return Page{}, TrimmedError("read backward", stream, before, h)
	}
	from := first
	if before-first > Seqno(limit) {
		from = before - Seqno(limit)
	}
	// The page may end early by bytes: go on until it is filled, else newest first
	// would leave a hole.
	var all []Entry
	for after := from - 1; after+1 < before; {
		p, err := log.ReadFrom(ctx, stream, after, int(before-after-1))
		if err != nil {
			return Page{}, err
		}
		all = append(all, p.Entries...)
		after = all[len(all)-1].Seqno
	}
	slices.Reverse(all)
	return Page{Entries: all, End: from == first}, nil
}

// TrimmedError is the ErrTrimmed of a read of stream at seqno.
func TrimmedError(op string, stream Stream, at Seqno, h Head) error {
	return &Error{Kind: ErrTrimmed, Op: op, Stream: stream, Wanted: "entry " + at.String(),
		Found: fmt.Sprintf("entries through %d removed, head %d", h.Trimmed, h.Last.Seqno), First: h.Trimmed + 1,
		Hint: fmt.Sprintf("read after %d, or load from the snapshot", h.Trimmed)}
}

// TrimmedFeedError is the ErrTrimmed of a feed read after a position in a category
// whose trimmed-to position is higher.
func TrimmedFeedError(c Category, after, trimmed Position) error {
	return &Error{Kind: ErrTrimmed, Op: "read feed", Category: c, Wanted: "entries after position " + after.String(),
		Found: "some entries through position " + trimmed.String() + " removed", FirstPosition: trimmed,
		Hint: fmt.Sprintf("read after %d, or take snapshots (AcceptTrimmed)", trimmed)}
}

// Loading is what Store.Load gives: head, snapshot and the tail between them.
type Loading struct {
	Head     Head
	Snapshot *Snapshot // nil if there is no usable one

	Incarnation UUID // of the store
	Tail        iter.Seq2[Entry, error]
}

// Load returns what it takes to build the state of a stream as of one moment:
// its head, its newest usable snapshot made by code with this fingerprint ("" for
// none), and the entries from behind it through Head.Last. A snapshot that is not
// usable is left out with a warning to the Logger. A short tail comes with the
// first round trip; a long one is read page by page as it is ranged over, which
// may answer ErrTrimmed if the stream is trimmed meanwhile: load again.
func (s *Store) Load(ctx context.Context, stream Stream, fingerprint string) (l Loading, err error) {
	if err := stream.check(); err != nil {
		return Loading{}, inOp("load", stream, err)
	}
	ctx, span := s.span(ctx, "load", "receive", trace.SpanKindClient, stream)
	defer func() { EndSpan(span, err) }()
	log, err := as[Snapshots](s.log, "load")
	if err != nil {
		return Loading{}, err
	}
	got, err := log.Load(ctx, stream, fingerprint, DefaultPageEntries)
	if err != nil {
		return Loading{}, skippedHint(err)
	}
	if got.Skipped != "" {
		s.logger.WarnContext(ctx, "snapshot not used; replaying", "stream", stream, "why", got.Skipped)
	}
	span.SetAttributes(AttrSeqno.Int64(int64(got.Head.Last.Seqno)), AttrEpoch.Int64(int64(got.Head.Epoch)))
	return Loading{Head: got.Head, Snapshot: got.Snapshot, Incarnation: got.Incarnation, Tail: s.tail(ctx, stream, got)}, nil
}

// Snapshot returns the head of a stream and the snapshot that is kept of it, as of one
// moment, whichever code made it; nil if there is no usable one. ErrTrimmed if there is
// none and entries that it should stand for are gone.
func (s *Store) Snapshot(ctx context.Context, stream Stream) (h Head, sn *Snapshot, err error) {
	const op = "load snapshot"
	if err := stream.check(); err != nil {
		return Head{}, nil, inOp(op, stream, err)
	}
	ctx, span := s.span(ctx, op, "receive", trace.SpanKindClient, stream)
	defer func() { EndSpan(span, err) }()
	log, err := as[Snapshots](s.log, op)
	if err != nil {
		return Head{}, nil, err
	}
	got, err := log.Load(ctx, stream, AnyFingerprint, 1)
	if got.Skipped != "" {
		s.logger.WarnContext(ctx, "snapshot not used", "stream", stream, "why", got.Skipped)
	}
	if err != nil {
		return Head{}, nil, skippedHint(err)
	}
	return got.Head, got.Snapshot, nil
}

// ListTrimmed returns streams of a category of which no entry is left, page by page; see
// [TrimmedStreams]. It looks at limit of them, 0 means DefaultPageEntries.
func (s *Store) ListTrimmed(ctx context.Context, c Category, slots []Slot, after string, limit int) (TrimmedPage, error) {
	const op = "list trimmed streams"
	if err := c.check(); err != nil {
		return TrimmedPage{}, inOp(op, "", err)
	}
	l, err := as[TrimmedStreams](s.log, op)
	if err != nil {
		return TrimmedPage{}, err
	}
	return l.ListTrimmed(ctx, c, slots, after, pageLimit(limit))
}

func skippedHint(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == ErrTrimmed {
		c := *e
		c.Hint = "no usable snapshot stands before the first entry; make one with the code whose fingerprint is wanted"
		return &c
	}
	return err
}

// tail yields got's entries and, if there are more, those through its head. What
// was appended since is left out: head and entries stay of one moment.
func (s *Store) tail(ctx context.Context, stream Stream, got Loaded) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		after := Seqno(0)
		if got.Snapshot != nil {
			after = got.Snapshot.At.Seqno
		}
		for _, e := range got.Entries {
			if !yield(e, nil) {
				return
			}
			after = e.Seqno
		}
		if after >= got.Head.Last.Seqno {
			return
		}
		for e, err := range s.Read(ctx, stream, after) {
			if !yield(e, err) || err != nil || e.Seqno >= got.Head.Last.Seqno {
				return
			}
		}
	}
}

// Usable says why a stored snapshot cannot be used for a load with this
// fingerprint, "" if it can. marked is the ID of the entry at the snapshot's mark,
// zero if that has been trimmed.
func (sn *Snapshot) Usable(fingerprint string, h Head, marked UUID) string {
	switch {
	case sn.Fingerprint != fingerprint && fingerprint != AnyFingerprint:
		return fmt.Sprintf("it was made by code with fingerprint %q, this is %q", sn.Fingerprint, fingerprint)
	case sn.At.Seqno > h.Last.Seqno:
		return fmt.Sprintf("it stands at %d, beyond the head %d", sn.At.Seqno, h.Last.Seqno)
	case !marked.IsZero() && marked != sn.At.ID, sn.At.Seqno == h.Last.Seqno && sn.At.ID != h.Last.ID:
		return "it is of another history: entry " + sn.At.Seqno.String() + " is another one"
	case sha256.Sum256(sn.Data) != sn.Checksum:
		return "its checksum does not match"
	}
	return ""
}

func pageLimit(n int) int {
	switch {
	case n <= 0:
		return DefaultPageEntries
	case n > MaxPageEntries:
		return MaxPageEntries
	}
	return n
}
