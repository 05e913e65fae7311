// Package controltest is the conformance suite of [projector.Control]: whoever keeps
// lanes, versions and parked keys passes all of it.
//
//   - [Run] goes through the cases, each of which states the rule it proves;
//   - [Random] runs random histories on a Control and on [projector.MemoryCheckpoints]
//     side by side.
//
// The test of an implementation is a few lines:
//
//	func TestControl(t *testing.T) {
//		open := func(t testing.TB) projector.Control { return &projector.MemoryCheckpoints{} }
//		controltest.Run(t, open)
//		controltest.Random(t, open)
//	}
//
// Counts are larger when the environment variable WATTLE_SOAK is set.
package controltest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Open returns an empty Control; it registers what must be cleaned up with t.
type Open func(t testing.TB) projector.Control

// Run proves that a Control does what its contract says. The cases share what open
// returns, run in parallel and in any order, each on projectors of its own, so that they
// disturb one another as strangers in one database do.
func Run(t *testing.T, open func(t testing.TB) projector.Control) {
	shared := open(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("rule: %s", c.rule)
				}
			})
			c.run(newEnv(t, shared))
		})
	}
}

// testCase is one case and the rule that it proves.
type testCase struct {
	name, rule string
	run        func(*env)
}

var cases = slices.Concat(versionCases, laneCases, parkedCases, raceCases)

// caseTimeout ends a case that hangs.
const caseTimeout = time.Minute

func soak() bool { return os.Getenv("WATTLE_SOAK") != "" }

// reporter is the part of testing.TB and of rapid.T that the helpers need.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// env is what one case has to itself: the name of a projector, in which every character
// is one that a pattern would take for something else.
type env struct {
	reporter
	ctx  context.Context
	c    projector.Control
	name string
}

var names atomic.Int64 // that were given out

func newEnv(t testing.TB, c projector.Control) *env {
	ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
	t.Cleanup(cancel)
	return &env{reporter: t, ctx: ctx, c: c, name: freshName()}
}

func freshName() string { return fmt.Sprintf(`a_%%\'%d_`, names.Add(1)) }

// alike is a name that a pattern made of e.name would match.
func (e *env) alike() string { return strings.NewReplacer("_", "b", "%", "cd").Replace(e.name) }

func (e *env) key(version, lane int) projector.Key {
	return projector.Key{Projector: e.name, Version: version, Lane: lane}
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("error %v, want none", err)
	}
}

func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("error %v, want %v", err, want)
	}
}

// version is one with so many lanes, each at a place of its own.
func version(name string, number int, role projector.Role, lanes int) projector.Version {
	v := projector.Version{Key: projector.Key{Projector: name, Version: number}, Role: role,
		Scope: projector.Scope{Categories: []eventstore.Category{"account", "loan"}, Types: []string{"opened", "closed"}}}
	for i := range lanes {
		v.Lanes = append(v.Lanes, checkpoint(i+1))
	}
	return v
}

// checkpoint has no field that is zero.
func checkpoint(n int) projector.Checkpoint {
	p := eventstore.Position(100 * n)
	return projector.Checkpoint{Epoch: eventstore.Epoch(n), Holder: eventstore.UUID{1, byte(n)}, Incarnation: eventstore.UUID{2, byte(n)}, Timeline: uint64(n),
		Position: p, Mark: eventstore.PositionMark{Position: p, ID: eventstore.UUID{3, byte(n)}}, Seqno: eventstore.Seqno(n), Recent: []byte{1, byte(n)}}
}

// parked has no field that is zero but Request.
func parked(key string) projector.Parked {
	s := eventstore.Stream("account-" + key)
	return projector.Parked{StreamKey: key, Stream: s, Seqno: 7, Position: 70, ID: eventstore.UUID{9}, Type: "opened",
		Queue:   []projector.Queued{{Stream: s, From: 7}, {Stream: eventstore.Stream("loan-" + key), From: 2}},
		Through: 90, Count: 3, Cause: "no such 'table'\nin \\ it", Stack: "goroutine 1 [running]", Attempts: 5,
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Since: time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC), Note: "ticket 5"}
}

// register adds versions to the case's projector and its backends.
func (e *env) register(add ...projector.Version) {
	e.Helper()
	e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) { return append(all, add...), nil }))
}

// edit changes version 1.
func (e *env) edit(f func(v *projector.Version)) {
	e.Helper()
	e.ok(e.c.Update(e.ctx, e.name, func(all []projector.Version) ([]projector.Version, error) {
		for i := range all {
			if all[i].Key == e.key(1, 0) {
				f(&all[i])
			}
		}
		return all, nil
	}))
}

func (e *env) lane(version, lane int) projector.Lane {
	e.Helper()
	l, err := e.c.Lane(e.ctx, e.key(version, lane))
	e.ok(err)
	return l
}

func (e *env) versions(name string) []projector.Version {
	e.Helper()
	all, err := e.c.Versions(e.ctx, name)
	e.ok(err)
	return all
}

// step moves a lane on by one, from where it is.
func (e *env) step(key projector.Key) projector.Step {
	e.Helper()
	from, err := e.c.Load(e.ctx, key)
	e.ok(err)
	to := from
	to.Position++
	return projector.Step{Key: key, From: from, To: to}
}

// same compares what is kept with what it should be.
func (e *env) same(got, want []projector.Version) {
	e.Helper()
	if g, w := describe(got), describe(want); g != w {
		e.Errorf("kept\n%s\nwant\n%s", g, w)
	}
}

// describe tells all of versions but the times that others set, and Recent, which may
// be left out.
func describe(all []projector.Version) string {
	var b strings.Builder
	for _, v := range all {
		fmt.Fprintf(&b, "%v %v %q %q %q quiet %d\n", v.Key, v.Role, v.Scope.Categories, v.Scope.Types, v.Scope.Stream, v.Quiet)
		for i, c := range v.Lanes {
			c.Recent = nil
			fmt.Fprintf(&b, "  %d: %+v\n", i, plainCheckpoint(c))
		}
		for _, k := range v.Parked {
			fmt.Fprintf(&b, "  %s\n", describeKey(k))
		}
	}
	return b.String()
}

// describeKey tells all of a parked key but a time that the one who keeps it has set.
func describeKey(k projector.Parked) string {
	since := "now"
	if k.Since.Year() == 2026 && k.Since.Month() == 3 {
		since = k.Since.UTC().Format(time.RFC3339Nano)
	} else if k.Since.IsZero() {
		since = "never"
	}
	k.Since = time.Time{}
	return fmt.Sprintf("%+v since %s", plain(k), since)
}

// These have no String method, so that all of their fields are told.
type (
	plain           projector.Parked
	plainCheckpoint projector.Checkpoint
)

func describeKeys(all []projector.Parked) string {
	var b strings.Builder
	for _, k := range all {
		b.WriteString(describeKey(k) + "\n")
	}
	return b.String()
}
