// The aggregate: its words, its state, and the two pure functions Decide and Evolve.

package loan

import (
	"fmt"
	"maps"
	"time"
)

// Order is what every command carries. Business time is part of the command, so
// deciding needs no clock.
type Order struct {
	// At is when the bank did it, in any zone. Required.
	At time.Time `json:"at"`
	// Resource is who did it; empty when the log does not say.
	Resource string `json:"resource,omitempty"`
}

// Occurred is what every event carries: the Order it answers, At in UTC.
type Occurred struct {
	At       time.Time `json:"at"`
	Resource string    `json:"resource,omitempty"`
}

// Command is one of the command types of this package, always as a value, never
// as a pointer. CommandTypes lists them.
type Command interface {
	order() Order
	// decide checks the rules of this command alone and makes its event.
	decide(State) (Event, error)
}

// Event is one of the event types of this package, always as a value, never as
// a pointer. EventTypes lists them with their wire names.
type Event interface {
	occurred() Occurred
	// evolve changes a State that is already a copy; what State refers to must be
	// copied before it is changed.
	evolve(*State)
}

func (o Order) order() Order          { return o }
func (o Occurred) occurred() Occurred { return o }

// occur is the event's half of an order.
func (o Order) occur() Occurred {
	return Occurred{At: o.At.Round(0).UTC(), Resource: o.Resource}
}

// State is what the rules need to know of one application. The zero State is an
// application that was never submitted. It is a value: no function of this
// package changes one it was given, so a State may be cached, shared and
// snapshotted (as JSON) freely.
type State struct {
	Amount int64     `json:"amount"`
	Last   time.Time `json:"last,omitzero"` // business time of the last event

	Submitted       bool    `json:"submitted,omitempty"`
	PartlySubmitted bool    `json:"partly_submitted,omitempty"`
	Preaccepted     bool    `json:"preaccepted,omitempty"`
	Accepted        bool    `json:"accepted,omitempty"`
	Finalized       bool    `json:"finalized,omitempty"`
	Registered      bool    `json:"registered,omitempty"`
	Activated       bool    `json:"activated,omitempty"`
	Outcome         Outcome `json:"outcome,omitzero"`

	Offers Offers            `json:"offers"`
	Work   map[WorkItem]Work `json:"work,omitempty"`
}

// Offers counts what happened to the offers of one application.
type Offers struct {
	Selected  int  `json:"selected,omitempty"`
	Created   int  `json:"created,omitempty"`
	Sent      int  `json:"sent,omitempty"`
	Returned  int  `json:"returned,omitempty"`
	Cancelled int  `json:"cancelled,omitempty"`
	Accepted  bool `json:"accepted,omitempty"`
	Declined  bool `json:"declined,omitempty"`
}

// Work counts what happened to one work item of one application.
type Work struct {
	Scheduled int `json:"scheduled,omitempty"`
	Started   int `json:"started,omitempty"`
	Completed int `json:"completed,omitempty"`
}

// Live is how many offers were sent and not cancelled.
func (o Offers) Live() int { return o.Sent - o.Cancelled }

// InMaking says that an offer was selected and not yet sent.
func (o Offers) InMaking() bool { return o.Selected > o.Sent }

// Closed says that the application was decided, or that granting it has begun.
func (s State) Closed() bool { return s.Outcome != OutcomeOpen || s.Registered || s.Activated }

// setWork replaces the counts of one item in a map of its own, because the old
// map may belong to other States.
func (s *State) setWork(item WorkItem, w Work) {
	work := make(map[WorkItem]Work, len(s.Work)+1)
	maps.Copy(work, s.Work)
	work[item] = w
	s.Work = work
}

// Initial is the state of an application that was never submitted.
func Initial() State { return State{} }

// Decide answers a command with exactly one event, or with a *Refusal that names
// the broken rule. It is pure: same state and command, same answer. Anything may
// call it concurrently.
func Decide(s State, c Command) ([]Event, error) {
	if c == nil {
		return nil, refuse(RuleWellFormed, "a command", "nil")
	}
	if err := admit(s, c); err != nil {
		return nil, err
	}
	e, err := c.decide(s)
	if err != nil {
		return nil, err
	}
	return []Event{e}, nil
}

// Evolve is the state after an event. It refuses nothing: what was decided is a
// fact. The given state, its map included, stays as it is.
func Evolve(s State, e Event) State {
	s.Last = e.occurred().At
	e.evolve(&s)
	return s
}

// Outcome is how an application ended. The zero Outcome is open.
type Outcome int

// The outcomes, in the order reports show them.
const (
	OutcomeOpen Outcome = iota
	OutcomeApproved
	OutcomeDeclined
	OutcomeCancelled
)

var outcomeNames = [...]string{"open", "approved", "declined", "cancelled"}

// String is the name used in JSON: open, approved, declined or cancelled.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return outcomeNames[o]
}

// ParseOutcome is the inverse of String for the four outcomes.
func ParseOutcome(name string) (Outcome, error) {
	for o, n := range outcomeNames {
		if n == name {
			return Outcome(o), nil
		}
	}
	return 0, fmt.Errorf("loan: wanted an outcome (open, approved, declined or cancelled), found %q", name)
}

// MarshalText is String, refused for a value that is no outcome.
func (o Outcome) MarshalText() ([]byte, error) {
	if _, err := ParseOutcome(o.String()); err != nil {
		return nil, err
	}
	return []byte(o.String()), nil
}

// UnmarshalText is ParseOutcome.
func (o *Outcome) UnmarshalText(text []byte) error {
	parsed, err := ParseOutcome(string(text))
	if err != nil {
		return err
	}
	*o = parsed
	return nil
}
