// The smaller interfaces of a Route: categories, streams, snapshots, holds, leases.

package eventstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// on calls f with the log of a category's backend as one of the smaller interfaces.
func on[T any](r *Route, op string, c Category, s Stream, f func(T) error) error {
	b, err := r.of(op, c, s)
	if err != nil {
		return err
	}
	l, err := as[T](b.Log, op)
	if err != nil {
		return err
	}
	return f(l)
}

// CreateCategory creates a category in the backend it is bound to. ErrInvalid if it is
// bound to none, or if another backend holds one of the name: it would be left behind.
// For the latter the others are asked, when the category is new, and must answer.
func (r *Route) CreateCategory(ctx context.Context, spec CategorySpec) error {
	const op = "create category"
	b, err := r.of(op, spec.Name, "")
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == ErrNoSuchCategory {
		e.Kind = ErrInvalid
	}
	if err != nil {
		return err
	}
	l, err := as[Categories](b.Log, op)
	if err != nil {
		return err
	}
	there, err := l.ListCategories(ctx)
	if err == nil && !holdsCategory(there, spec.Name) {
		err = r.notBeside(ctx, b, spec.Name)
	}
	if err != nil {
		return err
	}
	return l.CreateCategory(ctx, spec)
}

func holdsCategory(all []CategorySpec, c Category) bool {
	return slices.ContainsFunc(all, func(s CategorySpec) bool { return s.Name == c })
}

// notBeside refuses a category that lies in another backend than its own.
func (r *Route) notBeside(ctx context.Context, own Backend, c Category) error {
	for _, b := range r.backends {
		l, ok := b.Log.(Categories)
		if !ok || b.Name == own.Name {
			continue
		}
		there, err := l.ListCategories(ctx)
		if err != nil {
			return err
		}
		if holdsCategory(there, c) {
			return &Error{Kind: ErrInvalid, Op: "create category", Category: c, Wanted: "it in backend " + own.Name, Found: "one of that name in backend " + b.Name,
				Hint: "bind the category to backend " + b.Name + ", where its streams are, or delete it there first"}
		}
	}
	return nil
}

// DeleteCategory deletes a category in its backend.
func (r *Route) DeleteCategory(ctx context.Context, c Category) error {
	return on(r, "delete category", c, "", func(l Categories) error { return l.DeleteCategory(ctx, c) })
}

// ListCategories returns the categories of all backends ordered by name: those that
// lie where they are bound to.
func (r *Route) ListCategories(ctx context.Context) ([]CategorySpec, error) {
	all, err := merged(r, "list categories", func(l Categories) ([]CategorySpec, error) { return l.ListCategories(ctx) },
		func(s CategorySpec) Category { return s.Name })
	slices.SortFunc(all, func(a, b CategorySpec) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// merged returns what all backends list, as far as it lies where its category is bound to.
func merged[T, E any](r *Route, op string, list func(T) ([]E, error), category func(E) Category) ([]E, error) {
	if err := r.open(op, ""); err != nil {
		return nil, err
	}
	var all []E
	for _, b := range r.backends {
		l, err := as[T](b.Log, op)
		if err != nil {
			return nil, err
		}
		found, err := list(l)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if own, err := r.BackendOf(category(e)); err == nil && own.Name == b.Name {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// CreateStreams creates streams in one backend; over several it is ErrCrossBackend,
// because nothing is to be created before all is known to be right.
func (r *Route) CreateStreams(ctx context.Context, streams []Stream) error {
	const op = "create streams"
	b, err := r.one(op, len(streams), func(i int) (Category, Stream) { return streams[i].Category(), streams[i] },
		func(i int) string { return quoteOdd(string(streams[i])) }, "nothing was created: create the streams of each backend on their own")
	if err != nil || len(streams) == 0 {
		return err
	}
	l, err := as[Streams](b.Log, op)
	if err != nil {
		return err
	}
	return l.CreateStreams(ctx, streams)
}

// DropStream drops a stream in its backend.
func (r *Route) DropStream(ctx context.Context, s Stream) error {
	return on(r, "drop stream", s.Category(), s, func(l Streams) error { return l.DropStream(ctx, s) })
}

// SaveSnapshot keeps a snapshot beside its stream.
func (r *Route) SaveSnapshot(ctx context.Context, sn Snapshot) error {
	return on(r, "save snapshot", sn.Stream.Category(), sn.Stream, func(l Snapshots) error { return l.SaveSnapshot(ctx, sn) })
}

// Load loads from the stream's backend.
func (r *Route) Load(ctx context.Context, s Stream, fingerprint string, limit int) (got Loaded, err error) {
	err = on(r, "load", s.Category(), s, func(l Snapshots) error {
		got, err = l.Load(ctx, s, fingerprint, limit)
		return err
	})
	return got, err
}

// ListTrimmed lists streams of the category's backend.
func (r *Route) ListTrimmed(ctx context.Context, c Category, slots []Slot, after string, limit int) (p TrimmedPage, err error) {
	err = on(r, "list trimmed streams", c, "", func(l TrimmedStreams) error {
		p, err = l.ListTrimmed(ctx, c, slots, after, limit)
		return err
	})
	return p, err
}

// SetHold sets a hold in the backend of what it holds.
func (r *Route) SetHold(ctx context.Context, h Hold) error {
	return on(r, "set hold", h.Category, h.Stream, func(l Holds) error { return l.SetHold(ctx, h) })
}

// ReleaseHold releases a hold where it is; nil if there is none, also of a category
// that is bound to no backend.
func (r *Route) ReleaseHold(ctx context.Context, name string, c Category, s Stream) error {
	err := on(r, "release hold", c, s, func(l Holds) error { return l.ReleaseHold(ctx, name, c, s) })
	if _, unbound := r.BackendOf(c); unbound != nil && errors.Is(err, ErrNoSuchCategory) {
		return nil
	}
	return err
}

// ListHolds returns the holds of all backends ordered by name, category, stream.
func (r *Route) ListHolds(ctx context.Context) ([]Hold, error) {
	all, err := merged(r, "list holds", func(l Holds) ([]Hold, error) { return l.ListHolds(ctx) }, func(h Hold) Category { return h.Category })
	slices.SortFunc(all, func(a, b Hold) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Category, b.Category), cmp.Compare(a.Stream, b.Stream))
	})
	return all, err
}

// leaser returns the backend that keeps the leases.
func (r *Route) leaser(op string) (Leases, error) {
	if err := r.open(op, ""); err != nil {
		return nil, err
	}
	return as[Leases](r.leases.Log, op)
}

// AcquireLease asks the backend of the leases.
func (r *Route) AcquireLease(ctx context.Context, name string, holder UUID, ttl time.Duration) (Lease, bool, error) {
	l, err := r.leaser("acquire lease")
	if err != nil {
		return Lease{}, false, err
	}
	return l.AcquireLease(ctx, name, holder, ttl)
}

// RenewLease asks the backend of the leases.
func (r *Route) RenewLease(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error) {
	l, err := r.leaser("renew lease")
	if err != nil {
		return Lease{}, err
	}
	return l.RenewLease(ctx, lease, ttl)
}

// ReleaseLease tells the backend of the leases.
func (r *Route) ReleaseLease(ctx context.Context, lease Lease) error {
	l, err := r.leaser("release lease")
	if err != nil {
		return err
	}
	return l.ReleaseLease(ctx, lease)
}

// UpdateLeases asks the backend of the leases.
func (r *Route) UpdateLeases(ctx context.Context, u LeaseUpdate) ([]Lease, error) {
	l, err := r.leaser("update leases")
	if err != nil {
		return nil, err
	}
	return l.UpdateLeases(ctx, u)
}
