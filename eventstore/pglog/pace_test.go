// The pace of polls, on a clock of the test's own.

package pglog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

func TestPace(t *testing.T) {
	page := func(through eventstore.Position, entries int, end bool) eventstore.FeedPage {
		return eventstore.FeedPage{Through: eventstore.PositionMark{Position: through}, Entries: make([]eventstore.Entry, entries), End: end}
	}
	synctest.Test(t, func(t *testing.T) {
		var p pace
		want := func(what string, after eventstore.Position, d time.Duration) {
			t.Helper()
			if got := p.rest(after); got != d {
				t.Errorf("%s: rest %v, want %v", what, got, d)
			}
		}
		want("nothing read yet", 0, 0)
		p.polled(50*time.Millisecond, 0, page(500, 500, false))
		want("a backlog", 500, 0)
		p.polled(50*time.Millisecond, 500, page(700, 200, true))
		want("the end, after a page that took long for its entries", 700, 5*time.Millisecond-50*time.Millisecond)
		p.polled(4*time.Millisecond, 700, page(0, 0, true))
		want("the end, empty", 700, 16*time.Millisecond)
		want("another reader, with a backlog", 20, 0)
		p.polled(4*time.Millisecond, 30, page(0, 0, true)) // of a category that ends there
		want("another reader, at its own end", 30, 16*time.Millisecond)
		p.polled(time.Minute, 700, page(0, 0, true))
		time.Sleep(0)
		if got := p.rest(700); got > time.Second {
			t.Errorf("rest %v, want a second at most", got)
		}
		p.polled(time.Millisecond, 700, page(710, 3, false))
		want("what was the end is passed", 700, 0)
		for i := range eventstore.Position(5 * maxEnds) {
			p.polled(time.Millisecond, i, page(0, 0, true))
		}
		if len(p.ends) > maxEnds {
			t.Errorf("%d places remembered, want at most %d", len(p.ends), maxEnds)
		}
	})
}
