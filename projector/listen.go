// Announcements: waking up early, and nothing else.

package projector

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// ear is the subscription of one Run.
type ear struct {
	p     *Projector
	pl    *puller
	stop  func()
	tried time.Time

	mu    sync.Mutex
	later *time.Timer // a look that is to come; nil: none
}

// listen subscribes if it has not yet. Polling goes on without.
func (e *ear) listen(ctx context.Context) {
	if e.stop != nil || !e.tried.IsZero() && time.Since(e.tried) < listenInterval {
		return
	}
	e.tried = time.Now()
	stop, err := e.p.store.Subscribe(ctx, e.p.source.categories(), e.hear)
	if err != nil {
		e.p.logger.WarnContext(ctx, "no announcements; polling", "error", err)
		return
	}
	e.stop = stop
}

func (e *ear) close() {
	if e.stop != nil {
		e.stop()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.later != nil {
		e.later.Stop()
	}
}

// hear takes a hint. One that is behind what was read already, or that concerns no lane
// of this worker, is no news.
func (e *ear) hear(a eventstore.Announcement) {
	place, ok := e.p.source.hinted(a)
	if !ok || a.Stream != "" && !e.pl.has(a.Stream) {
		return
	}
	switch news := e.p.hint(place); {
	case a == (eventstore.Announcement{}):
		e.soon()
	case news:
		e.pl.look()
	}
}

// soon looks after a while that is left to chance: hints may have been lost, and whoever
// listens to the same server was told so at the same moment.
func (e *ear) soon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	pause := rand.N(min(e.p.o.PollInterval, herdInterval))
	if e.later == nil {
		e.later = time.AfterFunc(pause, e.pl.look)
	} else {
		e.later.Reset(pause)
	}
}

// has says if a stream belongs to a lane that is attached.
func (pl *puller) has(s eventstore.Stream) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for _, b := range pl.boxes {
		if b.cursor.lanes == 1 || LaneOf(s.Slot(), b.cursor.lanes) == b.cursor.lane {
			return true
		}
	}
	return false
}

// hint notes that something may stand at a place, and says if that is news.
func (p *Projector) hint(place uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place != 0 && place <= p.state.place {
		return false
	}
	p.state.hint = max(p.state.hint, place)
	for _, l := range p.lanes {
		l.caughtUp = l.caughtUp && place != 0 && place <= l.place
	}
	return true
}

// nudge has a Run in this process look at the store now.
func (p *Projector) nudge() {
	p.mu.Lock()
	pl := p.pl
	p.mu.Unlock()
	if pl != nil {
		pl.look()
	}
}

// hintedBehind says if something was hinted at behind a checkpoint.
func (p *Projector) hintedBehind(at Checkpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.hint > p.source.place(at)
}

func (p *Projector) forgetHint() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.hint = 0
}
