// Cases: what a step does to parked keys it does wholly or not at all.

package controltest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

var parkedCases = []testCase{
	{"park", "a step parks, replaces and unparks keys, and records what is skipped", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 1))
		a, b := parked("a"), parked("b")
		b.Since = time.Time{}
		e.parks(parkedSet{park: []projector.Parked{a, b}}, a, b)
		if since := time.Since(e.lane(1, 0).Parked[1].Since).Abs(); since > time.Minute {
			e.Errorf("parked without a time: %v ago", since)
		}
		a.Attempts, a.Through, a.Count, a.Queue, a.Request = 6, 100, 4, append(a.Queue, projector.Queued{Stream: "x-a", From: 1}), projector.Skip
		e.parks(parkedSet{park: []projector.Parked{a}}, a, b)
		e.parks(parkedSet{unpark: []string{"a", "unknown"}, skip: []projector.Parked{a}}, b)
		e.parks(parkedSet{unpark: []string{"b"}, skip: []projector.Parked{b}})
		got, err := e.c.Skipped(e.ctx, e.key(1, 0))
		if e.ok(err); describeKeys(got) != describeKeys([]projector.Parked{a, withNow(b)}) {
			e.Errorf("skipped\n%s", describeKeys(got))
		}
		if of, err := e.c.Skipped(e.ctx, e.key(1, 5)); err != nil || len(of) != 2 { // they are the version's
			e.Errorf("skipped %v, %v", of, err)
		}
	}},
	{"refused", "a step that is refused parks, unparks and records nothing", func(e *env) {
		v := version(e.name, 1, projector.Live, 1)
		v.Parked = []projector.Parked{parked("a")}
		e.register(v)
		for _, from := range []projector.Checkpoint{{}, checkpoint(2)} {
			s := projector.Step{Key: e.key(1, 0), From: from, To: checkpoint(3), Park: []projector.Parked{parked("b")},
				Unpark: []string{"a"}, Skipped: []projector.Parked{parked("a")}}
			e.is(e.c.Save(e.ctx, s), eventstore.ErrFenced)
		}
		e.same(e.versions(e.name), []projector.Version{v})
		if skipped, err := e.c.Skipped(e.ctx, e.key(1, 0)); err != nil || len(skipped) > 0 {
			e.Errorf("skipped %v, %v", skipped, err)
		}
	}},
	{"texts", "any text can be told of a parked key, and no name is taken for a pattern", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 1))
		odd := parked("a%_'\\")
		odd.StreamKey, odd.Stream = odd.Stream.Key(), "account-a%_'\\"
		alike := parked("abc'\\")
		e.parks(parkedSet{park: []projector.Parked{alike, odd}}, odd, alike)
		e.parks(parkedSet{unpark: []string{odd.StreamKey}}, alike)
		bad := parked("a")
		bad.Cause, bad.Stack, bad.Note = "not UTF-8: \xff", "zero: \x00", "\xc3\x28"
		s := e.step(e.key(1, 0))
		s.Park, s.Skipped = []projector.Parked{bad}, []projector.Parked{bad}
		e.ok(e.c.Save(e.ctx, s))
		if l := e.lane(1, 0); len(l.Parked) != 2 {
			e.Errorf("parked %v", l.Parked)
		}
	}},
	{"bare", "a parked key without queue, cause or time comes back without", func(e *env) {
		v := version(e.name, 1, projector.Live, 1)
		v.Parked = []projector.Parked{{StreamKey: "a", Stream: "account-a", Type: "opened"}}
		e.register(v)
		got := e.lane(1, 0).Parked
		if len(got) != 1 || describeKeys(got) != describeKeys([]projector.Parked{withNow(v.Parked[0])}) {
			e.Errorf("parked\n%s", describeKeys(got))
		}
	}},
	{"by lane", "parked keys go with their slots, to whichever lane has them when the lanes are others", func(e *env) {
		v := version(e.name, 1, projector.Live, 1)
		for i := range 40 {
			v.Parked = append(v.Parked, parked(fmt.Sprintf("key%02d", i)))
		}
		e.register(v)
		for _, lanes := range []int{1, 2, 7, 3} {
			e.edit(func(v *projector.Version) { v.Lanes = version(e.name, 1, projector.Live, lanes).Lanes })
			for lane := range lanes {
				want := slices.DeleteFunc(slices.Clone(v.Parked), func(k projector.Parked) bool { return projector.LaneOf(k.Slot(), lanes) != lane })
				if got := e.lane(1, lane).Parked; describeKeys(got) != describeKeys(want) {
					e.Errorf("lane %d of %d:\n%s\nwant\n%s", lane, lanes, describeKeys(got), describeKeys(want))
				}
			}
			if got := e.versions(e.name)[0].Parked; describeKeys(got) != describeKeys(v.Parked) {
				e.Errorf("%d lanes: the version's keys\n%s", lanes, describeKeys(got))
			}
		}
	}},
	{"update", "Update adds, changes and removes parked keys, and steps go on from that", func(e *env) {
		v := version(e.name, 1, projector.Live, 2)
		v.Parked = []projector.Parked{parked("a"), parked("b"), parked("c")}
		e.register(v)
		e.edit(func(v *projector.Version) {
			v.Parked[1].Request, v.Parked[1].Note = projector.Retry, "by hand"
			v.Parked = append(v.Parked[1:], parked("d"))
		})
		v.Parked[1].Request, v.Parked[1].Note = projector.Retry, "by hand"
		v.Parked = append(v.Parked[1:], parked("d"))
		e.same(e.versions(e.name), []projector.Version{v})
		s := e.step(e.key(1, 0))
		s.Unpark = []string{"d"}
		e.ok(e.c.Save(e.ctx, s))
		v.Lanes[0], v.Parked = s.To, v.Parked[:2]
		e.same(e.versions(e.name), []projector.Version{v})
	}},
	{"apart", "what is parked is a version's: another one, or another backend's, has the same keys to itself", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 1), version(e.name, 2, projector.Shadow, 1), version(e.name+"/b", 1, projector.Live, 1))
		for i, key := range []projector.Key{e.key(1, 0), e.key(2, 0), {Projector: e.name + "/b", Version: 1}} {
			s, k := e.step(key), parked("a")
			k.Attempts = i
			s.Park = []projector.Parked{k}
			e.ok(e.c.Save(e.ctx, s))
		}
		s := e.step(e.key(2, 0))
		s.Unpark = []string{"a"}
		e.ok(e.c.Save(e.ctx, s))
		var got []int
		for _, v := range e.versions(e.name) {
			for _, k := range v.Parked {
				got = append(got, v.Key.Version, k.Attempts)
			}
		}
		if !slices.Equal(got, []int{1, 0, 1, 2}) {
			e.Errorf("versions and attempts %v", got)
		}
	}},
	{"records", "records come by time, as often as there were steps", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 1))
		var want []projector.Parked
		for i := range 5 {
			s := e.step(e.key(1, 0))
			for range 3 {
				k := parked("a")
				k.Seqno = eventstore.Seqno(len(want))
				s.Skipped, want = append(s.Skipped, k), append(want, k)
			}
			e.ok(e.c.Save(e.ctx, s))
			if i == 2 {
				s.To.Position++
				if err := e.c.Save(e.ctx, s); !errors.Is(err, eventstore.ErrFenced) {
					e.Errorf("the step again: %v", err)
				}
			}
		}
		got, err := e.c.Skipped(e.ctx, e.key(1, 0))
		if e.ok(err); describeKeys(got) != describeKeys(want) {
			e.Errorf("skipped\n%s\nwant\n%s", describeKeys(got), describeKeys(want))
		}
	}},
}

type parkedSet struct {
	park, skip []projector.Parked
	unpark     []string
}

// parks does a step of lane 0 and compares what is parked then.
func (e *env) parks(p parkedSet, want ...projector.Parked) {
	e.Helper()
	s := e.step(e.key(1, 0))
	s.Park, s.Unpark, s.Skipped = p.park, p.unpark, p.skip
	e.ok(e.c.Save(e.ctx, s))
	for i := range want {
		want[i] = withNow(want[i])
	}
	if got := describeKeys(e.lane(1, 0).Parked); got != describeKeys(want) {
		e.Errorf("parked\n%s\nwant\n%s", got, describeKeys(want))
	}
}

// withNow sets a time that is missing, as the one who keeps the key does.
func withNow(k projector.Parked) projector.Parked {
	if k.Since.IsZero() {
		k.Since = time.Now()
	}
	return k
}
