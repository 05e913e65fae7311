// Route: a Log that sends each category to its own backend.

package eventstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
)

// MaxBackendBytes bounds the name of a Backend.
const MaxBackendBytes = 64

// Backend is a log behind a [Route], under the name by which the table, errors and
// checkpoints know it: 1 to MaxBackendBytes letters, digits, '-', '_' and '.'. A
// projector over several backends keeps the name in its checkpoints' keys, so it stays
// with the data when the Route is configured anew.
type Backend struct {
	Name string
	Log  Log
}

// Incarnation asks the backend which store it is. It costs one small page of the feed.
func (b Backend) Incarnation(ctx context.Context) (UUID, error) {
	p, err := b.Log.ReadFeed(ctx, 0, Filter{AcceptTrimmed: true}, 1)
	return p.Incarnation, err
}

// RouteOptions say what lies where; nil and the zero value are the defaults.
type RouteOptions struct {
	// Table names the backend of categories.
	Table map[Category]string
	// Default is the backend of the categories that Table does not name. Empty: with
	// one backend that one; with several there is none, and other categories do not
	// exist.
	Default string
	// Leases is the backend that keeps all leases, so that everybody asks the same.
	// Empty: Default, else the first.
	Leases string
}

// Route is a Log that sends each category to its own backend, so that files,
// PostgreSQL and memory serve side by side and what is kept where is said in one
// place. It implements Categories, Streams, Snapshots, TrimmedStreams, Holds, Leases, BackwardReader,
// Verifier and Doctor over those backends that do.
//
// Every promise of a backend holds for the categories in it. What a Route cannot
// promise it refuses, with ErrCrossBackend, before anything is asked or written: one
// append (guards included), one feed, or one creation of streams over several
// backends. A feed of all categories is one of those. A projector over several
// backends runs a feed for each by itself, in whose name [Store.Split] is. An append
// touches one backend and its Token is that backend's: the incarnation tells which.
//
// The table is fixed. Where a category lies is decided when it is created; binding it
// to another backend later moves nothing and leaves it behind: CreateCategory refuses
// a name that another backend holds, and Examine tells of such ones.
//
// All methods may be called at once from any number of goroutines.
type Route struct {
	backends []Backend
	table    map[Category]Backend
	fallback Backend // without a Log: none
	leases   Backend
	closed   atomic.Bool
}

// NewRoute returns a Route over backends, which are its own from then on: Close closes
// each. A mistake in the table is ErrInvalid, and leaves them as they are.
func NewRoute(backends []Backend, o *RouteOptions) (*Route, error) {
	if o == nil {
		o = &RouteOptions{}
	}
	if err := checkBackends(backends); err != nil {
		return nil, inOp("route", "", err)
	}
	r := &Route{backends: slices.Clone(backends), table: map[Category]Backend{}}
	if len(backends) == 1 {
		r.fallback = backends[0]
	}
	r.leases = backends[0]
	for _, named := range []struct {
		what, name string
		to         []*Backend
	}{{"default backend", o.Default, []*Backend{&r.fallback, &r.leases}}, {"backend of leases", o.Leases, []*Backend{&r.leases}}} {
		if named.name == "" {
			continue
		}
		b, err := r.named(named.what, named.name)
		if err != nil {
			return nil, err
		}
		for _, to := range named.to {
			*to = b
		}
	}
	for _, c := range slices.Sorted(maps.Keys(o.Table)) { // sorted: the same error every time
		b, err := r.named("backend of category "+quoteOdd(string(c)), o.Table[c])
		if err == nil {
			err = inOp("route", "", c.check())
		}
		if err != nil {
			return nil, err
		}
		r.table[c] = b
	}
	if len(r.table) == 0 && r.fallback.Log == nil {
		return nil, inOp("route", "", invalid("route", "a table or a default backend", "neither, so that no category could exist"))
	}
	return r, nil
}

// checkBackends refuses what cannot be told apart or closed once.
func checkBackends(backends []Backend) error {
	if len(backends) == 0 {
		return invalid("route", "at least one backend", "none")
	}
	for i, b := range backends {
		if err := checkBackend(b); err != nil {
			return err
		}
		for _, before := range backends[:i] {
			if before.Name == b.Name {
				return invalid("backends", "every name once", b.Name+" twice")
			}
			if reflect.TypeOf(b.Log).Comparable() && before.Log == b.Log {
				return invalid("backends", "every log once", "one log as "+before.Name+" and as "+b.Name)
			}
		}
	}
	return nil
}

func checkBackend(b Backend) error {
	if err := checkText("backend", b.Name, MaxBackendBytes); err != nil {
		return err
	}
	for i, r := range b.Name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r) {
			return invalidAt("backend", b.Name, i, r, "letters, digits and - _ .")
		}
	}
	if b.Log == nil {
		return invalid("backend "+b.Name, "a log", "nil")
	}
	if _, ok := b.Log.(Router); ok {
		return invalid("backend "+b.Name, "a log of one store", "a route: name its backends in this one")
	}
	return nil
}

func (r *Route) named(what, name string) (Backend, error) {
	for _, b := range r.backends {
		if b.Name == name {
			return b, nil
		}
	}
	return Backend{}, inOp("route", "", invalid(what, "one of "+r.names(), fmt.Sprintf("%q", clip(name))))
}

func (r *Route) names() string {
	var all []string
	for _, b := range r.backends {
		all = append(all, b.Name)
	}
	return strings.Join(all, ", ")
}

// Backends returns the backends, in the order in which they were given.
func (r *Route) Backends() []Backend { return slices.Clone(r.backends) }

// BackendOf returns the backend that a category is bound to, ErrNoSuchCategory if there
// is none. It asks no backend: the category may still have to be created.
func (r *Route) BackendOf(c Category) (Backend, error) {
	b, ok := r.table[c]
	if !ok {
		b = r.fallback
	}
	if b.Log == nil {
		return b, &Error{Kind: ErrNoSuchCategory, Op: "route", Category: c, Wanted: "a backend for category " + quoteOdd(string(c)),
			Found: "no entry in the route's table and no default backend",
			Hint:  "bind the category to one of " + r.names() + " in the route's table, or give the route a default backend"}
	}
	return b, nil
}

// open refuses a call after Close.
func (r *Route) open(op string, s Stream) error {
	if r.closed.Load() {
		return &Error{Kind: ErrClosed, Op: op, Stream: s}
	}
	return nil
}

// of returns the backend of a category, for an operation on it or on its stream s.
func (r *Route) of(op string, c Category, s Stream) (Backend, error) {
	if err := r.open(op, s); err != nil {
		return Backend{}, err
	}
	b, err := r.BackendOf(c)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Op, e.Stream = op, s
	}
	return b, err
}

// one returns the backend of all categories, which lie in one or are refused. name is
// what stands for category i in the refusal.
func (r *Route) one(op string, n int, of func(i int) (c Category, s Stream), name func(i int) string, hint string) (Backend, error) {
	var first Backend
	cross := false
	for i := range n {
		c, s := of(i)
		b, err := r.of(op, c, s)
		if err != nil {
			return b, err
		}
		if i == 0 {
			first = b
		}
		cross = cross || b.Name != first.Name
	}
	if !cross {
		return first, nil
	}
	var lie []lying
	for i := range n {
		c, _ := of(i)
		b, _ := r.BackendOf(c)
		lie = lieIn(lie, b.Name, name(i))
	}
	c, s := of(0)
	return first, &Error{Kind: ErrCrossBackend, Op: op, Category: c, Stream: s, Wanted: "all of it in one backend", Found: lyingString(lie), Hint: hint}
}

// lying is what lies in one backend.
type lying struct {
	backend string
	names   []string
}

func lieIn(all []lying, backend, name string) []lying {
	i := slices.IndexFunc(all, func(l lying) bool { return l.backend == backend })
	if i < 0 {
		return append(all, lying{backend, []string{name}})
	}
	if !slices.Contains(all[i].names, name) {
		all[i].names = append(all[i].names, name)
	}
	return all
}

func lyingString(all []lying) string {
	const most = 5 // names of each backend
	var parts []string
	for _, l := range all {
		more := ""
		if n := len(l.names) - most; n > 0 {
			l.names, more = l.names[:most], fmt.Sprintf(" and %d more", n)
		}
		parts = append(parts, strings.Join(l.names, ", ")+more+" in backend "+l.backend)
	}
	return strings.Join(parts, "; ")
}

// Append appends to the backend of all batches and guards; over several it is
// ErrCrossBackend and nothing is written.
func (r *Route) Append(ctx context.Context, a Append) (Appended, error) {
	if err := a.CheckShape(); err != nil {
		return Appended{}, err
	}
	batches := len(a.Batches)
	at := func(i int) (Category, Stream) {
		if i < batches {
			return a.Batches[i].Stream.Category(), a.Batches[i].Stream
		}
		g := a.Guards[i-batches].Stream
		return g.Category(), g
	}
	name := func(i int) string {
		_, s := at(i)
		if i < batches {
			return quoteOdd(string(s))
		}
		return "guard " + quoteOdd(string(s))
	}
	b, err := r.one("append", batches+len(a.Guards), at, name,
		"nothing was written: append to each backend on its own, or bind categories that must change together to one backend")
	if err != nil {
		return Appended{}, err
	}
	return b.Log.Append(ctx, a)
}

// ReadFrom reads from the stream's backend.
func (r *Route) ReadFrom(ctx context.Context, s Stream, after Seqno, limit int) (Page, error) {
	b, err := r.of("read", s.Category(), s)
	if err != nil {
		return Page{}, err
	}
	return b.Log.ReadFrom(ctx, s, after, limit)
}

// ReadBackward reads from the stream's backend, by forward pages if that knows no
// other way.
func (r *Route) ReadBackward(ctx context.Context, s Stream, before Seqno, limit int) (Page, error) {
	b, err := r.of("read backward", s.Category(), s)
	if err != nil {
		return Page{}, err
	}
	if l, ok := b.Log.(BackwardReader); ok {
		return l.ReadBackward(ctx, s, before, limit)
	}
	return readBackward(ctx, b.Log, s, before, limit)
}

// ReadFeed reads the feed of the backend of all the filter's categories; over several
// it is ErrCrossBackend, and so is a filter without categories where there are several.
func (r *Route) ReadFeed(ctx context.Context, after Position, f Filter, limit int) (FeedPage, error) {
	b, err := r.feedOf(f.Categories)
	if err != nil {
		return FeedPage{}, err
	}
	return b.Log.ReadFeed(ctx, after, f, limit)
}

func (r *Route) feedOf(categories []Category) (Backend, error) {
	const op, hint = "read feed", "positions of several backends have no order: name categories of one backend; a projector runs a feed for each backend by itself"
	if len(categories) > 0 {
		return r.one(op, len(categories), func(i int) (Category, Stream) { return categories[i], "" },
			func(i int) string { return quoteOdd(string(categories[i])) }, hint)
	}
	if err := r.open(op, ""); err != nil {
		return Backend{}, err
	}
	if len(r.backends) > 1 {
		return Backend{}, &Error{Kind: ErrCrossBackend, Op: op, Wanted: "a feed of all categories",
			Found: "categories in several backends: " + r.names(), Hint: hint}
	}
	return r.backends[0], nil
}

// Fence fences a stream in its backend.
func (r *Route) Fence(ctx context.Context, s Stream, holder UUID, at Epoch) (Head, error) {
	b, err := r.of("fence", s.Category(), s)
	if err != nil {
		return Head{}, err
	}
	return b.Log.Fence(ctx, s, holder, at)
}

// Head asks the stream's backend.
func (r *Route) Head(ctx context.Context, s Stream) (Head, error) {
	b, err := r.of("head", s.Category(), s)
	if err != nil {
		return Head{}, err
	}
	return b.Log.Head(ctx, s)
}

// Trim trims a stream in its backend.
func (r *Route) Trim(ctx context.Context, s Stream, through Seqno, dry bool) (TrimResult, error) {
	b, err := r.of("trim", s.Category(), s)
	if err != nil {
		return TrimResult{}, err
	}
	return b.Log.Trim(ctx, s, through, dry)
}

// Close closes every backend once, also when one of them fails; again it does nothing.
func (r *Route) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, b := range r.backends {
		if err := b.Log.Close(); err != nil {
			errs = append(errs, fmt.Errorf("backend %s: %w", b.Name, err))
		}
	}
	return errors.Join(errs...)
}
