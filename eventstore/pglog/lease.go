// Leases, on the database's clock.

package pglog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// AcquireLease grants a lease if nobody else holds it now.
func (l *Log) AcquireLease(ctx context.Context, name string, holder eventstore.UUID, ttl time.Duration) (lease eventstore.Lease, granted bool, err error) {
	err = l.simple(ctx, "acquire lease", "", func(q querier) error {
		lease, granted, err = scanLease(ctx, q, "acquire lease", name, l.sql.acquire, name, toUUID(holder), ttl.Microseconds())
		return err
	})
	return lease, granted, err
}

// RenewLease prolongs a lease that is still the caller's.
func (l *Log) RenewLease(ctx context.Context, have eventstore.Lease, ttl time.Duration) (lease eventstore.Lease, err error) {
	const op = "renew lease"
	err = l.simple(ctx, op, "", func(q querier) error {
		var granted bool
		lease, granted, err = scanLease(ctx, q, op, have.Name, l.sql.renew, have.Name, toUUID(have.Holder), int64(have.Epoch), ttl.Microseconds())
		if err == nil && !granted {
			err = &eventstore.Error{Kind: eventstore.ErrLeaseLost, Op: op,
				Wanted: fmt.Sprintf("lease %q at epoch %d of holder %v", have.Name, have.Epoch, have.Holder),
				Found:  fmt.Sprintf("epoch %d of holder %v until %v", lease.Epoch, lease.Holder, lease.Until.Format(time.RFC3339Nano)),
				Hint:   "stop what was done under it and acquire it anew"}
		}
		return err
	})
	if err != nil {
		return eventstore.Lease{}, err
	}
	return lease, nil
}

// ReleaseLease gives a lease back at once.
func (l *Log) ReleaseLease(ctx context.Context, have eventstore.Lease) error {
	return l.simple(ctx, "release lease", "", func(q querier) error {
		_, err := q.Exec(ctx, l.sql.release, have.Name, toUUID(have.Holder), int64(have.Epoch))
		return err
	})
}

// UpdateLeases does many things with the leases of one holder, in one statement.
func (l *Log) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) (all []eventstore.Lease, err error) {
	const op = "update leases"
	var names []string
	var epochs []int64
	var released []bool
	add := func(name string, epoch eventstore.Epoch, release bool) {
		names, epochs, released = append(names, name), append(epochs, int64(epoch)), append(released, release)
	}
	for _, name := range u.Acquire {
		add(name, 0, false)
	}
	for _, have := range u.Renew {
		if have.Epoch > 0 { // nobody was granted 0
			add(have.Name, have.Epoch, false)
		}
	}
	for _, have := range u.Release {
		if have.Epoch > 0 {
			add(have.Name, have.Epoch, true)
		}
	}
	err = l.simple(ctx, op, "", func(q querier) error {
		rows, err := q.Query(ctx, l.sql.updateLeases, toUUID(u.Holder), u.TTL.Microseconds(), names, epochs, released, u.Prefix)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (eventstore.Lease, error) { return scanListed(r, op) })
		return err
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l eventstore.Lease) bool { return l.Name == "" })
	slices.SortFunc(all, func(a, b eventstore.Lease) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// scanListed reads one lease of a list; its name is empty where there is none.
func scanListed(r pgx.CollectableRow, op string) (lease eventstore.Lease, err error) {
	var ok bool
	var name *string
	var holder uuid
	var epoch *int64
	var until *time.Time
	var now time.Time
	if err := r.Scan(&ok, &name, &holder, &epoch, &until, &now); err != nil {
		return lease, err
	}
	if !ok {
		return lease, isolationError(op, "")
	}
	if name == nil {
		return lease, nil
	}
	return held(eventstore.Lease{Name: *name, Holder: fromUUID(holder), Epoch: eventstore.Epoch(*epoch), Until: until.UTC()}, now), nil
}

// held fills in how much of a lease is left: nothing of one that was released, also when
// the clock has been put back since.
func held(l eventstore.Lease, now time.Time) eventstore.Lease {
	if !l.Holder.IsZero() {
		l.Left = max(l.Until.Sub(now), 0)
	}
	return l
}

func scanLease(ctx context.Context, q querier, op, name, sql string, args ...any) (lease eventstore.Lease, granted bool, err error) {
	var ok bool
	var holder uuid
	var epoch *int64
	var until *time.Time
	var now time.Time
	if err := q.QueryRow(ctx, sql, args...).Scan(&ok, &granted, &holder, &epoch, &until, &now); err != nil {
		return lease, false, err
	}
	if !ok {
		return lease, false, isolationError(op, "")
	}
	lease = eventstore.Lease{Name: name, Holder: fromUUID(holder)}
	if epoch != nil {
		lease.Epoch, lease.Until = eventstore.Epoch(*epoch), until.UTC()
		lease = held(lease, now)
	}
	return lease, granted, nil
}
