// What can go wrong between a host and a handler.

package handler

import (
	"errors"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// Kinds of errors. Beside them a call can end with the context's own error, and with
// eventstore's ErrTooLarge (a request over a limit: nothing was done; or a reply: nothing of
// it was used, but what Execute was asked for may stand, and asking with the same ID and a
// higher limit tells), ErrOverloaded (nobody had room for it: nothing was done), ErrInvalid
// and ErrClosed. A [*Rejected] is
// no failure but an answer.
var (
	// ErrFailed: no answer. The handler trapped, ran out of time or memory, was not
	// reached, or its answer was lost. Of a pure operation nothing has come; of Execute
	// it is not known whether it was done, and asking again with the same ID tells.
	ErrFailed = errors.New("handler failed")
	// ErrBadReply: the handler answered what no handler may. It is a bug of its; asking
	// again is of no use, and nothing of the reply was used.
	ErrBadReply = errors.New("bad reply")
	// ErrBadRequest: the handler says that the request is none of those it answers: an
	// unknown command, an event type that its release does not know.
	ErrBadRequest = errors.New("bad request")
	// ErrStateVersion: the handler is of another release, which cannot use the state it
	// was sent. A host that starts anew describes it again and folds all events.
	ErrStateVersion = errors.New("state of another version")
	// ErrDenied: the caller is not allowed to, or could not prove who it is.
	ErrDenied = errors.New("not allowed")
)

// Error is a failure of a call.
type Error struct {
	Kind   error  // one of the kinds above, or one of eventstore
	Op     Op     // what was asked
	Target string // who was asked: an address, a subject, a module's hash
	Stream eventstore.Stream
	Wanted string
	Found  string
	Hint   string
	Err    error // cause, if any
}

// Error returns one line: operation, stream, target, kind, wanted, found, cause, hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("wattle: handler " + string(e.Op))
	part := func(before, s, after string) {
		if s != "" {
			b.WriteString(before + s + after)
		}
	}
	part(" for ", oneLine(string(e.Stream)), "")
	part(" at ", oneLine(e.Target), "")
	b.WriteString(": " + e.Kind.Error())
	part(": wanted ", oneLine(e.Wanted), "")
	part(", found ", oneLine(e.Found), "")
	if e.Err != nil {
		part(": ", oneLine(e.Err.Error()), "")
	}
	part(" (", e.Hint, ")")
	return b.String()
}

// Unwrap returns kind and cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// oneLine keeps what comes from outside from forging a line of a log.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}

// Kind is what an error is by itself: the Kind of the outermost [*Error] or
// [*eventstore.Error] in it, whatever caused that, or the error where there is none. An
// outcome that is not known because somebody had no room is not known, while of ErrOverloaded
// nothing was done.
func Kind(err error) error {
	if kind := outermost(err); kind != nil {
		return kind
	}
	return err
}

func outermost(err error) error {
	switch e := err.(type) {
	case *Error:
		return e.Kind
	case *eventstore.Error:
		return e.Kind
	case interface{ Unwrap() error }:
		return outermost(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if kind := outermost(one); kind != nil {
				return kind
			}
		}
	}
	return nil
}

// Temporary says if the same request may be sent again: nothing is known against it.
// Pure operations, and Execute for its ID, can always be.
func Temporary(err error) bool {
	kind := Kind(err)
	return errors.Is(kind, ErrFailed) || errors.Is(kind, eventstore.ErrOverloaded) || errors.Is(kind, eventstore.ErrUnknown)
}

// AsReply puts an error into a reply, as a carrier's far side does for the handler it
// serves: refusals as such, all else as a Failure with the code of its kind.
func AsReply(r *Request, err error) *Reply {
	reply := &Reply{Key: r.Key}
	if rejected, ok := errors.AsType[*Rejected](err); ok {
		reply.Rejected = rejected
		return reply
	}
	reply.Failure = &Failure{Code: codeOf(err), Message: cut(err.Error(), MaxMessageBytes)}
	return reply
}

// codes are those of a Failure, each with the kind that it stands for.
var codes = []struct {
	kind error
	code string
}{
	{ErrBadRequest, CodeInvalid}, {ErrBadReply, CodeInvalid}, {eventstore.ErrInvalid, CodeInvalid}, {ErrStateVersion, CodeState},
	{eventstore.ErrTooLarge, CodeTooLarge}, {eventstore.ErrUnknown, CodeUnknown},
	{eventstore.ErrAlreadyWritten, CodeConflict}, {eventstore.ErrDiverged, CodeConflict}, {eventstore.ErrGap, CodeConflict},
	{ErrFailed, CodeFailed},
}

func codeOf(err error) string {
	kind := Kind(err)
	for _, c := range codes {
		if errors.Is(kind, c.kind) {
			return c.code
		}
	}
	return CodeFailed
}

func kindOfCode(code string) error {
	for _, c := range codes {
		if c.code == code && c.kind != ErrBadReply {
			return c.kind
		}
	}
	return ErrFailed
}

// failure is the error that a Failure stands for.
func failure(r *Request, target string, f *Failure) *Error {
	return &Error{Kind: kindOfCode(f.Code), Op: r.Op, Target: target, Stream: r.Stream, Found: f.Message}
}

// nearKind is the kind that an error of a handler in this process would come back with from
// one elsewhere.
func nearKind(err error) error {
	for _, kind := range []error{eventstore.ErrOverloaded, ErrDenied} { // for these there is no code
		if errors.Is(Kind(err), kind) {
			return kind
		}
	}
	return kindOfCode(codeOf(err))
}

// cut shortens a text to at most n bytes, at a rune's end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "…"
}
