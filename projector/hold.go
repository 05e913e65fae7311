// The hold under trimming that a projector keeps at its checkpoint.

package projector

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// held is where this instance has set the hold.
type held struct {
	set   bool
	place uint64
	at    time.Time
}

// HoldName is the name of the holds that a projector keeps, one in each of its
// categories or one on its stream: "projector/name/version/lane". It is the same in
// all backends.
func (p *Projector) HoldName() string { return holdName(p.whole) }

// hold sets the holds at a checkpoint. When it returns nil, all that is behind
// the checkpoint is there and stays. It is never called for a place that is ahead
// of the durable checkpoint.
func (p *Projector) hold(ctx context.Context, at Checkpoint) error {
	place := p.source.place(at)
	p.mu.Lock()
	done := p.o.NoHold || p.held.set && p.held.place == place
	p.mu.Unlock()
	if done {
		return nil
	}
	for _, h := range p.source.holds(at) {
		h.Name = p.HoldName()
		if err := p.setHold(ctx, h, at); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held{set: true, place: place, at: time.Now()}
	return nil
}

// setHold sets one hold, behind what is gone already if nothing of that is missed.
func (p *Projector) setHold(ctx context.Context, h eventstore.Hold, at Checkpoint) error {
	for range maxHoldMoves {
		err := p.store.SetHold(ctx, h)
		refused, ok := errors.AsType[*eventstore.Error](err)
		if !ok || refused.Kind != eventstore.ErrTrimmed {
			return err
		}
		moved, ok := p.source.behindTrim(h, at, refused)
		if !ok {
			return err
		}
		h = moved
	}
	return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "set hold", Category: h.Category, Stream: h.Stream,
		Wanted: "a hold at " + h.Position.String(), Found: "trims that ran ahead of it each time"}
}

// moveHold lets the holds follow the durable checkpoint, not too often. It is no
// harm if that fails: they hold more than they need to.
func (p *Projector) moveHold(ctx context.Context, kept Checkpoint) {
	if !p.holdDue() {
		return
	}
	if err := p.hold(ctx, kept); err != nil && ctx.Err() == nil {
		p.holdStays(ctx, err)
	}
}

// moveLowest is moveHold to the lowest lane there is, whoever works on it: the hold is
// one for all lanes. Without Control there is one lane, whose session moves it.
func (p *Projector) moveLowest(ctx context.Context) {
	if p.control == nil || !p.holdDue() {
		return
	}
	all, err := p.versions(ctx)
	if v := p.version(all); err == nil && v != nil {
		p.moveHold(ctx, p.lowest(v))
	} else if err != nil && ctx.Err() == nil {
		p.holdStays(ctx, err)
	}
}

func (p *Projector) holdDue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.o.NoHold && time.Since(p.held.at) >= holdInterval
}

// holdStays notes why the hold was not moved.
func (p *Projector) holdStays(ctx context.Context, err error) {
	p.logger.WarnContext(ctx, "hold not moved", "hold", p.HoldName(), "error", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held.at = time.Now()
}

// Unregister releases the projector's holds: what it has not come to, and what waits under
// parked keys, may be trimmed from now on. The checkpoint stays. Call it when the projector
// is given up for good; a Run or CatchUp afterwards registers it again.
func (p *Projector) Unregister(ctx context.Context) error {
	if p.mistake != nil {
		return p.mistake
	}
	if err := releaseHolds(ctx, p.store, p.HoldName()); err != nil {
		return err
	}
	for _, leaf := range p.leaves() {
		leaf.mu.Lock()
		leaf.held = held{}
		leaf.mu.Unlock()
	}
	return nil
}
