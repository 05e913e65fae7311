// State: what a host knows of a stream whose Decider is elsewhere.

package guest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

// State is a state that the handler gave, and the events since that it has not folded yet.
// It is a value: what follows from it is another one.
type State struct {
	json   []byte // nil: before the first event
	bytes  int    // of json and the events
	events *tail  // nil: none
}

// tail is the events since, the last one first, so that States may share the others.
type tail struct {
	before *tail
	event  schema.Raw
	n      int
}

// JSON returns the handler's own state; ok is false if events stand behind it that the
// handler has not folded: see [Executor.Fold]. Nil is the state before the first event.
func (s State) JSON() (state []byte, ok bool) { return s.json, s.events == nil }

// with is the state behind another event.
func (s State) with(e schema.Raw) State {
	n := 1
	if s.events != nil {
		n = s.events.n + 1
	}
	s.bytes += len(e.Data) + entryBytes
	s.events = &tail{before: s.events, event: e, n: n}
	return s
}

// entryBytes is about what an entry takes in a request beside its data.
const entryBytes = 160

// since returns the events that were not folded, in order.
func (s State) since() []schema.Raw {
	if s.events == nil {
		return nil
	}
	all := make([]schema.Raw, 0, s.events.n)
	for t := s.events; t != nil; t = t.before {
		all = append(all, t.event)
	}
	slices.Reverse(all)
	return all
}

// stored is a State in a snapshot.
type stored struct {
	State  json.RawMessage `json:"state,omitempty"`
	Events []schema.Raw    `json:"events,omitempty"`
}

// MarshalJSON returns the form in which a snapshot keeps a State.
func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{State: s.json, Events: s.since()})
}

// UnmarshalJSON reads what MarshalJSON gave.
func (s *State) UnmarshalJSON(data []byte) error {
	var v stored
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*s = State{json: v.State, bytes: len(v.State)}
	for _, e := range v.Events {
		*s = s.with(e)
	}
	return nil
}

// Command is a command of an [Executor].
type Command struct {
	handler.Command
	// Now is the moment of the command that the handler sees; zero: when Execute is called.
	Now time.Time
	// Seed is the identity that the handler sees. Execute sets it to the command's ID, if
	// it is given one, else to a new one.
	Seed eventstore.UUID
}
