// Cases: lanes are claimed and moved by steps, and replaced by Update.

package controltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

var laneCases = []testCase{
	{"lane", "a lane comes with its checkpoint, whole, and with what its version says", func(e *env) {
		v := version(e.name, 1, projector.Shadow, 3)
		v.Quiet = []uint64{4, 5}
		e.register(v)
		for i, want := range v.Lanes {
			l := e.lane(1, i)
			if fmt.Sprintf("%+v", plainCheckpoint(l.Checkpoint)) != fmt.Sprintf("%+v", plainCheckpoint(want)) {
				e.Errorf("lane %d: %+v, want %+v", i, plainCheckpoint(l.Checkpoint), plainCheckpoint(want))
			}
			if l.Lanes != 3 || l.Role != projector.Shadow || !slices.Equal(l.Quiet, v.Quiet) || len(l.Parked) > 0 {
				e.Errorf("lane %d: %+v", i, l)
			}
			kept, err := e.c.Load(e.ctx, e.key(1, i))
			if e.ok(err); !kept.Same(want) {
				e.Errorf("Load of lane %d: %v, want %v", i, kept, want)
			}
		}
	}},
	{"steps", "a step moves its lane alone, and only from the checkpoint that is kept", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 3))
		s := e.step(e.key(1, 1))
		s.To.Epoch, s.To.Holder, s.To.Recent = 9, eventstore.UUID{9}, []byte{9, 9}
		e.ok(e.c.Save(e.ctx, s))
		e.is(e.c.Save(e.ctx, s), eventstore.ErrFenced)
		want := version(e.name, 1, projector.Live, 3)
		want.Lanes[1] = s.To
		e.same(e.versions(e.name), []projector.Version{want})
		for name, change := range map[string]func(*projector.Checkpoint){
			"epoch": func(c *projector.Checkpoint) { c.Epoch++ }, "older epoch": func(c *projector.Checkpoint) { c.Epoch-- },
			"holder": func(c *projector.Checkpoint) { c.Holder = eventstore.UUID{8} }, "position": func(c *projector.Checkpoint) { c.Position-- },
			"seqno": func(c *projector.Checkpoint) { c.Seqno++ }, "zero": func(c *projector.Checkpoint) { *c = projector.Checkpoint{} },
		} {
			wrong := e.step(e.key(1, 1))
			change(&wrong.From)
			if err := e.c.Save(e.ctx, wrong); !errors.Is(err, eventstore.ErrFenced) {
				e.Errorf("from another %s: %v", name, err)
			}
		}
		e.same(e.versions(e.name), []projector.Version{want})
	}},
	{"unregistered", "a version that is not registered has checkpoints all the same; the next Update is given it, live if the projector has no other, and registers it", func(e *env) {
		s := projector.Step{Key: e.key(2, 0), To: checkpoint(4), Park: []projector.Parked{parked("a")}}
		e.ok(e.c.Save(e.ctx, s))
		e.is(e.c.Save(e.ctx, s), eventstore.ErrFenced)
		e.ok(e.c.Save(e.ctx, projector.Step{Key: e.key(1, 1), To: checkpoint(3)}))
		e.same(e.versions(e.name), nil)
		_, err := e.c.Lane(e.ctx, e.key(2, 0))
		e.is(err, projector.ErrNotRegistered)
		want := []projector.Version{
			{Key: e.key(1, 0), Role: projector.Shadow, Lanes: []projector.Checkpoint{{}, checkpoint(3)}},
			{Key: e.key(2, 0), Lanes: []projector.Checkpoint{checkpoint(4)}, Parked: []projector.Parked{parked("a")}},
		}
		e.is(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
			e.same(all, want)
			return all, errOurs
		}), errOurs)
		e.same(e.versions(e.name), nil)
		e.register() // whatever it is that changes
		e.same(e.versions(e.name), want)
		e.ok(e.c.Save(e.ctx, e.step(e.key(2, 0))))
		e.ok(e.c.Save(e.ctx, projector.Step{Key: e.key(1, 0), To: checkpoint(5)}))
		e.is(e.c.Save(e.ctx, projector.Step{Key: e.key(1, 2), To: checkpoint(5)}), eventstore.ErrFenced)
		e.ok(e.c.Save(e.ctx, projector.Step{Key: e.key(3, 0), To: checkpoint(6)}))
		e.register()
		if all := e.versions(e.name); len(all) != 3 || all[2].Role != projector.Shadow || !all[2].Lanes[0].Same(checkpoint(6)) {
			e.Errorf("kept\n%s", describe(all))
		}
		e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) { return nil, nil }))
		if kept, err := e.c.Load(e.ctx, e.key(3, 0)); err != nil || !kept.Same(projector.Checkpoint{}) {
			e.Errorf("removed, but kept is %v, %v", kept, err)
		}
	}},
	{"unclaimed", "a lane that is registered without an epoch is claimed from the zero checkpoint, once", func(e *env) {
		e.register(projector.Version{Key: e.key(1, 0), Lanes: make([]projector.Checkpoint, 2)})
		if kept, err := e.c.Load(e.ctx, e.key(1, 1)); err != nil || !kept.Same(projector.Checkpoint{}) {
			e.Errorf("kept %v, %v", kept, err)
		}
		s := projector.Step{Key: e.key(1, 1), To: checkpoint(1)}
		e.ok(e.c.Save(e.ctx, s))
		s.To = checkpoint(2)
		e.is(e.c.Save(e.ctx, s), eventstore.ErrFenced)
		if l := e.lane(1, 1); !l.Same(checkpoint(1)) {
			e.Errorf("lane %v", l.Checkpoint)
		}
	}},
	{"other number", "when the lanes are others, workers of those before are refused: from the zero checkpoint, from an old epoch, and in a lane that is gone", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 4))
		for _, lanes := range []int{2, 5, 1} {
			var stale []projector.Step
			for i := range e.versions(e.name)[0].Lanes {
				stale = append(stale, e.step(e.key(1, i)))
			}
			for i := range 8 {
				stale = append(stale, projector.Step{Key: e.key(1, i), To: checkpoint(7)})
			}
			want := version(e.name, 1, projector.Live, lanes)
			for i := range want.Lanes {
				want.Lanes[i].Epoch = eventstore.Epoch(1000 - lanes)
			}
			e.edit(func(v *projector.Version) { v.Lanes = want.Clone().Lanes })
			for _, s := range stale {
				s.Park, s.Skipped = []projector.Parked{parked("a")}, []projector.Parked{parked("a")}
				if err := e.c.Save(e.ctx, s); !errors.Is(err, eventstore.ErrFenced) {
					e.Errorf("%d lanes: a step of lane %d from %v: %v", lanes, s.Key.Lane, s.From, err)
				}
			}
			e.same(e.versions(e.name), []projector.Version{want})
			for i := range 8 {
				_, err := e.c.Lane(e.ctx, e.key(1, i))
				if there := i < lanes; (err == nil) != there || !there && !errors.Is(err, projector.ErrNotRegistered) {
					e.Errorf("%d lanes: lane %d: %v", lanes, i, err)
				}
			}
		}
		if skipped, err := e.c.Skipped(e.ctx, e.key(1, 0)); err != nil || len(skipped) > 0 {
			e.Errorf("skipped %v, %v", skipped, err)
		}
	}},
	{"fence", "Fence in an Update refuses every step that was begun before, in all lanes", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 3), version(e.name, 2, projector.Shadow, 1))
		var stale []projector.Step
		for i := range 3 {
			stale = append(stale, e.step(e.key(1, i)))
		}
		e.edit(func(v *projector.Version) { v.Fence(eventstore.UUID{}) })
		for _, s := range stale {
			e.is(e.c.Save(e.ctx, s), eventstore.ErrFenced)
			next := e.step(s.Key)
			next.To.Epoch, next.To.Holder = next.To.Epoch+1, eventstore.UUID{5}
			e.ok(e.c.Save(e.ctx, next))
		}
		e.ok(e.c.Save(e.ctx, e.step(e.key(2, 0)))) // is another version's
	}},
	{"recent", "what Update is given has all of a checkpoint, so that giving it back loses nothing", func(e *env) {
		v := version(e.name, 1, projector.Live, 2)
		e.register(v)
		e.edit(func(v *projector.Version) { v.Fence(eventstore.UUID{6}) })
		v.Fence(eventstore.UUID{6})
		for i, want := range v.Lanes {
			if got := e.lane(1, i).Checkpoint; fmt.Sprintf("%+v", plainCheckpoint(got)) != fmt.Sprintf("%+v", plainCheckpoint(want)) {
				e.Errorf("lane %d: %+v, want %+v", i, plainCheckpoint(got), plainCheckpoint(want))
			}
		}
	}},
}
