// Cases: versions are registered, changed and removed, all at once or not at all.

package controltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

var errOurs = errors.New("the function's own")

var versionCases = []testCase{
	{"round trip", "a version comes back as it was registered, with the time set by who keeps it", func(e *env) {
		v := version(e.name, 1, projector.Live, 3)
		v.Quiet = []uint64{5, 0, 1<<63 - 1}
		v.Parked = []projector.Parked{parked("a"), parked("b")}
		followed := version(e.name, 2, projector.Shadow, 1)
		followed.Scope = projector.Scope{Stream: "account-a"}
		bare := projector.Version{Key: e.key(3, 0), Role: projector.Shadow, Lanes: make([]projector.Checkpoint, 2)}
		e.register(v, followed, bare)
		all := e.versions(e.name)
		e.same(all, []projector.Version{v, followed, bare})
		for _, v := range all {
			if since := time.Since(v.Created).Abs(); since > time.Minute {
				e.Errorf("%v created %v", v.Key, v.Created)
			}
		}
		created := all[0].Created
		e.edit(func(v *projector.Version) { v.Fence(eventstore.UUID{}) })
		if again := e.versions(e.name)[0].Created; !again.Equal(created) {
			e.Errorf("created %v, and after a change %v", created, again)
		}
	}},
	{"order", "versions come ordered by projector and number, also to the function of Update", func(e *env) {
		var want []projector.Version
		for _, name := range []string{e.name, e.name + "/a", e.name + "/b"} {
			for n := 1; n <= 11; n += 5 {
				want = append(want, version(name, n, projector.Shadow, 1))
			}
		}
		mixed := slices.Clone(want)
		slices.Reverse(mixed)
		e.register(mixed...)
		e.same(e.versions(e.name), want)
		e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
			e.same(all, want)
			return all, nil
		}))
	}},
	{"names", "Update concerns the projector and its backends, not others whose names are alike", func(e *env) {
		others := []string{e.name + "2", e.name + "-", e.alike(), "x" + e.name}
		before := map[string][]projector.Version{}
		for _, name := range others {
			o := *e
			o.name = name
			o.register(version(name, 1, projector.Live, 1), version(name+"/b", 1, projector.Live, 2))
			before[name] = o.versions(name)
		}
		mine := []projector.Version{version(e.name, 1, projector.Live, 1), version(e.name+"/b", 1, projector.Live, 2), version(e.name+"/b", 2, projector.Shadow, 1)}
		e.register(mine...)
		e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
			e.same(all, mine)
			for i := range all {
				all[i].Fence(eventstore.UUID{7})
			}
			return all, nil
		}))
		for i := range mine {
			mine[i].Fence(eventstore.UUID{7})
		}
		e.same(e.versions(e.name), mine)
		e.ok(e.c.Update(e.ctx, e.name, func([]projector.Version) ([]projector.Version, error) { return nil, nil }))
		e.same(e.versions(e.name), nil)
		for _, name := range others {
			e.same(e.versions(name), before[name])
		}
	}},
	{"all", "the empty name lists all projectors", func(e *env) {
		mine := []projector.Version{version(e.name, 1, projector.Live, 1), version(e.name+"/b", 1, projector.Live, 1), version(e.name, 2, projector.Shadow, 2)}
		e.register(mine...)
		o := *e
		o.name += "2"
		o.register(version(o.name, 1, projector.Live, 1))
		for _, name := range []string{e.name, o.name} {
			all := slices.DeleteFunc(e.versions(""), func(v projector.Version) bool { return !v.Key.Of(name) })
			e.same(all, e.versions(name))
		}
	}},
	{"unknown", "of a projector that nobody registered there is nothing, and a lane of it is not registered", func(e *env) {
		e.same(e.versions(e.name), nil)
		e.register(version(e.name, 2, projector.Live, 2))
		for _, key := range []projector.Key{e.key(1, 0), e.key(2, 2), e.key(2, -1), e.key(3, 0), {Projector: e.name + "/b", Version: 2}, {Projector: e.alike(), Version: 2}} {
			_, err := e.c.Lane(e.ctx, key)
			e.is(err, projector.ErrNotRegistered)
		}
		skipped, err := e.c.Skipped(e.ctx, e.key(1, 0))
		if e.ok(err); len(skipped) > 0 {
			e.Errorf("skipped %v", skipped)
		}
	}},
	{"one live", "of one name at most one version is live; another backend has its own", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 1), version(e.name, 2, projector.Shadow, 1), version(e.name+"/b", 2, projector.Live, 1))
		before := e.versions(e.name)
		err := e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
			all[1].Role = projector.Live
			return all, nil
		})
		e.is(err, eventstore.ErrInvalid)
		e.same(e.versions(e.name), before)
		for range 2 { // there and back: whichever is written first, never two
			e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
				all[0].Role, all[1].Role = all[1].Role, all[0].Role
				return all, nil
			}))
			before[0].Role, before[1].Role = before[1].Role, before[0].Role
			e.same(e.versions(e.name), before)
		}
	}},
	{"invalid", "what is no set of versions of the projector is refused, and nothing has changed", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 2))
		before := e.versions(e.name)
		for name, bad := range map[string]projector.Version{
			"of another projector": version(e.name+"2", 1, projector.Shadow, 1),
			"of no projector":      version("", 1, projector.Shadow, 1),
			"the same again":       version(e.name, 1, projector.Shadow, 1),
			"without lanes":        version(e.name, 2, projector.Shadow, 0),
			"too many lanes":       version(e.name, 2, projector.Shadow, eventstore.Slots+1),
			"a role of none":       version(e.name, 2, 9, 1),
			"the key of a lane":    {Key: e.key(2, 1), Role: projector.Shadow, Lanes: make([]projector.Checkpoint, 2)},
			"a key twice":          {Key: e.key(2, 0), Role: projector.Shadow, Lanes: make([]projector.Checkpoint, 2), Parked: []projector.Parked{parked("a"), parked("a")}},
		} {
			err := e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
				all[0].Fence(eventstore.UUID{})
				return append(all, bad), nil
			})
			if !errors.Is(err, eventstore.ErrInvalid) {
				e.Errorf("%s: %v", name, err)
			}
		}
		e.same(e.versions(e.name), before)
	}},
	{"error", "an error of the function comes back as it is and nothing has changed, whatever it did to what it was given", func(e *env) {
		v := version(e.name, 1, projector.Live, 2)
		v.Parked, v.Quiet = []projector.Parked{parked("a")}, []uint64{1}
		e.register(v)
		for _, end := range []func(all []projector.Version) ([]projector.Version, error){
			func([]projector.Version) ([]projector.Version, error) { return nil, errOurs },
			func(all []projector.Version) ([]projector.Version, error) {
				return all, fmt.Errorf("also: %w", errOurs)
			},
		} {
			err := e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
				spoil(all)
				return end(append(all, version(e.name, 2, projector.Shadow, 1)))
			})
			e.is(err, errOurs)
		}
		e.same(e.versions(e.name), []projector.Version{v})
	}},
	{"panic", "a panic of the function passes through, nothing has changed and nothing stays locked", func(e *env) {
		v := version(e.name, 1, projector.Live, 2)
		v.Parked, v.Quiet = []projector.Parked{parked("a")}, []uint64{1}
		e.register(v)
		func() {
			defer func() {
				if got := recover(); got != errOurs {
					e.Errorf("recovered %v, want %v", got, errOurs)
				}
			}()
			_ = e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
				spoil(all)
				panic(errOurs)
			})
		}()
		e.same(e.versions(e.name), []projector.Version{v})
		e.ok(e.c.Save(e.ctx, e.step(e.key(1, 0))))
		e.edit(func(v *projector.Version) { v.Fence(eventstore.UUID{}) })
	}},
	{"cancelled", "Update with a context that has ended changes nothing", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 2))
		before := e.versions(e.name)
		ctx, cancel := context.WithCancel(e.ctx)
		cancel()
		if err := e.c.Update(ctx, e.name, func([]projector.Version) ([]projector.Version, error) { return nil, nil }); err == nil {
			e.Errorf("no error")
		}
		e.same(e.versions(e.name), before)
	}},
	{"copies", "what Versions, Lane and Update give is the caller's", func(e *env) {
		v := version(e.name, 1, projector.Live, 1)
		v.Parked, v.Quiet = []projector.Parked{parked("a")}, []uint64{1}
		given := []projector.Version{v.Clone()}
		e.register(given...)
		spoil(given)
		spoil(e.versions(e.name))
		l := e.lane(1, 0)
		l.Quiet[0], l.Parked[0].Queue[0].From = 9, 99
		e.same(e.versions(e.name), []projector.Version{v})
	}},
	{"removal", "a version that is not returned is gone with its lanes, parked keys and records; the others stay", func(e *env) {
		e.register(version(e.name, 1, projector.Shadow, 2), version(e.name, 2, projector.Live, 2))
		for _, n := range []int{1, 2} {
			s := e.step(e.key(n, 1))
			s.Park, s.Skipped = []projector.Parked{parked("a")}, []projector.Parked{parked("b")}
			e.ok(e.c.Save(e.ctx, s))
		}
		stale := e.step(e.key(1, 1))
		keep := e.versions(e.name)[1:]
		e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) { return all[1:], nil }))
		e.same(e.versions(e.name), keep)
		e.is(e.c.Save(e.ctx, stale), eventstore.ErrFenced)
		for n, want := range map[int]int{1: 0, 2: 1} {
			skipped, err := e.c.Skipped(e.ctx, e.key(n, 0))
			if e.ok(err); len(skipped) != want {
				e.Errorf("version %d: %d records, want %d", n, len(skipped), want)
			}
		}
		kept, err := e.c.Load(e.ctx, e.key(1, 1))
		if e.ok(err); !kept.Same(projector.Checkpoint{}) {
			e.Errorf("kept %v", kept)
		}
		e.register(version(e.name, 1, projector.Shadow, 1)) // anew, with nothing of before
		e.same(e.versions(e.name)[:1], []projector.Version{version(e.name, 1, projector.Shadow, 1)})
	}},
	{"two at once", "of several that register the same projector at once one does and all find it", func(e *env) {
		const n = 8
		var wg sync.WaitGroup
		made := make([]bool, n)
		for i := range n {
			wg.Go(func() {
				e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
					if made[i] = len(all) == 0; made[i] {
						all = append(all, version(e.name, 1, projector.Live, i+1))
					}
					return all, nil
				}))
				if all := e.versions(e.name); len(all) != 1 {
					e.Errorf("found %s", describe(all))
				}
			})
		}
		wg.Wait()
		if all := e.versions(e.name); len(all) != 1 || !made[len(all[0].Lanes)-1] || slices.Index(made, true) != len(all[0].Lanes)-1 || count(made) != 1 {
			e.Errorf("made by %v: %s", made, describe(all))
		}
	}},
}

// spoil changes all that versions point to.
func spoil(all []projector.Version) {
	for i := range all {
		v := &all[i]
		v.Role, v.Scope.Categories[0], v.Scope.Types[0], v.Quiet[0] = projector.Shadow, "spoilt", "spoilt", 99
		v.Fence(eventstore.UUID{99})
		for j := range v.Lanes[0].Recent {
			v.Lanes[0].Recent[j] = 99
		}
		v.Parked[0].Cause, v.Parked[0].Queue[0].From = "spoilt", 99
	}
}

func count(all []bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}
