// Reader: one that follows the feed beside writers and must miss nothing.

package logtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Reader follows a feed without pause, each time from the position of the last entry
// that it was told it has passed, and keeps what it was given. It is one goroutine's.
type Reader struct {
	Name   string            // for messages
	Filter eventstore.Filter // of what it reads: categories, one type at most, no slots
	Limit  int               // of a page

	polls     int
	delivered []eventstore.Entry
}

// Follow reads until all was written and the horizon has passed the last of it:
// enough tells that, and is asked before each page.
func (r *Reader) Follow(ctx context.Context, store *eventstore.Store, enough func() (last eventstore.Position, all bool)) error {
	after := eventstore.Position(0)
	for {
		last, all := enough()
		page, err := store.ReadFeed(ctx, after, r.Filter, r.Limit)
		yield()
		if err != nil {
			return fmt.Errorf("reader %s: ReadFeed(%d) = %w, want nil", r.Name, after, err)
		}
		r.polls++
		r.delivered = append(r.delivered, page.Entries...)
		after = max(after, page.Through.Position)
		switch {
		case page.End && all && page.Horizon >= last:
			return nil
		case page.End:
			time.Sleep(time.Millisecond) // leave some of the machine to the writers
		}
	}
}

// Judge logs what the reader was given, and reports what it missed, saw twice or saw
// out of order. found is what the streams hold that it had to see; of those that were
// trimmed it may have seen more.
func (r *Reader) Judge(t testing.TB, found map[eventstore.Stream][]eventstore.Entry) {
	t.Helper()
	skipped, twice, disorder := r.faults(found)
	t.Logf("reader %s: %d polls, %d entries, %d skipped, %d twice, %d out of order", r.Name, r.polls, len(r.delivered), skipped, twice, disorder)
	if skipped+twice+disorder > 0 {
		t.Errorf("reader %s skipped %d, saw %d twice, saw %d out of order, want none", r.Name, skipped, twice, disorder)
	}
}

// faults compares what the reader was given with what is in the streams.
func (r *Reader) faults(found map[eventstore.Stream][]eventstore.Entry) (skipped, twice, disorder int) {
	seen := map[eventstore.UUID]bool{}
	before := map[eventstore.Stream]eventstore.Seqno{}
	last := eventstore.Position(0)
	for _, e := range r.delivered {
		if seen[e.ID] {
			twice++
			continue
		}
		if e.Position <= last || e.Seqno <= before[e.Stream] {
			disorder++
		}
		seen[e.ID], before[e.Stream], last = true, e.Seqno, max(last, e.Position)
	}
	for s, entries := range found {
		if len(r.Filter.Categories) == 1 && s.Category() != r.Filter.Categories[0] {
			continue
		}
		for _, e := range entries {
			if !seen[e.ID] && (len(r.Filter.Types) == 0 || e.Type == r.Filter.Types[0]) {
				skipped++
			}
		}
	}
	return skipped, twice, disorder
}
