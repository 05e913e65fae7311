// Handler: the interface, and what joins and adapts handlers.

package handler

import (
	"context"
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// Handler answers requests. Domain code is one, and so is every carrier that brings
// requests to domain code elsewhere.
//
// Handle may be called from several goroutines at once. A nil error comes with a reply;
// that may still be a refusal (Rejected) or say that the handler failed (Failure). An
// error is an *Error, a *Rejected or the context's; a reply is nil then. For Describe,
// Decide, Evolve, Keys and Project a Handler is pure: equal requests have equal replies,
// Key, Deadline and trace context aside, and nothing else happens.
type Handler interface {
	Handle(ctx context.Context, r *Request) (*Reply, error)
}

// Func is a Handler made of a function.
type Func func(ctx context.Context, r *Request) (*Reply, error)

// Handle calls f.
func (f Func) Handle(ctx context.Context, r *Request) (*Reply, error) { return f(ctx, r) }

// Bytes is a carrier that takes requests and replies in their encoded form, as a
// WebAssembly module does. An error that has a method BadReply() bool which says true
// counts as ErrBadReply, one of eventstore's kinds ErrOverloaded, ErrTooLarge and ErrClosed
// as that, ErrInvalid and what says false to Temporary() bool as ErrBadRequest, the
// context's own as itself, and everything else as ErrFailed. The operation describe has no
// request there, and its reply no key.
type Bytes interface {
	Call(ctx context.Context, op string, request []byte) (reply []byte, err error)
}

// Fresh is what a carrier of bytes may have beside Call: a call by something that has
// never been called before, as an instance of a module. A [Caller] tries again with it,
// so that what one try has spoilt cannot spoil the next.
type Fresh interface {
	CallFresh(ctx context.Context, op string, request []byte) (reply []byte, err error)
}

// againKey is the context key of a try that is not the first.
type againKey struct{}

// callOf returns how a try is carried.
func callOf(ctx context.Context, c Bytes) func(context.Context, string, []byte) ([]byte, error) {
	if fresh, ok := c.(Fresh); ok && ctx.Value(againKey{}) != nil {
		return fresh.CallFresh
	}
	return c.Call
}

// Over returns the handler behind a carrier of bytes. target names it in errors.
func Over(c Bytes, target string) Handler {
	return Func(func(ctx context.Context, r *Request) (*Reply, error) {
		var request []byte
		if r.Op != Describe {
			request = AppendRequest(nil, r)
		}
		data, err := callOf(ctx, c)(ctx, string(r.Op), request)
		if err != nil {
			return nil, callError(ctx, r, target, err)
		}
		reply, err := ParseReply(data)
		if err != nil {
			return nil, &Error{Kind: ErrBadReply, Op: r.Op, Target: target, Stream: r.Stream, Err: err}
		}
		if r.Op == Describe {
			reply.Key = r.Key
		}
		return reply, nil
	})
}

func callError(ctx context.Context, r *Request, target string, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return &Error{Kind: kindOf(err), Op: r.Op, Target: target, Stream: r.Stream, Err: err}
}

// kindOf asks what an error of a carrier of bytes is like.
func kindOf(err error) error {
	badReply, isBad := errors.AsType[interface {
		error
		BadReply() bool
	}](err)
	temporary, isTemporary := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	if isBad && badReply.BadReply() {
		return ErrBadReply
	}
	for _, kind := range []error{eventstore.ErrOverloaded, eventstore.ErrTooLarge, eventstore.ErrClosed} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	if errors.Is(err, eventstore.ErrInvalid) || isTemporary && !temporary.Temporary() {
		return ErrBadRequest
	}
	return ErrFailed
}

// Serve answers one encoded request with h: the far side of a carrier of bytes. It always
// has a reply, for a request that cannot be read one with a Failure.
func Serve(ctx context.Context, h Handler, op string, request []byte) []byte {
	if Op(op) == Describe && len(request) == 0 {
		return AppendReply(nil, Answer(ctx, h, &Request{Op: Describe}, nil))
	}
	r, err := ParseRequest(request)
	switch {
	case err != nil:
		r = &Request{Op: Op(op)}
		err = &Error{Kind: ErrBadRequest, Op: r.Op, Err: err}
	case op != "" && Op(op) != r.Op:
		err = &Error{Kind: ErrBadRequest, Op: r.Op, Wanted: "a request of the operation " + op, Found: string(r.Op)}
	}
	return AppendReply(nil, Answer(ctx, h, r, err))
}

// Answer returns h's reply to r with the key of r, its errors as a reply too. An error
// that is known before is answered without h.
func Answer(ctx context.Context, h Handler, r *Request, err error) *Reply {
	var reply *Reply
	if err == nil {
		reply, err = h.Handle(ctx, r)
	}
	if err != nil {
		return AsReply(r, err)
	}
	if reply == nil {
		return AsReply(r, &Error{Kind: ErrFailed, Op: r.Op, Stream: r.Stream, Wanted: "a reply", Found: "nil"})
	}
	if reply.Key != r.Key { // a handler may leave the repeating to us
		with := *reply
		with.Key = r.Key
		reply = &with
	}
	return reply
}

// Unsupported is the error for an operation that a handler does not have.
func Unsupported(r *Request, has ...Op) error {
	wanted := "one of the operations"
	for _, op := range has {
		wanted += " " + string(op)
	}
	return &Error{Kind: ErrBadRequest, Op: r.Op, Stream: r.Stream, Wanted: wanted, Found: cut(string(r.Op), MaxCodeBytes)}
}

// Join makes one handler of several with different operations, as of a decider and a
// projection that are one program. The first that has an operation answers it; of their
// descriptions name, release and category are the first's, and the state version that of the
// one that evolves.
func Join(ctx context.Context, handlers ...Handler) (Handler, error) {
	by := map[Op]Handler{}
	var all Description
	for i, h := range handlers {
		reply, err := h.Handle(ctx, &Request{Op: Describe})
		if err != nil {
			return nil, err
		}
		d := reply.Description
		if d == nil {
			return nil, &Error{Kind: ErrBadReply, Op: Describe, Wanted: "a description", Found: "none"}
		}
		if i == 0 {
			all = *d
			all.Capabilities, all.Events, all.Commands = nil, nil, nil
		}
		for _, c := range d.Capabilities {
			if by[Op(c)] == nil {
				by[Op(c)] = h
				if Op(c) == Evolve {
					all.StateVersion = d.StateVersion
				}
			}
		}
		all.Capabilities = append(all.Capabilities, d.Capabilities...)
		all.Events, all.Commands = union(all.Events, d.Events), union(all.Commands, d.Commands)
	}
	slices.Sort(all.Capabilities)
	all.Capabilities = slices.Compact(all.Capabilities)
	return Func(func(ctx context.Context, r *Request) (*Reply, error) {
		if r.Op == Describe {
			d := all
			return &Reply{Key: r.Key, Description: &d}, nil
		}
		h := by[r.Op]
		if h == nil {
			return nil, Unsupported(r, Describe)
		}
		return h.Handle(ctx, r)
	}), nil
}

func union(a, b []Wire) []Wire {
	for _, w := range b {
		if !slices.Contains(a, w) {
			a = append(a, w)
		}
	}
	return a
}
