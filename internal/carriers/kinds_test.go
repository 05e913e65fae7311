// What a handler's error is for its caller, on every carrier.

package carriers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// An error keeps its kind whatever carries it, none at all included, and whatever caused
// it. That above all an outcome that is not known is told as that: who is told that nothing
// was done decides anew.
func TestKindsOnEveryCarrier(t *testing.T) {
	of := func(kind, cause error) error {
		return &eventstore.Error{Kind: kind, Op: "execute", Stream: "counter-1", Err: cause}
	}
	for name, start := range served {
		t.Run(name, func(t *testing.T) {
			var fault error
			h := start(t, handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
				if r.Op == handler.Describe {
					return &handler.Reply{Key: r.Key, Description: &handler.Description{Name: "faults", Category: "counter", Capabilities: []string{"execute"}}}, nil
				}
				return nil, fault
			}))
			c, err := handler.NewCaller(t.Context(), h, &handler.Options{Retries: -1})
			if err != nil {
				t.Fatal(err)
			}
			for _, is := range []struct {
				fault error
				kind  error
			}{
				{of(eventstore.ErrUnknown, nil), eventstore.ErrUnknown},
				{of(eventstore.ErrUnknown, of(eventstore.ErrOverloaded, nil)), eventstore.ErrUnknown},
				{of(eventstore.ErrUnknown, of(eventstore.ErrInvalid, nil)), eventstore.ErrUnknown},
				{of(eventstore.ErrUnknown, handler.ErrDenied), eventstore.ErrUnknown},
				{fmt.Errorf("service: %w", of(eventstore.ErrUnknown, context.DeadlineExceeded)), eventstore.ErrUnknown},
				{&handler.Error{Kind: eventstore.ErrUnknown, Op: handler.Execute, Err: of(eventstore.ErrTooLarge, nil)}, eventstore.ErrUnknown},
				{of(eventstore.ErrAlreadyWritten, nil), eventstore.ErrAlreadyWritten},
				{of(eventstore.ErrTooLarge, nil), eventstore.ErrTooLarge},
				{of(eventstore.ErrInvalid, nil), handler.ErrBadRequest},
				{of(eventstore.ErrUnavailable, of(eventstore.ErrInvalid, nil)), handler.ErrFailed},
				{of(eventstore.ErrClosed, nil), handler.ErrFailed},
				{&handler.Error{Kind: handler.ErrFailed, Op: handler.Execute, Err: of(eventstore.ErrTooLarge, nil)}, handler.ErrFailed},
				{errors.New("something"), handler.ErrFailed},
			} {
				fault = is.fault
				_, err := c.Call(t.Context(), &handler.Request{Op: handler.Execute, Stream: "counter-1", ID: eventstore.NewUUID(), Command: &handler.Command{Type: "add", Data: []byte("{}")}})
				if e, _ := errors.AsType[*handler.Error](err); e == nil || e.Kind != is.kind {
					t.Errorf("%v: wanted the kind %q, found %v", is.fault, is.kind, err)
				}
			}
		})
	}
}
