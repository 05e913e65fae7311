// Tidying: trimming what is of no use any more.

package timer

import (
	"context"
	"math"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// tidier follows the category once more, Options.Keep behind. Where it is need not be
// remembered: trimming again does nothing.
type tidier struct {
	s        *Scheduler
	position eventstore.Position
}

// run tidies until ctx ends. Failures cost space, nothing else.
func (t *tidier) run(ctx context.Context) {
	for {
		more, err := t.step(ctx)
		if err != nil && ctx.Err() == nil {
			t.s.logger.WarnContext(ctx, "timers that are over not trimmed", "category", t.s.o.Category, "error", err)
		}
		pause := tidyInterval
		if more && err == nil {
			pause = minLook
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// step looks at one page and trims by it: a timer that is over through its end, one
// that is pending behind the entry that set it.
func (t *tidier) step(ctx context.Context) (more bool, err error) {
	if t.s.o.Keep < 0 {
		return false, nil
	}
	held, err := t.held(ctx)
	if err != nil {
		return false, err
	}
	p, err := t.s.store.ReadFeed(ctx, t.position, eventstore.Filter{Categories: []eventstore.Category{t.s.o.Category}, AcceptTrimmed: true}, tidyPage)
	if err != nil {
		return false, err
	}
	if p.Drawn < t.position {
		t.position = 0 // another history
		return true, nil
	}
	through := map[eventstore.Stream]eventstore.Seqno{}
	before := t.s.o.Now().Add(-t.s.o.Keep)
	position, all := t.position, true
	for i := range p.Entries {
		e := &p.Entries[i]
		if all = e.Position < held && e.Time.Before(before); !all {
			break
		}
		through[e.Stream] = e.Seqno
		if e.Type == SetType {
			through[e.Stream]--
		}
		position = e.Position
	}
	for stream, n := range through {
		if n == 0 {
			continue
		}
		if _, err := t.s.store.Trim(ctx, stream, n, false); err != nil {
			return false, err
		}
	}
	if t.position = position; all {
		t.position = max(position, p.Through.Position)
	}
	return all && !p.End, nil
}

// held returns the lowest position that a hold on the category keeps.
func (t *tidier) held(ctx context.Context) (eventstore.Position, error) {
	all, err := t.s.store.ListHolds(ctx)
	lowest := eventstore.Position(math.MaxInt64)
	for _, h := range all {
		if h.Category == t.s.o.Category && h.Stream == "" {
			lowest = min(lowest, h.Position)
		}
	}
	return lowest, err
}

// expired says if a time has passed; the zero time never does.
func expired(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }
