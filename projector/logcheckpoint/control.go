// Control: versions, lanes and parked keys, read as of one moment.

package logcheckpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

var _ projector.Control = (*Checkpoints)(nil)

func (c *Checkpoints) versionsStream(base string) eventstore.Stream {
	return eventstore.Stream(string(c.category) + "-versions/" + base)
}

func (c *Checkpoints) namesStream() eventstore.Stream {
	return eventstore.Stream(string(c.category) + "-projectors")
}

func (c *Checkpoints) looseStream() eventstore.Stream {
	return eventstore.Stream(string(c.category) + "-loose")
}

func (c *Checkpoints) isSkipped(s eventstore.Stream) bool {
	return len(s.Key()) > len(kindSkipped) && s.Key()[:len(kindSkipped)+1] == kindSkipped+"/"
}

// moment is what was read of a projector's versions, or of all, with the heads that it
// was read at.
type moment struct {
	all     []projector.Version
	adopted map[projector.Key]bool // those of all that are not registered
	loose   []projector.Key        // lanes of other projectors that are not registered
	names   []string               // of the projectors it is of
	heads   map[eventstore.Stream]eventstore.Head
}

// read reads the versions of a projector. freeze is called for each stream that changes
// by itself, before it is read; then there are those too that are not registered. nil:
// nothing is frozen.
func (c *Checkpoints) read(ctx context.Context, of string, freeze func(eventstore.Stream) error) (m moment, err error) {
	m = moment{names: []string{of}, adopted: map[projector.Key]bool{}, heads: map[eventstore.Stream]eventstore.Head{}}
	if of == "" {
		l, err := c.last(ctx, c.namesStream())
		if err != nil {
			return m, err
		}
		m.heads[c.namesStream()] = l.head
		if m.names, err = decodeNames(l.entry); err != nil {
			return m, err
		}
	}
	for _, name := range m.names {
		l, err := c.readFrozen(ctx, &m, c.versionsStream(name), freeze)
		if err != nil {
			return m, err
		}
		versions, err := decodeVersions(l.entry)
		if err != nil {
			return m, err
		}
		m.all = append(m.all, versions...)
	}
	if freeze != nil {
		if err := c.adopt(ctx, of, &m); err != nil {
			return m, err
		}
	}
	for i := range m.all {
		if err := c.readVersion(ctx, &m, &m.all[i], freeze); err != nil {
			return m, err
		}
	}
	slices.SortFunc(m.all, byVersion)
	return m, nil
}

// adopt adds the versions that were stepped without being registered, with as many empty
// lanes as they have. Their list is not frozen: who reads it guards what he writes by it.
func (c *Checkpoints) adopt(ctx context.Context, of string, m *moment) error {
	l, err := c.readFrozen(ctx, m, c.looseStream(), nil)
	if err != nil {
		return err
	}
	keys, err := decodeLoose(l.entry)
	kept := map[projector.Key]projector.Checkpoint{}
	for _, key := range keys {
		if !key.Of(of) {
			m.loose = append(m.loose, key)
			continue
		}
		kept[key] = projector.Checkpoint{}
		m.adopted[projector.Key{Projector: key.Projector, Version: key.Version}] = true
	}
	m.all = projector.AdoptVersions(m.all, kept)
	return err
}

func (c *Checkpoints) readFrozen(ctx context.Context, m *moment, s eventstore.Stream, freeze func(eventstore.Stream) error) (l lastEntry, err error) {
	if freeze != nil {
		if err := freeze(s); err != nil {
			return l, err
		}
	}
	if l, err = c.last(ctx, s); err == nil {
		m.heads[s] = l.head
	}
	return l, err
}

func (c *Checkpoints) readVersion(ctx context.Context, m *moment, v *projector.Version, freeze func(eventstore.Stream) error) error {
	for lane := range v.Lanes {
		key := v.Key
		key.Lane = lane
		l, err := c.readFrozen(ctx, m, c.stream(kindLane, key), freeze)
		if err != nil {
			return err
		}
		if v.Lanes[lane], err = decodeCheckpoint(l.entry); err != nil {
			return err
		}
		// What is parked changes with the lane's own stream.
		if l, err = c.readFrozen(ctx, m, c.stream(kindParked, key), nil); err != nil {
			return err
		}
		parked, err := decodeParked(l.entry)
		if err != nil {
			return err
		}
		v.Parked = append(v.Parked, parked...)
	}
	v.Parked = byKey(v.Parked)
	return nil
}

// still says if all that was read stands where it did.
func (c *Checkpoints) still(ctx context.Context, m *moment) (bool, error) {
	for s, before := range m.heads {
		if h, err := c.store.Head(ctx, s); err != nil || h.Last != before.Last {
			return false, err
		}
	}
	return true, nil
}

// Versions returns the versions of a projector, of all if the name is empty, as of one
// moment. Where lanes work faster than they can be read it lets them wait.
func (c *Checkpoints) Versions(ctx context.Context, of string) ([]projector.Version, error) {
	for n := range 4 {
		m, err := c.read(ctx, of, nil)
		if err != nil {
			return nil, err
		}
		if ok, err := c.still(ctx, &m); ok || err != nil {
			return m.all, err
		}
		if err := pause(ctx, n); err != nil {
			return nil, err
		}
	}
	var all []projector.Version
	err := c.frozen(ctx, of, func(m moment, _ func(eventstore.Stream)) error {
		all = slices.DeleteFunc(m.all, func(v projector.Version) bool { return m.adopted[v.Key] })
		return nil
	})
	return all, err
}

// Lane returns one lane of a version.
func (c *Checkpoints) Lane(ctx context.Context, key projector.Key) (projector.Lane, error) {
	for n := range maxTries {
		l, versions, err := c.lane(ctx, key)
		if err != nil {
			return l, err
		}
		h, err := c.store.Head(ctx, c.versionsStream(key.Name()))
		if err != nil || h.Last == versions {
			return l, err
		}
		if err := pause(ctx, n); err != nil {
			return l, err
		}
	}
	return projector.Lane{}, overloaded(opLoad, "versions keep changing")
}

// lane reads a lane, the checkpoint first, and the mark of the versions it was read with.
func (c *Checkpoints) lane(ctx context.Context, key projector.Key) (l projector.Lane, _ eventstore.Mark, err error) {
	versions, err := c.last(ctx, c.versionsStream(key.Name()))
	if err != nil {
		return l, versions.head.Last, err
	}
	all, err := decodeVersions(versions.entry)
	if err != nil {
		return l, versions.head.Last, err
	}
	i := slices.IndexFunc(all, func(v projector.Version) bool {
		return v.Key.Projector == key.Projector && v.Key.Version == key.Version
	})
	if i < 0 || key.Lane < 0 || key.Lane >= len(all[i].Lanes) {
		return l, versions.head.Last, projector.NotRegistered(key)
	}
	l = projector.Lane{Lanes: len(all[i].Lanes), Role: all[i].Role, Quiet: all[i].Quiet}
	at, err := c.look(ctx, key)
	if err != nil {
		return l, versions.head.Last, err
	}
	l.Checkpoint = at.kept
	parked, err := c.last(ctx, c.stream(kindParked, key))
	if err != nil {
		return l, versions.head.Last, err
	}
	l.Parked, err = decodeParked(parked.entry)
	return l, versions.head.Last, err
}

// Skipped returns the records of entries that a version has given up.
func (c *Checkpoints) Skipped(ctx context.Context, key projector.Key) (all []projector.Parked, err error) {
	s := c.stream(kindSkipped, key)
	for after := eventstore.Seqno(0); ; {
		p, err := c.store.ReadFrom(ctx, s, after, skippedPage)
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed && e.First > after+1 {
			after, all = e.First-1, nil // the version was removed, and is there anew
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range p.Entries {
			if p.Entries[i].Type == typeVersions {
				all = nil // the version was removed here
				continue
			}
			k, err := decodeSkipped(&p.Entries[i])
			if err != nil {
				return nil, err
			}
			all = append(all, k)
		}
		if p.End {
			return all, nil
		}
		after = p.Entries[len(p.Entries)-1].Seqno
	}
}
