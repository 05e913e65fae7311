// Random: random histories on a Control and on MemoryCheckpoints side by side.

package controltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Random runs random histories of steps, good and stale, and of Updates on a Control and
// on [projector.MemoryCheckpoints], one after the other, and demands the same answers of
// both and the same to be kept.
//
// A failure is shrunk, and its seed printed. The flags -rapid.checks and -rapid.steps set
// the number of histories and of steps in each (100 and about 30).
func Random(t *testing.T, open func(t testing.TB) projector.Control) {
	c := open(t)
	histories := 1
	if soak() {
		histories = 10
	}
	for range histories {
		rapid.Check(t, func(t *rapid.T) { runHistory(t, c) })
	}
}

// machine runs one history. Its methods that have the signature of an action are the
// steps, see [rapid.T.Repeat].
type machine struct {
	ctx   context.Context
	c     projector.Control
	model projector.MemoryCheckpoints
	names []string // of which Update knows the first, the third and the fourth
}

func runHistory(t *rapid.T, c projector.Control) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	defer cancel()
	e := &env{reporter: t, name: freshName()}
	m := &machine{ctx: ctx, c: c, names: []string{e.name, e.name + "/b", e.name + "2", e.alike()}}
	t.Repeat(map[string]func(*rapid.T){"step": m.step, "step again": m.step, "update": m.update, "lane": m.lane})
	m.check(t, m.bases()...)
	for _, name := range m.bases() {
		none := func([]projector.Version) ([]projector.Version, error) { return nil, nil }
		if err := errors.Join(c.Update(ctx, name, none), m.model.Update(ctx, name, none)); err != nil {
			t.Fatalf("remove %q: %v", name, err)
		}
	}
	m.check(t, m.bases()...)
}

func (m *machine) bases() []string { return []string{m.names[0], m.names[2], m.names[3]} }

// same demands the same answer of both.
func same(t *rapid.T, what string, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s:\n%s\nthe oracle:\n%s", what, got, want)
	}
}

// told describes an error by its kind.
func told(err error) string {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		return e.Kind.Error()
	}
	return fmt.Sprint(err)
}

// check compares all that is kept of projectors.
func (m *machine) check(t *rapid.T, names ...string) {
	t.Helper()
	for _, name := range names {
		got, err := m.c.Versions(m.ctx, name)
		want, _ := m.model.Versions(m.ctx, name)
		same(t, "Versions", describe(got)+told(err), describe(want)+told(nil))
		for _, v := range want {
			m.records(t, v.Key)
		}
	}
}

func (m *machine) records(t *rapid.T, key projector.Key) {
	t.Helper()
	got, err := m.c.Skipped(m.ctx, key)
	want, _ := m.model.Skipped(m.ctx, key)
	same(t, "Skipped of "+key.String(), describeKeys(got)+told(err), describeKeys(want)+told(nil))
}

func (m *machine) key(t *rapid.T) projector.Key {
	return projector.Key{Projector: rapid.SampledFrom(m.names).Draw(t, "projector"), Version: rapid.IntRange(1, 2).Draw(t, "version"), Lane: rapid.IntRange(0, 4).Draw(t, "lane")}
}

// lane compares one lane, and its checkpoint as Load tells it.
func (m *machine) lane(t *rapid.T) {
	key := m.key(t)
	describeLane := func(c projector.Control) string {
		l, err := c.Lane(m.ctx, key)
		kept, loadErr := c.Load(m.ctx, key)
		return fmt.Sprintf("%+v %d %v %d %s %s\n%+v %s", whole(l.Checkpoint), l.Lanes, l.Role, l.Quiet, describeKeys(l.Parked), told(err), whole(kept), told(loadErr))
	}
	same(t, "Lane and Load of "+key.String(), describeLane(m.c), describeLane(&m.model))
}

// whole tells a checkpoint with all its fields; no Recent is the same as an empty one.
func whole(c projector.Checkpoint) plainCheckpoint {
	if len(c.Recent) == 0 {
		c.Recent = nil
	}
	return plainCheckpoint(c)
}

// step does one, from what is kept or from something else.
func (m *machine) step(t *rapid.T) {
	s := projector.Step{Key: m.key(t)}
	s.From, _ = m.model.Load(m.ctx, s.Key)
	switch rapid.IntRange(0, 5).Draw(t, "from") {
	case 0:
		s.From = projector.Checkpoint{}
	case 1:
		s.From.Epoch += 1
	case 2:
		s.From.Position += 1
	}
	s.To = s.From
	s.To.Epoch, s.To.Holder = max(s.From.Epoch, 1)+eventstore.Epoch(rapid.IntRange(0, 1).Draw(t, "claim")), eventstore.UUID{byte(rapid.IntRange(0, 2).Draw(t, "holder"))}
	s.To.Position += eventstore.Position(rapid.IntRange(0, 3).Draw(t, "position"))
	s.To.Recent = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "recent")
	for range rapid.IntRange(0, 2).Draw(t, "parked") {
		s.Park = append(s.Park, drawParked(t))
	}
	for range rapid.IntRange(0, 2).Draw(t, "unparked") {
		s.Unpark = append(s.Unpark, drawParked(t).StreamKey)
	}
	for range rapid.IntRange(0, 1).Draw(t, "skipped") {
		s.Skipped = append(s.Skipped, drawParked(t))
	}
	same(t, fmt.Sprintf("Save of %v from %v to %v", s.Key, s.From, s.To), told(m.c.Save(m.ctx, s)), told(m.model.Save(m.ctx, s)))
	m.check(t, s.Key.Name())
	m.records(t, s.Key) // also of a version that is not registered
}

func drawParked(t *rapid.T) projector.Parked {
	k := parked(rapid.SampledFrom([]string{"a", "b", "c_", "c%", "cd"}).Draw(t, "key"))
	k.Attempts, k.Request = rapid.IntRange(0, 9).Draw(t, "attempts"), projector.Request(rapid.IntRange(0, 2).Draw(t, "request"))
	k.Queue = k.Queue[:rapid.IntRange(0, 2).Draw(t, "queue")]
	return k
}

// update changes a projector: the same edits, drawn beforehand, on both.
func (m *machine) update(t *rapid.T) {
	name := rapid.SampledFrom(m.bases()).Draw(t, "projector")
	var edits []func([]projector.Version) []projector.Version
	for range rapid.IntRange(1, 4).Draw(t, "edits") {
		edits = append(edits, m.edit(t, name))
	}
	fails := rapid.IntRange(0, 7).Draw(t, "fails") == 0
	f := func(all []projector.Version) ([]projector.Version, error) {
		for _, edit := range edits {
			all = edit(all)
		}
		if fails {
			return all, errOurs
		}
		return all, nil
	}
	same(t, fmt.Sprintf("Update of %q", name), told(m.c.Update(m.ctx, name, f)), told(m.model.Update(m.ctx, name, f)))
	m.check(t, name)
}

// edit draws a change of the versions of a projector.
func (m *machine) edit(t *rapid.T, name string) func([]projector.Version) []projector.Version {
	key := projector.Key{Projector: name, Version: rapid.IntRange(1, 2).Draw(t, "version")}
	if name == m.names[0] && rapid.Bool().Draw(t, "backend") {
		key.Projector = m.names[1]
	}
	role, lanes := projector.Role(rapid.IntRange(0, 1).Draw(t, "role")), rapid.IntRange(1, 4).Draw(t, "lanes")
	k, what := drawParked(t), rapid.IntRange(0, 6).Draw(t, "what")
	return func(all []projector.Version) []projector.Version {
		i := slices.IndexFunc(all, func(v projector.Version) bool { return v.Key == key })
		if i < 0 {
			return append(all, version(key.Projector, key.Version, role, lanes))
		}
		v := &all[i]
		switch what {
		case 0:
			return slices.Delete(all, i, i+1)
		case 1:
			v.Role = role
		case 2:
			v.Lanes = merged(v.Lanes, lanes)
		case 3:
			v.Fence(eventstore.UUID{byte(lanes)})
		case 4:
			v.Quiet, v.Scope = append(v.Quiet, uint64(lanes)), projector.Scope{Stream: k.Stream}
		case 5:
			v.Parked = slices.DeleteFunc(v.Parked, func(o projector.Parked) bool { return o.StreamKey == k.StreamKey })
		case 6:
			v.Parked = append(slices.DeleteFunc(v.Parked, func(o projector.Parked) bool { return o.StreamKey == k.StreamKey }), k)
		}
		return all
	}
}
