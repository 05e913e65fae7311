// Announcements: waking up early, and nothing else.

package projector

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// ear is the subscription of one Run.
type ear struct {
	p     *Projector
	stop  func()
	tried time.Time
}

// listen subscribes if it has not yet. Polling goes on without.
func (e *ear) listen(ctx context.Context) {
	if e.stop != nil || !e.tried.IsZero() && time.Since(e.tried) < listenInterval {
		return
	}
	e.tried = time.Now()
	stop, err := e.p.store.Subscribe(ctx, e.p.source.categories(), e.p.hear)
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
}

// hear takes a hint. One that is behind what was read already is old news; one
// without a place says to look.
func (p *Projector) hear(a eventstore.Announcement) {
	place, ok := p.source.hinted(a)
	if !ok {
		return
	}
	p.mu.Lock()
	news := place == 0 || place > p.state.place
	if news {
		p.state.hint = max(p.state.hint, place)
		p.state.caughtUp = false
	}
	p.mu.Unlock()
	if news {
		p.nudge()
	}
}

// nudge wakes Run. It never blocks.
func (p *Projector) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
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
