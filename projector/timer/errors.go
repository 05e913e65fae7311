// Errors that the package makes itself, in the form of eventstore's.

package timer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Kinds of error beside those of eventstore.
var (
	// ErrFired: the timer has fired. What was asked for came too late and changed nothing.
	ErrFired = errors.New("timer has fired")
	// ErrCancelled: the timer was cancelled and cannot be moved.
	ErrCancelled = errors.New("timer was cancelled")
	// ErrNoTimer: there is no timer of that name: it was never set, or is over and gone.
	ErrNoTimer = errors.New("no such timer")
	// ErrForgotten: the change's ID is so old that the timer no longer tells whether it
	// was made. Nothing was written by this call.
	ErrForgotten = errors.New("ID forgotten")
)

func invalid(op string, s eventstore.Stream, what, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Stream: s, Wanted: what + ": " + wanted, Found: found}
}

// over is the error of a change that came after the timer's end.
func over(op string, t Timer, s eventstore.Stream) error {
	kind := ErrFired
	if t.State == Cancelled {
		kind = ErrCancelled
	}
	return &eventstore.Error{Kind: kind, Op: op, Stream: s, Wanted: "a pending timer", Found: fmt.Sprintf("generation %d, %v", t.Generation, t.State),
		Hint: "set it again if it is to fire once more"}
}

func noTimer(op string, s eventstore.Stream, trimmed bool) error {
	found := "none of that name"
	if trimmed {
		found = "one that is over and trimmed"
	}
	return &eventstore.Error{Kind: ErrNoTimer, Op: op, Stream: s, Wanted: "a timer", Found: found}
}

func forgotten(c *change) error {
	return &eventstore.Error{Kind: ErrForgotten, Op: c.op, Stream: c.stream, Wanted: "to know whether " + c.id.String() + " was done before",
		Found: "younger IDs forgotten or trimmed", Hint: "look what became of it and use a new ID if it is to be done; Options.Keep sets how long IDs are kept"}
}

func isKind(err error, kinds ...error) bool {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

// outage says if an error is of the kind that passes by itself.
func outage(err error) bool {
	return isKind(err, eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrReadOnly, eventstore.ErrUnknown,
		context.DeadlineExceeded)
}

// pause waits a random time below base, doubled n times up to most. It returns early
// when ctx ends.
func pause(ctx context.Context, n int, base, most time.Duration) error {
	return sleep(ctx, rand.N(min(base<<min(n, 30), most)))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
