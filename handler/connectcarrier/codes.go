// Errors as codes with a detail, and back.

package connectcarrier

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
)

// Codes of a detail, beside those of a handler.Failure.
const (
	detailOverloaded = "overloaded"
	detailDenied     = "denied"
)

// codes are the Connect codes for the codes of a Failure.
var codes = map[string]connect.Code{
	handler.CodeInvalid:  connect.CodeInvalidArgument,
	handler.CodeState:    connect.CodeFailedPrecondition,
	handler.CodeTooLarge: connect.CodeResourceExhausted,
	handler.CodeConflict: connect.CodeAborted,
	handler.CodeUnknown:  connect.CodeUnknown,
	handler.CodeFailed:   connect.CodeInternal,
	detailOverloaded:     connect.CodeResourceExhausted,
	detailDenied:         connect.CodePermissionDenied,
}

// asError puts the error of a call into one of Connect. It is no refusal: that is a reply.
func asError(r *handler.Request, err error) *connect.Error {
	f, kind := handler.AsReply(r, err).Failure, handler.Kind(err)
	switch {
	case errors.Is(kind, eventstore.ErrOverloaded):
		f.Code = detailOverloaded
	case errors.Is(kind, handler.ErrDenied):
		f.Code = detailDenied
	}
	code := codes[f.Code]
	if f.Code == handler.CodeFailed {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			code = connect.CodeDeadlineExceeded
		case errors.Is(err, context.Canceled):
			code = connect.CodeCanceled
		}
	}
	return detailed(code, f)
}

func detailed(code connect.Code, f *handler.Failure) *connect.Error {
	e := connect.NewError(code, errors.New(valid(f.Message)))
	if d, err := connect.NewErrorDetail(&handlerv1.Failure{Code: f.Code, Message: valid(f.Message)}); err == nil {
		e.AddDetail(d)
	}
	return e
}

// detailOf returns the Failure that is the detail of an error.
func detailOf(e *connect.Error) *handler.Failure {
	for _, d := range e.Details() {
		if value, err := d.Value(); err == nil {
			if f, ok := value.(*handlerv1.Failure); ok && f.GetCode() != "" {
				return &handler.Failure{Code: f.GetCode(), Message: f.GetMessage()}
			}
		}
	}
	return nil
}

// kindOf is the kind of an error that has no detail of ours. Those that this side has made
// itself are about the reply (or a request whose JSON is longer than its binary form),
// those that the other side has sent about the request.
func kindOf(e *connect.Error) error {
	switch code, ours := e.Code(), !connect.IsWireError(e); {
	case ours && code == connect.CodeResourceExhausted:
		return eventstore.ErrTooLarge
	case ours && code == connect.CodeInvalidArgument:
		return handler.ErrBadReply // no message
	case code == connect.CodeInvalidArgument, code == connect.CodeOutOfRange, code == connect.CodeUnimplemented:
		return handler.ErrBadRequest
	case code == connect.CodeResourceExhausted:
		return eventstore.ErrOverloaded
	case code == connect.CodeUnauthenticated, code == connect.CodePermissionDenied:
		return handler.ErrDenied
	}
	return handler.ErrFailed
}
