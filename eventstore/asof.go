// Finding a place in a stream by time.

package eventstore

import (
	"context"
	"errors"
	"time"
)

// LastBefore returns the seqno of the last entry of a stream whose Time lies before a
// moment on the store's clock: Trimmed, of the stream's Head, if every entry still there
// is later. Times never fall along a stream, so it takes a page of one entry for each
// halving of the stream. What is appended or trimmed meanwhile may or may not count.
func (s *Store) LastBefore(ctx context.Context, stream Stream, t time.Time) (Seqno, error) {
	h, err := s.Head(ctx, stream)
	if err != nil {
		return 0, err
	}
	first, behind := h.Trimmed+1, h.Last.Seqno+1 // the first entry that is not before t is one of these, or none
	for first < behind {
		middle := first + (behind-first)/2
		p, err := s.ReadFrom(ctx, stream, middle-1, 1)
		if e, ok := errors.AsType[*Error](err); ok && e.Kind == ErrTrimmed {
			first = max(e.First, middle+1) // trimmed meanwhile
			continue
		}
		if err != nil {
			return 0, err
		}
		if len(p.Entries) == 0 || !p.Entries[0].Time.Before(t) {
			behind = middle
		} else {
			first = middle + 1
		}
	}
	return first - 1, nil
}
