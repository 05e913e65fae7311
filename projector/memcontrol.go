// MemoryCheckpoints: checkpoints, versions and parked keys in memory. It is the oracle
// for who keeps them elsewhere.

package projector

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// MemoryCheckpoints implements Control in memory, for the projectors of one process; it
// ends with the process. The zero value is ready. It may be used from several goroutines
// at once.
type MemoryCheckpoints struct {
	work     sync.Mutex // held through a step and an Update, so that they exclude each other
	mu       sync.Mutex // guards what follows, never held for long: Load does not wait for a step
	kept     map[Key]Checkpoint
	versions map[Key]Version // by the key of lane 0, without lanes and parked keys
	parked   map[Key]map[string]Parked
	skipped  map[Key][]Parked
}

// Load returns the checkpoint of a key.
func (m *MemoryCheckpoints) Load(ctx context.Context, key Key) (Checkpoint, error) {
	return m.get(key), ctx.Err()
}

// Save does a step without its batch.
func (m *MemoryCheckpoints) Save(ctx context.Context, s Step) error {
	return m.step(ctx, s, func() error {
		m.done(s)
		return nil
	})
}

// step calls f, which may move the checkpoint, if it is the one that the step comes
// from; one at a time.
func (m *MemoryCheckpoints) step(ctx context.Context, s Step, f func() error) error {
	m.work.Lock()
	defer m.work.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if kept := m.get(s.Key); !kept.Same(s.From) || m.gone(s.Key) {
		return FencedError(s.Key, s.From, kept)
	}
	return f()
}

// gone says if a version is registered that does not have the lane any more.
func (m *MemoryCheckpoints) gone(key Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.versions[Key{Projector: key.Projector, Version: key.Version}]
	return ok && key.Lane >= len(v.Lanes)
}

func (m *MemoryCheckpoints) get(key Key) Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[key]
}

func (m *MemoryCheckpoints) set(key Key, c Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, c)
}

func (m *MemoryCheckpoints) put(key Key, c Checkpoint) {
	if m.kept == nil {
		m.kept = map[Key]Checkpoint{}
	}
	m.kept[key] = c
}

// done keeps what a step leads to.
func (m *MemoryCheckpoints) done(s Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(s.Key, s.To)
	v := s.Key
	v.Lane = 0
	for _, k := range s.Park {
		m.park(v, k)
	}
	for _, name := range s.Unpark {
		delete(m.parked[v], name)
	}
	for _, k := range s.Skipped {
		if m.skipped == nil {
			m.skipped = map[Key][]Parked{}
		}
		m.skipped[v] = append(m.skipped[v], since(k))
	}
}

func (m *MemoryCheckpoints) park(v Key, k Parked) {
	if m.parked == nil {
		m.parked = map[Key]map[string]Parked{}
	}
	if m.parked[v] == nil {
		m.parked[v] = map[string]Parked{}
	}
	m.parked[v][k.StreamKey] = since(k)
}

func since(k Parked) Parked {
	if k.Since.IsZero() {
		k.Since = time.Now()
	}
	return k
}

// Lane returns one lane of a version.
func (m *MemoryCheckpoints) Lane(ctx context.Context, key Key) (Lane, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.version(Key{Projector: key.Projector, Version: key.Version})
	if !ok || key.Lane < 0 || key.Lane >= len(v.Lanes) {
		return Lane{}, NotRegistered(key)
	}
	l := Lane{Checkpoint: v.Lanes[key.Lane], Lanes: len(v.Lanes), Role: v.Role, Quiet: v.Quiet}
	for _, k := range v.Parked {
		if LaneOf(k.Slot(), l.Lanes) == key.Lane {
			l.Parked = append(l.Parked, k)
		}
	}
	return l, ctx.Err()
}

// version puts a version together; m.mu is held.
func (m *MemoryCheckpoints) version(key Key) (Version, bool) {
	v, ok := m.versions[key]
	if !ok {
		return v, false
	}
	v.Lanes = slices.Clone(v.Lanes)
	for i := range v.Lanes {
		v.Lanes[i] = m.kept[Key{Projector: key.Projector, Version: key.Version, Lane: i}]
	}
	v.Parked = m.keys(key)
	return v.Clone(), true
}

// Versions returns the versions of a projector.
func (m *MemoryCheckpoints) Versions(ctx context.Context, projector string) ([]Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(projector), ctx.Err()
}

func (m *MemoryCheckpoints) list(projector string) []Version {
	var all []Version
	for key := range m.versions {
		if key.Of(projector) {
			v, _ := m.version(key)
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Key.Projector, b.Key.Projector), cmp.Compare(a.Key.Version, b.Key.Version))
	})
	return all
}

// adopted lists the versions of a projector with those that have checkpoints only.
func (m *MemoryCheckpoints) adopted(projector string) []Version {
	kept := map[Key]Checkpoint{}
	for key, c := range m.kept {
		if key.Of(projector) {
			kept[key] = c
		}
	}
	all := AdoptVersions(m.list(projector), kept)
	for i := range all {
		if v := &all[i]; !m.registered(v.Key) {
			v.Parked = m.keys(v.Key)
			*v = v.Clone()
		}
	}
	return all
}

func (m *MemoryCheckpoints) registered(key Key) bool {
	_, ok := m.versions[key]
	return ok
}

// keys are the parked keys of a version.
func (m *MemoryCheckpoints) keys(v Key) (all []Parked) {
	for _, name := range slices.Sorted(maps.Keys(m.parked[v])) {
		all = append(all, m.parked[v][name])
	}
	return all
}

// Update changes the versions of a projector.
func (m *MemoryCheckpoints) Update(ctx context.Context, projector string, f func([]Version) ([]Version, error)) error {
	m.work.Lock()
	defer m.work.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	old := m.adopted(projector)
	all, err := f(m.adopted(projector))
	if err == nil {
		err = CheckVersions(projector, all)
	}
	if err != nil {
		return err
	}
	for _, v := range old {
		m.remove(v)
	}
	for _, v := range all {
		m.add(v.Clone())
		old = slices.DeleteFunc(old, func(o Version) bool { return o.Key == v.Key })
	}
	for _, v := range old {
		delete(m.skipped, v.Key)
	}
	return nil
}

func (m *MemoryCheckpoints) remove(v Version) {
	m.dropLanes(v.Key, 0)
	delete(m.parked, v.Key)
	delete(m.versions, v.Key)
}

// dropLanes forgets the checkpoints of a version from a lane on.
func (m *MemoryCheckpoints) dropLanes(v Key, from int) {
	maps.DeleteFunc(m.kept, func(key Key, _ Checkpoint) bool {
		return key.Projector == v.Projector && key.Version == v.Version && key.Lane >= from
	})
}

func (m *MemoryCheckpoints) add(v Version) {
	m.dropLanes(v.Key, len(v.Lanes))
	for i, c := range v.Lanes {
		m.put(Key{Projector: v.Key.Projector, Version: v.Key.Version, Lane: i}, c)
	}
	for _, k := range v.Parked {
		m.park(v.Key, k)
	}
	if v.Created.IsZero() {
		v.Created = time.Now()
	}
	v.Parked = nil
	if m.versions == nil {
		m.versions = map[Key]Version{}
	}
	m.versions[v.Key] = v
}

// Skipped returns the records of entries that a version has given up.
func (m *MemoryCheckpoints) Skipped(ctx context.Context, key Key) ([]Parked, error) {
	key.Lane = 0
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.skipped[key]), ctx.Err()
}
