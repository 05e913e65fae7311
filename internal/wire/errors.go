// Errors as codes with a detail, and back.

package wire

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// FromError puts an error into one of Connect that has an ErrorDetail: the facts of an
// *eventstore.Error without what caused it, unless that is the end of a context, which the
// code says. A context's error is that nothing was done.
// An error of Connect that has a detail passes. Of everything else, and of kinds that are
// neither eventstore's nor in extra, nothing is said but that it happened: who called
// does not know then what became of a write.
func FromError(err error, extra ...Kind) *connect.Error {
	if e, ours := errors.AsType[*eventstore.Error](err); ours {
		k := find(extra, func(k *Kind) bool { return k.Err == e.Kind })
		if k == nil {
			return internal()
		}
		return fromError(k, e)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return detailed(connect.CodeDeadlineExceeded, "the call's time was up; nothing was written",
			&wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_DEADLINE})
	case errors.Is(err, context.Canceled):
		return detailed(connect.CodeCanceled, "the call was canceled; nothing was written",
			&wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_DEADLINE})
	case errors.Is(err, errors.ErrUnsupported):
		return fromError(find(nil, func(k *Kind) bool { return k.Err == errors.ErrUnsupported }), &eventstore.Error{Kind: errors.ErrUnsupported})
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok && detailOf(ce) != nil {
		return ce
	}
	if k := find(extra, func(k *Kind) bool { return errors.Is(err, k.Err) }); k != nil {
		return fromError(k, &eventstore.Error{Kind: k.Err})
	}
	return internal()
}

func internal() *connect.Error {
	return detailed(connect.CodeInternal, "internal error", &wattlev1.ErrorDetail{Found: "an internal error of the server"})
}

// fromError takes care that nothing of e.Err is told but what k.Send says.
func fromError(k *Kind, e *eventstore.Error) *connect.Error {
	d := &wattlev1.ErrorDetail{Kind: k.Wire, Op: clean(e.Op), Stream: valid(string(e.Stream)), Category: valid(string(e.Category)),
		Wanted: clean(e.Wanted), Found: clean(e.Found), Hint: clean(e.Hint), First: uint64(e.First), FirstPosition: uint64(e.FirstPosition),
		Unprovable: e.Unprovable}
	if e.Head != nil {
		d.Head = FromHead(*e.Head)
	}
	if k.Send != nil {
		k.Send(e, d)
	}
	told := *e
	told.Err = nil
	return detailed(codeOf(k, e), clean(told.Error()), d)
}

// codeOf is the code of a kind, but where the end of the call's context is the cause that
// one's: so the caller learns that nothing else was the matter.
func codeOf(k *Kind, e *eventstore.Error) connect.Code {
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(e.Err, context.Canceled):
		return connect.CodeCanceled
	}
	return k.Code
}

// endOf is the inverse of codeOf: the context's error, nil for other codes.
func endOf(code connect.Code) error {
	switch code {
	case connect.CodeDeadlineExceeded:
		return context.DeadlineExceeded
	case connect.CodeCanceled:
		return context.Canceled
	}
	return nil
}

func valid(s string) string { return strings.ToValidUTF8(s, "�") }

func detailed(code connect.Code, text string, d *wattlev1.ErrorDetail) *connect.Error {
	e := connect.NewError(code, errors.New(text))
	if detail, err := connect.NewErrorDetail(d); err == nil { // a message without a type is what it fails for
		e.AddDetail(detail)
	}
	return e
}

// detailOf returns the ErrorDetail of an error, nil if it has none.
func detailOf(e *connect.Error) *wattlev1.ErrorDetail {
	for _, d := range e.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*wattlev1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}

// answer returns the detail that a server of wattle.v1 has sent with an error; nil if
// the error was made on this side, or by somebody else on the way.
func answer(err error) *wattlev1.ErrorDetail {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(ce) {
		return nil
	}
	return detailOf(ce)
}

// ToError is the inverse of [FromError]: for an error that a server of wattle.v1 has
// sent, and whose kind is known here, the *eventstore.Error of the same kind with the same
// facts, named by op where the server did not, and caused by the end of a context if the
// code is that. The context's error of the server is
// ErrUnavailable with context.DeadlineExceeded as its cause, as nothing was written. Any
// other error is returned as it is: it is no answer, see [Caller].
func ToError(op string, err error, extra ...Kind) error {
	d := answer(err)
	if d == nil {
		return err
	}
	if told := toError(op, d, connect.CodeOf(err), extra); told != nil {
		return told
	}
	return err
}

// toError returns nil for a kind that is not known, and for facts that cannot be.
func toError(op string, d *wattlev1.ErrorDetail, code connect.Code, extra []Kind) *eventstore.Error {
	if d.GetKind() == wattlev1.ErrorKind_ERROR_KIND_DEADLINE {
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: op, Wanted: "an answer in time", Found: "none; nothing was written",
			Err: context.DeadlineExceeded}
	}
	k := find(extra, func(k *Kind) bool { return k.Wire == d.GetKind() })
	if k == nil {
		return nil
	}
	var r reader
	e := &eventstore.Error{Kind: k.Err, Op: clean(d.GetOp()), Stream: eventstore.Stream(d.GetStream()), Category: eventstore.Category(d.GetCategory()),
		Wanted: clean(d.GetWanted()), Found: clean(d.GetFound()), Hint: clean(d.GetHint()), First: number[eventstore.Seqno](&r, "first", d.GetFirst()),
		FirstPosition: number[eventstore.Position](&r, "first_position", d.GetFirstPosition()), Unprovable: d.GetUnprovable()}
	if d.GetHead() != nil {
		h := r.head(d.GetHead())
		e.Head = &h
	}
	if r.err != nil {
		return nil
	}
	if e.Op == "" {
		e.Op = op
	}
	e.Err = endOf(code)
	if k.Cause != nil {
		e.Err = k.Cause(d)
	}
	return e
}
