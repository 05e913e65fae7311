// A Decider as a handler: the far side.

package guest

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

// Options of New; nil and zero fields are the defaults.
type Options[C any] struct {
	Name    string // of the handler; "": the category's
	Release string // of its code, for people
	// Prepare puts into a command what a pure function has no other way to know.
	Prepare func(C, Moment) C
	// Metadata asks for the metadata of entries. Commands have theirs in any case, and an
	// Executor sends none of entries: State must not depend on it.
	Metadata bool
}

// Moment is what a request says about a command, beside the command.
type Moment struct {
	Now      time.Time       // of the command, the same in every decision of it
	ID       eventstore.UUID // of the command: others can be derived from it (eventstore.DeriveUUID)
	Stream   eventstore.Stream
	After    eventstore.Mark // the events will stand behind it
	Metadata eventstore.Metadata
}

// New returns the handler of a type: of the operations describe, decide and evolve. State
// goes to and fro as JSON, so it must be one that could go into a snapshot; its version is
// t.Snapshots.Version + 1. What Decide refuses with becomes a handler.Rejected, with its
// Code() string, if it has that method, or "rejected" as the code. Everything wrong with
// the type is told at once.
func New[S, C, E any](t aggregate.Type[S, C, E], commands Commands[C], o *Options[C]) (handler.Handler, error) {
	if o == nil {
		o = &Options[C]{}
	}
	d := &decider[S, C, E]{t: t, commands: commands, o: *o}
	if d.o.Name == "" {
		d.o.Name = string(t.Category)
	}
	_, category := eventstore.ParseCategory(string(t.Category))
	errs := []error{category, t.Check()}
	if commands == nil || len(commands.Wires()) == 0 {
		errs = append(errs, errors.New("there are no commands"))
	}
	return d, errors.Join(errs...)
}

type decider[S, C, E any] struct {
	t        aggregate.Type[S, C, E]
	commands Commands[C]
	o        Options[C]
}

func (d *decider[S, C, E]) stateVersion() int { return d.t.Snapshots.Version + 1 }

// Handle answers a request.
func (d *decider[S, C, E]) Handle(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	switch r.Op {
	case handler.Describe:
		return d.describe(r), nil
	case handler.Decide:
		return d.decide(r)
	case handler.Evolve:
		s, err := d.fold(r)
		if err != nil {
			return nil, err
		}
		return d.reply(r, s, nil)
	}
	return nil, handler.Unsupported(r, handler.Describe, handler.Decide, handler.Evolve)
}

func (d *decider[S, C, E]) describe(r *handler.Request) *handler.Reply {
	capabilities := []string{string(handler.Decide), string(handler.Evolve)}
	if d.o.Metadata {
		capabilities = append(capabilities, handler.CapabilityMeta)
	}
	return &handler.Reply{Key: r.Key, Description: &handler.Description{Name: d.o.Name, Release: d.o.Release, Category: d.t.Category,
		Capabilities: capabilities, Events: wires(d.t.Schema), Commands: d.commands.Wires(), StateVersion: d.stateVersion()}}
}

// fold returns the state that a request describes.
func (d *decider[S, C, E]) fold(r *handler.Request) (S, error) {
	s := d.t.Decider.Initial()
	if r.Stream.Category() != d.t.Category {
		return s, d.invalid(r, "a stream of category "+string(d.t.Category), string(r.Stream), nil)
	}
	if r.State != nil {
		if r.StateVersion != d.stateVersion() {
			return s, &handler.Error{Kind: handler.ErrStateVersion, Op: r.Op, Stream: r.Stream, Wanted: versionText(d.stateVersion()), Found: versionText(r.StateVersion),
				Hint: "describe the handler again and fold the events anew"}
		}
		var read S
		if err := schema.JSON.Decode(r.State, &read); err != nil {
			return s, d.invalid(r, "a state of this handler", "another one", err)
		}
		s = read
	}
	for i := range r.Events {
		e, err := d.t.Schema.Decode(entry(r, &r.Events[i]))
		if err != nil {
			return s, d.invalid(r, "events that this release knows", "another one", err)
		}
		s = d.t.Decider.Evolve(s, e)
	}
	return s, nil
}

func (d *decider[S, C, E]) invalid(r *handler.Request, wanted, found string, err error) error {
	return &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Stream: r.Stream, Wanted: wanted, Found: found, Err: err}
}

// entry is an entry of a request as the schema reads it.
func entry(r *handler.Request, e *handler.Entry) eventstore.Entry {
	return eventstore.Entry{Stream: r.Stream, Seqno: e.Seqno, Time: e.Time,
		Event: eventstore.Event{ID: e.ID, Type: e.Type, Version: e.Version, ContentType: contentType(e.ContentType), Data: e.Data, Metadata: e.Metadata}}
}

func (d *decider[S, C, E]) decide(r *handler.Request) (*handler.Reply, error) {
	if r.Command == nil {
		return nil, d.invalid(r, "a command", "none", nil)
	}
	s, err := d.fold(r)
	if err != nil {
		return nil, err
	}
	c, err := d.commands.Decode(r.Command)
	if err != nil {
		return nil, err
	}
	if d.o.Prepare != nil {
		c = d.o.Prepare(c, Moment{Now: r.Now, ID: r.ID, Stream: r.Stream, After: r.After, Metadata: r.Command.Metadata})
	}
	events, err := d.t.Decider.Decide(s, c)
	if err != nil {
		return &handler.Reply{Key: r.Key, Rejected: rejected(err)}, nil
	}
	stored := make([]handler.Event, len(events))
	for i, e := range events {
		if stored[i], e, err = encoded(d.t.Schema, e); err != nil {
			return nil, &handler.Error{Kind: handler.ErrBadReply, Op: r.Op, Stream: r.Stream, Err: err}
		}
		s = d.t.Decider.Evolve(s, e)
	}
	return d.reply(r, s, stored)
}

// encoded returns an event as it is stored, and as it will be read back.
func encoded[E any](events *schema.Registry[E], e E) (handler.Event, E, error) {
	stored, err := events.Encode(e)
	if err != nil {
		return handler.Event{}, e, err
	}
	back, err := events.Decode(eventstore.Entry{Event: stored})
	return handler.Event{Type: stored.Type, Version: stored.Version, ContentType: stored.ContentType, Data: stored.Data}, back, err
}

func (d *decider[S, C, E]) reply(r *handler.Request, s S, events []handler.Event) (*handler.Reply, error) {
	state, err := schema.JSON.Encode(s)
	if err != nil {
		return nil, &handler.Error{Kind: handler.ErrBadReply, Op: r.Op, Stream: r.Stream, Wanted: "a state that JSON can hold", Err: err}
	}
	return &handler.Reply{Key: r.Key, State: state, Events: events}, nil
}
