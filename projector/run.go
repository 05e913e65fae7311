// Run and CatchUp: working for as long as one is let, or for a bounded while.

package projector

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Run works until ctx ends, whose error it then returns, or until an error that
// going on would make worse. Where the handler has Control it registers the version and
// works on its share of the lanes; others may Run in other processes. Without, it claims
// the checkpoint: an instance that worked on it before stops with ErrFenced and has
// changed nothing since.
//
// Errors and what Run does:
//
//   - outages (eventstore.ErrUnavailable, ErrOverloaded, ErrReadOnly, ErrUnknown and
//     time-outs), of the store or of the handler: it loads its checkpoint anew and
//     goes on, however long it takes, with growing pauses of at most MaxBackoff;
//   - ErrFenced (without leases), ErrDiverged, ErrTrimmed, ErrInvalid, ErrNotMigrated, ErrIsolation,
//     ErrNoSuchCategory, ErrNoSuchStream, ErrCorrupt, ErrClosed: it stops
//     with the error; an entry that cannot be decoded is as below, at once;
//   - all others, as those of the handler's function and its panics: it tries the
//     batch again, Options.Tries times in all, then parks the key of the entry at fault
//     or, without Control or with Options.StopOnPoison, stops with the error. What
//     stood before that entry has been handled.
//
// Metrics ([MetricEntries] and those beside it) go to the store's MeterProvider.
//
// It is woken by announcements and by Wait, and looks every PollInterval anyhow. A
// Projector runs once at a time; a second Run is ErrInvalid.
//
// Over several backends each is worked on by itself: an outage of one does not keep
// the others waiting, and what stops one stops all.
func (p *Projector) Run(ctx context.Context) error {
	if p.mistake != nil {
		return p.mistake
	}
	if !p.running.CompareAndSwap(false, true) {
		return p.invalid("to run once at a time", "a Run that has not ended")
	}
	defer p.running.Store(false)
	defer p.observe()()
	switch {
	case p.control != nil:
		return p.runCrew(ctx)
	case len(p.parts) > 0:
		return p.runParts(ctx)
	}
	return p.run(ctx, eventstore.NewUUID())
}

// run works on the only lane of a projector without Control.
func (p *Projector) run(ctx context.Context, holder eventstore.UUID) error {
	return p.runSession(ctx, p.sessionOf(holder, 0))
}

func (p *Projector) runSession(ctx context.Context, s *session) error {
	ctx, stop := context.WithCancel(ctx)
	pl, wait := p.pull(ctx)
	defer wait()
	defer stop()
	return s.run(ctx, pl, nil)
}

// pull starts a puller, which ends with ctx and is waited for then.
func (p *Projector) pull(ctx context.Context) (pl *puller, wait func()) {
	pl = p.newPuller()
	p.mu.Lock()
	p.pl = pl
	p.mu.Unlock()
	var pulling sync.WaitGroup
	pulling.Go(func() { pl.run(ctx) })
	return pl, func() {
		pulling.Wait()
		p.mu.Lock()
		p.pl = nil
		p.mu.Unlock()
	}
}

// run works until ctx ends, leave is closed, or something fails that going on would
// make worse. Nil: it was left.
func (s *session) run(ctx context.Context, pl *puller, leave <-chan struct{}) error {
	for {
		if left(ctx, leave, 0) {
			return nil
		}
		err := s.follow(ctx, pl, leave)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errChanged):
			continue
		case errors.Is(err, errPaused):
			s.rest(ctx, leave)
			continue
		}
		s.p.failed(s.key.Lane, err)
		pause, again := s.tried.after(err)
		if !again {
			return err
		}
		level := slog.LevelWarn
		if fenced(err) {
			level = slog.LevelDebug // nothing failed yet: loading the checkpoint tells whether it is over
		}
		s.p.logger.Log(ctx, level, "projector failed; trying again", "lane", s.key.Lane, "pause", pause, "error", err)
		if left(ctx, leave, pause) {
			return nil
		}
	}
}

// rest waits until the lane is changed again, or it is time to look anyhow.
func (s *session) rest(ctx context.Context, leave <-chan struct{}) {
	_ = sleep(ctx, restInterval, leave, s.poke)
}

// left pauses and says if the lane is to be left.
func left(ctx context.Context, leave <-chan struct{}, pause time.Duration) bool {
	_ = sleep(ctx, pause, leave)
	select {
	case <-leave:
		return true
	default:
		return false
	}
}

// follow works until something fails, or the lane is left.
func (s *session) follow(ctx context.Context, pl *puller, leave <-chan struct{}) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	if err := s.replayAll(ctx); err != nil {
		return err
	}
	b := pl.attach(s.cursor())
	defer pl.detach(b)
	for tidied := time.Now(); ; {
		l, ok, err := b.take(ctx, s.poke, leave, s.saved.Add(s.passInterval()), tidied.Add(tidyInterval))
		switch {
		case errors.Is(err, errLeft):
			return nil
		case err != nil:
			return s.overtaken(ctx, err)
		case ok:
			if err := s.absorb(ctx, l); err != nil {
				return err
			}
		}
		s.moveHold(ctx)
		if !ok {
			if err := s.lookBack(ctx); err != nil {
				return err
			}
		}
		if !ok || l.end {
			tidied = time.Now()
			if err := s.p.tidy(ctx); err != nil {
				return err
			}
		}
	}
}

// moveHold lets the hold follow the only lane there is; a crew does it for all.
func (s *session) moveHold(ctx context.Context) {
	if s.p.control == nil {
		s.p.moveHold(ctx, s.kept)
	}
}

// lookBack has the only lane there is loaded anew if its checkpoint is not the one that was
// kept: there is nothing to do, and so no step that would be refused. A crew does it for all.
func (s *session) lookBack(ctx context.Context) error {
	if s.p.control != nil {
		return nil
	}
	kept, err := s.p.loadKey(ctx, s.key)
	if err == nil && !kept.Same(s.kept) {
		err = errChanged
	}
	return err
}

// retries decides what a failure means for a lane.
type retries struct {
	s     *session
	place uint64 // of the checkpoint at the last failure
	count int    // of failures at this place
	tries int    // of these, the ones that are bounded
}

// here forgets what failed elsewhere.
func (r *retries) here() {
	if place := r.s.p.source.place(r.s.kept); place != r.place {
		*r = retries{s: r.s, place: place}
	}
}

// last says if a failure at this place is the last one that is taken.
func (r *retries) last() bool {
	r.here()
	return r.tries+1 >= r.s.p.o.Tries
}

func (r *retries) after(err error) (pause time.Duration, again bool) {
	r.here()
	pause = backoff(r.count)
	r.count++
	e, ofEntry := errors.AsType[*EntryError](err)
	switch {
	case r.s.lost:
		return 0, false
	case outage(err):
		return pause, true
	case ofEntry && e.Permanent, !ofEntry && hopeless(err), errors.Is(err, ErrNotRegistered):
		return 0, false
	}
	// With ErrFenced somebody else won the race to claim, or a step of ours landed
	// whose answer was lost: loading the checkpoint tells.
	r.tries++
	return pause, r.tries < r.s.p.o.Tries || fenced(err) && r.tries < maxConflicts
}

// backoff is the pause after so many failures before.
func backoff(failures int) time.Duration {
	pause := min(MaxBackoff, MinBackoff<<min(failures, 10))
	return pause/2 + rand.N(pause/2+1)
}

// fenced says if the checkpoint was not the one expected. What the handler's own
// function says of other fences does not count.
func fenced(err error) bool {
	_, ofEntry := errors.AsType[*EntryError](err)
	return !ofEntry && errors.Is(err, eventstore.ErrFenced)
}

// outage says if an error is of the kind that passes by itself.
func outage(err error) bool {
	for _, kind := range []error{eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrReadOnly,
		eventstore.ErrUnknown, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// hopeless says if trying again after an error of store or handler is of no use or
// does harm.
func hopeless(err error) bool {
	for _, kind := range []error{eventstore.ErrDiverged, eventstore.ErrTrimmed, eventstore.ErrInvalid, eventstore.ErrTooLarge, eventstore.ErrNotMigrated,
		eventstore.ErrIsolation, eventstore.ErrNoSuchCategory, eventstore.ErrNoSuchStream, eventstore.ErrCorrupt,
		eventstore.ErrClosed, errors.ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// CatchUp works until nothing is left, or until no further batch fits into the
// budget or before ctx's deadline, going by the longest batch so far; it begins
// at least one. 0 means no budget of its own. more says that something was left.
// It starts no goroutine, and what it has done is committed when it returns.
//
// Calls may overlap, also with Run: the checkpoint sees to it that every effect
// happens once. A call that is overtaken after it has begun to write, or that loses
// ten races before, stops with ErrFenced: others do the work. An entry
// that cannot be handled is tried again, and its key parked, as by Run and as far as there
// is time. Any other error is returned at once, for the next call to try again. Over several backends it is one
// after the other, each with its share of the time, also when one before it fails.
func (p *Projector) CatchUp(ctx context.Context, budget time.Duration) (more bool, err error) {
	if p.mistake != nil {
		return true, p.mistake
	}
	if len(p.parts) > 0 {
		return p.catchUpParts(ctx, budget)
	}
	until := deadline(ctx, budget)
	lanes, err := p.prepare(ctx)
	if err != nil {
		return true, err
	}
	return p.catchUpLanes(ctx, until, lanes)
}

// catchUpLanes works on the lanes one after the other, each with its share of what is
// left of the time. One that others have taken, or that fails, keeps the rest from nothing.
func (p *Projector) catchUpLanes(ctx context.Context, until time.Time, lanes int) (more bool, err error) {
	var failed []error
	first := 0
	if lanes > 1 {
		first = rand.N(lanes) // so that calls that overlap do not meet in each
	}
	for i := range lanes {
		share := until
		if !until.IsZero() {
			share = time.Now().Add(max(1, time.Until(until)/time.Duration(lanes-i)))
		}
		lane := (first + i) % lanes
		left, err := p.catchUpLane(ctx, share, lane)
		if err != nil && ctx.Err() != nil {
			return true, ctx.Err()
		}
		more = more || left
		if err != nil {
			p.failed(lane, err)
			failed = append(failed, err)
		}
	}
	p.moveLowest(ctx)
	if len(failed) == 1 {
		return more, failed[0]
	}
	return more, errors.Join(failed...)
}

func (p *Projector) catchUpLane(ctx context.Context, until time.Time, lane int) (more bool, err error) {
	s := p.session(lane)
	if more, err = s.work(ctx, until); err != nil || s.kept.Paused() {
		return true, err
	}
	if s.ahead() {
		if err := s.write(ctx, Step{To: s.cur}); err != nil && !fenced(err) {
			return more, err
		}
	}
	s.moveHold(ctx)
	return more, p.tidy(ctx)
}

// deadline is the end of a budget or of ctx, the earlier; zero: none.
func deadline(ctx context.Context, budget time.Duration) (until time.Time) {
	if budget > 0 {
		until = time.Now().Add(budget)
	}
	if d, ok := ctx.Deadline(); ok && (until.IsZero() || d.Before(until)) {
		until = d
	}
	return until
}

// work takes steps until the end, or as long as there is time.
func (s *session) work(ctx context.Context, until time.Time) (more bool, err error) {
	var longest time.Duration
	conflicts, opened := 0, false
	for {
		began, end := time.Now(), false
		if err = nil; !opened {
			if err = s.open(ctx); errors.Is(err, errPaused) {
				return true, nil
			}
			opened = err == nil
		}
		if err == nil {
			err = s.replayAll(ctx)
		}
		if err == nil {
			end, err = s.step(ctx)
		}
		if s.patient(ctx, err, until) {
			opened = false
			continue
		}
		switch {
		case err == nil && end:
			return false, nil
		case err != nil && (s.lost || !fenced(err) || conflicts == maxConflicts):
			return true, err
		case err != nil:
			conflicts, opened = conflicts+1, false
		}
		longest = max(longest, time.Since(began))
		if !until.IsZero() && time.Until(until) < longest {
			return true, nil
		}
	}
}

// patient pauses before an entry is tried again that is parked if it cannot be handled,
// and says if there was time for that.
func (s *session) patient(ctx context.Context, err error, until time.Time) bool {
	if _, poison := errors.AsType[*EntryError](err); !poison || outage(err) || !s.p.parks() {
		return false
	}
	pause, again := s.tried.after(err)
	if !again || !until.IsZero() && time.Until(until) < pause {
		return false
	}
	return sleep(ctx, pause) == nil
}

// sleep pauses, less if one of at most two channels says so, or returns the context's
// error when it ends.
func sleep(ctx context.Context, d time.Duration, less ...<-chan struct{}) error {
	wake := [2]<-chan struct{}{}
	copy(wake[:], less)
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	case <-wake[0]:
	case <-wake[1]:
	}
	return nil
}
