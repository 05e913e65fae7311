// Categories, snapshots, holds and leases.

package memlog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// CreateCategory creates a category; idempotent for the same spec.
func (l *Log) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "create category", ""); err != nil {
		return err
	}
	if c := l.categories[spec.Name]; c != nil {
		return eventstore.SameSpec(c.spec, spec)
	}
	l.categories[spec.Name] = &category{spec: spec, streams: map[eventstore.Stream]*stream{}}
	return nil
}

// DeleteCategory removes a category and all that is in it.
func (l *Log) DeleteCategory(ctx context.Context, name eventstore.Category) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "delete category", ""); err != nil {
		return err
	}
	if _, err := l.category("delete category", name, ""); err != nil {
		return err
	}
	delete(l.categories, name)
	maps.DeleteFunc(l.holds, func(k holdKey, _ eventstore.Hold) bool { return k.category == name })
	return nil
}

// ListCategories returns all categories ordered by name.
func (l *Log) ListCategories(ctx context.Context) ([]eventstore.CategorySpec, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.enter(ctx, "list categories", ""); err != nil {
		return nil, err
	}
	var all []eventstore.CategorySpec
	for _, name := range slices.Sorted(maps.Keys(l.categories)) {
		all = append(all, l.categories[name].spec)
	}
	return all, nil
}

// CreateStreams creates streams of dedicated categories.
func (l *Log) CreateStreams(ctx context.Context, streams []eventstore.Stream) error {
	const op = "create streams"
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range streams {
		if _, err := l.dedicated(ctx, op, s); err != nil {
			return err
		}
	}
	for _, s := range streams {
		if c := l.categories[s.Category()]; c.streams[s] == nil {
			c.create(s)
		}
	}
	return nil
}

// DropStream removes a stream of a dedicated category.
func (l *Log) DropStream(ctx context.Context, s eventstore.Stream) error {
	const op = "drop stream"
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := l.dedicated(ctx, op, s)
	if err != nil {
		return err
	}
	if c.streams[s] == nil {
		return eventstore.NoSuchStreamError(op, s)
	}
	delete(c.streams, s)
	maps.DeleteFunc(l.holds, func(k holdKey, _ eventstore.Hold) bool { return k.stream == s })
	return nil
}

// dedicated returns the category of a stream if it is a dedicated one.
func (l *Log) dedicated(ctx context.Context, op string, s eventstore.Stream) (*category, error) {
	if err := l.enter(ctx, op, s); err != nil {
		return nil, err
	}
	c, err := l.category(op, s.Category(), s)
	if err == nil && c.spec.Layout != eventstore.Dedicated {
		err = eventstore.NotDedicatedError(op, s)
	}
	return c, err
}

// SaveSnapshot keeps sn if it is newer than the one kept.
func (l *Log) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, st, err := l.find(ctx, "save snapshot", sn.Stream)
	if err != nil {
		return err
	}
	h := headOf(st)
	if id := st.idAt(sn.At.Seqno); sn.At.Seqno > h.Last.Seqno || !id.IsZero() && id != sn.At.ID ||
		sn.At.Seqno == h.Last.Seqno && sn.At.ID != h.Last.ID {
		return eventstore.DivergedError("save snapshot", sn.Stream, sn.At, h)
	}
	if st.snapshot != nil && st.snapshot.At.Seqno > sn.At.Seqno {
		return nil
	}
	sn.Data = append([]byte{}, sn.Data...)
	sn.Time = l.now().UTC().Truncate(time.Microsecond)
	st.snapshot = &sn
	return nil
}

// ListTrimmed returns streams of which no entry is left, in the order of their names.
func (l *Log) ListTrimmed(ctx context.Context, name eventstore.Category, slots []eventstore.Slot, after string, limit int) (eventstore.TrimmedPage, error) {
	const op = "list trimmed streams"
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.enter(ctx, op, ""); err != nil {
		return eventstore.TrimmedPage{}, err
	}
	c, err := l.category(op, name, "")
	if err != nil {
		return eventstore.TrimmedPage{}, err
	}
	var p eventstore.TrimmedPage
	last := eventstore.Stream("")
	for _, s := range slices.Sorted(maps.Keys(c.streams)) {
		if string(s) <= after {
			continue
		}
		if limit--; limit < 0 {
			p.Next = string(last)
			return p, nil
		}
		last = s
		st := c.streams[s]
		if st.head.Trimmed > 0 && st.head.Trimmed == st.head.Last.Seqno && (len(slots) == 0 || slices.Contains(slots, st.slot)) {
			p.Streams = append(p.Streams, s)
		}
	}
	return p, nil
}

type holdKey struct {
	name     string
	category eventstore.Category
	stream   eventstore.Stream
}

func (k holdKey) compare(o holdKey) int {
	return cmp.Or(strings.Compare(k.name, o.name), cmp.Compare(k.category, o.category), cmp.Compare(k.stream, o.stream))
}

// SetHold registers or moves a hold.
func (l *Log) SetHold(ctx context.Context, h eventstore.Hold) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "set hold", h.Stream); err != nil {
		return err
	}
	c, err := l.category("set hold", h.Category, h.Stream)
	if err != nil {
		return err
	}
	if err := c.checkHold(h); err != nil {
		return err
	}
	l.holds[holdKey{h.Name, h.Category, h.Stream}] = h
	return nil
}

// checkHold refuses a hold over what is gone already, or on another history.
func (c *category) checkHold(h eventstore.Hold) error {
	if h.Stream == "" {
		if c.spec.Layout == eventstore.Dedicated {
			return eventstore.NotInFeedError("set hold", h.Category)
		}
		if c.trimmedTo > 0 && h.Position <= c.trimmedTo {
			return eventstore.TrimmedFeedError(h.Category, h.Position, c.trimmedTo)
		}
		return nil
	}
	st := c.streams[h.Stream]
	if st == nil && c.spec.Layout == eventstore.Dedicated {
		return eventstore.NoSuchStreamError("set hold", h.Stream)
	}
	head := headOf(st)
	if head.Trimmed > 0 && h.Seqno <= head.Trimmed {
		return eventstore.TrimmedError("set hold", h.Stream, h.Seqno, head)
	}
	if id := st.idAt(h.Seqno); !id.IsZero() && !h.ID.IsZero() && id != h.ID {
		return eventstore.DivergedError("set hold", h.Stream, eventstore.Mark{Seqno: h.Seqno, ID: h.ID}, head)
	}
	return nil
}

// ReleaseHold removes a hold.
func (l *Log) ReleaseHold(ctx context.Context, name string, c eventstore.Category, s eventstore.Stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "release hold", s); err != nil {
		return err
	}
	delete(l.holds, holdKey{name, c, s})
	return nil
}

// ListHolds returns all holds ordered by name, category, stream.
func (l *Log) ListHolds(ctx context.Context) ([]eventstore.Hold, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.enter(ctx, "list holds", ""); err != nil {
		return nil, err
	}
	var all []eventstore.Hold
	for _, k := range slices.SortedFunc(maps.Keys(l.holds), holdKey.compare) {
		all = append(all, l.holds[k])
	}
	return all, nil
}

// AcquireLease grants a lease if nobody else holds it now.
func (l *Log) AcquireLease(ctx context.Context, name string, holder eventstore.UUID, ttl time.Duration) (eventstore.Lease, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "acquire lease", ""); err != nil {
		return eventstore.Lease{}, false, err
	}
	return l.acquire(name, holder, ttl)
}

func (l *Log) acquire(name string, holder eventstore.UUID, ttl time.Duration) (eventstore.Lease, bool, error) {
	now := l.now()
	if have, ok := l.leases[name]; ok && have.Holder != holder && now.Before(have.Until) {
		have.Left = have.Until.Sub(now)
		return have, false, nil
	}
	lease := eventstore.Lease{Name: name, Holder: holder, Epoch: l.leases[name].Epoch + 1, Until: now.Add(ttl).UTC(), Left: ttl}
	l.leases[name] = lease
	return lease, true, nil
}

// RenewLease prolongs a lease that is still the caller's.
func (l *Log) RenewLease(ctx context.Context, lease eventstore.Lease, ttl time.Duration) (eventstore.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "renew lease", ""); err != nil {
		return eventstore.Lease{}, err
	}
	return l.renew(lease, ttl)
}

func (l *Log) renew(lease eventstore.Lease, ttl time.Duration) (eventstore.Lease, error) {
	now := l.now()
	have := l.leases[lease.Name]
	if have.Holder != lease.Holder || have.Epoch != lease.Epoch || !now.Before(have.Until) {
		return eventstore.Lease{}, &eventstore.Error{Kind: eventstore.ErrLeaseLost, Op: "renew lease",
			Wanted: fmt.Sprintf("lease %q at epoch %d of holder %v", lease.Name, lease.Epoch, lease.Holder),
			Found:  fmt.Sprintf("epoch %d of holder %v until %v", have.Epoch, have.Holder, have.Until.Format(time.RFC3339Nano)),
			Hint:   "stop what was done under it and acquire it anew"}
	}
	have.Until, have.Left = now.Add(ttl).UTC(), ttl
	l.leases[lease.Name] = have
	return have, nil
}

// ReleaseLease gives a lease back at once.
func (l *Log) ReleaseLease(ctx context.Context, lease eventstore.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "release lease", ""); err != nil {
		return err
	}
	l.release(lease)
	return nil
}

func (l *Log) release(lease eventstore.Lease) {
	if have := l.leases[lease.Name]; have.Holder == lease.Holder && have.Epoch == lease.Epoch {
		have.Holder, have.Until = eventstore.UUID{}, time.Time{}
		l.leases[lease.Name] = have
	}
}

// UpdateLeases does many things with the leases of one holder at once.
func (l *Log) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.enter(ctx, "update leases", ""); err != nil {
		return nil, err
	}
	for _, lease := range u.Release {
		lease.Holder = u.Holder
		l.release(lease)
	}
	for _, lease := range u.Renew {
		lease.Holder = u.Holder
		_, _ = l.renew(lease, u.TTL) // one that is lost is seen in the list
	}
	for _, name := range u.Acquire {
		_, _, _ = l.acquire(name, u.Holder, u.TTL)
	}
	var all []eventstore.Lease
	now := l.now()
	for _, name := range slices.Sorted(maps.Keys(l.leases)) {
		if strings.HasPrefix(name, u.Prefix) {
			lease := l.leases[name]
			if lease.Left = 0; !lease.Holder.IsZero() { // of one that was released nothing is left, wherever the clock has gone
				lease.Left = max(lease.Until.Sub(now), 0)
			}
			all = append(all, lease)
		}
	}
	return all, nil
}
