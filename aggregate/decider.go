// What users write: Decider, Type and the policy of snapshots.

package aggregate

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
)

// Decider is an aggregate: S is its state, C its commands, E its events, the last
// two usually interfaces.
//
// All three functions must be pure: the same arguments give the same answer, and
// nothing that an argument refers to is changed. States are cached and shared, so
// Evolve must copy a map, slice or pointer before it changes what is in it. Time,
// random numbers and whatever else comes from outside belong into the command.
// They are called from several goroutines at once, for different streams.
type Decider[S, C, E any] struct {
	// Initial is the state before the first event.
	Initial func() S
	// Decide answers a command with the events that follow from it, or refuses it
	// with an error that reaches the caller unchanged. No events and no error means
	// accepted, nothing to do.
	Decide func(S, C) ([]E, error)
	// Evolve is the state after an event. It refuses nothing: the event is a fact.
	Evolve func(S, E) S
}

// Fold returns the state after events, from the initial one.
func (d Decider[S, C, E]) Fold(events ...E) S {
	s := d.Initial()
	for _, e := range events {
		s = d.Evolve(s, e)
	}
	return s
}

func (d Decider[S, C, E]) check() error {
	if d.Initial == nil || d.Decide == nil || d.Evolve == nil {
		return errors.New("decider: Initial, Decide and Evolve must all be given")
	}
	return nil
}

// Type binds a Decider to a category of streams.
type Type[S, C, E any] struct {
	Category eventstore.Category
	Schema   *schema.Registry[E]
	Decider  Decider[S, C, E]
	// Remote, if given, decides the commands of Executor.Execute in the place of
	// Decider.Decide: for a handler that is another process or a guest. See [Remote].
	Remote    Remote[S, C, E]
	Snapshots Snapshots
	// Size estimates how many bytes a state takes in the cache. Nil: the stored
	// bytes of the snapshot and events that were folded into it, which is more than
	// a small state of a long stream takes.
	Size func(S) int
}

// Check returns everything that is wrong with a type, but for its category.
func (t *Type[S, C, E]) Check() error {
	return errors.Join(t.Schema.Err(), t.Decider.check(), t.Snapshots.check())
}

// Remote decides as Decider.Decide does, somewhere else: it may take time, within ctx,
// and fail. It may be called several times for one command, and must then give the same
// answer to the same question. An error is a failure to decide: it reaches the caller of
// Execute unchanged, and nothing was appended. What the command is refused with is
// Answer.Refused.
//
// ExecuteMulti brings its own decision and never calls Remote.
type Remote[S, C, E any] func(ctx context.Context, q Question[S, C]) (Answer[S, E], error)

// Question is what there is to decide on.
type Question[S, C any] struct {
	Stream    eventstore.Stream
	After     eventstore.Mark // of the last entry folded into State: the events will stand behind it
	State     S
	Command   C
	CommandID eventstore.UUID // zero: the command was given none
	Retries   int             // how often it was decided before
}

// Answer is what was decided.
type Answer[S, E any] struct {
	Events  []E
	Refused error // reaches the caller of Execute unchanged; Events do not count then
	// State is the one after Events, if Folded says that it is known: Evolve is then not
	// called for them.
	State  S
	Folded bool
}

// Snapshots is a policy. The zero value makes none, but uses those that
// Executor.Snapshot made.
//
// A state goes into a snapshot as JSON. A State from which JSON would lose
// something (unexported fields, fields tagged "-", interfaces with methods,
// functions, channels) is refused by NewExecutor when Every is set; types that
// marshal themselves are trusted.
type Snapshots struct {
	// Every says after how many events a snapshot is made, counted from the one
	// before; 0: never. It is written after the append, within Execute; a failure is
	// logged by the Store's Logger and is no failure of the command.
	Every int
	// Version is part of the snapshots' fingerprint, beside the structure of State,
	// which is found by reflection. Raise it when Evolve gives another state for the
	// same events: older snapshots are then left out and the events replayed.
	Version int
	// RememberedIDs is how many of the last command IDs of a stream are known
	// without reading all of it; 0: eventstore.DefaultRememberedIDs. It bounds
	// snapshot (about 140 bytes each) and cache, and must be the same in all
	// processes.
	RememberedIDs int
}

func (s Snapshots) check() error {
	if s.Every < 0 || s.Version < 0 || s.RememberedIDs < 0 {
		return fmt.Errorf("snapshots: wanted numbers of at least 0, found Every %d, Version %d, RememberedIDs %d", s.Every, s.Version, s.RememberedIDs)
	}
	return nil
}

func (s Snapshots) remembered() int {
	if s.RememberedIDs == 0 {
		return eventstore.DefaultRememberedIDs
	}
	return s.RememberedIDs
}
