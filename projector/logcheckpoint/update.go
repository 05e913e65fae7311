// Update: all that changes in one append, guarded by what does not.

package logcheckpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Update changes the versions of a projector at once.
func (c *Checkpoints) Update(ctx context.Context, of string, f func([]projector.Version) ([]projector.Version, error)) error {
	for n := range maxTries {
		err := c.frozen(ctx, of, func(m moment, written func(eventstore.Stream)) error {
			return c.update(ctx, of, m, f, written)
		})
		if r, ok := err.(*refusedError); ok {
			return r.err
		}
		if !moved(err) {
			return err
		}
		if err := pause(ctx, n); err != nil {
			return err
		}
	}
	return overloaded(opUpdate, "others kept changing the versions; nothing was written")
}

// refusedError keeps an error of a caller's function from being taken for the log's.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

// frozen calls f with the versions of a projector while no step of their lanes, and no
// other Update, goes through, and lets them go on. written is to be called with
// the streams that f has written, which go on by that.
func (c *Checkpoints) frozen(ctx context.Context, of string, f func(m moment, written func(eventstore.Stream)) error) error {
	select { // within this process one waits for the other without asking the store
	case c.updating <- struct{}{}:
		defer func() { <-c.updating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	freezer := newFreezer()
	held := map[eventstore.Stream]bool{}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		for s := range held {
			if err := c.release(ctx, s, freezer); err != nil {
				c.store.Logger().WarnContext(ctx, "stream not released; its lane waits a while", "stream", s, "error", err)
			}
		}
	}()
	m, err := c.read(ctx, of, func(s eventstore.Stream) error {
		if err := c.thaw(ctx, s); err != nil {
			return err
		}
		held[s] = true
		_, err := c.store.Fence(ctx, s, freezer)
		return err
	})
	if err != nil {
		return err
	}
	return f(m, func(s eventstore.Stream) { delete(held, s) })
}

// release lets a stream go on that is still frozen by freezer.
func (c *Checkpoints) release(ctx context.Context, s eventstore.Stream, freezer eventstore.UUID) error {
	h, err := c.store.Head(ctx, s)
	if err == nil && h.Holder == freezer {
		_, err = c.store.FenceAt(ctx, s, h.Epoch+1, c.holder)
	}
	if errors.Is(err, eventstore.ErrFenced) { // another Update has it now
		return nil
	}
	return err
}

// update asks f and writes what it has changed.
func (c *Checkpoints) update(ctx context.Context, of string, m moment, f func([]projector.Version) ([]projector.Version, error), written func(eventstore.Stream)) error {
	after, err := f(clone(m.all))
	if err == nil {
		err = projector.CheckVersions(of, after)
	}
	if err != nil {
		return &refusedError{err}
	}
	a, err := c.difference(ctx, m, clone(after))
	if err != nil || len(a.Batches) == 0 { // there was nothing, and nothing has come
		return err
	}
	done, err := c.append(ctx, a)
	if err != nil {
		return err
	}
	for i := range a.Batches {
		written(a.Batches[i].Stream)
	}
	c.trim(ctx, done)
	return nil
}

func clone(all []projector.Version) []projector.Version {
	all = slices.Clone(all)
	for i := range all {
		all[i] = all[i].Clone()
	}
	return all
}

// difference makes the append that leads from what was read to after, guarded by what
// stays.
func (c *Checkpoints) difference(ctx context.Context, m moment, after []projector.Version) (eventstore.Append, error) {
	for i := range after {
		if after[i].Created.IsZero() {
			after[i].Created = time.Now().UTC()
		}
	}
	slices.SortFunc(after, byVersion)
	changes, err := c.names(ctx, m, after)
	if err != nil {
		return eventstore.Append{}, err
	}
	old, now := c.lanesOf(m.all), c.lanesOf(after)
	loose := change{stream: c.looseStream()}
	if len(m.adopted) > 0 {
		e := looseEvent(m.loose)
		loose.event = &e
	}
	changes = append(changes, loose)
	for key := range old {
		if m.adopted[projector.Key{Projector: key.Projector, Version: key.Version}] {
			old[key] = nil // it is written anew: its parked keys lie in the first lane, whatever lanes there are
		}
	}
	for key := range union(old, now) {
		changes = append(changes, c.changes(key, old[key], now[key])...)
	}
	changes = append(changes, c.clearSkipped(m.all, after)...)
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.stream, b.stream) })
	return c.appendOf(ctx, m, changes)
}

// appendOf makes the append of changes.
func (c *Checkpoints) appendOf(ctx context.Context, m moment, changes []change) (a eventstore.Append, err error) {
	for _, e := range changes {
		h, read := m.heads[e.stream]
		if !read {
			if h, err = c.store.Head(ctx, e.stream); err != nil {
				return a, err
			}
		}
		switch {
		case e.event != nil && (!e.empty || h.Last.Seqno > 0):
			c.add(&a, e.stream, h.Epoch, h.Last, *e.event)
		case !e.empty || read:
			a.Guards = append(a.Guards, eventstore.Guard{Stream: e.stream, At: h.Last})
		}
	}
	if n := max(len(a.Batches), len(a.Guards)); n > MaxUpdateStreams {
		return a, &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: opUpdate, Wanted: fmt.Sprintf("at most %d streams in an update", MaxUpdateStreams),
			Found: fmt.Sprint(n), Hint: "use fewer lanes"}
	}
	return a, nil
}

// names are the changes of what versions each projector has, and of the list of
// projectors if there is a new one.
func (c *Checkpoints) names(ctx context.Context, m moment, after []projector.Version) (changes []change, err error) {
	of := map[string][]projector.Version{}
	for _, name := range m.names {
		of[name] = nil
	}
	fresh := false
	for _, v := range after {
		base := v.Key.Name()
		fresh = fresh || m.heads[c.versionsStream(base)].Last.Seqno == 0
		of[base] = append(of[base], v)
	}
	for base, versions := range of {
		e := versionsEvent(versions)
		changes = append(changes, change{stream: c.versionsStream(base), event: &e, empty: len(versions) == 0})
	}
	return c.listed(ctx, m, slices.Collect(maps.Keys(of)), fresh, changes)
}

// listed adds what becomes of the list of projectors: new ones are added. An Update of all
// guards it, so that no new one goes unseen.
func (c *Checkpoints) listed(ctx context.Context, m moment, bases []string, fresh bool, changes []change) ([]change, error) {
	list, names := change{stream: c.namesStream()}, m.names
	_, all := m.heads[list.stream]
	switch {
	case !fresh && all:
		return append(changes, list), nil
	case !fresh:
		return changes, nil
	case !all:
		l, err := c.readFrozen(ctx, &m, list.stream, nil)
		if err != nil {
			return nil, err
		}
		if names, err = decodeNames(l.entry); err != nil {
			return nil, err
		}
	}
	names = append(names, bases...)
	slices.Sort(names)
	e := namesEvent(slices.Compact(names))
	list.event = &e
	return append(changes, list), nil
}

// laneState is what one lane keeps.
type laneState struct {
	kept   projector.Checkpoint
	parked []projector.Parked
}

// lanesOf spreads versions over their lanes.
func (c *Checkpoints) lanesOf(all []projector.Version) map[projector.Key]*laneState {
	lanes := map[projector.Key]*laneState{}
	for _, v := range all {
		for i := range v.Lanes {
			lanes[projector.Key{Projector: v.Key.Projector, Version: v.Key.Version, Lane: i}] = &laneState{kept: v.Lanes[i]}
		}
		for _, k := range v.Parked {
			key := projector.Key{Projector: v.Key.Projector, Version: v.Key.Version, Lane: laneOf(k.StreamKey, len(v.Lanes))}
			lanes[key].parked = append(lanes[key].parked, since(k))
		}
	}
	return lanes
}

func union(a, b map[projector.Key]*laneState) map[projector.Key]bool {
	keys := map[projector.Key]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	return keys
}

// change is what becomes of a stream; no event: it must stay as it is.
type change struct {
	stream eventstore.Stream
	event  *eventstore.Event
	empty  bool // the event says nothing that no entry would not say
}

func (c *Checkpoints) changes(key projector.Key, old, now *laneState) []change {
	if now == nil {
		now = &laneState{} // an entry of nothing: streams are not removed
	}
	lane, parked := change{stream: c.stream(kindLane, key)}, change{stream: c.stream(kindParked, key)}
	// What a removed version has left is compared too: a new one of its name begins anew.
	if old == nil || !reflect.DeepEqual(old.kept, now.kept) {
		e := checkpointEvent(now.kept)
		lane.event = &e
	}
	if old == nil || len(old.parked)+len(now.parked) > 0 && !reflect.DeepEqual(byKey(old.parked), byKey(now.parked)) {
		e := parkedEvent(byKey(now.parked))
		parked.event, parked.empty = &e, len(now.parked) == 0
	}
	return []change{lane, parked}
}

// clearSkipped ends the records of versions that are removed.
func (c *Checkpoints) clearSkipped(before, after []projector.Version) (changes []change) {
	for _, v := range before {
		if !slices.ContainsFunc(after, func(o projector.Version) bool { return o.Key == v.Key }) {
			e := versionsEvent(nil)
			changes = append(changes, change{stream: c.stream(kindSkipped, v.Key), event: &e, empty: true})
		}
	}
	return changes
}
