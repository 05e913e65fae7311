// What a projector knows of its own state.

package projector

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Status is the state of a projector as this instance knows it.
type Status struct {
	Key      Key
	Backend  string              // behind a Route
	Running  bool                // Run is on in this process
	Position eventstore.Position // of the durable checkpoint, when it was last seen
	Seqno    eventstore.Seqno    // the same, of a projector that follows one stream
	Horizon  eventstore.Position // of the last look at the feed
	// Lag is 0 if CaughtUp. Else it is an upper bound of what is left as of the last
	// look, in positions, and at least 1.
	Lag uint64
	// CaughtUp: a look within the last two poll intervals and five seconds found
	// nothing left to do, and nothing was hinted at and nothing failed since.
	CaughtUp  bool
	LastError error     // of the last step; nil once one has succeeded
	Looked    time.Time // when the store was last looked at with success
	Saved     time.Time // when this instance last saw or wrote the checkpoint
	// Parts are the states in each backend if there are several, the first one's first.
	// The state as a whole is that of the worst then: caught up if all are, behind by
	// all that any are, as fresh as the stalest; it has no place of its own.
	Parts []Status
}

// freshness is how long a look counts beyond two poll intervals.
const freshness = 5 * time.Second

// state is behind Projector.mu.
type state struct {
	kept     Checkpoint
	saved    time.Time
	place    uint64 // how far was read
	hint     uint64 // highest place that was hinted at and not reached; 0: none
	horizon  eventstore.Position
	looked   time.Time
	caughtUp bool
	err      error
}

// Status returns the state as this instance knows it. It asks nobody, so an
// instance that does not work knows nothing: it is not CaughtUp.
func (p *Projector) Status() Status {
	if len(p.parts) > 0 {
		return p.statusOfParts()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.state
	s := Status{Key: p.key, Backend: p.backend.Name, Running: p.running.Load(), Position: st.kept.Position, Seqno: st.kept.Seqno, Horizon: st.horizon,
		LastError: st.err, Looked: st.looked, Saved: st.saved}
	s.CaughtUp = st.caughtUp && st.err == nil && time.Since(st.looked) <= 2*p.o.PollInterval+freshness
	if p.mistake != nil {
		s.LastError, s.CaughtUp = p.mistake, false
	}
	if !s.CaughtUp {
		s.Lag = 1
		if s.Horizon > s.Position {
			s.Lag = uint64(s.Horizon - s.Position)
		}
	}
	return s
}

// kept notes a durable checkpoint and wakes who waits for it.
func (p *Projector) kept(c Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.kept, p.state.saved = c, time.Now()
	close(p.progress)
	p.progress = make(chan struct{})
}

// looked notes that a look has succeeded; what it found is not handled yet.
func (p *Projector) looked(l look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.horizon, p.state.looked = l.horizon, time.Now()
	if len(l.entries) > 0 || !l.end {
		p.state.caughtUp = false
	}
}

// stepped notes that all a look found is handled.
func (p *Projector) stepped(cur Checkpoint, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.place, p.state.err = p.source.place(cur), nil
	p.state.caughtUp = end && p.state.hint <= p.state.place
}

func (p *Projector) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.err, p.state.caughtUp = err, false
}

// next returns a channel that is closed when a checkpoint is kept.
func (p *Projector) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress
}
