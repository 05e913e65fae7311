// Diagnosis of a Route: that of every backend, and of what the table leaves behind.

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Verify verifies one backend after the other; the Backend of a finding says which. A
// backend that cannot be verified is a note, and errors.ErrUnsupported if it is all of
// them. One that fails does not keep the others from being verified: its error comes
// when they are done.
func (r *Route) Verify(ctx context.Context, progress func(Progress)) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		if err := r.open("verify", ""); err != nil {
			yield(Finding{}, err)
			return
		}
		v := routeVerify{progress: progress}
		var notes []Finding
		for _, b := range r.backends {
			l, err := as[Verifier](b.Log, "verify")
			if err != nil {
				v.unable = err
				notes = append(notes, Finding{Check: "verified", Severity: SeverityNote, Backend: b.Name, Wanted: "a backend that can be verified", Found: fmt.Sprintf("a %T", b.Log)})
				continue
			}
			if v.able = true; !v.one(ctx, b, l, yield) {
				return
			}
		}
		if !v.able {
			yield(Finding{}, v.unable)
			return
		}
		for _, f := range notes {
			if !yield(f, nil) {
				return
			}
		}
		if err := errors.Join(v.failed...); err != nil {
			yield(Finding{}, err)
		}
	}
}

// routeVerify is one Verify of a Route.
type routeVerify struct {
	progress func(Progress)
	before   Progress // of the backends that are done
	able     bool
	unable   error
	failed   []error
}

// one verifies a backend; false if the caller has heard enough.
func (v *routeVerify) one(ctx context.Context, b Backend, l Verifier, yield func(Finding, error) bool) bool {
	sum := v.before
	tell := func(p Progress) {
		sum = Progress{Streams: v.before.Streams + p.Streams, Entries: v.before.Entries + p.Entries, Total: v.before.Total + p.Total}
		if v.progress != nil {
			v.progress(sum)
		}
	}
	for f, err := range l.Verify(ctx, tell) {
		if err != nil {
			v.failed = append(v.failed, fmt.Errorf("backend %s: %w", b.Name, err))
			break
		}
		f.Backend = b.Name
		if !yield(f, nil) {
			return false
		}
	}
	v.before = sum
	return true
}

// Examine examines every backend that has surroundings, then the Route itself: whether
// every backend answers and is a store of its own, and whether categories lie where the
// table says.
func (r *Route) Examine(ctx context.Context) ([]Finding, error) {
	if err := r.open("examine", ""); err != nil {
		return nil, err
	}
	var all []Finding
	stores := map[UUID]string{}
	for _, b := range r.backends {
		found, err := r.examine(ctx, b, stores)
		if all = append(all, found...); err != nil {
			all = append(all, Finding{Check: "route-backend", Severity: SeverityFault, Backend: b.Name, Wanted: "a backend that answers", Found: err.Error(),
				Hint: "its categories can be neither read nor written; those of the other backends can"})
		}
	}
	return all, ctx.Err()
}

// examine examines one backend; stores are those met before.
func (r *Route) examine(ctx context.Context, b Backend, stores map[UUID]string) (all []Finding, err error) {
	if l, ok := b.Log.(Doctor); ok {
		if all, err = l.Examine(ctx); err != nil {
			return all, err
		}
		for i := range all {
			all[i].Backend = b.Name
		}
	}
	id, err := b.Incarnation(ctx)
	if err != nil {
		return all, err
	}
	all = append(all, identity(b, id, stores))
	l, err := as[Categories](b.Log, "list categories")
	if err != nil {
		return all, err
	}
	there, err := l.ListCategories(ctx)
	if err != nil {
		return all, err
	}
	return append(all, r.placement(b, there)), nil
}

// identity tells backends apart: a token or a checkpoint names its store by the
// incarnation, which a copy shares with its original.
func identity(b Backend, id UUID, stores map[UUID]string) Finding {
	if other, twice := stores[id]; twice {
		return Finding{Check: "route-backend", Severity: SeverityFault, Backend: b.Name, Wanted: "a store of its own", Found: "incarnation " + id.String() + ", as backend " + other,
			Hint: "one store, or a copy of it, is there twice: leave one out, or restore the copy as a store of its own"}
	}
	stores[id] = b.Name
	return Finding{Check: "route-backend", Backend: b.Name, Found: "incarnation " + id.String()}
}

// placement finds the categories that lie where the table does not look for them, and
// names the first.
func (r *Route) placement(b Backend, there []CategorySpec) Finding {
	f := Finding{Check: "route-category", Backend: b.Name}
	to, left := "", 0
	for _, spec := range there {
		own, err := r.BackendOf(spec.Name)
		if err == nil && own.Name == b.Name {
			continue
		}
		if left++; left == 1 {
			f.Category, to = spec.Name, "no backend"
			if err == nil {
				to = "backend " + own.Name
			}
		}
	}
	if left == 0 {
		f.Found = fmt.Sprintf("%d categories, all of them bound to it", len(there))
		return f
	}
	f.Severity, f.Wanted = SeverityWarning, "every category in it bound to it"
	f.Found = fmt.Sprintf("%s, bound to %s, and %d more of that kind", quoteOdd(string(f.Category)), to, left-1)
	f.Hint = "nobody reads or trims what lies here: bind the category to backend " + b.Name + ", or delete it there"
	return f
}
