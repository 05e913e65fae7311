// The projection: a document per application, kept up by calls alone.

package functions

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
	"github.com/wattle-es/wattle/projector/pgdocuments"
)

const (
	// ProjectionName is the projector's name, and the function's application_name.
	ProjectionName = "wattle-applications"
	// HintsPath is where pushes and cron go.
	HintsPath = "/hints"

	budget = 5 * time.Second // of one call
)

// Applications has a document for each application: loan.Application, as JSON.
func Applications() handler.Handler {
	return guest.New(guest.Projection[loan.Event]{Name: ProjectionName, Category: wire.Category, Events: wire.Events(),
		Apply: func(e projector.Event[loan.Event], docs *guest.Docs) error {
			var a loan.Application
			docs.Get(string(e.Stream), &a)
			docs.Put(string(e.Stream), loan.Apply(a, e.Value))
			return nil
		}})
}

// Documents are the options under which the documents are kept.
func (s Settings) Documents() *pgdocuments.Options {
	return &pgdocuments.Options{Checkpoints: pgcheckpoint.Options{Schema: s.Schema}}
}

// Projection returns the function. Whatever is posted to HintsPath, an event that a broker
// pushes, an announcement or nothing at all from cron, has it catch up; so does a request
// of the contract.
func Projection(ctx context.Context, s Settings) (*Function, error) {
	verifier, err := s.verifier()
	if err != nil {
		return nil, err
	}
	caller, err := handler.NewCaller(ctx, Applications(), nil)
	if err != nil {
		return nil, err
	}
	s.Hints = ""
	pool, store, err := s.open(ctx, ProjectionName)
	if err != nil {
		return nil, err
	}
	err = pgdocuments.EnsureTable(ctx, pool, s.Documents())
	_ = store.Close()
	pool.Close()
	if err != nil {
		return nil, err
	}
	call := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		return s.project(ctx, caller, r)
	})
	h := httpcarrier.NewHandler(call, &httpcarrier.ServerOptions{Hints: HintsPath, Projector: ProjectionName, Verifier: verifier})
	return &Function{h, func() {}}, nil
}

// project does one call, from the connection's beginning to its end.
func (s Settings) project(ctx context.Context, caller *handler.Caller, r *handler.Request) (*handler.Reply, error) {
	if r.Op == handler.Describe {
		return guest.CatchUpService(ProjectionName, nil, budget).Handle(ctx, r)
	}
	// Who pushes may be gone before all is done: the budget bounds it, and r.Deadline.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*budget)
	defer cancel()
	pool, store, err := s.open(ctx, ProjectionName)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	defer store.Close()
	p := guest.NewProjector(store, ProjectionName, caller, pgdocuments.New(pool, s.Documents()), nil)
	return guest.CatchUpService(ProjectionName, p, budget).Handle(ctx, r)
}
