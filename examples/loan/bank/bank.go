// Service: the loan process on a store.

// Package bank puts the loan process of package loan on Wattle: applications are
// aggregates, their events are projected into a read model, the report is made of
// that.
//
//	Execute ──▶ aggregate.Executor ──▶ store ──▶ projector.Versioned ──▶ View ──▶ Report
//	Import  ──▶   (one command an event of a log)   │
//	                     ▲                         ▼
//	                     └── offers expire ◀── Deadlines (reactors and timers)
//
// It knows no backend, nor how many there are: the applications may be divided among
// several categories, which a Route sends wherever its table says. A View keeps the read
// model, in versions of which readers see the live one: MemoryView here, package bankpg
// in PostgreSQL. Any number of workers, in any number of processes, share the lanes of the
// report's projector.
package bank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/projector"
)

const (
	// Category holds a stream for each application: application-<case>, if Options does
	// not say otherwise.
	Category = wire.Category
	// Projection names the projector of the report.
	Projection = "loan-report"
)

// DefaultLanes is how many lanes a report has that is projected by several workers: so
// many can share it.
const DefaultLanes = 16

// View is a read model: one loan.Application a case, in any number of versions.
type View interface {
	// Control keeps the versions of the projection, and which of them is live.
	Control() projector.Control
	// Handler folds events into a version of the model, each effect once. It makes the
	// model ready if need be, and may be called for a version several times.
	Handler(version int) (projector.Handler, error)
	// Version is the one that is built where there is none.
	Version() int
	// Applications yields the live version of the model as of one moment, in any order.
	// An error ends the sequence.
	Applications(ctx context.Context) iter.Seq2[loan.Application, error]
}

// Fold is how a document of the read model becomes the next one: loan.Apply, or that of a
// changed report, loan.ApplyOffers.
type Fold func(loan.Application, loan.Event) loan.Application

// Options of a Service; nil and the zero value are the defaults.
type Options struct {
	// Categories that the applications are divided among, by the slots of their keys.
	// They are part of where an application is found, so they stay as they are, and in
	// their order. Empty: Category alone.
	Categories []eventstore.Category
	// Workers is how many workers Project runs, each with lanes of its own that it gives
	// up if it fails; 0 means 1. Other processes may run more of them on a View that they
	// share.
	Workers int
	// Lanes is how many lanes a version has that is registered by this service. 0 means
	// DefaultLanes, and 1 for the one worker of a MemoryView, which has nobody to share
	// them with.
	Lanes int
	// Append, if it is given, appends what is executed, as aggregate.Options.Append does.
	Append func(context.Context, eventstore.Append) (eventstore.Appended, error)
	// Deadlines has offers expire: see Deadlines. The applications lie in one backend then.
	Deadlines bool
}

// Service is the loan process on one store. Its methods may be called from several
// goroutines at once.
type Service struct {
	store      *eventstore.Store
	events     *schema.Registry[loan.Event]
	categories []eventstore.Category
	execs      map[eventstore.Category]*aggregate.Executor[loan.State, loan.Command, loan.Event]
	view       View
	o          Options
	reader     *projector.Reader
	deadlines  *Deadlines // nil: offers do not expire
}

// Applications is the aggregate: the Decider of package loan, bound to its category
// and its events.
func Applications() aggregate.Type[loan.State, loan.Command, loan.Event] { return wire.Applications() }

// New returns a service, and sees to it that its categories exist. At most one Options
// is taken.
func New(ctx context.Context, store *eventstore.Store, view View, options ...*Options) (*Service, error) {
	s := &Service{store: store, view: view, categories: []eventstore.Category{Category},
		execs: map[eventstore.Category]*aggregate.Executor[loan.State, loan.Command, loan.Event]{}}
	if len(options) > 0 && options[0] != nil {
		s.o = *options[0]
	}
	if len(s.o.Categories) > 0 {
		s.categories = s.o.Categories
	}
	applications := Applications()
	s.events = applications.Schema
	for _, c := range s.categories {
		applications.Category = c
		exec, err := aggregate.NewExecutor(ctx, store, applications, &aggregate.Options{Append: s.o.Append})
		if err != nil {
			return nil, err
		}
		s.execs[c] = exec
	}
	s.reader = projector.NewReader(store, Projection, view.Control())
	if s.o.Deadlines {
		var err error
		if s.deadlines, err = newDeadlines(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// stream returns the stream of an application; the key is checked.
func (s *Service) stream(key string) (eventstore.Stream, error) {
	first, err := eventstore.NewStream(s.categories[0], key)
	if err != nil || len(s.categories) == 1 {
		return first, err
	}
	return eventstore.NewStream(s.categories[int(first.Slot())%len(s.categories)], key)
}

// Execute has one command decided on an application.
func (s *Service) Execute(ctx context.Context, key string, c loan.Command, o ...aggregate.CallOption) (aggregate.Result[loan.State, loan.Event], error) {
	stream, err := s.stream(key)
	if err != nil {
		return aggregate.Result[loan.State, loan.Event]{}, err
	}
	return s.execs[stream.Category()].Execute(ctx, key, c, o...)
}

// Wait returns when the live version of the read model has passed a token, in whichever
// process it is projected.
func (s *Service) Wait(ctx context.Context, t eventstore.Token) error {
	for {
		_, err := s.reader.Wait(ctx, t)
		if !errors.Is(err, projector.ErrNotRegistered) {
			return err
		}
		if err := pause(ctx); err != nil { // no worker has begun yet
			return err
		}
	}
}

// lookInterval is how often is looked for what another worker does.
const lookInterval = 10 * time.Millisecond

// end returns a token of all that was appended to categories before the call, for each of
// them.
func (s *Service) end(ctx context.Context, categories ...eventstore.Category) (all []eventstore.Token, err error) {
	for _, c := range categories {
		p, err := s.store.ReadFeed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{c}, AcceptTrimmed: true}, 1)
		if err != nil {
			return nil, err
		}
		all = append(all, eventstore.Token{Incarnation: p.Incarnation, Position: p.Drawn})
	}
	return all, nil
}

// Reader tells which version of the read model is live.
func (s *Service) Reader() *projector.Reader { return s.reader }

// Deadlines returns the process manager; nil without Options.Deadlines.
func (s *Service) Deadlines() *Deadlines { return s.deadlines }

// Report is made of the read model as it is.
func (s *Service) Report(ctx context.Context) (loan.Report, error) {
	var failed error
	r := loan.Summarize(func(yield func(loan.Application) bool) {
		for a, err := range s.view.Applications(ctx) {
			if failed = err; err != nil || !yield(a) {
				return
			}
		}
	})
	return r, failed
}

// Replay imports cases while the projection runs, waits for it and returns the
// report: over all that is in the store, also from before. It is Import for what
// it promises. With Options.Deadlines offers have expired by then that were unanswered for
// so long when the last event of the cases happened.
func (s *Service) Replay(ctx context.Context, cases iter.Seq2[loan.Case, error], o *ImportOptions) (loan.Report, error) {
	ctx, stop := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	work := func(what string, f func(context.Context) error) {
		working.Go(func() {
			if err := f(ctx); ctx.Err() == nil {
				stop(fmt.Errorf("%s stopped: %w", what, err))
			}
		})
	}
	defer working.Wait()
	defer stop(nil)
	work("the projection", s.Project)
	if s.deadlines != nil {
		work("the deadlines", s.deadlines.Run)
	}
	err := s.replay(ctx, cases, o)
	if err != nil {
		return loan.Report{}, cmp.Or(context.Cause(ctx), err)
	}
	return s.Report(ctx)
}

// replay returns when all is imported, has expired and is projected.
func (s *Service) replay(ctx context.Context, cases iter.Seq2[loan.Case, error], o *ImportOptions) error {
	tokens, last, err := s.imported(ctx, cases, o)
	if err == nil && s.deadlines != nil && len(tokens) > 0 {
		tokens, err = s.deadlines.Settle(ctx, tokens, last)
	}
	for _, token := range tokens {
		if err == nil {
			err = s.Wait(ctx, token)
		}
	}
	return err
}
