// Deadlines: the process manager that has unanswered offers expire.

package bank

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
	"github.com/wattle-es/wattle/projector/timer"
)

const (
	// TimerCategory holds a timer for each application with an offer that waited for an
	// answer, under the application's key.
	TimerCategory eventstore.Category = "offer_deadline"
	// Watching names the reactor that sets and cancels timers, Expiring the one that has
	// offers expire when one has fired.
	Watching = "loan-deadlines"
	Expiring = "loan-expiries"
)

// Deadlines is the process manager: offers that nobody has answered within
// loan.OfferDeadline are cancelled, and their application with them.
//
//	OfferSent ──▶ Watching ──▶ timer set ──▶ timer fired ──▶ Expiring ──▶ OfferCancelled, Cancelled
//	an answer, an outcome ──▶ timer cancelled
//
// Time is that of the log: the business time that events carry. Settle says how far it
// has come, so the same applications give the same figures whenever they are imported, by
// however many processes, and whatever has crashed on the way. What the two reactors do
// goes by IDs that follow from the events, so done again it does nothing.
//
// It remembers nothing but the timers, and how far the reactors are, in category
// logcheckpoint.DefaultCategory of the store.
type Deadlines struct {
	s         *Service
	kept      projector.Control
	watching  *projector.Projector
	expiring  *projector.Projector
	scheduler *timer.Scheduler

	mu  sync.Mutex
	now time.Time // of the log
}

// watch is what an event means for the timer of its application.
type watch struct {
	due time.Time // zero: the answer is there, or not wanted any more
}

func newDeadlines(ctx context.Context, s *Service) (*Deadlines, error) {
	d := &Deadlines{s: s}
	// Timers that are over stay as long as the applications: they are few, and the proof
	// that nothing was done twice.
	o := &timer.Options{Category: TimerCategory, Now: d.clock, Keep: -1}
	timers, err := timer.New(ctx, s.store, o)
	if err != nil {
		return nil, err
	}
	if d.scheduler, err = timer.NewScheduler(ctx, s.store, o); err != nil {
		return nil, err
	}
	kept, err := logcheckpoint.New(ctx, s.store, nil)
	if err != nil {
		return nil, err
	}
	expiries, err := s.expiries(ctx)
	if err != nil {
		return nil, err
	}
	d.kept = kept
	d.watching = projector.NewReactor(s.store, Watching, s.categories[0], kept, projector.ReactorOptions[loan.Event, watch]{
		Events: s.events,
		React:  watches,
		Issue: func(ctx context.Context, c projector.Command[watch]) error {
			return d.watch(ctx, timers, c)
		},
		Projector: projector.Options{Categories: s.categories[1:]},
	})
	d.expiring = projector.NewReactor(s.store, Expiring, TimerCategory, kept, projector.ReactorOptions[timer.Timer, time.Time]{
		Events: timer.Events{},
		React:  func(e projector.Event[timer.Timer]) ([]time.Time, error) { return []time.Time{e.Value.Due}, nil },
		Issue: func(ctx context.Context, c projector.Command[time.Time]) error {
			key := c.Entry.Stream.Key()
			stream, err := s.stream(key)
			if err == nil {
				_, err = expiries[stream.Category()].Execute(ctx, key, c.Value, aggregate.CommandID(c.ID), aggregate.CausedBy(c.Entry))
			}
			return err
		},
		Projector: projector.Options{Types: []string{timer.FiredType}, AcceptTrimmed: true},
	})
	return d, nil
}

// expiry executes loan.Expire on applications.
type expiry = aggregate.Executor[loan.State, time.Time, loan.Event]

// expiries are the applications as they are to a deadline: the same streams and events,
// with one command more, the time that it was due.
func (s *Service) expiries(ctx context.Context) (map[eventstore.Category]*expiry, error) {
	all := map[eventstore.Category]*expiry{}
	for _, c := range s.categories {
		applications := Applications()
		exec, err := aggregate.NewExecutor(ctx, s.store, aggregate.Type[loan.State, time.Time, loan.Event]{
			Category: c, Schema: applications.Schema, Snapshots: applications.Snapshots,
			Decider: aggregate.Decider[loan.State, time.Time, loan.Event]{Initial: loan.Initial, Decide: loan.Expire, Evolve: loan.Evolve},
		}, &aggregate.Options{Append: s.o.Append})
		if err != nil {
			return nil, err
		}
		all[c] = exec
	}
	return all, nil
}

// watches is pure: see projector.ReactorOptions.
func watches(e projector.Event[loan.Event]) ([]watch, error) {
	switch event := e.Value.(type) {
	case loan.OfferSent:
		return []watch{{due: event.At.Add(loan.OfferDeadline)}}, nil
	case loan.OfferReturned, loan.OfferAccepted, loan.OfferDeclined, loan.Approved, loan.Declined, loan.Cancelled, loan.Registered, loan.Activated:
		return []watch{{}}, nil
	}
	return nil, nil
}

// watch sets the timer of an application, or cancels it. Where the answer is there
// already, as in a log that is replayed, none is needed.
func (d *Deadlines) watch(ctx context.Context, timers *timer.Timers, c projector.Command[watch]) error {
	key := c.Entry.Stream.Key()
	if c.Value.due.IsZero() {
		_, err := timers.Cancel(ctx, key, timer.ID(c.ID), timer.CausedBy(c.Entry))
		if errors.Is(err, timer.ErrNoTimer) || errors.Is(err, timer.ErrFired) {
			return nil // none was needed; or too late, and the application says what comes of it
		}
		return err
	}
	state, _, err := d.s.execs[c.Entry.Stream.Category()].Load(ctx, key)
	if err != nil || !state.Unanswered() {
		return err
	}
	_, err = timers.Set(ctx, key, c.Value.due, nil, timer.ID(c.ID), timer.CausedBy(c.Entry))
	return err
}

// clock is the log's.
func (d *Deadlines) clock() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// pass lets the log's time come to a moment. It never goes back.
func (d *Deadlines) pass(to time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to.After(d.now) {
		d.now = to
	}
}

// Reset has all events looked at again, as it must be when those there were have been
// deleted. What was done because of them is not done again.
func (d *Deadlines) Reset(ctx context.Context) error {
	admin := projector.NewAdmin(d.s.store, d.kept)
	for _, name := range []string{Watching, Expiring} {
		if err := admin.Reset(ctx, name, 0, true); err != nil && !errors.Is(err, projector.ErrNotRegistered) {
			return err
		}
	}
	return nil
}

// Run keeps the timers until ctx ends, or until something fails for good; see
// projector.Run. Any number of processes may run it.
func (d *Deadlines) Run(ctx context.Context) error { return d.watching.Run(ctx) }

// Settle lets the log's time come to a moment and returns when all has expired that is
// unanswered then, with tokens of it, one for each category of applications. after are
// tokens of the events that count, so of all that happened until then: an application
// that is known by half is taken for silent, and nothing expires but here. It takes a Run,
// in this process or another. What a Settle that crashed has left the next one does.
func (d *Deadlines) Settle(ctx context.Context, after []eventstore.Token, to time.Time) ([]eventstore.Token, error) {
	for _, token := range after {
		if err := d.watching.Wait(ctx, token); err != nil {
			return nil, err
		}
	}
	d.pass(to)
	for _, work := range []func(context.Context, time.Duration) (bool, error){d.scheduler.CatchUp, d.expiring.CatchUp} {
		for more := true; more; {
			var err error
			if more, err = work(ctx, 0); errors.Is(err, eventstore.ErrFenced) {
				more, err = true, pause(ctx) // another process does the same
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return d.s.end(ctx, d.s.categories...)
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lookInterval):
		return nil
	}
}
