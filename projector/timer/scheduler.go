// Scheduler: fires timers that are due, for as long as it is let or for a bounded while.

package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Scheduler fires the timers of a category. Any number of them, in any processes, may
// work side by side: each generation of a timer fires once. A Scheduler works in one
// Run or CatchUp at a time; its other methods may be called at any time.
type Scheduler struct {
	store  *eventstore.Store
	o      Options
	holder eventstore.UUID
	logger *slog.Logger

	working atomic.Bool
	view    *view // of who is working
	tidier  *tidier
	turn    turn
	wake    chan struct{} // holds at most one

	ticking atomic.Bool // log timers are pending: the followed categories matter
	fired   atomic.Uint64

	mu    sync.Mutex
	state Status
}

// Status is what a scheduler knows of itself.
type Status struct {
	Pending int       // timers in memory, of both clocks; there may be more in the store when it is full
	Next    time.Time // when the first of the wall's clock is due; zero: none is pending
	Looked  time.Time // when it last came to the end of the feed and, if it was its turn, fired all that was due; zero: not yet
	Fired   uint64    // how many this scheduler has fired, others not counted
	Err     error     // of the last look, nil if it went well
}

// NewScheduler returns a scheduler of a category, which it creates as [New] does.
func NewScheduler(ctx context.Context, store *eventstore.Store, o *Options) (*Scheduler, error) {
	c, err := o.configured(ctx, store)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{store: store, o: c, holder: eventstore.NewUUID(), logger: store.Logger(), wake: make(chan struct{}, 1)}
	s.view, s.tidier, s.turn = newView(c.MaxPending), &tidier{s: s}, turn{s: s}
	return s, nil
}

// Status returns how it is, as of the last look.
func (s *Scheduler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state
	st.Fired = s.fired.Load()
	return st
}

// Run fires timers until ctx ends, whose error it then returns, or until an error that
// does not pass by itself. Outages (eventstore.ErrUnavailable, ErrOverloaded,
// ErrReadOnly, ErrUnknown, time-outs) do: it tries again with growing pauses of at most
// MaxBackoff. After ErrDiverged it reads all timers anew. A second Run or CatchUp
// meanwhile is ErrInvalid.
//
// It looks when an announcement comes, when a timer is due, and every PollInterval.
// With Options.LeaseTTL only the Run that holds the lease fires; the others follow the
// feed, so that whoever is next fires at once. It starts a goroutine that trims, and up
// to FireSide that fire; all have ended when it returns.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.begin("run timers"); err != nil {
		return err
	}
	defer s.working.Store(false)
	ctx, cancel := context.WithCancel(ctx)
	var tidying sync.WaitGroup
	defer tidying.Wait()
	defer s.turn.end(ctx)
	defer cancel()
	tidying.Go(func() { s.tidier.run(ctx) })

	ear := &ear{s: s}
	defer ear.close()
	for failures := 0; ; {
		ear.listen(ctx)
		began := time.Now()
		mine := s.turn.mine(ctx)
		_, err := s.pass(ctx, time.Time{}, mine)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			failures = 0
			if err := s.idle(ctx, began, mine); err != nil {
				return err
			}
			continue
		}
		if !outage(err) && !isKind(err, eventstore.ErrDiverged) || isKind(err, errOverfull) {
			return err
		}
		wait := min(MaxBackoff, MinBackoff<<min(failures, 10))
		failures++
		s.logger.WarnContext(ctx, "timers not looked at; trying again", "category", s.o.Category, "pause", wait, "error", err)
		if err := sleep(ctx, wait/2+rand.N(wait/2+1)); err != nil {
			return err
		}
	}
}

// CatchUp fires what is due, for a function that is called or a cron job: until nothing
// is, or until the budget or ctx's deadline is over, which is looked at after each page
// and after some 64 firings; 0 means no budget of its own. more says that something may
// be left. An error is returned at once, for the next call to try again. A Scheduler
// that is kept between calls reads only what is new; one that is new reads all pending
// timers. Leases are not asked for. When it returns, all that it started has ended.
//
// What is set to be due before the next call fires with that one, late by as much:
// Status().Next tells when it is best made.
func (s *Scheduler) CatchUp(ctx context.Context, budget time.Duration) (more bool, err error) {
	if err := s.begin("catch up timers"); err != nil {
		return true, err
	}
	defer s.working.Store(false)
	until, _ := ctx.Deadline()
	if b := time.Now().Add(budget); budget > 0 && (until.IsZero() || b.Before(until)) {
		until = b
	}
	if more, err = s.pass(ctx, until, true); more || err != nil {
		return true, err
	}
	for !expired(until) {
		if untidy, err := s.tidier.step(ctx); !untidy || err != nil {
			return err != nil, err
		}
	}
	return false, nil
}

func (s *Scheduler) begin(op string) error {
	if !s.working.CompareAndSwap(false, true) {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Category: s.o.Category, Wanted: "to work once at a time", Found: "a Run or CatchUp that has not ended"}
	}
	return nil
}

// pass looks once: it reads to the end of the feed and, if it is to fire, fires what is
// due on the way.
func (s *Scheduler) pass(ctx context.Context, until time.Time, fire bool) (more bool, err error) {
	defer func() { s.passed(more, err) }()
	for {
		end, err := s.read(ctx)
		if err != nil {
			return true, err
		}
		// Before all was seen a timer that is over may look pending. Firing it would do
		// no harm, but would be for nothing.
		if v := s.view; fire && v.built || len(v.ready) >= s.o.MaxPending {
			if more, err := s.fireDue(ctx, until); more || err != nil {
				return true, err
			}
		}
		switch {
		case s.view.overfull:
			return true, s.overfull()
		case s.view.built && s.view.wall.starved():
			if err := s.refill(ctx); err != nil {
				return true, err
			}
		case end:
			return false, nil
		}
		if expired(until) {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return true, err
		}
	}
}

// overfull is the error of a scheduler that cannot have all log timers at hand.
func (s *Scheduler) overfull() error {
	return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "follow timers", Category: s.o.Category,
		Wanted: fmt.Sprintf("at most %d pending timers on the log's clock", s.o.MaxPending), Found: "more", Hint: "raise Options.MaxPending", Err: errOverfull}
}

// errOverfull tells an overload that does not pass by itself.
var errOverfull = errors.New("their order cannot be told with only some at hand")

// passed notes what came of a look.
func (s *Scheduler) passed(more bool, err error) {
	if isKind(err, eventstore.ErrDiverged) || s.view.overfull {
		s.view = newView(s.o.MaxPending)
	}
	s.ticking.Store(s.view.merged)
	next, _ := s.view.next()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Pending, s.state.Next, s.state.Err = len(s.view.pending), next, err
	if err == nil && !more {
		s.state.Looked = s.o.Now()
	}
}

// idle waits until a timer is due, a hint comes, or it is time to look anyhow.
func (s *Scheduler) idle(ctx context.Context, looked time.Time, fires bool) error {
	pause := s.o.PollInterval
	if due, ok := s.view.next(); ok && fires {
		pause = min(pause, max(due.Sub(s.o.Now()), 0))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-s.wake:
	}
	return sleep(ctx, minLook-time.Since(looked)) // a flood of hints is no flood of queries
}

// ear is the subscription of one Run.
type ear struct {
	s     *Scheduler
	stop  func()
	tried time.Time
}

// listen subscribes if it has not yet. Polling goes on without.
func (e *ear) listen(ctx context.Context) {
	if e.stop != nil || !e.tried.IsZero() && time.Since(e.tried) < MaxBackoff {
		return
	}
	e.tried = time.Now()
	of := append([]eventstore.Category{e.s.o.Category}, e.s.o.LogCategories...)
	stop, err := e.s.store.Subscribe(ctx, of, func(a eventstore.Announcement) {
		if a.Category != "" && a.Category != e.s.o.Category && !e.s.ticking.Load() {
			return
		}
		select {
		case e.s.wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		e.s.logger.WarnContext(ctx, "no announcements; polling", "category", e.s.o.Category, "error", err)
		return
	}
	e.stop = stop
}

func (e *ear) close() {
	if e.stop != nil {
		e.stop()
	}
}
