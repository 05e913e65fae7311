// Errors: sentinels, the facts in Error, and the list of mistakes in a registry.

package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// The kinds of error. Test for them with errors.Is; the facts are in *Error.
var (
	// ErrUnknownType: no Go type is registered for the event's wire name and
	// version. It was written by newer code, or its registration was dropped.
	ErrUnknownType = errors.New("unknown event type")
	// ErrDecode: the data of a known type cannot be read, or no codec is
	// registered for its content type.
	ErrDecode = errors.New("cannot decode event")
	// ErrEncode: the event is nil, of a Go type that is not registered, or its
	// codec cannot write it.
	ErrEncode = errors.New("cannot encode event")
	// ErrRegistration: the registry was made with mistakes; see MistakesError.
	ErrRegistration = errors.New("mistakes in the event registry")
)

// Error is what Encode and Decode return. Fields that do not apply are zero.
type Error struct {
	Kind    error             // one of the sentinels above
	Stream  eventstore.Stream // of the entry; empty for an event that has no place yet
	Seqno   eventstore.Seqno  // of the entry
	Type    string            // wire name; for ErrEncode the Go type
	Version int               // of the wire name; 0 for ErrEncode
	Known   string            // what is registered, shortened
	Hint    string            // what to do about it
	Err     error             // of the codec, if any
}

// Error returns one line: place, kind, type, what is registered, cause, hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("wattle: ")
	if e.Stream != "" {
		fmt.Fprintf(&b, "%s: entry %d: ", quoteOdd(string(e.Stream)), e.Seqno)
	}
	b.WriteString(e.Kind.Error() + " " + quoteOdd(e.Type))
	if e.Version != 0 {
		fmt.Fprintf(&b, " version %d", e.Version)
	}
	if e.Known != "" {
		b.WriteString(": registered: " + e.Known)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap lets errors.Is see the kind and errors.As the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// MistakesError is the full list of what is wrong with a registry. errors.Is finds
// ErrRegistration in it.
type MistakesError struct {
	Event    string   // Go type of the registry's events
	Mistakes []string // in the order in which the wires were given
}

// Error returns one line with all mistakes.
func (e *MistakesError) Error() string {
	return fmt.Sprintf("wattle: registry of %s: %v (%d): %s", e.Event, ErrRegistration, len(e.Mistakes), strings.Join(e.Mistakes, "; "))
}

// Unwrap returns ErrRegistration.
func (e *MistakesError) Unwrap() error { return ErrRegistration }

// quoteOdd quotes what is not plain printable text without blanks: names in an
// entry come from outside and must not forge a line of a log.
func quoteOdd(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` || strings.Contains(s, " ") || s == "" {
		return q
	}
	return s
}
