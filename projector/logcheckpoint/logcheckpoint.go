// Package logcheckpoint keeps the checkpoints of projectors in an event store itself,
// for deployments that have no PostgreSQL beside it: a store in files and a process.
//
//	c, err := logcheckpoint.New(ctx, store, nil)
//	h := projector.Sink(c, func(…) error { … })
//
// The effects live elsewhere, so they come at least once; see [projector.Sink]. The
// store may be another one than that which is projected.
//
// # Streams
//
// All lie in one category, by default "checkpoint", which is made with TrimFreely:
//
//	lane/projector/version/lane      an entry for each step: the checkpoint
//	parked/projector/version/lane    an entry for each change: the lane's parked keys
//	skipped/projector/version        an entry for each entry that was given up
//	versions/projector               an entry for each Update: the versions of the projector
//	projectors                       an entry for each new projector: the names of all
//	loose                            an entry for each change: the lanes that were stepped without being registered
//
// What is true is the last entry of a stream. Those before it are trimmed but for some,
// which prove an append whose answer was lost. Skipped entries are kept as long as the
// version. The entries have positions like any others, but no projector sees them unless
// it follows this category, which none should.
//
// # A step
//
// A step is one append to the lane's stream, behind the entry that holds the checkpoint
// it comes from (After) and with the next epoch (Claim): of several only one can go
// through. What it parks goes into the same append. It costs one round trip if the last
// entry is known from the step before, else two more.
//
// # An Update
//
// Update fences the streams of all lanes it is to see, which refuses every step that was
// read before, and keeps new ones waiting for at most two seconds; reads; asks its function; and
// writes all that changed in one atomic append, guarded by what did not. If it dies in
// between nothing has changed and the lanes go on after the two seconds.
package logcheckpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Options of New; nil and the zero value are the defaults.
type Options struct {
	// Category of the streams. Empty: DefaultCategory. Deployments that share a store and
	// have projectors of the same names need one each.
	Category eventstore.Category
	// Existing does not create the category: for who reads beside the owner of a store in
	// files. Where it does not exist, everything is ErrNoSuchCategory.
	Existing bool
}

// Checkpoints implements projector.Control in an event store. It may be used from
// several goroutines at once, and in any number of processes.
type Checkpoints struct {
	store    *eventstore.Store
	category eventstore.Category
	holder   eventstore.UUID
	updating chan struct{} // holds one while versions are frozen

	mu    sync.Mutex
	known map[projector.Key]place // the last entry of lanes, as last seen here; only to save a look
}

// place is the last entry of a lane's stream.
type place struct {
	epoch  eventstore.Epoch // of the stream
	frozen bool             // an Update holds it
	mark   eventstore.Mark
	kept   projector.Checkpoint
}

// New returns the checkpoints in a store. It creates the category unless it is there;
// ErrInvalid if it is there with another spec.
func New(ctx context.Context, store *eventstore.Store, o *Options) (*Checkpoints, error) {
	c := &Checkpoints{store: store, category: DefaultCategory, holder: eventstore.NewUUID(), updating: make(chan struct{}, 1), known: map[projector.Key]place{}}
	if o != nil && o.Category != "" {
		c.category = o.Category
	}
	if store == nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: opSave, Wanted: "a store", Found: "nil"}
	}
	if o != nil && o.Existing {
		return c, nil
	}
	return c, store.CreateCategory(ctx, eventstore.CategorySpec{Name: c.category, TrimFreely: true})
}

const (
	opLoad   = "load checkpoint"
	opSave   = "save checkpoint"
	opUpdate = "update versions"
)

func (c *Checkpoints) stream(kind string, key projector.Key) eventstore.Stream {
	s := string(c.category) + "-" + kind + "/" + key.Projector + "/" + fmt.Sprint(key.Version)
	if kind != kindSkipped {
		s += "/" + fmt.Sprint(key.Lane)
	}
	return eventstore.Stream(s)
}

// Kinds of streams.
const (
	kindLane    = "lane"
	kindParked  = "parked"
	kindSkipped = "skipped"
)

// Load returns the checkpoint of a key, the zero Checkpoint if there is none.
func (c *Checkpoints) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	at, err := c.look(ctx, key)
	return at.kept, err
}

// look reads the last entry of a lane's stream.
func (c *Checkpoints) look(ctx context.Context, key projector.Key) (place, error) {
	l, err := c.last(ctx, c.stream(kindLane, key))
	if err != nil {
		return place{}, err
	}
	return c.placed(key, l)
}

// lookThawed is look when no Update holds the lane any more, or has for too long.
func (c *Checkpoints) lookThawed(ctx context.Context, key projector.Key) (place, error) {
	at, err := c.look(ctx, key)
	if err != nil || !at.frozen {
		return at, err
	}
	if err := c.thaw(ctx, c.stream(kindLane, key)); err != nil {
		return at, err
	}
	return c.look(ctx, key)
}

func (c *Checkpoints) placed(key projector.Key, l lastEntry) (at place, err error) {
	at = place{epoch: l.head.Epoch, frozen: frozen(l.head), mark: l.head.Last}
	if at.kept, err = decodeCheckpoint(l.entry); err == nil {
		c.remember(key, at)
	}
	return at, err
}

func (c *Checkpoints) remember(key projector.Key, at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxKnown {
		clear(c.known)
	}
	c.known[key] = at
}

func (c *Checkpoints) forget(key projector.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

func (c *Checkpoints) remembered(key projector.Key) (place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.known[key]
	return at, ok
}

// Save does a step without its batch, or answers ErrFenced. After ErrUnknown loading the
// checkpoint tells what became of it.
func (c *Checkpoints) Save(ctx context.Context, s projector.Step) (err error) {
	for n := range maxTries {
		at, ok := c.remembered(s.Key)
		if !ok || at.frozen || !at.kept.Same(s.From) {
			if at, err = c.lookThawed(ctx, s.Key); err != nil {
				return err
			}
		}
		if !at.kept.Same(s.From) {
			return projector.FencedError(s.Key, s.From, at.kept)
		}
		a, err := c.step(ctx, s, at)
		if err != nil {
			return err
		}
		done, err := c.append(ctx, a)
		if err == nil {
			c.saved(ctx, s, a, done)
			return nil
		}
		c.forget(s.Key)
		if !moved(err) {
			return err
		}
		if err := pause(ctx, n); err != nil {
			return err
		}
	}
	return overloaded(opSave, "others kept changing the lane; nothing was written")
}

// step makes the append of a step that comes from a place.
func (c *Checkpoints) step(ctx context.Context, s projector.Step, at place) (eventstore.Append, error) {
	var a eventstore.Append
	c.add(&a, c.stream(kindLane, s.Key), at.epoch, at.mark, checkpointEvent(s.To))
	if s.From.Epoch == 0 || len(s.Park)+len(s.Unpark) > 0 {
		lanes, err := c.lanes(ctx, s, &a)
		if err != nil {
			return a, err
		}
		if err := c.repark(ctx, s, lanes, &a); err != nil {
			return a, err
		}
	}
	if len(s.Skipped) > 0 {
		stream := c.stream(kindSkipped, s.Key)
		h, err := c.store.Head(ctx, stream)
		if err != nil {
			return a, err
		}
		events := make([]eventstore.Event, len(s.Skipped))
		for i, k := range s.Skipped {
			events[i] = skippedEvent(since(k))
		}
		c.add(&a, stream, h.Epoch, h.Last, events...)
	}
	return a, nil
}

// lanes returns how many lanes the version of a step has, 1 if it is not registered, and
// guards the step against that being changed. It refuses the first step of a lane that is
// not there.
func (c *Checkpoints) lanes(ctx context.Context, s projector.Step, a *eventstore.Append) (int, error) {
	stream := c.versionsStream(s.Key.Name())
	l, err := c.last(ctx, stream)
	if err != nil {
		return 0, err
	}
	all, err := decodeVersions(l.entry)
	if err != nil {
		return 0, err
	}
	a.Guards = append(a.Guards, eventstore.Guard{Stream: stream, At: l.head.Last})
	i := slices.IndexFunc(all, func(v projector.Version) bool {
		return v.Key.Projector == s.Key.Projector && v.Key.Version == s.Key.Version
	})
	switch {
	case i < 0:
		return 1, c.loose(ctx, s, a)
	case s.Key.Lane >= len(all[i].Lanes):
		return 0, projector.FencedError(s.Key, s.From, projector.Checkpoint{})
	}
	return len(all[i].Lanes), nil
}

// loose notes with a step the lane of a version that is not registered, so that Update
// finds it.
func (c *Checkpoints) loose(ctx context.Context, s projector.Step, a *eventstore.Append) error {
	if s.Key.Lane < 0 || s.Key.Lane >= projector.MaxLanes {
		return projector.FencedError(s.Key, s.From, projector.Checkpoint{})
	}
	l, err := c.last(ctx, c.looseStream())
	if err != nil {
		return err
	}
	keys, err := decodeLoose(l.entry)
	if err == nil && !slices.Contains(keys, s.Key) {
		c.add(a, c.looseStream(), l.head.Epoch, l.head.Last, looseEvent(append(keys, s.Key)))
	}
	return err
}

// repark adds what becomes of the parked keys to the append of a step.
func (c *Checkpoints) repark(ctx context.Context, s projector.Step, lanes int, a *eventstore.Append) error {
	touched := map[int]bool{}
	for _, k := range s.Park {
		touched[laneOf(k.StreamKey, lanes)] = true
	}
	for _, key := range s.Unpark {
		touched[laneOf(key, lanes)] = true
	}
	for _, lane := range slices.Sorted(maps.Keys(touched)) {
		key := s.Key
		key.Lane = lane
		l, err := c.last(ctx, c.stream(kindParked, key))
		if err != nil {
			return err
		}
		parked, err := decodeParked(l.entry)
		if err != nil {
			return err
		}
		for _, k := range s.Park {
			if laneOf(k.StreamKey, lanes) == lane {
				parked = append(without(parked, k.StreamKey), since(k))
			}
		}
		for _, name := range s.Unpark {
			parked = without(parked, name)
		}
		c.add(a, c.stream(kindParked, key), l.head.Epoch, l.head.Last, parkedEvent(byKey(parked)))
	}
	return nil
}

// laneOf returns the lane of a key: the slot of a stream is that of its key.
func laneOf(key string, lanes int) int {
	return projector.LaneOf(eventstore.Stream("-"+key).Slot(), lanes)
}

func without(parked []projector.Parked, key string) []projector.Parked {
	return slices.DeleteFunc(parked, func(k projector.Parked) bool { return k.StreamKey == key })
}

func since(k projector.Parked) projector.Parked {
	if k.Since.IsZero() {
		k.Since = time.Now().UTC()
	}
	return k
}

// saved notes where a step has come to, and trims what is behind now and then.
func (c *Checkpoints) saved(ctx context.Context, s projector.Step, a eventstore.Append, done eventstore.Appended) {
	c.remember(s.Key, place{epoch: a.Batches[0].Epoch, mark: done.Receipts[0].Last, kept: s.To})
	c.trim(ctx, done)
}

// moved says if an append was refused because its stream is not where it was.
func moved(err error) bool {
	for _, kind := range []error{eventstore.ErrFenced, eventstore.ErrAlreadyWritten, eventstore.ErrGap, eventstore.ErrDiverged, eventstore.ErrGuard} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func overloaded(op, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: op, Wanted: fmt.Sprintf("to get through in %d tries", maxTries), Found: found, Hint: "try again"}
}
