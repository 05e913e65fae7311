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
// ErrParked: all is passed, but the entry that the token is of (of an append to several
// streams, the last one) waits under a parked key.
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
	kept  Checkpoint // of the lane that is furthest behind
	known int        // how many lanes there were when left was looked at; 0: it was not
	read  time.Time  // when it was
	left  backlog    // between kept, as it was then, and the token
}

// look says if the token has been passed. Outages are waited out like a lag.
func (w *waiter) look(ctx context.Context) (passed bool, err error) {
	lanes, parked, err := w.p.durable(ctx)
	if err != nil {
		return false, unlessOutage(err)
	}
	var late []cursor
	for i, kept := range lanes {
		if !kept.Incarnation.IsZero() && kept.Incarnation != w.token.Incarnation {
			return false, foreignToken(w.token, kept.Incarnation)
		}
		if kept.Incarnation.IsZero() || kept.Position < w.token.Position {
			late = append(late, cursor{lane: i, lanes: len(lanes), at: kept})
		}
	}
	if len(late) == 0 {
		return w.unlessParked(ctx, parked)
	}
	if w.kept = late[0].at; len(late) > 1 {
		w.kept = w.p.lowest(&Version{Lanes: lanes})
	}
	if w.known == len(lanes) && lanes[w.left.lane].Position < w.left.last {
		return false, nil // something to be handled is known to lie between, in a lane that has not come to it
	}
	if w.known == len(lanes) && w.left.more && time.Since(w.read) < coverInterval {
		return false, nil // far behind: reading ahead of the worker at each of its steps would halve its speed
	}
	covered, left, err := w.p.source.covers(ctx, late, w.token)
	if err != nil {
		return false, unlessOutage(err)
	}
	w.read = time.Now()
	w.known, w.left = len(lanes), left
	if covered {
		return w.unlessParked(ctx, parked)
	}
	return false, nil
}

// durable returns the checkpoints of all lanes as they are kept, and the parked keys.
func (p *Projector) durable(ctx context.Context) ([]Checkpoint, []Parked, error) {
	if p.control == nil {
		kept, err := p.loadKey(ctx, p.key)
		return []Checkpoint{p.start(kept)}, nil, err
	}
	all, err := p.versions(ctx)
	if err != nil {
		return nil, nil, err
	}
	v := p.version(all)
	if v == nil {
		return []Checkpoint{p.start(Checkpoint{})}, nil, nil
	}
	return v.Lanes, v.Parked, nil
}

// unlessParked says that the token has been passed; ErrParked if the entry that it is of
// waits under a parked key. An outage leaves it open.
func (w *waiter) unlessParked(ctx context.Context, parked []Parked) (passed bool, err error) {
	for _, k := range parked {
		if w.token.Position < k.Position || w.token.Position > k.Through {
			continue
		}
		waits, err := w.waits(ctx, k)
		switch {
		case err != nil:
			return false, unlessOutage(err)
		case waits:
			return true, &eventstore.Error{Kind: eventstore.ErrParked, Op: "wait", Stream: k.Stream, Wanted: "entry at position " + w.token.Position.String(),
				Found: k.String(), Hint: "mend what its handler needs, then retry or skip it (wattle projector parked)"}
		}
	}
	return true, nil
}

// waits says if the entry at the token's position belongs to a parked key.
func (w *waiter) waits(ctx context.Context, k Parked) (bool, error) {
	f := eventstore.Filter{AcceptTrimmed: true, Slots: []eventstore.Slot{k.Slot()}, Categories: w.p.source.categories()}
	p, err := w.p.store.ReadFeed(ctx, w.token.Position-1, f, 1)
	if err != nil {
		return false, err
	}
	return len(p.Entries) == 1 && p.Entries[0].Position == w.token.Position && p.Entries[0].Stream.Key() == k.StreamKey, nil
}

func unlessOutage(err error) error {
	if outage(err) {
		return nil
	}
	return err
}

func (w *waiter) late(cause error) error {
	return &LagError{Key: w.p.key, Wanted: w.token.Position, Reached: w.kept.Position, Behind: w.left.entries,
		More: w.left.more || w.known == 0, Last: w.p.Status().LastError, Err: cause}
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
