// The client's leases. Left of a lease is what the store said; a caller that counts from
// before the call, as he does with every log, believes no lease for too long.

package remotelog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// leaseFits says if a lease can be the answer to a call about another.
func leaseFits(got, want eventstore.Lease, whose bool) error {
	if got.Name != want.Name || whose && (got.Holder != want.Holder || got.Epoch == 0 || want.Epoch != 0 && got.Epoch != want.Epoch) {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: fmt.Sprintf("lease %q of %v at epoch %d (0: any)", want.Name, want.Holder, want.Epoch),
			Found: fmt.Sprintf("%.300q of %v at %d", got.Name, got.Holder, got.Epoch)}
	}
	return nil
}

// AcquireLease implements [eventstore.Leases].
func (l *Log) AcquireLease(ctx context.Context, name string, holder eventstore.UUID, ttl time.Duration) (eventstore.Lease, bool, error) {
	act := wire.Act{Op: "acquire lease", Writes: true}
	m, err := call(ctx, l, act, &wattlev1.AcquireLeaseRequest{Name: name, Holder: wire.FromUUID(holder), Ttl: wire.FromDuration(ttl)}, l.leases.AcquireLease)
	if err != nil {
		return eventstore.Lease{}, false, err
	}
	got, err := wire.ToLease(m.GetLease())
	got, err = checked(l, act, got, err, leaseFits(got, eventstore.Lease{Name: name, Holder: holder}, m.GetGranted()))
	return got, err == nil && m.GetGranted(), err
}

// RenewLease implements [eventstore.Leases].
func (l *Log) RenewLease(ctx context.Context, lease eventstore.Lease, ttl time.Duration) (eventstore.Lease, error) {
	act := wire.Act{Op: "renew lease", Writes: true}
	m, err := call(ctx, l, act, &wattlev1.RenewLeaseRequest{Lease: wire.FromLease(lease), Ttl: wire.FromDuration(ttl)}, l.leases.RenewLease)
	if err != nil {
		return eventstore.Lease{}, err
	}
	got, err := wire.ToLease(m.GetLease())
	return checked(l, act, got, err, leaseFits(got, lease, true))
}

// ReleaseLease implements [eventstore.Leases].
func (l *Log) ReleaseLease(ctx context.Context, lease eventstore.Lease) error {
	act := wire.Act{Op: "release lease", Writes: true}
	_, err := call(ctx, l, act, &wattlev1.ReleaseLeaseRequest{Lease: wire.FromLease(lease)}, l.leases.ReleaseLease)
	return err
}

// UpdateLeases implements [eventstore.Leases].
func (l *Log) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	act := wire.Act{Op: "update leases", Writes: true}
	m, err := call(ctx, l, act, wire.FromLeaseUpdate(u), l.leases.UpdateLeases)
	if err != nil {
		return nil, err
	}
	all, err := wire.ToLeases(m.GetLeases())
	for _, got := range all {
		if !strings.HasPrefix(got.Name, u.Prefix) {
			err = &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: fmt.Sprintf("leases that begin with %q", u.Prefix), Found: fmt.Sprintf("%.300q", got.Name)}
		}
	}
	return checked(l, act, all, err)
}
