// The reactor: turns events into commands, each under the same ID whenever it is issued.

package projector

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// Command is what a reactor wants done because of an entry.
type Command[C any] struct {
	// ID is the same whenever the entry is reacted to, by whichever process, version of
	// the reactor or attempt: whoever executes commands by their ID does so once. See
	// [CommandUUID].
	ID    eventstore.UUID
	Entry eventstore.Entry // what is reacted to: the cause
	Value C
}

// ReactorOptions say what a reactor does. All but Projector must be given.
type ReactorOptions[E, C any] struct {
	// Events decodes entries, as *schema.Registry[E] does. An entry that it does not
	// know stops the reactor, or parks its key; Projector.Types leaves types out.
	Events Decoder[E]
	// React returns the commands that an event calls for, in order, at most
	// MaxCommands; none is a usual answer. It must be pure: an entry that is seen again
	// must give the same commands in the same order, since a command's place among
	// them is part of its ID. So it looks at nothing but the event, and what it must
	// remember between events belongs into an aggregate of its own: see NewReactor.
	React func(Event[E]) ([]C, error)
	// Issue has a command executed and returns nil when that is durable, or needs no
	// further try. It is called at least once for each command, in order, and may be
	// called again for any of them, so what it calls must go by Command.ID.
	//
	// An error means that the command is still to be issued: the entry is tried again
	// as any that a handler fails on, and in the end it stops the reactor or parks the
	// key. A command that its target refuses for good is therefore no error: Issue
	// returns nil for it, having told whoever has to know, for instance the process
	// manager's aggregate with a command of its own.
	Issue func(context.Context, Command[C]) error
	// Projector are the options of the projector around it, without Snapshots.
	Projector Options
}

// NewReactor returns a projector that issues the commands that events call for. A
// command is issued at least once and under the same ID each time, so that it takes
// effect once where commands are known by their ID, as those of an
// aggregate.Executor are:
//
//	Issue: func(ctx context.Context, c projector.Command[Ship]) error {
//		_, err := orders.Execute(ctx, c.Value.Order, c.Value, aggregate.CommandID(c.ID), aggregate.CausedBy(c.Entry))
//		return err
//	},
//
// What that promises, and for how long, is in the comment of package aggregate. The
// IDs carry the time of the entry, so a command that is older than those its target
// remembers is looked for, and if nothing can tell any more it is
// aggregate.ErrForgotten, not done twice. The price: so is the first issue of a reactor
// that is far behind, once its target has forgotten younger commands than the
// entry is and trimmed them. Raise RememberedIDs of targets with many commands.
//
// For entries that are [Quiet] nothing is issued, and React is not called: so it is with
// a new version that is built beside the live one. Where c is no [Control] there is no
// such thing, and a new version issues everything again, under the same IDs.
//
// A reactor remembers nothing. A process manager that has to is two things: an
// aggregate of its own, which gets the events as commands and whose stream is its
// memory, and a reactor to that aggregate's events. Both are fenced and replayed as
// any other.
func NewReactor[E, C any](store *eventstore.Store, name string, category eventstore.Category, c Checkpoints, o ReactorOptions[E, C]) *Projector {
	h := &sink{Checkpoints: c, f: o.handle}
	p := New(store, name, category, h, &o.Projector)
	if p.mistake == nil && (c == nil || o.Events == nil || o.React == nil || o.Issue == nil) {
		p.mistake = p.invalid("checkpoints, Events, React and Issue", "nil")
	}
	if p.mistake == nil && o.Projector.Snapshots {
		p.mistake = p.invalid("a reactor of events", "Options.Snapshots: a state calls for nothing")
	}
	return p
}

// handle reacts to a batch, none of which is quiet.
func (o *ReactorOptions[E, C]) handle(ctx context.Context, key Key, batch []eventstore.Entry) error {
	events, err := Decode(o.Events, batch)
	if err != nil {
		return err
	}
	return Each(ctx, events, func(ctx context.Context, e Event[E]) error { return o.react(ctx, key, e) })
}

func (o *ReactorOptions[E, C]) react(ctx context.Context, key Key, e Event[E]) error {
	commands, err := o.React(e)
	if err != nil {
		return err
	}
	if len(commands) > MaxCommands {
		bad := NewEntryError([]eventstore.Entry{e.Entry}, &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: "react", Stream: e.Stream,
			Wanted: fmt.Sprintf("at most %d commands", MaxCommands), Found: fmt.Sprint(len(commands)), Hint: "let a command of its own fan out"})
		bad.Permanent = true
		return bad
	}
	for i, c := range commands {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.Issue(ctx, Command[C]{ID: CommandUUID(key.Name(), e.Entry, i), Entry: e.Entry, Value: c}); err != nil {
			return err
		}
	}
	return nil
}

// CommandUUID returns the ID of the i-th command, from 0, that a reactor issues because
// of an entry. It follows from the reactor's name, the entry's stream, seqno, ID and
// Time, and i; not from the reactor's version, lanes or backend. It is a UUIDv7 of the
// entry's Time, so that who remembers commands by ID can tell an old one from a new one.
func CommandUUID(reactor string, e eventstore.Entry, i int) eventstore.UUID {
	h := sha256.New()
	var n [8]byte
	for _, part := range [][]byte{[]byte(reactor), []byte(e.Stream), e.ID[:]} {
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	binary.BigEndian.PutUint64(n[:], uint64(e.Seqno))
	h.Write(n[:])
	u := eventstore.UUID(h.Sum(nil)[:16])
	binary.BigEndian.PutUint64(n[:], uint64(max(e.Time.UnixMilli(), 0))<<16)
	copy(u[:6], n[:6])
	u[6] = u[6]&0x0f | 7<<4 // RFC 9562: version 7
	u[8] = u[8]&0x3f | 0x80 // and its variant
	return eventstore.DeriveUUID(u, i)
}
