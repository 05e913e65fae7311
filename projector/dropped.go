// Telling a version that was dropped from one that was lost.

package projector

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

// droppedLease is held, from before a version is dropped and for as long as a lease may
// last, as a sign for the workers that find it gone. Without it a failover has taken it
// back that the version was registered: nobody wanted that.
const droppedLease = "dropped"

// signDropped leaves the sign that a version is dropped. takeBack removes it if it was not,
// going by the error of dropping it. A store without leases has no workers that share.
func (a *Admin) signDropped(ctx context.Context, name string, version int) (takeBack func(error), err error) {
	if name == "" {
		return nil, invalidAdmin("the name of a projector", "none")
	}
	prefix := leasePrefixOf(Key{Projector: name, Version: version})
	sign, _, err := a.store.AcquireLease(ctx, prefix+droppedLease, eventstore.NameUUID(prefix+droppedLease), eventstore.MaxLeaseTTL)
	if errors.Is(err, errors.ErrUnsupported) {
		return func(error) {}, nil
	}
	return func(refused error) {
		if errors.Is(refused, eventstore.ErrUnknown) || errors.Is(refused, ErrNotRegistered) || ctx.Err() != nil {
			return // perhaps it was, or has been before
		}
		if err := a.store.ReleaseLease(ctx, sign); err != nil {
			a.store.Logger().WarnContext(ctx, "lease not released; it runs out by itself", "lease", sign.Name, "left", sign.Left, "error", err)
		}
	}, err
}

// missing says what to do about a version that is not there any more: stop if it was
// dropped; else register it anew, as it is when a worker starts.
func (c *crew) missing(ctx context.Context, p *Projector) error {
	dropped := true // nobody else can have a version that is private to this process
	if p.leased {
		prefix := p.leasePrefix()
		all, err := p.store.UpdateLeases(ctx, eventstore.LeaseUpdate{Holder: c.leases.member.Holder(), TTL: p.o.LeaseTTL, Prefix: prefix})
		if err != nil {
			return err
		}
		dropped = false
		for _, l := range all {
			dropped = dropped || l.Name == prefix+droppedLease && l.Left > 0
		}
	}
	if dropped {
		return &eventstore.Error{Kind: eventstore.ErrFenced, Op: "project " + p.key.String(), Wanted: "the version it works on",
			Found: "that it was dropped", Hint: "stop this worker"}
	}
	c.lanes = 0 // as at the first beat
	for _, leaf := range c.p.leaves() {
		leaf.mu.Lock()
		leaf.held = held{} // as lost as the version may be
		leaf.mu.Unlock()
	}
	return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "project " + p.key.String(), Wanted: "the version it works on",
		Found: "none, and no sign that it was dropped", Hint: "a failover lost it; it is registered anew and begins from the beginning"}
}
