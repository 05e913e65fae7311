// What is written of a timer, and how it is read back.

package timer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Wire names of the entries of a timer's stream, all of version 1.
const (
	SetType       = "timer.set"
	CancelledType = "timer.cancelled"
	FiredType     = "timer.fired"
)

// State is what has become of a timer.
type State uint8

const (
	Pending   State = iota + 1 // it will fire
	Fired                      // its generation has fired
	Cancelled                  // it will not fire
)

var stateNames = [...]string{"", "pending", "fired", "cancelled"}

func (s State) String() string {
	if int(s) < len(stateNames) && s > 0 {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// types are the wire names of the entries that bring a timer into each state.
var types = [...]string{Pending: SetType, Fired: FiredType, Cancelled: CancelledType}

// Clock is the clock by which a timer is due; see the package comment.
type Clock uint8

const (
	Wall Clock = iota // that of the schedulers' machines
	Log               // the times of the entries in Options.LogCategories
)

var clockNames = [...]string{"wall", "log"}

// String returns "wall" or "log"; UnmarshalText is its inverse.
func (c Clock) String() string {
	if int(c) < len(clockNames) {
		return clockNames[c]
	}
	return "clock " + strconv.Itoa(int(c))
}

// MarshalText writes the form of String.
func (c Clock) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the form of String.
func (c *Clock) UnmarshalText(b []byte) error {
	for i, name := range clockNames {
		if string(b) == name {
			*c = Clock(i)
			return nil
		}
	}
	return fmt.Errorf("timer: no clock %q", b)
}

// Timer is a timer as of its last entry, or of the entry it was decoded from.
type Timer struct {
	Name string
	// Generation is the seqno of the entry that set it: each Set and Reschedule begins
	// a new one, and each fires at most once.
	Generation  eventstore.Seqno
	State       State
	Due         time.Time // in UTC, to the microsecond
	Clock       Clock
	ContentType string // of Payload
	Payload     []byte // nil when cancelled
	// By is the entry that made a log timer due; nil if it has not fired so.
	By *Cause
	// Mark of the entry, and its place in the feed.
	Mark     eventstore.Mark
	Position eventstore.Position
	// Token is passed by a projection that has seen the entry; only a change has one.
	Token eventstore.Token
	// Replayed says of a change that its ID was known: it was made before, and the rest
	// is what has become of the timer since.
	Replayed bool
}

// Cause is the entry whose Time made a log timer due.
type Cause struct {
	Stream   eventstore.Stream   `json:"stream"`
	Seqno    eventstore.Seqno    `json:"seqno"`
	Position eventstore.Position `json:"position"`
	Time     time.Time           `json:"time"`
}

// record is the data of every entry.
type record struct {
	Due         time.Time        `json:"due"`
	Clock       Clock            `json:"clock"`
	Generation  eventstore.Seqno `json:"generation,omitempty"` // of what is over; that of a set is its seqno
	ContentType string           `json:"content_type,omitempty"`
	Payload     []byte           `json:"payload,omitempty"`
	By          *Cause           `json:"by,omitempty"`
	Requests    []request        `json:"requests,omitempty"` // the last ones with an ID, oldest first
	// Minted is the highest time in the ID of a request before these, in Unix
	// milliseconds: one with a higher time is not among them.
	Minted uint64 `json:"minted,omitempty"`
}

// request is a change that was given an ID.
type request struct {
	ID    eventstore.UUID  `json:"id"`
	Seqno eventstore.Seqno `json:"seqno"` // of its entry
}

func (r *record) event(state State) (eventstore.Event, error) {
	data, err := json.Marshal(r)
	return eventstore.Event{Type: types[state], Version: 1, ContentType: "application/json", Data: data}, err
}

// decode reads an entry. Damage, and entries that are of no timer, are ErrCorrupt.
func decode(e *eventstore.Entry) (Timer, record, error) {
	t := Timer{Name: e.Stream.Key(), Generation: e.Seqno, Mark: e.Mark(), Position: e.Position}
	for state := Pending; state <= Cancelled; state++ {
		if e.Type == types[state] {
			t.State = state
		}
	}
	var r record
	err := json.Unmarshal(e.Data, &r)
	if err == nil && r.Due.IsZero() {
		err = fmt.Errorf("no due time")
	}
	if t.State == 0 || e.Version != 1 || err != nil {
		return t, r, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "decode timer", Stream: e.Stream,
			Wanted: "an entry of a timer, version 1", Found: fmt.Sprintf("%q, version %d, at %d", e.Type, e.Version, e.Seqno), Err: err,
			Hint: "keep the category to timers"}
	}
	if t.State != Pending {
		t.Generation = r.Generation
	}
	t.Due, t.Clock, t.ContentType, t.Payload, t.By = r.Due.UTC(), r.Clock, r.ContentType, r.Payload, r.By
	return t, r, nil
}

// Events decodes the entries of timers, for projectors of their category:
// it is a projector.Decoder[Timer].
type Events struct{}

// Decode returns the timer as of an entry; eventstore.ErrCorrupt if it is of no timer.
func (Events) Decode(e eventstore.Entry) (Timer, error) {
	t, _, err := decode(&e)
	return t, err
}
