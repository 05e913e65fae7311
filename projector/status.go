// What a projector knows of its own state.

package projector

import (
	"maps"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Status is the state of a projector as this instance knows it.
type Status struct {
	Key      Key
	Backend  string              // behind a Route
	Running  bool                // Run is on in this process
	Position eventstore.Position // of the lowest durable checkpoint of Lanes, when it was last seen
	Seqno    eventstore.Seqno    // the same, of a projector that follows one stream
	Horizon  eventstore.Position // of the last look at the feed
	// Lag is 0 if CaughtUp. Else it is an upper bound of what is left as of the last
	// look, in positions, and at least 1.
	Lag uint64
	// CaughtUp: this instance works on some lanes, and a look within the last two poll
	// intervals and five seconds found nothing left to do in any of them, and nothing
	// was hinted at and nothing failed since, and no key of theirs is parked. Lanes
	// that other instances work on do not count: see Health.
	CaughtUp  bool
	LastError error     // of the last step of a lane; nil once one has succeeded
	Looked    time.Time // when the store was last looked at with success
	Saved     time.Time // when this instance last saw or wrote a checkpoint
	Parked    int       // keys
	// Lanes are those that this instance works on, or that CatchUp worked on last, by number.
	Lanes []LaneStatus
	// Parts are the states in each backend if there are several, the first one's first.
	// The state as a whole is that of the worst then: caught up if all are, behind by
	// all that any are, as fresh as the stalest; it has no place of its own.
	Parts []Status
}

// LaneStatus is the state of a lane as the instance that works on it knows it.
type LaneStatus struct {
	Lane       int
	Checkpoint Checkpoint // durable
	CaughtUp   bool
	Parked     int
	LastError  error
}

// freshness is how long a look counts beyond two poll intervals.
const freshness = 5 * time.Second

// state is behind Projector.mu.
type state struct {
	place   uint64 // how far was read in the lane that was read furthest
	hint    uint64 // highest place that was hinted at and not reached; 0: none
	horizon eventstore.Position
	looked  time.Time
	stuck   error // why the store cannot be read
	blind   error // why the worker cannot see to its lanes
}

// laneState is the state of a lane, behind Projector.mu.
type laneState struct {
	kept     Checkpoint
	saved    time.Time
	place    uint64 // how far was read
	caughtUp bool
	parked   int
	err      error
	readings []reading // not handled yet
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
	s := Status{Key: p.key, Backend: p.backend.Name, Running: p.running.Load(), Horizon: st.horizon, Looked: st.looked, LastError: st.stuck}
	if s.LastError == nil {
		s.LastError = st.blind
	}
	s.CaughtUp = len(p.lanes) > 0
	for i, lane := range slices.Sorted(maps.Keys(p.lanes)) {
		s.add(lane, p.lanes[lane], i == 0)
	}
	s.CaughtUp = s.CaughtUp && s.LastError == nil && time.Since(st.looked) <= 2*p.o.PollInterval+freshness
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

// add adds a lane to the status.
func (s *Status) add(lane int, l *laneState, first bool) {
	s.Lanes = append(s.Lanes, LaneStatus{Lane: lane, Checkpoint: l.kept, CaughtUp: l.caughtUp && l.err == nil, Parked: l.parked, LastError: l.err})
	if first || l.kept.Position < s.Position {
		s.Position = l.kept.Position
	}
	if first || l.kept.Seqno < s.Seqno {
		s.Seqno = l.kept.Seqno
	}
	if l.saved.After(s.Saved) {
		s.Saved = l.saved
	}
	s.CaughtUp = s.CaughtUp && l.caughtUp && l.parked == 0
	s.Parked += l.parked
	if s.LastError == nil {
		s.LastError = l.err
	}
}

// of returns the state of a lane; p.mu is held.
func (p *Projector) of(lane int) *laneState {
	if p.lanes == nil {
		p.lanes = map[int]*laneState{}
	}
	if p.lanes[lane] == nil {
		p.lanes[lane] = &laneState{}
	}
	return p.lanes[lane]
}

// forget drops the state of a lane that others work on from now on.
func (p *Projector) forget(lane int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lanes, lane)
}

// kept notes a durable checkpoint and wakes who waits for it.
func (p *Projector) kept(lane int, c Checkpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of(lane)
	l.passed(p, c)
	l.kept, l.saved = c, time.Now()
	close(p.progress)
	p.progress = make(chan struct{})
}

// parkedIn notes how many keys are parked in a lane.
func (p *Projector) parkedIn(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(s.key.Lane).parked = len(s.parked)
}

// saw notes that a look has succeeded.
func (p *Projector) saw(horizon eventstore.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.horizon, p.state.looked, p.state.stuck = horizon, time.Now(), nil
}

// looked notes that a look has succeeded; what it found for a lane is not handled yet.
func (p *Projector) looked(lane int, l look) {
	p.saw(l.horizon)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of(lane).reads(p, l.entries)
	if len(l.entries) > 0 || !l.end {
		p.of(lane).caughtUp = false
	}
}

// stepped notes that all a look found for a lane is handled.
func (p *Projector) stepped(lane int, cur Checkpoint, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of(lane)
	l.place, l.err = p.source.place(cur), nil
	l.caughtUp = end && p.state.hint <= l.place
	p.state.place = max(p.state.place, l.place)
}

// failed notes why a lane cannot go on.
func (p *Projector) failed(lane int, err error) {
	p.metrics.failed(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of(lane)
	l.err, l.caughtUp = err, false
}

// sees notes why the worker cannot see to its lanes; nil: it can. still says that this tells
// all there is to know, no lane having anything to read.
func (p *Projector) sees(err error, still bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state.blind = err; still {
		p.state.looked = time.Now()
	}
}

// stuckOn notes why the store cannot be read; nil: it can, or there is nothing to read.
func (p *Projector) stuckOn(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.stuck = err
}

// next returns a channel that is closed when a checkpoint is kept.
func (p *Projector) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress
}
