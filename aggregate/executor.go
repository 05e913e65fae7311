// Executor: what users hold. Making one, and its calls.

package aggregate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
)

// Executor executes commands of one Type on the streams of its category. All
// methods may be called from several goroutines at once: commands on one stream go
// one after another, in the order in which they came; different streams go side by
// side. Any number of Executors, in any processes, may work on the same streams.
type Executor[S, C, E any] struct {
	store       *eventstore.Store
	typ         Type[S, C, E]
	holder      eventstore.UUID                                                       // who this Executor is to the log
	appends     func(context.Context, eventstore.Append) (eventstore.Appended, error) // nil: the store's
	retries     int
	remembered  int
	fingerprint string // of snapshots; "" if State cannot go into one
	unkept      error  // why it cannot
	tracer      trace.Tracer
	locks       keyLocks
	cache       cache[S]
}

// NewExecutor returns an Executor of a type. It creates the type's category, shared
// and trimmed behind snapshots only, unless it is there; eventstore.ErrInvalid if it
// is there with another spec. Everything wrong with the type is told at once.
func NewExecutor[S, C, E any](ctx context.Context, store *eventstore.Store, t Type[S, C, E], o *Options) (*Executor[S, C, E], error) {
	if o == nil {
		o = &Options{}
	}
	x := &Executor[S, C, E]{store: store, typ: t, holder: eventstore.NewUUID(),
		appends: o.Append, retries: o.Retries, remembered: t.Snapshots.remembered(), cache: cache[S]{limit: o.CacheBytes}}
	if o.CacheBytes == 0 {
		x.cache.limit = eventstore.DefaultCacheBytes
	}
	if o.Retries == 0 {
		x.retries = eventstore.DefaultRetries
	}
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("wattle: executor of category %q: %w", t.Category, err)
	}
	x.tracer = store.TracerProvider().Tracer(eventstore.ScopeName)
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: t.Category}); err != nil {
		return nil, err
	}
	return x, nil
}

// check gathers everything that is wrong, and settles whether States can be kept.
func (x *Executor[S, C, E]) check() error {
	_, category := eventstore.ParseCategory(string(x.typ.Category))
	errs := []error{category, x.typ.Check()}
	if x.store == nil {
		errs = append(errs, errors.New("there is no store (nil)"))
	}
	if x.retries < 0 {
		errs = append(errs, fmt.Errorf("options: wanted Retries of at least 0, found %d", x.retries))
	}
	x.fingerprint, x.unkept = fingerprint(reflect.TypeFor[S](), x.typ.Snapshots.Version)
	if x.unkept != nil {
		x.fingerprint = ""
		if x.typ.Snapshots.Every > 0 {
			errs = append(errs, x.unkept)
		}
	}
	return errors.Join(errs...)
}

// Holder returns the UUID under which this Executor claims streams.
func (x *Executor[S, C, E]) Holder() eventstore.UUID { return x.holder }

// Result is what became of a command on one stream. State and Events may be shared
// with the cache: treat what they refer to as read-only.
type Result[S, E any] struct {
	Stream eventstore.Stream
	// Mark is that of the command's last event; of the stream's last entry if the
	// command wrote nothing there.
	Mark eventstore.Mark
	// Events are those the command wrote there, as they are read back. Nil if it
	// wrote none or, of a Replayed command, if they have been trimmed.
	Events []E
	// State is that of the stream after the call. Of a Replayed command that is the
	// present one, not the one right behind its events.
	State S
	// Token is passed by a projection that has seen the command's events, those on
	// other streams included. Zero if the command wrote nothing.
	Token eventstore.Token
	// Replayed says that the command was in the history already.
	Replayed bool
	// Retries is how often the command was decided again.
	Retries int
}

// Execute has a command decided on the stream of a key and appends the events; see
// the package comment for what becomes of it and for every error. It may take as
// long as ctx lets it.
func (x *Executor[S, C, E]) Execute(ctx context.Context, key string, command C, options ...CallOption) (Result[S, E], error) {
	decide := func(_ context.Context, r *run[S, C, E]) ([][]E, error) {
		events, err := x.typ.Decider.Decide(r.known[0].state, command)
		return [][]E{events}, err
	}
	if x.typ.Remote != nil {
		decide = func(ctx context.Context, r *run[S, C, E]) ([][]E, error) { return r.ask(ctx, command) }
	}
	results, err := x.execute(ctx, []string{key}, decide, options)
	if err != nil {
		return Result[S, E]{}, err
	}
	return results[0], nil
}

// ExecuteMulti has one command decided over the streams of several keys (1 to
// MaxKeys, each once), atomically: decide gets their states by key and answers the
// events for each; all are appended or none. Streams for which it answers none are
// guarded: the append goes through only if they are still at the entry that was
// folded. A key that was not asked for is refused with eventstore.ErrInvalid.
//
// Everything said of Execute holds; decide is as pure as Decider.Decide and may be
// called several times. Both kinds of command share the command IDs of a stream.
func (x *Executor[S, C, E]) ExecuteMulti(ctx context.Context, keys []string, decide func(states map[string]S) (map[string][]E, error), options ...CallOption) (map[string]Result[S, E], error) {
	byIndex := func(_ context.Context, r *run[S, C, E]) ([][]E, error) {
		byKey := make(map[string]S, len(keys))
		for i, k := range keys {
			byKey[k] = r.known[i].state
		}
		decided, err := decide(byKey)
		if err != nil {
			return nil, err
		}
		return inOrder(keys, decided)
	}
	results, err := x.execute(ctx, keys, byIndex, options)
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]Result[S, E], len(keys))
	for i, k := range keys {
		byKey[k] = results[i]
	}
	return byKey, nil
}

func inOrder[E any](keys []string, decided map[string][]E) ([][]E, error) {
	events := make([][]E, len(keys))
	for k, e := range decided {
		i := slices.Index(keys, k)
		if i < 0 {
			return nil, invalid("", "events", "for the command's keys only", fmt.Sprintf("%d for key %q", len(e), k))
		}
		events[i] = e
	}
	return events, nil
}

// Load returns the present state of a key's stream and the mark of its last entry,
// read from the log; the initial state and the zero Mark if there are no entries.
func (x *Executor[S, C, E]) Load(ctx context.Context, key string) (S, eventstore.Mark, error) {
	return x.loadUntil(ctx, key, nil, nil)
}

// LoadAt returns the state as of a seqno, 0 being the initial one. It is
// eventstore.ErrGap if the stream does not reach that far, ErrTrimmed if entries
// before it are gone and no snapshot stands at or below it.
func (x *Executor[S, C, E]) LoadAt(ctx context.Context, key string, at eventstore.Seqno) (S, eventstore.Mark, error) {
	s, m, err := x.loadUntil(ctx, key,
		func(sn *eventstore.Snapshot) bool { return sn.At.Seqno <= at },
		func(e *eventstore.Entry) bool { return e.Seqno > at })
	if err == nil && m.Seqno < at {
		stream, _ := eventstore.NewStream(x.typ.Category, key)
		return s, m, &eventstore.Error{Kind: eventstore.ErrGap, Op: "load", Stream: stream,
			Wanted: "the state as of entry " + at.String(), Found: "head " + m.String()}
	}
	return s, m, err
}

// LoadAsOf returns the state as of a moment on the store's clock: with every entry
// whose Time is not after it. ErrTrimmed as LoadAt.
func (x *Executor[S, C, E]) LoadAsOf(ctx context.Context, key string, at time.Time) (S, eventstore.Mark, error) {
	return x.loadUntil(ctx, key,
		// It was kept after the entry at its mark was written.
		func(sn *eventstore.Snapshot) bool { return !sn.Time.After(at) },
		// Times never fall along a stream, so nothing that counts stands behind.
		func(e *eventstore.Entry) bool { return e.Time.After(at) })
}

// loadUntil folds a stream from a snapshot that fits (nil: any) up to the first
// entry that is beyond (nil: none is).
func (x *Executor[S, C, E]) loadUntil(ctx context.Context, key string, fits func(*eventstore.Snapshot) bool, beyond func(*eventstore.Entry) bool) (state S, m eventstore.Mark, err error) {
	stream, err := eventstore.NewStream(x.typ.Category, key)
	if err != nil {
		return state, m, err
	}
	h, err := again(func() (*history[S], error) {
		l, err := x.store.Load(ctx, stream, x.fingerprint)
		if err == nil && l.Snapshot != nil && fits != nil && !fits(l.Snapshot) {
			l, err = x.store.Load(ctx, stream, "")
		}
		if err != nil {
			return nil, err
		}
		h, _, err := x.replay(ctx, stream, &l, 0, beyond)
		return h, err
	})
	if err != nil {
		return state, m, err
	}
	return h.state, h.last, nil
}
