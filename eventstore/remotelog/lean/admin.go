// Categories, dedicated streams, holds and leases.

package lean

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// CreateCategory creates a category; see [eventstore.Categories].
func (l *Log) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	c := category{Name: spec.Name, TrimFreely: spec.TrimFreely}
	if spec.Layout == eventstore.Dedicated {
		c.Layout = dedicated
	}
	_, err := call[struct{}](ctx, l, action{op: "create category", procedure: "AdminService/CreateCategory", writes: true}, struct {
		Spec category `json:"spec"`
	}{c})
	return err
}

// DeleteCategory removes a category; see [eventstore.Categories].
func (l *Log) DeleteCategory(ctx context.Context, c eventstore.Category) error {
	_, err := call[struct{}](ctx, l, action{op: "delete category", procedure: "AdminService/DeleteCategory", writes: true}, struct {
		Name eventstore.Category `json:"name"`
	}{c})
	return err
}

// ListCategories returns the categories that the caller may do something with, by name.
func (l *Log) ListCategories(ctx context.Context) ([]eventstore.CategorySpec, error) {
	res, err := call[struct{ Categories []category }](ctx, l, action{op: "list categories", procedure: "AdminService/ListCategories"}, struct{}{})
	if err != nil {
		return nil, err
	}
	return mapped(res.Categories, func(c category) eventstore.CategorySpec {
		spec := eventstore.CategorySpec{Name: c.Name, TrimFreely: c.TrimFreely}
		if c.Layout == dedicated {
			spec.Layout = eventstore.Dedicated
		}
		return spec
	}), nil
}

// CreateStreams creates streams of dedicated categories; see [eventstore.Streams].
func (l *Log) CreateStreams(ctx context.Context, streams []eventstore.Stream) error {
	_, err := call[struct{}](ctx, l, action{op: "create streams", procedure: "AdminService/CreateStreams", writes: true}, struct {
		Streams []eventstore.Stream `json:"streams"`
	}{streams})
	return err
}

// DropStream removes a stream of a dedicated category; see [eventstore.Streams].
func (l *Log) DropStream(ctx context.Context, s eventstore.Stream) error {
	_, err := call[struct{}](ctx, l, action{op: "drop stream", stream: s, procedure: "AdminService/DropStream", writes: true}, struct {
		Stream eventstore.Stream `json:"stream"`
	}{s})
	return err
}

// SetHold registers or moves a hold; see [eventstore.Holds].
func (l *Log) SetHold(ctx context.Context, h eventstore.Hold) error {
	_, err := call[struct{}](ctx, l, action{op: "set hold", stream: h.Stream, procedure: "AdminService/SetHold", writes: true}, struct {
		Hold hold `json:"hold"`
	}{hold{h.Name, h.Category, h.Stream, number(h.Seqno), number(h.Position), id(h.ID)}})
	return err
}

// ReleaseHold removes a hold; see [eventstore.Holds].
func (l *Log) ReleaseHold(ctx context.Context, name string, c eventstore.Category, s eventstore.Stream) error {
	_, err := call[struct{}](ctx, l, action{op: "release hold", stream: s, procedure: "AdminService/ReleaseHold", writes: true}, hold{Name: name, Category: c, Stream: s})
	return err
}

// ListHolds returns the holds on categories that the caller may read; see
// [eventstore.Holds].
func (l *Log) ListHolds(ctx context.Context) ([]eventstore.Hold, error) {
	res, err := call[struct{ Holds []hold }](ctx, l, action{op: "list holds", procedure: "AdminService/ListHolds"}, struct{}{})
	if err != nil {
		return nil, err
	}
	return mapped(res.Holds, func(h hold) eventstore.Hold {
		return eventstore.Hold{Name: h.Name, Category: h.Category, Stream: h.Stream, Seqno: eventstore.Seqno(h.Seqno), Position: eventstore.Position(h.Position), ID: eventstore.UUID(h.ID)}
	}), nil
}

// AcquireLease asks for a lease; see [eventstore.Leases].
func (l *Log) AcquireLease(ctx context.Context, name string, holder eventstore.UUID, ttl time.Duration) (eventstore.Lease, bool, error) {
	res, err := call[struct {
		Lease   lease
		Granted bool
	}](ctx, l, action{op: "acquire lease", procedure: "LeaseService/AcquireLease", writes: true}, struct {
		Name   string  `json:"name"`
		Holder id      `json:"holder"`
		TTL    seconds `json:"ttl"`
	}{name, id(holder), seconds(ttl)})
	if err != nil {
		return eventstore.Lease{}, false, err
	}
	return res.Lease.lease(), res.Granted, nil
}

// RenewLease prolongs a lease; see [eventstore.Leases].
func (l *Log) RenewLease(ctx context.Context, had eventstore.Lease, ttl time.Duration) (eventstore.Lease, error) {
	res, err := call[struct{ Lease lease }](ctx, l, action{op: "renew lease", procedure: "LeaseService/RenewLease", writes: true}, struct {
		Lease lease   `json:"lease"`
		TTL   seconds `json:"ttl"`
	}{leaseOf(had), seconds(ttl)})
	if err != nil {
		return eventstore.Lease{}, err
	}
	return res.Lease.lease(), nil
}

// ReleaseLease gives a lease back; see [eventstore.Leases].
func (l *Log) ReleaseLease(ctx context.Context, had eventstore.Lease) error {
	_, err := call[struct{}](ctx, l, action{op: "release lease", procedure: "LeaseService/ReleaseLease", writes: true}, struct {
		Lease lease `json:"lease"`
	}{leaseOf(had)})
	return err
}

// UpdateLeases does many of these things at once; see [eventstore.Leases].
func (l *Log) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	res, err := call[struct{ Leases []lease }](ctx, l, action{op: "update leases", procedure: "LeaseService/UpdateLeases", writes: true}, struct {
		Holder  id       `json:"holder"`
		TTL     seconds  `json:"ttl"`
		Prefix  string   `json:"prefix"`
		Renew   []lease  `json:"renew,omitempty"`
		Acquire []string `json:"acquire,omitempty"`
		Release []lease  `json:"release,omitempty"`
	}{id(u.Holder), seconds(u.TTL), u.Prefix, mapped(u.Renew, leaseOf), u.Acquire, mapped(u.Release, leaseOf)})
	if err != nil {
		return nil, err
	}
	return mapped(res.Leases, lease.lease), nil
}
