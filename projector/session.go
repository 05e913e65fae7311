// A session: one instance's work on a lane.

package projector

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// session is the work of one Run or CatchUp on one lane. What it knows is thrown away
// and loaded anew after every failure; only who it is stays.
type session struct {
	p      *Projector
	key    Key
	holder eventstore.UUID
	lane   Lane              // as it was loaded; its Checkpoint and Parked are not kept up
	parked map[string]Parked // by StreamKey
	held   map[eventstore.Stream]eventstore.Seqno
	kept   Checkpoint                  // as it is durably kept
	cur    Checkpoint                  // how far was read: kept, or behind it entries that are not handled
	owned  bool                        // kept is this holder's
	lost   bool                        // it was, and is another's now
	saved  time.Time                   // when kept was loaded or written
	limit  int                         // entries of the next batch
	known  map[eventstore.Stream]begun // streams that were begun, see begin.go
	forgot bool                        // some of known was forgotten
	tried  retries

	poke chan struct{} // holds at most one: the lane was changed from outside

	claimed atomic.Bool // it was this holder's at some time; others may look
}

func (p *Projector) session(lane int) *session { return p.sessionOf(eventstore.NewUUID(), lane) }

func (p *Projector) sessionOf(holder eventstore.UUID, lane int) *session {
	key := p.key
	key.Lane = lane
	s := &session{p: p, key: key, holder: holder, limit: p.o.PageSize, poke: make(chan struct{}, 1)}
	s.tried.s = s
	return s
}

// errPaused: the lane is not to be worked on for now.
var errPaused = errors.New("paused")

// errChanged: the lane was changed from outside and must be loaded anew.
var errChanged = errors.New("changed from outside")

// errLeft: the lane is given to another instance.
var errLeft = errors.New("left")

// open loads the lane, proves that its checkpoint stands in the store, and holds what
// is behind it. It also settles what became of a step whose answer was lost.
func (s *session) open(ctx context.Context) error {
	lane, err := s.p.loadLane(ctx, s.key)
	if err != nil {
		return err
	}
	kept := lane.Checkpoint
	// A lower epoch is nobody's who came after: the claim was lost with the server that
	// it was kept on, or the answer is an old one. It is made again.
	if s.owned && kept.Holder != s.holder && kept.Epoch >= s.kept.Epoch && !kept.nobody() {
		s.lost = true
		return FencedError(s.key, s.kept, kept)
	}
	if kept.Epoch == 0 {
		if err := s.p.unrivaled(ctx); err != nil {
			return err
		}
	}
	s.load(lane)
	if kept.Paused() {
		return errPaused
	}
	s.cur = s.p.start(kept)
	if err := s.p.source.resume(ctx, s.cursor()); err != nil {
		return s.overtaken(ctx, err)
	}
	if s.p.control == nil { // else one hold for all lanes is kept at the lowest
		return s.overtaken(ctx, s.p.hold(ctx, s.cur))
	}
	s.forgetHolds(ctx)
	return s.holdParked(ctx)
}

func (s *session) load(lane Lane) {
	s.lane = lane
	s.known, s.forgot = nil, false
	s.parked = map[string]Parked{}
	for _, k := range lane.Parked {
		s.parked[k.StreamKey] = k
	}
	s.take(lane.Checkpoint)
	s.p.parkedIn(s)
}

// cursor is where the session reads on.
func (s *session) cursor() cursor {
	return cursor{lane: s.key.Lane, lanes: s.lane.Lanes, at: s.cur, shadow: s.lane.Role == Shadow}
}

// overtaken tells an error of the store from its being asked for what another
// instance has left behind: a zombie finds entries trimmed that it has not handled.
func (s *session) overtaken(ctx context.Context, failed error) error {
	if !hopeless(failed) {
		return failed
	}
	if kept, err := s.p.loadKey(ctx, s.key); err == nil && !kept.Same(s.kept) {
		return FencedError(s.key, s.kept, kept)
	}
	return failed
}

func (s *session) take(kept Checkpoint) {
	s.kept, s.cur, s.owned, s.saved = kept, kept, kept.Epoch > 0 && kept.Holder == s.holder, time.Now()
	if s.owned {
		s.claimed.Store(true)
	}
	s.p.kept(s.key.Lane, kept)
}

// write lets the handler take one step from the kept checkpoint, claiming it if it
// is not this session's yet. The step says where to, and what goes with it.
func (s *session) write(ctx context.Context, st Step) error {
	st.Key, st.From, st.gaps = s.key, s.kept, s.p.begins()
	st.To.Epoch, st.To.Holder = max(s.kept.Epoch, st.To.Epoch), s.holder
	if !s.owned {
		st.To.Epoch = s.kept.Epoch + 1
	}
	if q := (quiet{role: s.lane.Role, places: s.lane.Quiet, seqnos: s.p.o.Stream != ""}); q.role != Live || len(q.places) > 0 {
		ctx = context.WithValue(ctx, quietKey{}, q)
	}
	free := !s.owned && s.kept.nobody()
	if err := s.p.handle(ctx, st); err != nil {
		return err
	}
	s.take(st.To)
	for _, k := range st.Park {
		s.parked[k.StreamKey] = k
	}
	for _, name := range st.Unpark {
		delete(s.parked, name)
	}
	if len(st.Park)+len(st.Unpark) > 0 {
		s.p.parkedIn(s)
	}
	if free { // it was changed from outside, parked keys perhaps
		s.releaseStray(ctx)
	}
	return nil
}

// claim makes the checkpoint this session's: whoever worked on it is fenced.
func (s *session) claim(ctx context.Context) error {
	if s.owned {
		return nil
	}
	free := s.kept.nobody()
	if err := s.write(ctx, Step{To: s.cur}); err != nil {
		return err
	}
	if !free { // from one who is gone, perhaps in the middle of a step
		s.releaseStray(ctx)
	}
	return nil
}

// step looks at the store once and handles what is there. end says that nothing
// stood behind it.
func (s *session) step(ctx context.Context) (end bool, err error) {
	looks, err := s.p.source.read(ctx, []cursor{s.cursor()})
	if err != nil {
		return false, s.overtaken(ctx, err)
	}
	l := s.p.cut(s.cursor(), looks[0])
	s.p.looked(s.key.Lane, l)
	return l.end, s.absorb(ctx, l)
}

// absorb handles what a look found and keeps the checkpoint behind it, at once or, if
// nothing was to be handled and nothing is left, now and then.
func (s *session) absorb(ctx context.Context, l look) error {
	place := s.p.source.place
	passesGone := place(s.cur) < l.gone && l.gone <= place(l.next)
	if passesGone {
		if err := s.beginLost(ctx); err != nil {
			return err
		}
	}
	if err := s.handleAll(ctx, l); err != nil {
		return err
	}
	s.cur = l.next
	if s.ahead() && (passesGone || !l.end || time.Since(s.saved) >= s.passInterval()) {
		if err := s.write(ctx, Step{To: s.cur}); err != nil {
			return err
		}
	}
	s.p.stepped(s.key.Lane, s.cur, l.end)
	return nil
}

// ahead says if entries were passed over since the checkpoint was kept.
func (s *session) ahead() bool { return s.p.source.place(s.cur) != s.p.source.place(s.kept) }

// passInterval is how often a lane keeps a checkpoint that only passes entries over.
// With many lanes each takes longer, so that all together write no more than a few.
func (s *session) passInterval() time.Duration {
	return passInterval * time.Duration(1+s.lane.Lanes/passLanes)
}

// handleAll handles the entries of a look, as many at a time as fit into a batch.
func (s *session) handleAll(ctx context.Context, l look) error {
	for rest := l.entries; len(rest) > 0; rest = s.beyond(rest) {
		pl, err := s.plan(ctx, rest)
		if err != nil {
			return err
		}
		if len(pl.batch) == 0 { // all of it was passed over
			s.learn(pl.known)
			return nil
		}
		to := l.next
		switch {
		case pl.took == 0:
			to = s.again() // a snapshot before the first entry, and there is no room for that
			to.Incarnation, to.Timeline = l.next.Incarnation, l.next.Timeline
		case pl.took < len(rest):
			to = s.kept
			for _, e := range rest[:pl.took] {
				to = to.Past(e, l.next)
			}
		}
		if err := s.handleSome(ctx, rest, pl, to); err != nil {
			return err
		}
	}
	return nil
}

// beyond returns the entries behind the kept checkpoint.
func (s *session) beyond(entries []eventstore.Entry) []eventstore.Entry {
	n := 0
	for n < len(entries) && s.p.source.placeOf(&entries[n]) <= s.p.source.place(s.kept) {
		n++
	}
	return entries[n:]
}

// handleSome hands a batch to the handler, without what waits behind a parked key. When
// it returns nil the session has come further, or will take fewer at a time.
func (s *session) handleSome(ctx context.Context, entries []eventstore.Entry, pl plan, to Checkpoint) error {
	st := Step{To: to}
	st.Batch, st.Park = s.apart(pl.batch)
	if err := s.holdQueues(ctx, st.Park); err != nil {
		return err
	}
	err := s.write(ctx, st)
	if err == nil {
		s.learn(pl.known)
		s.limit = min(2*s.limit, s.p.o.PageSize)
		return nil
	}
	bad := s.poison(ctx, st.Batch, err)
	if bad == nil {
		return err
	}
	return s.poisoned(ctx, entries, pl, st.Batch, to, bad)
}
