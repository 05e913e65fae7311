// Errors that the package makes itself, in the form of eventstore's.

package aggregate

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// ErrForgotten: the command's ID is so old that the stream no longer tells whether
// the command was executed. Nothing was written by this call.
var ErrForgotten = errors.New("command ID forgotten")

// opExecute is the Op of the errors made here.
const opExecute = "execute"

func invalid(s eventstore.Stream, what, wanted, found string) *eventstore.Error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: opExecute, Stream: s, Wanted: what + ": " + wanted, Found: found}
}

func diverged(s eventstore.Stream, wanted eventstore.Mark, h eventstore.Head, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrDiverged, Op: opExecute, Stream: s, Wanted: "entry " + wanted.String() + ", which was folded",
		Found: found, Head: &h, Hint: "history was lost or rewritten; stop and look, do not retry"}
}

// moved is the error of a decision over a stream that has gone on meanwhile.
func moved(s eventstore.Stream, at eventstore.Mark, h *eventstore.Head) *eventstore.Error {
	found := "a newer one"
	if h != nil {
		found = "head " + h.Last.String()
	}
	return &eventstore.Error{Kind: eventstore.ErrAlreadyWritten, Op: opExecute, Stream: s, Wanted: "the last entry to be " + at.String(),
		Found: found, Head: h, Hint: "load the stream and decide again"}
}

func forgotten(s eventstore.Stream, command eventstore.UUID, searched string) error {
	return &eventstore.Error{Kind: ErrForgotten, Op: opExecute, Stream: s, Wanted: "to know whether command " + command.String() + " was executed",
		Found: "newer command IDs forgotten, " + searched,
		Hint:  "look for its effect and send it under a new ID if there is none; Snapshots.RememberedIDs sets how many are known"}
}

// gaveUp is the log's last refusal, with the number of tries.
func gaveUp(last error, tries int) error {
	e, ok := errors.AsType[*eventstore.Error](last)
	if !ok {
		return last
	}
	c := *e
	c.Op = opExecute
	c.Hint = fmt.Sprintf("given up after %d decisions, others kept writing; nothing was written, try again later", tries)
	return &c
}

// unknown is the error of a batch for which no proof came. why is what the last
// try met; only a context's end is kept as cause, since any other kind of error
// would say more about this batch than is known.
func unknown(first *eventstore.Error, why error) error {
	c := *first
	c.Op, c.Err = opExecute, nil
	c.Hint = "execute the command again under the same command ID; without an ID, load the stream and look"
	if e, ok := errors.AsType[*eventstore.Error](why); ok && e.Kind == eventstore.ErrUnknown {
		c.Unprovable, c.Found = e.Unprovable, e.Found
	} else if errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) {
		c.Err = why
	} else if why != nil {
		c.Found = "while asking again: " + why.Error()
	}
	return &c
}

// ownRefusal is an error of Options.Append that is not the log's. What it wraps decides
// nothing here, so it does not unwrap.
type ownRefusal struct{ err error }

func (r *ownRefusal) Error() string { return r.err.Error() }

func isKind(err error, kinds ...error) bool {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}

func isUnprovable(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && e.Kind == eventstore.ErrUnknown && e.Unprovable
}
