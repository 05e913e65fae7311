// Leases, on the clock of Options.Now.

package filelog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// AcquireLease grants a lease if nobody else holds it now.
func (l *Log) AcquireLease(ctx context.Context, name string, holder eventstore.UUID, ttl time.Duration) (lease eventstore.Lease, granted bool, err error) {
	err = l.changeLeases(ctx, "acquire lease", func(c *leaseChange) (err error) {
		lease, granted, err = c.acquire(name, holder, ttl)
		return err
	})
	if err != nil {
		return eventstore.Lease{}, false, err
	}
	return lease, granted, nil
}

// RenewLease prolongs a lease that is still the caller's.
func (l *Log) RenewLease(ctx context.Context, lease eventstore.Lease, ttl time.Duration) (out eventstore.Lease, err error) {
	err = l.changeLeases(ctx, "renew lease", func(c *leaseChange) error {
		have, renewed, err := c.renew(lease, ttl)
		if err == nil && !renewed {
			err = &eventstore.Error{Kind: eventstore.ErrLeaseLost, Op: "renew lease",
				Wanted: fmt.Sprintf("lease %q at epoch %d of holder %v", lease.Name, lease.Epoch, lease.Holder),
				Found:  fmt.Sprintf("epoch %d of holder %v until %v", have.Epoch, have.Holder, have.Until.Format(time.RFC3339Nano)),
				Hint:   "stop what was done under it and acquire it anew"}
		}
		out = have
		return err
	})
	if err != nil {
		return eventstore.Lease{}, err
	}
	return out, nil
}

// ReleaseLease gives a lease back at once.
func (l *Log) ReleaseLease(ctx context.Context, lease eventstore.Lease) error {
	return l.changeLeases(ctx, "release lease", func(c *leaseChange) error { return c.release(lease) })
}

// UpdateLeases does many things with the leases of one holder, as one record.
func (l *Log) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) (all []eventstore.Lease, err error) {
	if l.readOnly && len(u.Release)+len(u.Renew)+len(u.Acquire) == 0 {
		return l.listLeases(ctx, u.Prefix)
	}
	err = l.changeLeases(ctx, "update leases", func(c *leaseChange) error {
		for _, lease := range u.Release {
			lease.Holder = u.Holder
			if err := c.release(lease); err != nil {
				return err
			}
		}
		for _, lease := range u.Renew {
			lease.Holder = u.Holder
			if _, _, err := c.renew(lease, u.TTL); err != nil {
				return err
			}
		}
		for _, name := range u.Acquire {
			if _, _, err := c.acquire(name, u.Holder, u.TTL); err != nil {
				return err
			}
		}
		all = c.list(u.Prefix)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// listLeases lists what the owner of the store has written of leases.
func (l *Log) listLeases(ctx context.Context, prefix string) ([]eventstore.Lease, error) {
	if err := l.begin(ctx, "list leases", ""); err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return (&leaseChange{g: &group{log: l}, now: l.now()}).list(prefix), nil
}

// leaseName keeps names of leases apart from streams among what a group has locked.
type leaseName string

// changeLeases decides on leases as they stand, and writes those that change.
func (l *Log) changeLeases(ctx context.Context, op string, decide func(*leaseChange) error) error {
	return l.change(ctx, op, "", 0, func(g *group) (body, error) {
		c := &leaseChange{g: g, now: l.now()}
		if err := decide(c); err != nil || len(c.changed) == 0 {
			return nil, err
		}
		for _, lease := range c.changed {
			g.locked[leaseName(lease.Name)] = true
		}
		return leaseBody{c.changed}, nil
	})
}

// leaseChange is one request about leases. Each name stands in it once.
type leaseChange struct {
	g       *group
	now     time.Time
	changed []eventstore.Lease
}

// have returns a lease as it stands, the zero one with the name if there is none.
func (c *leaseChange) have(name string) (eventstore.Lease, error) {
	if c.g.locked[leaseName(name)] {
		return eventstore.Lease{}, errStaged
	}
	lease := c.g.log.reg.leases[name]
	lease.Name = name
	return lease, nil
}

// set changes a lease and returns it.
func (c *leaseChange) set(lease eventstore.Lease) eventstore.Lease {
	c.changed = append(c.changed, lease)
	return c.withLeft(lease)
}

func (c *leaseChange) withLeft(lease eventstore.Lease) eventstore.Lease {
	lease.Left = 0 // of one that was released, also when the clock has been put back since
	if !lease.Holder.IsZero() {
		lease.Left = max(lease.Until.Sub(c.now), 0)
	}
	return lease
}

func (c *leaseChange) acquire(name string, holder eventstore.UUID, ttl time.Duration) (lease eventstore.Lease, granted bool, err error) {
	have, err := c.have(name)
	if err != nil || have.Holder != holder && c.now.Before(have.Until) {
		return c.withLeft(have), false, err
	}
	return c.set(eventstore.Lease{Name: name, Holder: holder, Epoch: have.Epoch + 1, Until: c.now.Add(ttl).UTC()}), true, nil
}

func (c *leaseChange) renew(lease eventstore.Lease, ttl time.Duration) (have eventstore.Lease, renewed bool, err error) {
	have, err = c.have(lease.Name)
	if err != nil || have.Holder != lease.Holder || have.Epoch != lease.Epoch || !c.now.Before(have.Until) {
		return have, false, err
	}
	have.Until = c.now.Add(ttl).UTC()
	return c.set(have), true, nil
}

func (c *leaseChange) release(lease eventstore.Lease) error {
	have, err := c.have(lease.Name)
	if err != nil || have.Holder != lease.Holder || have.Epoch != lease.Epoch || have.Until.IsZero() {
		return err
	}
	have.Holder, have.Until = eventstore.UUID{}, time.Time{}
	c.set(have)
	return nil
}

// list returns the leases under a prefix as they will stand.
func (c *leaseChange) list(prefix string) []eventstore.Lease {
	all := map[string]eventstore.Lease{}
	for name, lease := range c.g.log.reg.leases {
		if strings.HasPrefix(name, prefix) {
			all[name] = lease
		}
	}
	for _, lease := range c.changed {
		all[lease.Name] = lease
	}
	var out []eventstore.Lease
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, c.withLeft(all[name]))
	}
	return out
}
