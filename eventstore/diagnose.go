// Diagnosis: what an examination of a store finds, and who can make one.

package eventstore

import (
	"context"
	"fmt"
	"iter"
	"strconv"
)

// Severity says how bad a Finding is.
type Severity uint8

const (
	// SeverityOK: looked at, and as it should be.
	SeverityOK Severity = iota
	// SeverityNote: worth knowing; nothing has to be done.
	SeverityNote
	// SeverityWarning: nothing is damaged yet, or it cannot be told whether something is.
	SeverityWarning
	// SeverityFault: stored data is damaged, or the store cannot keep its promises here.
	SeverityFault
)

var severities = [...]string{"ok", "note", "warning", "fault"}

// String returns "ok", "note", "warning" or "fault"; ParseSeverity is its inverse.
func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return "severity " + strconv.Itoa(int(s))
}

// ParseSeverity reads the form of String; anything else is ErrInvalid.
func ParseSeverity(s string) (Severity, error) {
	for i, name := range severities {
		if s == name {
			return Severity(i), nil
		}
	}
	return 0, invalid("severity", "ok, note, warning or fault", strconv.Quote(clip(s)))
}

// MarshalText writes the form of String.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form of String.
func (s *Severity) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSeverity(string(b))
	return err
}

// Finding is one thing that an examination found. Of the place only what applies is
// set: nothing for the store as a whole, a category, a stream, an entry.
type Finding struct {
	Check    string // which check found it, as "gap"; names do not change
	Severity Severity
	Backend  string   // which one, behind a Route
	Category Category // of Stream when that is given
	Stream   Stream
	Seqno    Seqno
	Position Position
	Wanted   string // how it should be; empty with SeverityOK
	Found    string // how it is
	Hint     string // what to do about it
}

// Where names the place: "account-alice at 5", "account", "position 7", or "store";
// behind a Route with the backend before it, as "files: account".
func (f Finding) Where() string {
	if backend := f.Backend; backend != "" {
		f.Backend = ""
		return backend + ": " + f.Where()
	}
	place := quoteOdd(string(f.Stream))
	switch {
	case f.Stream != "":
	case f.Category != "":
		place = quoteOdd(string(f.Category))
	case f.Position > 0:
		return "position " + f.Position.String()
	default:
		return "store"
	}
	if f.Seqno > 0 {
		return place + " at " + f.Seqno.String()
	}
	if f.Position > 0 {
		return place + ", position " + f.Position.String()
	}
	return place
}

// Progress is how far an examination has come.
type Progress struct {
	Streams int64 // checked so far
	Entries int64 // checked so far
	Total   int64 // entries there were when it began; it may check more or fewer
}

// Verifier is implemented by logs that can check what they have stored.
type Verifier interface {
	// Verify checks everything that is stored and returns what is wrong, as it is
	// found; findings are never SeverityOK. It reads only, never stops at a fault, and
	// needs memory for a bounded number of entries, however many there are. Appends,
	// trims and whatever else a log does may go on meanwhile: they cause no finding.
	// What is appended behind its back may or may not be checked.
	//
	// progress is told now and then how far it has come, in the goroutine that ranges;
	// it may be nil. The loop body may call anything, and may take its time: nothing is
	// held open over it. An error ends the sequence: the store could not be read
	// further, which says nothing about the data.
	Verify(ctx context.Context, progress func(Progress)) iter.Seq2[Finding, error]
}

// Doctor is implemented by logs whose promises depend on what surrounds them: a
// server and its settings, sessions, space.
type Doctor interface {
	// Examine looks at the surroundings, changes nothing and returns a finding for
	// each check, SeverityOK included, in a fixed order of checks. What it may not see
	// is a finding too. An error means that nothing could be examined.
	Examine(ctx context.Context) ([]Finding, error)
}

// Verify checks everything that is stored; see [Verifier]. A log that cannot is the
// error errors.ErrUnsupported.
func (s *Store) Verify(ctx context.Context, progress func(Progress)) iter.Seq2[Finding, error] {
	l, err := as[Verifier](s.log, "verify")
	if err != nil {
		return func(yield func(Finding, error) bool) { yield(Finding{}, err) }
	}
	return l.Verify(ctx, progress)
}

// Examine looks at what surrounds the log; see [Doctor]. A log without surroundings
// is the error errors.ErrUnsupported.
func (s *Store) Examine(ctx context.Context) ([]Finding, error) {
	l, err := as[Doctor](s.log, "examine")
	if err != nil {
		return nil, err
	}
	return l.Examine(ctx)
}

// CheckEvent says which rule a stored event breaks that Store would have refused,
// nil if none: lengths and characters of its names, version, metadata, and size, the
// number of bytes of its data (e.Data is not looked at). For verifiers.
func CheckEvent(e *Event, size int) error {
	switch {
	case e.ID.IsZero():
		return invalid("event ID", "a UUID", "the zero UUID")
	case e.Version < 1:
		return invalid("version", "1 to 2^31-1", fmt.Sprint(e.Version))
	case size > MaxEventBytes:
		return tooLarge("data", fmt.Sprintf("at most %d bytes", MaxEventBytes), fmt.Sprintf("%d bytes", size))
	}
	bare := *e
	bare.Data = nil
	_, err := Limits{}.orDefault().checkEvent(&bare)
	return err
}
