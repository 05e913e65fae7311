// The caller's side of a unary call: what it came to, and what may have become of it.

package wire

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// Caller makes the error of a call that has no good answer. It is the same whatever was
// between: an answer of the server's is its error, with all facts. Without one
//
//   - a read is ErrUnavailable, or the context's error;
//   - a write is ErrUnavailable, or the context's error, only if it is certain that the
//     server cannot have acted: no connection was there to send it on;
//   - any other write is ErrUnknown. A reset, an end, a timeout, a proxy's page, an
//     answer that cannot be read or does not fit: none tells whether it was carried out.
type Caller struct {
	Target string // URL of the server, for errors; without a password
	// Timeout bounds a call whose context has no deadline; 0: nothing does.
	Timeout time.Duration
	Kinds   []Kind // beside those of eventstore
}

// Act is what is called.
type Act struct {
	Op       string // as "append"
	Stream   eventstore.Stream
	Category eventstore.Category
	Writes   bool
}

// Call makes a unary call. Its error is an *eventstore.Error or the context's.
func Call[Req, Res any](ctx context.Context, c *Caller, a Act, req *Req, send func(context.Context, *Req) (*Res, error)) (*Res, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inner := ctx
	if _, bounded := ctx.Deadline(); !bounded && c.Timeout > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	var seen connections
	res, err := send(httptrace.WithClientTrace(inner, seen.trace()), req)
	if err != nil {
		return nil, c.Failed(ctx, a, seen.none(), err)
	}
	return res, nil
}

// connections notes if a transport had one for a call. Transports that do not tell
// (fetch of a browser, say) are taken to have had one.
type connections struct{ wanted, got atomic.Bool }

func (s *connections) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { s.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { s.got.Store(true) },
	}
}

// none says that it is certain that there was none, so that nothing was sent.
func (s *connections) none() bool { return s.wanted.Load() && !s.got.Load() }

// Failed is the error of a call. ctx is the caller's own; unsent says that it is certain
// that the server got nothing of it.
func (c *Caller) Failed(ctx context.Context, a Act, unsent bool, err error) error {
	if d := answer(err); d != nil {
		if told := c.told(ctx, a, connect.CodeOf(err), d); told != nil {
			return told
		}
		return c.lost(a, err, "an error of a kind that is not known here: "+clean(d.GetFound()))
	}
	if e, ok := errors.AsType[*eventstore.Error](err); ok { // the codec's: nothing was sent
		told := *e
		told.Op, told.Stream, told.Category = a.Op, a.Stream, a.Category
		return &told
	}
	if ended := ended(ctx, connect.CodeOf(err)); ended != nil {
		if !a.Writes || unsent {
			return ended
		}
		return c.lost(a, ended, "")
	}
	if unsent {
		return c.error(a, eventstore.ErrUnavailable, err, "", "nothing was sent; is the server up and reachable?")
	}
	return c.lost(a, err, "")
}

// told is what the server has answered; nil if that is not understood.
func (c *Caller) told(ctx context.Context, a Act, code connect.Code, d *wattlev1.ErrorDetail) error {
	if d.GetKind() == wattlev1.ErrorKind_ERROR_KIND_DEADLINE {
		if ended := ended(ctx, code); ended != nil {
			return ended
		}
	}
	e := toError(a.Op, d, code, c.Kinds)
	if e == nil {
		return nil
	}
	if e.Stream == "" && e.Category == "" {
		e.Stream, e.Category = a.Stream, a.Category
	}
	return e
}

// ended is the error of a call's context, also where the server, whose clock runs the same
// time a little ahead of ours, says so first.
func ended(ctx context.Context, code connect.Code) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if until, ok := ctx.Deadline(); ok && code == connect.CodeDeadlineExceeded && time.Until(until) < deadlineSlack {
		return context.DeadlineExceeded
	}
	return nil
}

// deadlineSlack is how much earlier than here a call may end at the server.
const deadlineSlack = 250 * time.Millisecond

// Misfit is the error of a call whose answer cannot be one to it.
func (c *Caller) Misfit(a Act, err error) error {
	found := "another one"
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		found = "wanted " + e.Wanted + ", found " + e.Found
	}
	e := c.error(a, lostKind(a), nil, found, "is this the server's answer? "+hintLost(a))
	e.Wanted = "an answer of " + c.Target + " that fits"
	return e
}

// lost is the error of a call that may have been carried out.
func (c *Caller) lost(a Act, err error, found string) error {
	hint := hintLost(a)
	if ce, ok := errors.AsType[*connect.Error](err); ok && found == "" && connect.IsWireError(ce) && answer(err) == nil {
		hint = "the answer is not Wattle's: is it served at this URL? " + hint
	}
	return c.error(a, lostKind(a), err, found, hint)
}

func lostKind(a Act) error {
	if a.Writes {
		return eventstore.ErrUnknown
	}
	return eventstore.ErrUnavailable
}

func hintLost(a Act) string {
	switch {
	case !a.Writes:
		return "try again"
	case a.Op == "append":
		return "send the same batch again to learn the outcome"
	}
	return "it may have been done; look, or do it again"
}

func (c *Caller) error(a Act, kind, cause error, found, hint string) *eventstore.Error {
	e := &eventstore.Error{Kind: kind, Op: a.Op, Stream: a.Stream, Category: a.Category, Wanted: "an answer of " + c.Target, Found: found, Hint: hint}
	if cause != nil {
		e.Err = line{cause}
	}
	if e.Found == "" {
		e.Found = "none"
	}
	return e
}

// line is an error on one line: its text may be somebody else's on the way.
type line struct{ error }

func (l line) Error() string { return clean(l.error.Error()) }
func (l line) Unwrap() error { return l.error }
