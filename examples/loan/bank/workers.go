// Workers: how the read model is kept up to date, in this process and others.

package bank

import (
	"context"
	"sync"

	"github.com/wattle-es/wattle/projector"
)

// pageSize is how many events become one transaction of the projection: a page
// costs two commits' worth of waiting, whatever is in it.
const pageSize = 2000

// MaxWorkers bounds the workers of a service.
const MaxWorkers = 64

// Project keeps all versions of the read model up to date until ctx ends, with
// Options.Workers workers; see projector.Run. They share the lanes with the workers of
// other processes on the same View. One that fails for good ends the others.
func (s *Service) Project(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var working sync.WaitGroup
	for range s.workers() {
		working.Go(func() { stop(s.worker().Run(ctx)) })
	}
	working.Wait()
	return context.Cause(ctx)
}

func (s *Service) workers() int { return min(max(1, s.o.Workers), MaxWorkers) }

// worker is one worker of all versions.
func (s *Service) worker() *projector.Versioned {
	o := &projector.Options{Version: s.view.Version(), Categories: s.categories[1:], PageSize: pageSize, Lanes: s.o.Lanes}
	if _, memory := s.view.(*MemoryView); o.Lanes == 0 && (!memory || s.workers() > 1) {
		o.Lanes = DefaultLanes
	}
	return projector.NewVersioned(s.store, Projection, s.categories[0], s.view.Control(), s.view.Handler, o)
}

// CatchUp brings the read model to the end of what is in the store, and returns. A model
// in memory begins at the first event.
func (s *Service) CatchUp(ctx context.Context) error {
	if s.workers() == 1 {
		_, err := s.worker().CatchUp(ctx, 0)
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop(nil)
	working.Go(func() { stop(s.Project(ctx)) })
	tokens, err := s.end(ctx, s.categories...)
	for _, token := range tokens {
		if err == nil {
			err = s.Wait(ctx, token)
		}
	}
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return err
}
