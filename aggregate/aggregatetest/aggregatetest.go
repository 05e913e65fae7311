// Package aggregatetest tests Deciders in the form given / when / then:
//
//	aggregatetest.Given(t, decider, Opened{"Alice"}, Deposited{500}).
//		When(Withdraw{200}).
//		Then(Withdrawn{200})
//
// No store, no schema and no Executor is involved. Beside what is asked, every When
// checks that the Decider is pure, as an Executor relies on: it folds and decides
// twice, and compares the answers and the states before and after.
package aggregatetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/aggregate"
)

// Scenario is a history on which commands are tried.
type Scenario[S, C, E any] struct {
	t       testing.TB
	decider aggregate.Decider[S, C, E]
	given   []E
}

// Outcome is what a command came to.
type Outcome[S, C, E any] struct {
	t       testing.TB
	decider aggregate.Decider[S, C, E]
	command C
	state   S // before the command
	events  []E
	err     error
}

// Given starts from the state after events; without any, from the initial one.
func Given[S, C, E any](t testing.TB, d aggregate.Decider[S, C, E], events ...E) *Scenario[S, C, E] {
	t.Helper()
	if d.Initial == nil || d.Decide == nil || d.Evolve == nil {
		t.Fatal("the Decider is incomplete: Initial, Decide and Evolve must all be given")
	}
	return &Scenario[S, C, E]{t: t, decider: d, given: events}
}

// When has a command decided. A Scenario may be used for several.
func (s *Scenario[S, C, E]) When(command C) *Outcome[S, C, E] {
	s.t.Helper()
	o := &Outcome[S, C, E]{t: s.t, decider: s.decider, command: command}
	o.state = s.fold(s.decider.Initial(), s.given)
	if again := s.fold(s.decider.Initial(), s.given); !reflect.DeepEqual(o.state, again) {
		s.t.Errorf("not pure: the same events folded twice give%s", differ(o.state, again))
	}
	before := render(o.state)
	o.events, o.err = s.decider.Decide(o.state, command)
	events, err := s.decider.Decide(o.state, command)
	if !reflect.DeepEqual(o.events, events) || fmt.Sprint(o.err) != fmt.Sprint(err) {
		s.t.Errorf("not pure: the same command decided twice gives%s", differ(answer{o.events, o.err}, answer{events, err}))
	}
	if after := render(o.state); after != before {
		s.t.Errorf("not pure: Decide changed the state it was given\n  before %s\n  after  %s", before, after)
	}
	return o
}

// answer is what Decide gives, for a message.
type answer struct{ events, err any }

// fold applies events, and watches that no state is changed by the next step.
func (s *Scenario[S, C, E]) fold(state S, events []E) S {
	s.t.Helper()
	for _, e := range events {
		before := render(state)
		next := s.decider.Evolve(state, e)
		if after := render(state); after != before {
			s.t.Errorf("not pure: Evolve changed the state it was given, by %#v\n  before %s\n  after  %s", e, before, after)
		}
		state = next
	}
	return state
}

// Then demands exactly these events, in order.
func (o *Outcome[S, C, E]) Then(events ...E) *Outcome[S, C, E] {
	o.t.Helper()
	switch {
	case len(events) == 0:
		o.t.Errorf("when %#v: Then without events: say ThenNothing", o.command)
	case o.err != nil:
		o.t.Errorf("when %#v: wanted %d events, found a refusal: %v", o.command, len(events), o.err)
	case !equal(events, o.events):
		o.t.Errorf("when %#v: other events than wanted (- wanted, + found):\n%s", o.command, diff(events, o.events))
	}
	return o
}

// ThenNothing demands that the command was accepted and has no events.
func (o *Outcome[S, C, E]) ThenNothing() *Outcome[S, C, E] {
	o.t.Helper()
	if o.err != nil {
		o.t.Errorf("when %#v: wanted nothing to happen, found a refusal: %v", o.command, o.err)
	} else if len(o.events) > 0 {
		o.t.Errorf("when %#v: wanted no events (+ found):\n%s", o.command, diff(nil, o.events))
	}
	return o
}

// ThenRefused demands a refusal that errors.Is want; with nil any refusal will do.
func (o *Outcome[S, C, E]) ThenRefused(want error) {
	o.t.Helper()
	switch {
	case o.err == nil && len(o.events) > 0:
		o.t.Errorf("when %#v: wanted a refusal (%v), found events:\n%s", o.command, want, diff(nil, o.events))
	case o.err == nil:
		o.t.Errorf("when %#v: wanted a refusal (%v), found that it was accepted without events", o.command, want)
	case want != nil && !errors.Is(o.err, want):
		o.t.Errorf("when %#v: wanted refusal %v, found %v", o.command, want, o.err)
	}
}

// ThenState demands the state after the command's events.
func (o *Outcome[S, C, E]) ThenState(want S) *Outcome[S, C, E] {
	o.t.Helper()
	found := o.state
	for _, e := range o.events {
		found = o.decider.Evolve(found, e)
	}
	if !reflect.DeepEqual(want, found) {
		o.t.Errorf("when %#v: another state than wanted%s", o.command, differ(want, found))
	}
	return o
}

func equal[E any](a, b []E) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}

// diff shows both lists, one event a line.
func diff[E any](wanted, found []E) string {
	var b strings.Builder
	for i := range max(len(wanted), len(found)) {
		if i < len(wanted) && i < len(found) && reflect.DeepEqual(wanted[i], found[i]) {
			fmt.Fprintf(&b, "    %s\n", render(found[i]))
			continue
		}
		if i < len(wanted) {
			fmt.Fprintf(&b, "  - %s\n", render(wanted[i]))
		}
		if i < len(found) {
			fmt.Fprintf(&b, "  + %s\n", render(found[i]))
		}
	}
	return b.String()
}

func differ(a, b any) string { return fmt.Sprintf("\n  %s\n  %s", render(a), render(b)) }
