// Wait: reading one's own writes.

package projector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// LagError is what Wait returns when its context ends first. errors.Is finds the
// context's error in it.
type LagError struct {
	Key     Key
	Wanted  eventstore.Position // of the token
	Reached eventstore.Position // of the durable checkpoint
	Behind  int                 // entries to be handled between the two, as far as they were counted
	More    bool                // there may be more than Behind
	Last    error               // why this instance's Run is stuck, if it knows
	Err     error               // of the context
}

// Error returns one line with the lag.
func (e *LagError) Error() string {
	atLeast := ""
	if e.More {
		atLeast = "at least "
	}
	s := fmt.Sprintf("wattle: projector %s has not passed position %d: reached %d, %s%d entries behind: %v",
		e.Key, e.Wanted, e.Reached, atLeast, e.Behind, e.Err)
	if e.Last != nil {
		s += fmt.Sprintf(" (last error of the projector: %v)", e.Last)
	}
	return s
}

// Unwrap returns the context's error.
func (e *LagError) Unwrap() error { return e.Err }

// Wait returns nil once the projection holds everything through the token that
// concerns it: its durable checkpoint has passed the token, or nothing to be
// handled lies between. The projector may work in any process; this one looks at
// the durable checkpoint, at least every PollInterval. Give ctx a deadline: when
// it ends Wait returns a *LagError.
//
// A token of another store, or a checkpoint of one, is ErrDiverged. Every
// projection has passed the zero token. Behind a Route the token's incarnation tells
// whose checkpoint it is about; of a backend that the projector does not follow, nothing
// concerns it.
func (p *Projector) Wait(ctx context.Context, t eventstore.Token) error {
	if p.mistake != nil {
		return p.mistake
	}
	if t.Position == 0 {
		return nil
	}
	if len(p.store.Backends()) == 1 {
		return p.wait(ctx, t)
	}
	backend, err := p.backendOf(ctx, t)
	if err != nil {
		return err
	}
	for _, leaf := range p.leaves() {
		if leaf.backend.Name == backend {
			return leaf.wait(ctx, t)
		}
	}
	return nil
}

// wait waits in one backend.
func (p *Projector) wait(ctx context.Context, t eventstore.Token) error {
	w := waiter{p: p, token: t}
	for pause := minLook; ; pause = min(2*pause, p.o.PollInterval) {
		progress := p.next() // taken before looking, so that nothing is missed in between
		passed, err := w.look(ctx)
		switch {
		case ctx.Err() != nil && !passed:
			return w.late(ctx.Err())
		case err != nil || passed:
			return err
		}
		p.nudge()
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-progress:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// backendOf names the backend that a token is of. One that cannot be asked is waited
// for, unless another one is the token's.
func (p *Projector) backendOf(ctx context.Context, t eventstore.Token) (string, error) {
	p.mu.Lock()
	name, known := p.stores[t.Incarnation]
	p.mu.Unlock()
	if known { // if it is no longer so, waiting there tells
		return name, nil
	}
	for pause := minLook; ; pause = min(2*pause, p.o.PollInterval) {
		stores, down := p.askBackends(ctx)
		name, known := stores[t.Incarnation]
		switch {
		case known:
			return name, nil
		case down == nil:
			return "", foreignToken(t, slices.Collect(maps.Keys(stores))...)
		case ctx.Err() == nil && !outage(down):
			return "", down
		}
		if err := sleep(ctx, pause); err != nil {
			return "", &LagError{Key: p.key, Wanted: t.Position, More: true, Last: down, Err: err}
		}
	}
}

// askBackends asks all backends which stores they are. down is the error of one that
// does not tell.
func (p *Projector) askBackends(ctx context.Context) (stores map[eventstore.UUID]string, down error) {
	stores = map[eventstore.UUID]string{}
	for _, b := range p.store.Backends() {
		id, err := b.Incarnation(ctx)
		if err != nil {
			down = fmt.Errorf("backend %s: %w", b.Name, err)
			continue
		}
		if other, twice := stores[id]; twice {
			return nil, p.invalid("backends that are different stores", "incarnation "+id.String()+" in "+other+" and in "+b.Name)
		}
		stores[id] = b.Name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stores = stores
	return stores, down
}

// waiter is one Wait.
type waiter struct {
	p     *Projector
	token eventstore.Token
	kept  Checkpoint
	known bool    // behind was looked at
	left  backlog // between kept, as it was then, and the token
}

// look says if the token has been passed. Outages are waited out like a lag.
func (w *waiter) look(ctx context.Context) (passed bool, err error) {
	kept, err := w.p.load(ctx)
	if err != nil {
		return false, unlessOutage(err)
	}
	w.kept = w.p.start(kept)
	if !w.kept.Incarnation.IsZero() && w.kept.Incarnation != w.token.Incarnation {
		return false, foreignToken(w.token, w.kept.Incarnation)
	}
	if !w.kept.Incarnation.IsZero() && w.kept.Position >= w.token.Position {
		return true, nil
	}
	if w.known && w.kept.Position < w.left.last {
		return false, nil // something to be handled is known to lie between
	}
	covered, left, err := w.p.source.covers(ctx, w.kept, w.token)
	if err != nil {
		return false, unlessOutage(err)
	}
	w.known, w.left = true, left
	return covered, nil
}

func unlessOutage(err error) error {
	if outage(err) {
		return nil
	}
	return err
}

func (w *waiter) late(cause error) error {
	return &LagError{Key: w.p.key, Wanted: w.token.Position, Reached: w.kept.Position, Behind: w.left.entries,
		More: w.left.more || !w.known, Last: w.p.Status().LastError, Err: cause}
}

func foreignToken(t eventstore.Token, found ...eventstore.UUID) error {
	names := make([]string, len(found))
	for i, id := range found {
		names[i] = id.String()
	}
	slices.Sort(names)
	return &eventstore.Error{Kind: eventstore.ErrDiverged, Op: "wait", Wanted: "a token of incarnation " + t.Incarnation.String(),
		Found: "incarnation " + strings.Join(names, ", "), Hint: "the token is of another store, or of this one before it was restored"}
}
