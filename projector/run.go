// Run and CatchUp: working for as long as one is let, or for a bounded while.

package projector

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Run works until ctx ends, whose error it then returns, or until an error that
// going on would make worse. It claims the checkpoint: an instance that worked on
// it before stops with ErrFenced and has changed nothing since.
//
// Errors and what Run does:
//
//   - outages (eventstore.ErrUnavailable, ErrOverloaded, ErrReadOnly, ErrUnknown and
//     time-outs), of the store or of the handler: it loads its checkpoint anew and
//     goes on, however long it takes, with growing pauses of at most MaxBackoff;
//   - ErrFenced, ErrDiverged, ErrTrimmed, ErrInvalid, ErrNotMigrated, ErrIsolation,
//     ErrNoSuchCategory, ErrNoSuchStream, ErrCorrupt, ErrClosed, an entry that
//     cannot be decoded: it stops with the error;
//   - all others, as those of the handler's function and its panics: it tries the
//     batch again, Options.Tries times in all, then stops with the error. What
//     stood before the entry at fault, if that is known, has been handled.
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
	if len(p.parts) > 0 {
		return p.runParts(ctx)
	}
	return p.run(ctx, p.session())
}

// run works as a session.
func (p *Projector) run(ctx context.Context, s *session) error {
	ear := &ear{p: p}
	defer ear.close()
	r := &retries{p: p}
	for {
		err := s.follow(ctx, ear)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.failed(err)
		pause, again := r.after(s, err)
		if !again {
			return err
		}
		level := slog.LevelWarn
		if fenced(err) {
			level = slog.LevelDebug // nothing failed yet: loading the checkpoint tells whether it is over
		}
		p.logger.Log(ctx, level, "projector failed; trying again", "pause", pause, "error", err)
		if sleep(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// follow works until something fails.
func (s *session) follow(ctx context.Context, ear *ear) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	for {
		ear.listen(ctx)
		began := time.Now()
		end, err := s.step(ctx)
		if err != nil {
			return err
		}
		s.p.moveHold(ctx, s.kept)
		if !end {
			continue
		}
		if err := s.p.tidy(ctx); err != nil {
			return err
		}
		if err := s.idle(ctx, began); err != nil {
			return err
		}
	}
}

// idle waits for a hint, or until it is time to look anyhow.
func (s *session) idle(ctx context.Context, looked time.Time) error {
	pause := s.p.o.PollInterval
	if s.p.hintedBehind(s.cur) {
		// What was hinted is not below the horizon yet, or does not exist: look a few
		// times soon, then as always.
		if s.eager = max(minLook, 2*s.eager); s.eager < pause {
			pause = s.eager
		} else {
			s.p.forgetHint()
			s.eager = 0
		}
	} else {
		s.eager = 0
	}
	if s.ahead() {
		pause = min(pause, passInterval)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-s.p.wake:
	}
	return sleep(ctx, minLook-time.Since(looked)) // a flood of hints is no flood of queries
}

// retries decides what a failure means for Run.
type retries struct {
	p     *Projector
	place uint64 // of the checkpoint at the last failure
	count int    // of failures at this place
	tries int    // of these, the ones that are bounded
}

func (r *retries) after(s *session, err error) (pause time.Duration, again bool) {
	if place := r.p.source.place(s.kept); place != r.place {
		*r = retries{p: r.p, place: place}
	}
	pause = min(MaxBackoff, MinBackoff<<min(r.count, 10))
	pause = pause/2 + rand.N(pause/2+1)
	r.count++
	e, ofEntry := errors.AsType[*EntryError](err)
	switch {
	case s.lost:
		return 0, false
	case outage(err):
		return pause, true
	case ofEntry && e.Permanent, !ofEntry && hopeless(err):
		return 0, false
	}
	// With ErrFenced somebody else won the race to claim, or a step of ours landed
	// whose answer was lost: loading the checkpoint tells.
	r.tries++
	return pause, r.tries < r.p.o.Tries || fenced(err) && r.tries < maxConflicts
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
// ten races before, stops with ErrFenced: others do the work. Any other error is
// returned at once, for the next call to try again. Over several backends it is one
// after the other, each with its share of the time, also when one before it fails.
func (p *Projector) CatchUp(ctx context.Context, budget time.Duration) (more bool, err error) {
	if p.mistake != nil {
		return true, p.mistake
	}
	if len(p.parts) > 0 {
		return p.catchUpParts(ctx, budget)
	}
	defer func() {
		if err != nil {
			p.failed(err)
		}
	}()
	until := deadline(ctx, budget)
	s := p.session()
	if more, err = s.work(ctx, until); err != nil {
		return true, err
	}
	if s.ahead() {
		if err := s.write(ctx, s.cur, nil); err != nil && !fenced(err) {
			return more, err
		}
	}
	p.moveHold(ctx, s.kept)
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
			err = s.open(ctx)
			opened = err == nil
		}
		if err == nil {
			end, err = s.step(ctx)
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

// sleep pauses, or returns the context's error when it ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
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
