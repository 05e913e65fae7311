// What a status means: which one a server answers with, and what a client makes of it.

package httpcarrier

import (
	"context"
	"errors"
	"net/http"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// statusOf returns the status of a reply. failed is the error that it was made of, which
// tells more than the reply has a code for.
func statusOf(reply *handler.Reply, failed error) int {
	kind := handler.Kind(failed)
	switch {
	case reply.Rejected != nil && reply.Failure == nil:
		return http.StatusUnprocessableEntity
	case reply.Failure == nil:
		return http.StatusOK
	case errors.Is(kind, handler.ErrDenied):
		return http.StatusForbidden
	case errors.Is(kind, eventstore.ErrOverloaded):
		return http.StatusTooManyRequests
	case errors.Is(kind, eventstore.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.Is(failed, context.DeadlineExceeded) && reply.Failure.Code == handler.CodeFailed:
		return http.StatusGatewayTimeout
	}
	return statusOfCode(reply.Failure.Code)
}

func statusOfCode(code string) int {
	switch code {
	case handler.CodeInvalid:
		return http.StatusBadRequest
	case handler.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case handler.CodeState, handler.CodeConflict:
		return http.StatusConflict
	case handler.CodeUnknown:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// fits says if a reply may come with a status. One that may not is somebody else's page,
// or a lie, and the status alone counts.
func fits(status int, reply *handler.Reply) bool {
	switch status {
	case http.StatusOK:
		return true
	case http.StatusUnprocessableEntity:
		return reply.Failure == nil && reply.Rejected != nil
	}
	return reply.Failure != nil && statusOfCode(reply.Failure.Code) == status
}

// inBody says if a status means nothing without its body.
func inBody(status int) bool {
	return status == http.StatusOK || status == http.StatusConflict || status == http.StatusUnprocessableEntity
}

// kindOf is the kind of error that a status means by itself; nil for those that come with
// a reply.
func kindOf(status int) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status < 300: // accepted, but not answered
		return handler.ErrBadReply
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return handler.ErrDenied
	case status == http.StatusRequestEntityTooLarge:
		return eventstore.ErrTooLarge
	case status == http.StatusTooManyRequests:
		return eventstore.ErrOverloaded
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		return handler.ErrFailed
	}
	return handler.ErrBadRequest // redirections too, which nobody follows with a body that is signed for one
}
