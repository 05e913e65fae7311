// Who owns which partition, as this broker saw it last.

package topic

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// owners is what the leases said; b.mu guards it.
type owners struct {
	holders map[string]eventstore.UUID // by the lease's name
	asOf    time.Time
	asking  chan struct{} // holds one while somebody asks the store
}

// note takes what a look at the leases has found.
func (b *Broker) note(all []eventstore.Lease) {
	holders := make(map[string]eventstore.UUID, len(all))
	for _, l := range all {
		if l.Left > 0 && !l.Holder.IsZero() {
			holders[l.Name] = l.Holder
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners.holders, b.owners.asOf = holders, time.Now()
}

// seeOwners looks at the leases unless a beat, or another call, has done so lately.
func (b *Broker) seeOwners(ctx context.Context, now bool) error {
	select {
	case b.owners.asking <- struct{}{}:
		defer func() { <-b.owners.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	fresh := time.Since(b.owners.asOf) < staleAfter || b.running && !b.owners.strange(b.topics.addresses)
	b.mu.Unlock()
	if fresh && !now {
		return nil
	}
	if err := b.refresh(ctx); err != nil { // the addresses
		return err
	}
	all, err := b.store.UpdateLeases(ctx, eventstore.LeaseUpdate{Holder: b.holder, TTL: b.o.LeaseTTL, Prefix: leasePrefix})
	if err == nil {
		b.note(all)
	}
	return err
}

// Others returns the addresses of the brokers that share the partitions of the store now,
// but for this one: "" for one that has none, or has not told it yet.
func (b *Broker) Others(ctx context.Context) (addresses []string, err error) {
	if err := b.seeOwners(ctx, true); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for lease, holder := range b.owners.holders {
		if strings.HasPrefix(lease, leasePrefix+seatPrefix) && holder != b.holder {
			addresses = append(addresses, b.topics.addresses[holder])
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}

// strange says if one of the holders has no address yet: it has come since.
func (o *owners) strange(addresses map[eventstore.UUID]string) bool {
	for _, holder := range o.holders {
		if _, ok := addresses[holder]; !ok {
			return true
		}
	}
	return false
}

// ownerOf returns the address of the broker that holds a partition, "" if none does or
// its address is not known yet, and whether it is this one.
func (b *Broker) ownerOf(p place) (address string, mine bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	holder := b.owners.holders[leasePrefix+p.item()]
	if holder == b.holder {
		return b.o.Address, true
	}
	return b.topics.addresses[holder], false
}

// otherOwner is the ErrNotOwner of a partition that this broker cannot publish to now.
func (b *Broker) otherOwner(p place) error {
	address, mine := b.ownerOf(p)
	if mine {
		address = "" // it is on its way in or out: asking elsewhere would not help
	}
	return notOwner(p, address)
}
