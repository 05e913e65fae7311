// Background reclaiming: what a trim leaves is removed beside everything else.

package pglog

import (
	"context"
	"sync"
	"time"
)

// DefaultReclaimEvery is how long a Log rests between two rounds of Reclaim: a round
// reads every table that was trimmed since the last one.
const DefaultReclaimEvery = time.Minute

// firstReclaim is how long after a trim the first round begins, if none was before.
const firstReclaim = time.Second

// background is the round that is to come, or under way. There is none, and no
// goroutine and no timer, while nothing has been trimmed.
type background struct {
	every   time.Duration // negative: never
	mu      sync.Mutex
	timer   *time.Timer // not nil: a round is to come or under way
	again   bool        // something was trimmed since the round began
	ended   time.Time   // when the last one ended
	stop    context.CancelFunc
	closed  bool
	running sync.WaitGroup
}

// reclaimSoon sees to it that a round comes.
func (l *Log) reclaimSoon() {
	b := &l.background
	if b.every < 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = true
	if b.closed || b.timer != nil {
		return
	}
	rest := min(firstReclaim, b.every)
	if !b.ended.IsZero() {
		rest = max(rest, b.every-time.Since(b.ended))
	}
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.running.Add(1)
	b.timer = time.AfterFunc(rest, func() {
		defer b.running.Done()
		l.reclaimRound(ctx)
	})
}

// reclaimRound reclaims to the end. If something was trimmed meanwhile, another process
// was at it, or a table in use, another round follows.
func (l *Log) reclaimRound(ctx context.Context) {
	b := &l.background
	b.mu.Lock()
	b.again = false
	b.mu.Unlock()
	out, err := l.Reclaim(ctx, 0)
	if err != nil && ctx.Err() == nil {
		l.logger.WarnContext(ctx, "space of trimmed entries not reclaimed; another trim tries again", "error", err)
	}
	b.mu.Lock()
	b.timer, b.ended = nil, time.Now()
	again := b.again
	b.stop()
	b.mu.Unlock()
	if again || out.More && err == nil {
		l.reclaimSoon()
	}
}

// end ends the round that is to come or under way, and lets none come any more.
func (b *background) end() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.stop()
		if b.timer.Stop() {
			b.running.Done()
			b.timer = nil
		}
	}
	b.mu.Unlock()
	b.running.Wait()
}
