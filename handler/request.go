// Request: what is asked of a handler.

package handler

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Version is the version of the contract, which every request and reply carries.
const Version = 1

// Op is what a handler is asked to do.
type Op string

// The operations. Describe is answered by every handler; of the others those that its
// Description lists.
const (
	Describe Op = "describe" // say what it is
	Decide   Op = "decide"   // fold Events into State and decide Command: Events, Rejected, State
	Evolve   Op = "evolve"   // fold Events into State: State
	Keys     Op = "keys"     // name the documents that Project will want to see of Events: Keys
	Project  Op = "project"  // apply Events: Put, Delete, Commands, Timers, Failed
	// The next two are services of a host, not pure: they have effects, once for each
	// Request.ID or none at all.
	Execute Op = "execute" // have Command executed on Stream: Events, Mark, Token, Replayed, Rejected
	CatchUp Op = "catchup" // have Projector catch up: More
)

// Request is one call of a handler. Which fields are set is said at the operations; the
// first group may be set for all. A handler changes nothing in it and keeps nothing of it
// beyond the call.
type Request struct {
	Op  Op
	Key eventstore.UUID // names the call: the same for every try of it, and for no other; the reply repeats it
	// Deadline is when nobody waits for the reply any more; zero: somebody always does.
	Deadline    time.Time
	Traceparent string // W3C trace context of the caller, may be empty
	Tracestate  string

	// Of Decide and Execute. Now is the moment of the command and ID its identity, from
	// which a handler may derive others (eventstore.DeriveUUID): pure functions have no
	// clock and no randomness of their own, and a command that is decided again has the
	// same.
	Now     time.Time
	ID      eventstore.UUID
	Command *Command

	// Of Decide and Evolve. Events continue State: the first one's seqno is that behind
	// it. Of Execute Stream, and After if the stream is expected to be there.
	Stream       eventstore.Stream
	After        eventstore.Mark // the last of Events, or of State: what is decided stands behind it
	State        []byte          // JSON that the handler gave itself; nil: before the first event
	StateVersion int             // Description.StateVersion of the handler that gave State

	Events []Entry

	// Of Project, Keys and CatchUp.
	Projector        string
	ProjectorVersion int
	Docs             map[string][]byte // JSON, by key: those of the keys asked for that exist
}

// Entry is an event that has its place. Of Decide and Evolve it may have no ID, Time and
// Metadata: of events that it has just appended a host does not know them, and State must
// not depend on that. The Executor of aggregate/guest never sends them.
type Entry struct {
	Event
	Stream   eventstore.Stream // of Keys and Project only
	Seqno    eventstore.Seqno
	Position eventstore.Position // of Keys and Project only
	ID       eventstore.UUID
	Time     time.Time
	Metadata eventstore.Metadata // only for a handler with the capability "meta"
	Quiet    bool                // only the documents may change: effects outside were had, or will be, by another version
}

// Event is a fact in its stored form.
type Event struct {
	Type        string // wire name
	Version     int    // 0 in a reply: the highest that the handler knows of Type
	ContentType string // empty: application/json
	Data        []byte // raw: it is passed on as it is, to the byte
}

// Command is what is to be decided, in wire form.
type Command struct {
	Type        string // wire name
	Version     int    // 0: the handler's only or newest one
	ContentType string // empty: application/json
	Data        []byte
	Metadata    eventstore.Metadata
}
