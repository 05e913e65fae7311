// Errors: a sentinel says which kind, one struct says the facts.

package eventstore

import (
	"errors"
	"strconv"
	"strings"
)

// The kinds of error. Test for them with errors.Is; the facts are in *Error.
// None is ever reported as another.
var (
	// ErrFenced: the stream's epoch is another one, or belongs to another holder.
	ErrFenced = errors.New("fenced")
	// ErrDiverged: the marked entry is another one or is gone; history was lost.
	ErrDiverged = errors.New("history diverged")
	// ErrAlreadyWritten: the stream has gone on behind After; load and decide again.
	ErrAlreadyWritten = errors.New("already written")
	// ErrGap: After lies above the head.
	ErrGap = errors.New("gap")
	// ErrGuard: a guarded stream is not at its mark.
	ErrGuard = errors.New("guard failed")
	// ErrBatchIDReused: the batch's ID is in the stream, with other content.
	ErrBatchIDReused = errors.New("batch ID reused")
	// ErrNoSuchCategory: the category has not been created.
	ErrNoSuchCategory = errors.New("no such category")
	// ErrNoSuchStream: the stream has not been created (dedicated layout).
	ErrNoSuchStream = errors.New("no such stream")
	// ErrInvalid: an argument breaks its rule.
	ErrInvalid = errors.New("invalid")
	// ErrZeroEpoch: a batch without an epoch.
	ErrZeroEpoch = errors.New("zero epoch")
	// ErrNotMigrated: the schema of the store is absent or of another version.
	ErrNotMigrated = errors.New("not migrated")
	// ErrTrimmed: what was asked for has been removed; First or FirstPosition
	// tells where the rest begins.
	ErrTrimmed = errors.New("trimmed")
	// ErrTooLarge: over a limit of size or number.
	ErrTooLarge = errors.New("too large")
	// ErrOverloaded: no room now (queue, connections); nothing was written.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnavailable: the store cannot be reached or is starting; nothing was written.
	ErrUnavailable = errors.New("unavailable")
	// ErrReadOnly: the store takes no writes now.
	ErrReadOnly = errors.New("read-only")
	// ErrIsolation: the database runs transactions under a stricter isolation level
	// than READ COMMITTED, under which fences and feeds do not hold.
	ErrIsolation = errors.New("wrong isolation level")
	// ErrUnknown: the outcome is not known: the batch is wholly there or wholly
	// absent. Send the same batch again to learn which. With Unprovable set the
	// proof has been trimmed and sending again will not tell.
	ErrUnknown = errors.New("outcome unknown")
	// ErrLeaseLost: the lease has run out or is somebody else's.
	ErrLeaseLost = errors.New("lease lost")
	// ErrParked: what was waited for stands behind a parked event.
	ErrParked = errors.New("parked")
	// ErrCrossBackend: one call over streams or categories of several backends of a Route.
	ErrCrossBackend = errors.New("across backends")
	// ErrCorrupt: stored data fails its check.
	ErrCorrupt = errors.New("corrupt")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("closed")
)

// Error is the one error type that leaves eventstore and its backends. Facts are
// those the decision was made on; fields that do not apply are zero.
type Error struct {
	Kind          error  // one of the sentinels above
	Op            string // as "append", "read"
	Stream        Stream
	Category      Category
	Wanted        string   // what the caller asked for
	Found         string   // what was there instead
	Hint          string   // what to do about it
	Head          *Head    // of the stream, when an append, fence or guard was refused
	First         Seqno    // ErrTrimmed: first seqno still there
	FirstPosition Position // ErrTrimmed on a feed: read from behind this position
	Unprovable    bool     // ErrUnknown: the proof has been trimmed
	Err           error    // cause, if any
}

// Error returns one line: operation, stream, kind, wanted, found, hint.
// Names from outside are quoted when they hold anything that could forge a line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("wattle: ")
	if e.Op != "" {
		b.WriteString(e.Op + " ")
	}
	if name := e.name(); name != "" {
		b.WriteString(quoteOdd(name) + ": ")
	}
	b.WriteString(e.Kind.Error())
	part := func(label, s string) {
		if s != "" {
			b.WriteString(label + s)
		}
	}
	part(": wanted ", e.Wanted)
	part(", found ", e.Found)
	if e.Err != nil {
		part(": ", e.Err.Error())
	}
	part(" (", e.Hint)
	if e.Hint != "" {
		b.WriteByte(')')
	}
	return b.String()
}

func (e *Error) name() string {
	if e.Stream != "" {
		return string(e.Stream)
	}
	return string(e.Category)
}

// Unwrap lets errors.Is see the kind and errors.As the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// quoteOdd quotes what is not plain printable text without blanks.
func quoteOdd(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` || strings.ContainsAny(s, " ") {
		return q
	}
	return s
}

func invalid(what, wanted, found string) error {
	return &Error{Kind: ErrInvalid, Wanted: what + ": " + wanted, Found: found}
}

func tooLarge(what, wanted, found string) error {
	return &Error{Kind: ErrTooLarge, Wanted: what + ": " + wanted, Found: found}
}

// inOp adds operation and stream to an error that does not name them yet.
func inOp(op string, s Stream, err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Op == "" {
		c := *e
		c.Op = op
		if c.Stream == "" {
			c.Stream = s
		}
		return &c
	}
	return err
}
