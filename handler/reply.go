// Reply: what a handler answers.

package handler

import (
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Reply is the answer to a Request. Which fields are set is said at the operations.
type Reply struct {
	Key eventstore.UUID // of the request

	Failure  *Failure  // the handler could not answer; nothing else counts then
	Rejected *Rejected // of Decide and Execute: the command is refused, for good; no Events then

	Description *Description

	Stream eventstore.Stream // may be repeated: it is checked then
	State  []byte            // JSON: the state behind all events, those decided included. Nil of Decide: not told
	Events []Event           // of Decide and Execute

	Keys     []string          // of Keys
	Put      map[string][]byte // documents to write, JSON by key
	Delete   []string          // documents to remove, by key
	Commands []Issue           // to be executed, each under an ID that the host derives from its place
	Timers   []Timer           // to be set, or cancelled
	Failed   []EntryFailure    // entries that cannot be applied; what they would have changed is left out

	Mark     eventstore.Mark  // of Execute: of the last entry written, or of the stream
	Token    eventstore.Token // of Execute: zero if nothing was written
	Replayed bool             // of Execute: the command was in the history already
	More     bool             // of CatchUp: not all was handled
}

// bytes is what a reply carries of the domain's: a little less than it takes encoded.
func (r *Reply) bytes() int {
	n := len(r.State)
	for _, e := range r.Events {
		n += len(e.Data)
	}
	for _, list := range [][]string{r.Keys, r.Delete} {
		for _, k := range list {
			n += len(k)
		}
	}
	for k, doc := range r.Put {
		n += len(k) + len(doc)
	}
	for _, c := range r.Commands {
		n += len(c.Data)
	}
	for _, t := range r.Timers {
		n += len(t.Data)
	}
	return n
}

// Issue is a command that a projection wants executed because of an entry, which must be
// neither quiet nor failed. The host derives the command's ID from that entry and from the
// command's place among those of the same entry.
type Issue struct {
	Position eventstore.Position // of the entry; 0: that of the only one there is
	Stream   eventstore.Stream
	Command
}

// Timer is set because of an entry under a name, replacing one of that name, or cancelled.
// What is said of an Issue goes for it.
type Timer struct {
	Position eventstore.Position
	Name     string
	Due      time.Time
	Data     []byte // JSON, may be nil
	Cancel   bool
}

// EntryFailure says why an entry cannot be applied.
type EntryFailure struct {
	Position eventstore.Position
	Message  string
}

// Rejected is a command's refusal by the domain: final, and no fault. It reaches the
// caller of Execute as it is.
type Rejected struct {
	Code    string // for programs: short, without spaces
	Message string // for people
}

// Error returns the message, behind the code.
func (r *Rejected) Error() string {
	if r.Message == "" {
		return r.Code
	}
	return r.Code + ": " + r.Message
}

// Codes of a Failure.
const (
	CodeInvalid  = "invalid"  // the request is wrong, and will be the next time: ErrBadRequest
	CodeFailed   = "failed"   // the handler failed; it may succeed another time: ErrFailed
	CodeState    = "state"    // StateVersion is not the handler's own: ErrStateVersion
	CodeTooLarge = "toolarge" // the request, or the reply that it calls for, is over a limit: eventstore.ErrTooLarge
	CodeConflict = "conflict" // of Execute: the stream is not where it was expected: eventstore.ErrAlreadyWritten
	CodeUnknown  = "unknown"  // of Execute: not known if it was; ask again under the same ID: eventstore.ErrUnknown
)

// Failure says that a handler could not answer, and why.
type Failure struct {
	Code    string
	Message string
}

func (f *Failure) String() string { return fmt.Sprintf("%s: %s", f.Code, f.Message) }

// Description says what a handler is.
type Description struct {
	Name         string              // of the handler, for people and metrics
	Release      string              // its own version, for people
	Category     eventstore.Category // whose streams it decides, or whose entries it projects
	Capabilities []string            // the operations, and "meta" if it wants metadata of entries
	Events       []Wire              // what it may answer, and what it can fold or apply
	Commands     []Wire              // what it decides
	StateVersion int                 // changes when State of another release cannot be used: states and snapshots are then made anew
}

// CapabilityMeta asks for the metadata of entries.
const CapabilityMeta = "meta"

// Wire is a wire name and a version, from 1.
type Wire struct {
	Name    string
	Version int
}

// Can says if the handler has a capability; all can describe themselves.
func (d *Description) Can(op Op) bool {
	if op == Describe {
		return true
	}
	for _, c := range d.Capabilities {
		if c == string(op) {
			return true
		}
	}
	return false
}

// newest returns the highest version of a wire name, 0 if it is unknown.
func newest(wires []Wire, name string) (version int) {
	for _, w := range wires {
		if w.Name == name {
			version = max(version, w.Version)
		}
	}
	return version
}
