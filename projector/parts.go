// Following several backends: a projector for each, and what directs them.

package projector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// divide makes a projector for each backend in which categories lie. The first, whose
// backend is that of the category given to New, keeps the key of the whole, so that
// another backend can join a projector without moving what it has kept.
func (p *Projector) divide(shares []eventstore.Share, f eventstore.Filter) {
	for i, share := range shares {
		part := &Projector{
			store: p.store, handler: p.handler, key: p.key, whole: p.whole, o: p.o, tracer: p.tracer, backend: share.Backend,
			progress: make(chan struct{}), control: p.control, leased: p.leased,
		}
		if i > 0 {
			part.key, part.rival = p.keyIn(share.Backend), p.key
		} else {
			part.rival = p.keyIn(share.Backend)
		}
		part.logger = p.store.Logger().With("projector", part.key.String(), "backend", share.Backend.Name)
		f.Categories = share.Categories
		part.source = newFeed(p.store, f, p.o.PageSize, p.o.Snapshots)
		p.parts = append(p.parts, part)
	}
}

// keyIn is the key of a checkpoint in a backend that is not the first. Names of
// projectors hold no '/', so it is nobody else's.
func (p *Projector) keyIn(b eventstore.Backend) Key {
	k := p.whole
	k.Projector += "/" + b.Name
	return k
}

// leaves are the projectors that follow one backend each.
func (p *Projector) leaves() []*Projector {
	if len(p.parts) > 0 {
		return p.parts
	}
	return []*Projector{p}
}

// inBackend says whose error it is, where there are several.
func (p *Projector) inBackend(err error) error {
	if err == nil || p.backend.Name == "" {
		return err
	}
	return fmt.Errorf("backend %s: %w", p.backend.Name, err)
}

// unrivaled refuses to begin anew in a backend that was followed under the other key
// it could have: its entries would be handled twice.
func (p *Projector) unrivaled(ctx context.Context) error {
	if p.rival == (Key{}) {
		return nil
	}
	other, err := p.loadKey(ctx, p.rival)
	if err != nil || other.Epoch == 0 {
		return err
	}
	id, err := p.backend.Incarnation(ctx)
	if err != nil || id != other.Incarnation {
		return err
	}
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project", Wanted: "checkpoint " + p.key.String() + " of backend " + p.backend.Name,
		Found: "one of that backend under " + p.rival.String() + ", made when another category was named first",
		Hint:  "name a category of the same backend first as before, or rebuild the projection under a new version"}
}

// runParts runs all parts until one stops, which stops the others: a projection that
// goes on in half of its backends would look healthy.
//
// The first part's checkpoint decides which of two instances that start at once works
// on. Each could fence the other in another backend, and both would stop. So an
// instance that is fenced elsewhere claims again as long as the first is its own.
func (p *Projector) runParts(outer context.Context) error {
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	holder := eventstore.NewUUID()
	first := p.parts[0].sessionOf(holder, 0)
	var working sync.WaitGroup
	for i, part := range p.parts {
		working.Go(func() {
			part.running.Store(true)
			defer part.running.Store(false)
			if i == 0 {
				stop(part.inBackend(part.runSession(ctx, first)))
			} else {
				stop(part.inBackend(part.runBeside(ctx, first)))
			}
		})
	}
	working.Wait()
	if outer.Err() != nil {
		return outer.Err()
	}
	return context.Cause(ctx)
}

// runBeside runs a part that is not the first, again for as long as only it was fenced.
func (p *Projector) runBeside(ctx context.Context, first *session) error {
	for {
		s := p.sessionOf(first.holder, 0)
		err := p.runSession(ctx, s)
		if !s.lost {
			return err
		}
		ours, failed := first.stillHolds(ctx)
		if failed != nil {
			return failed
		}
		if !ours {
			return err
		}
		p.logger.InfoContext(ctx, "fenced in this backend alone; claiming again")
	}
}

// stillHolds says if the checkpoint is this session's. While it has never been, the
// session may still claim it, and is waited for.
func (s *session) stillHolds(ctx context.Context) (bool, error) {
	for pause := MinBackoff; ; pause = min(2*pause, MaxBackoff) {
		claimed := s.claimed.Load() // before looking: what is found then is not from before the claim
		kept, err := s.p.loadKey(ctx, s.key)
		switch {
		case err == nil && kept.Holder == s.holder:
			return true, nil
		case err == nil && claimed:
			return false, nil
		case err != nil && !outage(err):
			return false, err
		}
		if err := sleep(ctx, pause); err != nil {
			return false, err
		}
	}
}

// catchUpParts gives each part its share of what is left of the budget. A backend that
// fails keeps the others from nothing.
func (p *Projector) catchUpParts(ctx context.Context, budget time.Duration) (more bool, err error) {
	until := deadline(ctx, budget)
	var failed []error
	for i, part := range p.parts {
		share := time.Duration(0)
		if !until.IsZero() {
			share = max(1, time.Until(until)/time.Duration(len(p.parts)-i))
		}
		left, err := part.CatchUp(ctx, share)
		if ctx.Err() != nil && err != nil {
			return true, ctx.Err()
		}
		more = more || left
		failed = append(failed, part.inBackend(err))
	}
	return more, errors.Join(failed...)
}

// statusOfParts is as good as the worst of them.
func (p *Projector) statusOfParts() Status {
	s := Status{Key: p.key, Running: p.running.Load(), CaughtUp: true}
	for i, part := range p.parts {
		one := part.Status()
		s.Parts = append(s.Parts, one)
		s.CaughtUp = s.CaughtUp && one.CaughtUp
		s.Lag += one.Lag
		s.Parked += one.Parked
		if s.LastError == nil {
			s.LastError = part.inBackend(one.LastError)
		}
		if i == 0 || one.Looked.Before(s.Looked) {
			s.Looked = one.Looked
		}
		if i == 0 || one.Saved.Before(s.Saved) {
			s.Saved = one.Saved
		}
	}
	if p.mistake != nil {
		s.LastError, s.CaughtUp = p.mistake, false
	}
	return s
}
