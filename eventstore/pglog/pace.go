// Pace: how soon the end of the feed may be asked for again.

package pglog

import (
	"context"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	pollRest    = 5 // times what an empty poll took
	pollsApart  = 5 * time.Millisecond
	maxPollRest = time.Second
	maxEnds     = 1024
)

// pace keeps polls of the feed's end apart: asking pg_locks stops all lock managers for
// a moment. All readers of a process together ask at the end no sooner than 5 times what
// the last empty poll took, and at most 200 times a second. A reader that has entries
// before it is not held up, by itself or by another.
type pace struct {
	mu   sync.Mutex
	next time.Time
	ends map[eventstore.Position]bool // places where a reader was told of the end
}

// polled notes a page read after a position. One that held entries took its time for
// them; only an empty one tells what asking costs.
func (p *pace) polled(took time.Duration, after eventstore.Position, page eventstore.FeedPage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := max(after, page.Through.Position)
	if end > after {
		delete(p.ends, after)
	}
	if !page.End {
		return
	}
	rest := pollsApart
	if len(page.Entries) == 0 {
		rest = min(max(pollRest*took, pollsApart), maxPollRest)
	}
	p.next = time.Now().Add(rest - took)
	if p.ends == nil || len(p.ends) >= maxEnds {
		p.ends = map[eventstore.Position]bool{}
	}
	p.ends[end] = true
}

// rest is how long a read after a position is to wait.
func (p *pace) rest(after eventstore.Position) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ends[after] {
		return 0
	}
	return time.Until(p.next)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
