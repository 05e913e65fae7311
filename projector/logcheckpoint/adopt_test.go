// Versions that were stepped without being registered, as far as the suite does not go:
// several lanes and projectors, and races with what Update reads.

package logcheckpoint_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
)

// told is all that readers are told of the versions there are.
func told(t testing.TB, c projector.Control) string {
	t.Helper()
	all, err := c.Versions(t.Context(), "")
	ok(t, err)
	var b strings.Builder
	parked := func(all []projector.Parked) {
		for _, k := range all {
			fmt.Fprintf(&b, " %s:%d", k.StreamKey, k.Attempts)
		}
		b.WriteByte('\n')
	}
	for _, v := range all {
		fmt.Fprint(&b, v.Key, v.Role)
		parked(v.Parked)
		for key := v.Key; key.Lane < len(v.Lanes); key.Lane++ {
			l, err := c.Lane(t.Context(), key)
			ok(t, err)
			fmt.Fprint(&b, "  ", v.Lanes[key.Lane].Position, l.Position)
			parked(l.Parked)
		}
	}
	return b.String()
}

// first is the first step of a lane, which parks keys.
func first(name string, version, lane int, keys ...string) projector.Step {
	s := next(projector.Checkpoint{Position: eventstore.Position(10*version + lane)})
	s.From, s.Key = projector.Checkpoint{}, projector.Key{Projector: name, Version: version, Lane: lane}
	for _, k := range keys {
		s.Park = append(s.Park, projector.Parked{StreamKey: k, Stream: eventstore.Stream("account-" + k), Seqno: 1, Attempts: lane})
	}
	return s
}

func same(all []projector.Version) ([]projector.Version, error) { return all, nil }

// TestUpdateAdopts: what the lanes of then have parked is found in those that the version
// has from now on; an Update of one projector leaves the others' to theirs, one of all
// finds all.
func TestUpdateAdopts(t *testing.T) {
	c, oracle := open(t, memlog.New(nil)), &projector.MemoryCheckpoints{}
	both := func(f func(c projector.Control) error) {
		t.Helper()
		ok(t, f(c))
		ok(t, f(oracle))
		if got, want := told(t, c), told(t, oracle); got != want {
			t.Errorf("kept\n%swant\n%s", got, want)
		}
	}
	save := func(s projector.Step) {
		t.Helper()
		both(func(c projector.Control) error { return c.Save(t.Context(), s) })
	}
	update := func(of string, f func([]projector.Version) ([]projector.Version, error)) {
		t.Helper()
		both(func(c projector.Control) error { return c.Update(t.Context(), of, f) })
	}
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	save(first("p", 1, 2, keys[:5]...))
	save(first("p", 1, 0, keys[4:]...)) // e is parked anew
	save(first("p/backend", 2, 1, "x"))
	save(first("q", 1, 0, keys...))
	save(first("q", 2, 3, keys...))
	save(first("r/backend", 1, 1, keys...))
	update("p", same)
	again := first("p", 1, 2, "h")
	again.From, again.To.Position, again.Unpark = again.To, again.To.Position+1, keys[:3]
	save(again)
	update("q", func(all []projector.Version) ([]projector.Version, error) {
		all[1].Lanes = all[1].Lanes[2:] // as it becomes live
		return all[1:], nil
	})
	update("", func(all []projector.Version) ([]projector.Version, error) {
		return slices.DeleteFunc(all, func(v projector.Version) bool { return v.Key.Projector == "p" }), nil
	})
	save(first("p", 1, 1, "z"))
	save(first("s", 1, 1, keys...))
	update("", same)
	update("p", func([]projector.Version) ([]projector.Version, error) { return nil, nil })
	save(first("p", 1, 0)) // from nothing, as at first
	update("p", same)
	if err := c.Save(t.Context(), first("u", 1, projector.MaxLanes)); !isKind(err, eventstore.ErrFenced) {
		t.Errorf("a step of a lane that no version can have: %v", err)
	}
}

// TestUpdateSeesWhatComes: what is stepped for the first time, or registered, while the
// function is at work is not missed, whatever else the Update writes.
func TestUpdateSeesWhatComes(t *testing.T) {
	step := func(s projector.Step) func(*testing.T, *logcheckpoint.Checkpoints) {
		return func(t *testing.T, c *logcheckpoint.Checkpoints) { ok(t, c.Save(t.Context(), s)) }
	}
	for _, test := range []struct {
		name, of   string
		registered bool // what is there before
		come       func(*testing.T, *logcheckpoint.Checkpoints)
		want       string // is seen at last, with the number of lanes
	}{
		{"a lane", "p", false, step(first("p", 1, 1)), "[p/1/0:2]"},
		{"a version", "p", false, step(first("p", 2, 0)), "[p/1/0:1 p/2/0:1]"},
		{"a version beside a registered one", "p", true, step(first("p", 2, 0)), "[p/1/0:1 p/2/0:1]"},
		{"a backend", "p", true, step(first("p/b", 1, 1)), "[p/1/0:1 p/b/1/0:2]"},
		{"a projector", "", true, step(first("q", 1, 0)), "[p/1/0:1 q/1/0:1]"},
		{"a registered projector", "", true, func(t *testing.T, c *logcheckpoint.Checkpoints) {
			ok(t, c.Update(t.Context(), "q", func([]projector.Version) ([]projector.Version, error) {
				return []projector.Version{{Key: projector.Key{Projector: "q", Version: 1}, Lanes: make([]projector.Checkpoint, 1)}}, nil
			}))
		}, "[p/1/0:1 q/1/0:1]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := memlog.New(nil)
			slow, c := open(t, log), open(t, log)
			ok(t, c.Save(t.Context(), first("p", 1, 0)))
			if test.registered {
				ok(t, c.Update(t.Context(), "p", same))
			}
			var seen []string
			ok(t, slow.Update(t.Context(), test.of, func(all []projector.Version) ([]projector.Version, error) {
				if len(seen) == 0 {
					test.come(t, c)
				}
				var now []string
				for _, v := range all {
					now = append(now, fmt.Sprint(v.Key, ":", len(v.Lanes)))
				}
				seen = append(seen, fmt.Sprint(now))
				return all, nil
			}))
			if len(seen) != 2 || seen[1] != test.want {
				t.Errorf("seen %q, want %q at last", seen, test.want)
			}
		})
	}
}

// busyLog has a step done before each look at a lane that no Update holds.
type busyLog struct {
	*memlog.Log
	lane eventstore.Stream
	step func()
}

func (l *busyLog) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	if h, err := l.Log.Head(ctx, s); s == l.lane && err == nil && string(h.Holder[:4]) != "frzn" {
		l.step()
	}
	return l.Log.Head(ctx, s)
}

// TestVersionsOfBusyLanes: they are let wait, and what is not registered is not shown.
func TestVersionsOfBusyLanes(t *testing.T) {
	log := &busyLog{Log: memlog.New(nil), lane: "checkpoint-lane/p/1/0"}
	worker, at, steps := open(t, log.Log), first("p", 1, 0).To, 0
	ok(t, worker.Save(t.Context(), first("p", 1, 0)))
	ok(t, worker.Update(t.Context(), "p", same))
	ok(t, worker.Save(t.Context(), first("p", 2, 0)))
	log.step = func() {
		s := next(at)
		ok(t, worker.Save(t.Context(), s))
		at = s.To
		steps++
	}
	all, err := open(t, log).Versions(t.Context(), "p")
	if ok(t, err); steps < 8 || len(all) != 1 || all[0].Key.Version != 1 {
		t.Errorf("after %d steps: %+v", steps, all)
	}
}
