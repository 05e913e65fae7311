// Service: the loan process on a store.

// Package bank puts the loan process of package loan on Wattle: applications are
// aggregates, their events are projected into a read model, the report is made of
// that.
//
//	Execute ──▶ aggregate.Executor ──▶ store ──▶ projector.Projector ──▶ View ──▶ Report
//	Import  ──▶   (one command an event of a log)
//
// It knows no backend, nor how many there are: the applications may be divided among
// several categories, which a Route sends wherever its table says. A View keeps the read model: MemoryView here, package bankpg
// in PostgreSQL.
package bank

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/projector"
)

const (
	// Category holds a stream for each application: application-<case>, if Options does
	// not say otherwise.
	Category eventstore.Category = "application"
	// Projection names the projector of the report.
	Projection = "loan-report"
)

// View is a read model: one loan.Application a case.
type View interface {
	// Handler folds events into the model, each effect once.
	Handler(events *schema.Registry[loan.Event]) projector.Handler
	// Version is that of the projection: a model that is built anew has another one.
	Version() int
	// Applications yields the model as of one moment, in any order. An error ends
	// the sequence.
	Applications(ctx context.Context) iter.Seq2[loan.Application, error]
}

// Options of a Service; nil and the zero value are the defaults.
type Options struct {
	// Categories that the applications are divided among, by the slots of their keys.
	// They are part of where an application is found, so they stay as they are, and in
	// their order. Empty: Category alone.
	Categories []eventstore.Category
}

// Service is the loan process on one store. Its methods may be called from several
// goroutines at once.
type Service struct {
	store      *eventstore.Store
	events     *schema.Registry[loan.Event]
	categories []eventstore.Category
	execs      map[eventstore.Category]*aggregate.Executor[loan.State, loan.Command, loan.Event]
	view       View
	projector  *projector.Projector
}

// Applications is the aggregate: the Decider of package loan, bound to its category
// and its events.
func Applications() aggregate.Type[loan.State, loan.Command, loan.Event] {
	return aggregate.Type[loan.State, loan.Command, loan.Event]{
		Category: Category,
		Schema:   Events(),
		Decider:  aggregate.Decider[loan.State, loan.Command, loan.Event]{Initial: loan.Initial, Decide: loan.Decide, Evolve: loan.Evolve},
		// The command IDs of an import are made of names and so carry no time: all of
		// a case must be remembered for a second import to change nothing.
		Snapshots: aggregate.Snapshots{RememberedIDs: loan.MaxEventsPerCase},
	}
}

// New returns a service, and sees to it that its categories exist. At most one Options
// is taken.
func New(ctx context.Context, store *eventstore.Store, view View, options ...*Options) (*Service, error) {
	s := &Service{store: store, view: view, categories: []eventstore.Category{Category},
		execs: map[eventstore.Category]*aggregate.Executor[loan.State, loan.Command, loan.Event]{}}
	if len(options) > 0 && options[0] != nil && len(options[0].Categories) > 0 {
		s.categories = options[0].Categories
	}
	applications := Applications()
	s.events = applications.Schema
	for _, c := range s.categories {
		applications.Category = c
		exec, err := aggregate.NewExecutor(ctx, store, applications, nil)
		if err != nil {
			return nil, err
		}
		s.execs[c] = exec
	}
	s.projector = Projector(store, view, view.Version(), s.categories)
	return s, nil
}

// Projector is what keeps a version of the read model of applications in some categories.
func Projector(store *eventstore.Store, view View, version int, categories []eventstore.Category) *projector.Projector {
	return projector.New(store, Projection, categories[0], view.Handler(Events()),
		&projector.Options{Version: version, Categories: categories[1:], PageSize: pageSize})
}

// stream returns the stream of an application; the key is checked.
func (s *Service) stream(key string) (eventstore.Stream, error) {
	first, err := eventstore.NewStream(s.categories[0], key)
	if err != nil || len(s.categories) == 1 {
		return first, err
	}
	return eventstore.NewStream(s.categories[int(first.Slot())%len(s.categories)], key)
}

// pageSize is how many events become one transaction of the projection: a page
// costs two commits' worth of waiting, whatever is in it.
const pageSize = 2000

// Execute has one command decided on an application.
func (s *Service) Execute(ctx context.Context, key string, c loan.Command, o ...aggregate.CallOption) (aggregate.Result[loan.State, loan.Event], error) {
	stream, err := s.stream(key)
	if err != nil {
		return aggregate.Result[loan.State, loan.Event]{}, err
	}
	return s.execs[stream.Category()].Execute(ctx, key, c, o...)
}

// Project keeps the read model up to date until ctx ends; see projector.Run.
func (s *Service) Project(ctx context.Context) error { return s.projector.Run(ctx) }

// Wait returns when the read model has passed a token, in whichever process it is
// projected.
func (s *Service) Wait(ctx context.Context, t eventstore.Token) error {
	return s.projector.Wait(ctx, t)
}

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
// it promises.
func (s *Service) Replay(ctx context.Context, cases iter.Seq2[loan.Case, error], o *ImportOptions) (loan.Report, error) {
	ctx, stop := context.WithCancelCause(ctx)
	projected := make(chan struct{})
	go func() {
		defer close(projected)
		if err := s.Project(ctx); ctx.Err() == nil {
			stop(fmt.Errorf("the projection stopped: %w", err))
		}
	}()
	defer func() {
		stop(nil)
		<-projected
	}()
	tokens, err := s.Import(ctx, cases, o)
	for _, token := range tokens {
		if err == nil {
			err = s.Wait(ctx, token)
		}
	}
	if err != nil {
		return loan.Report{}, cmp.Or(context.Cause(ctx), err)
	}
	return s.Report(ctx)
}
