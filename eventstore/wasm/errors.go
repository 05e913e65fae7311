//go:build !wasm

// Errors: a sentinel says which kind, one struct says the facts, used and allowed.

package wasm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// The kinds of error. Test for them with errors.Is; the facts are in *Error.
// None is ever reported as another.
var (
	// ErrTrap: the guest panicked, ran into a trap or ended itself.
	ErrTrap = errors.New("guest trapped")
	// ErrDeadline: the guest was stopped because the time of the call, or the caller's
	// deadline, was over.
	ErrDeadline = errors.New("guest out of time")
	// ErrCanceled: the guest was stopped, or not started, because the caller cancelled.
	ErrCanceled = errors.New("call cancelled")
	// ErrMemory: the guest trapped after it was refused memory.
	ErrMemory = errors.New("guest out of memory")
	// ErrBadReply: the guest answered with an internal error, or with a pointer or length
	// that no reply can have.
	ErrBadReply = errors.New("bad reply")
	// ErrNondeterministic: a fresh and a warmed instance answered the same request
	// differently.
	ErrNondeterministic = errors.New("guest not deterministic")

	// ErrNotAModule: the bytes are no core module, or use what is not supported.
	ErrNotAModule = errors.New("not a module")
	// ErrComponent: the bytes are a component, not a core module.
	ErrComponent = errors.New("a component, not a core module")
	// ErrImport: the module wants something imported that guests do not get.
	ErrImport = errors.New("import refused")
	// ErrExport: the module does not export what is needed, or with another type.
	ErrExport = errors.New("export missing")
	// ErrNotAllowed: the module is not in Options.Allow.
	ErrNotAllowed = errors.New("module not allowed")
	// ErrCache: the module compiles, but not with the files in Options.CacheDir.
	ErrCache = errors.New("bad compilation cache")

	// ErrInvalid: an argument or option breaks its rule.
	ErrInvalid = eventstore.ErrInvalid
	// ErrTooLarge: the module, a request or a reply is over its limit.
	ErrTooLarge = eventstore.ErrTooLarge
	// ErrOverloaded: the caller's context ended while every instance was busy; the guest
	// was not called.
	ErrOverloaded = eventstore.ErrOverloaded
	// ErrClosed: the Module was closed.
	ErrClosed = eventstore.ErrClosed
)

// Error is the one error type that leaves this package. Fields that do not apply are
// zero. Stderr and Stack are the guest's words: print them with care.
type Error struct {
	Kind   error  // one of the sentinels above
	Op     string // as "decide"; "open" and "start" are of the host
	Name   string // Options.Name
	Module string // SHA-256 of the module, hex
	Wanted string
	Found  string
	Hint   string // what to do about it
	Stderr string // what the guest wrote there during the call; of a long text both ends
	Stack  string // of the guest, innermost frame first

	Usage // of the call; all zero if the guest did not run

	Cause error // the context's error, or what the runtime says of a module
}

// Usage is what a call took, and what it may take.
type Usage struct {
	MemoryUsed, MemoryLimit int64         // bytes of linear memory of the instance, after the call
	TimeUsed, TimeLimit     time.Duration // without waiting for an instance; a limit of 0 is none
}

// BadReply says if the guest is to blame and would do it again: there is no use in a
// retry.
func (e *Error) BadReply() bool { return e.Kind == ErrBadReply }

// Temporary says if another try, on a fresh instance, may go well.
func (e *Error) Temporary() bool {
	switch e.Kind {
	case ErrTrap, ErrDeadline, ErrMemory, ErrOverloaded:
		return true
	}
	return false
}

// Unwrap lets errors.Is see the kind and errors.As the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Error returns one line: operation, module, kind, wanted, found, what the guest said,
// figures, hint. Text of the guest is quoted and cut.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("wattle: guest")
	for _, s := range []string{e.Name, short(e.Module), e.Op} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	b.WriteString(": " + e.Kind.Error())
	part := func(label, s string) {
		if s != "" {
			b.WriteString(label + s)
		}
	}
	part(": wanted ", e.Wanted)
	part(", found ", e.Found)
	if e.Cause != nil {
		b.WriteString(": " + cut(e.Cause.Error()))
	}
	if e.Stderr != "" {
		b.WriteString(", stderr " + strconv.Quote(head(e.Stderr, 200)))
	}
	if e.MemoryLimit > 0 {
		b.WriteString(", " + e.Usage.String())
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// String is "memory 3.3 MiB of 32.0 MiB, time 1.2ms of 250ms".
func (u Usage) String() string {
	limit := "no limit"
	if u.TimeLimit > 0 {
		limit = u.TimeLimit.String()
	}
	return fmt.Sprintf("memory %s of %s, time %s of %s", mebibytes(u.MemoryUsed), mebibytes(u.MemoryLimit), u.TimeUsed.Round(10*time.Microsecond), limit)
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB" }

// short is enough of a hash to know it by.
func short(hash string) string { return hash[:min(12, len(hash))] }

// head returns at most n bytes of the beginning of a text.
func head(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// cut makes one short line of a text that may hold names of a module's choice: its first
// line, quoted if it could forge another.
func cut(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if s = head(s, 300); strconv.Quote(s) != `"`+strings.ReplaceAll(s, `"`, `\"`)+`"` {
		return strconv.Quote(s)
	}
	return s
}

// errorType is a kind as an attribute of a metric.
func errorType(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind.Error()
	}
	return "other"
}
