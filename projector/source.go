// What a projector follows: the interface behind which feed and stream differ.

package projector

import (
	"context"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// source is where the entries come from. Its methods keep no state.
type source interface {
	// read looks behind the lowest of some lanes' cursors, once, and returns what each
	// lane found. The error is ErrDiverged if the store is no longer the one that a
	// checkpoint is of.
	read(ctx context.Context, at []cursor) ([]look, error)
	// resume proves that the checkpoint still stands in the store.
	resume(ctx context.Context, at cursor) error
	// covers says whether nothing to be handled lies between the lanes' checkpoints and
	// the token; if not, how much is known to lie there.
	covers(ctx context.Context, at []cursor, t eventstore.Token) (bool, backlog, error)
	// digest makes Recent of a checkpoint anew, for a lane that has other slots now.
	digest(ctx context.Context, at cursor) ([]byte, error)
	// holds returns the holds, without their names, that keep what is behind at.
	holds(at Checkpoint) []eventstore.Hold
	// behindTrim moves a hold that was refused behind what is gone; ok is false if
	// the projector would miss something.
	behindTrim(h eventstore.Hold, at Checkpoint, refused *eventstore.Error) (moved eventstore.Hold, ok bool)
	// place measures a checkpoint, and hinted a hint, on one scale. hinted is 0 for
	// a hint without a place; ok is false if it does not concern this source.
	place(at Checkpoint) uint64
	placeOf(e *eventstore.Entry) uint64
	hinted(a eventstore.Announcement) (place uint64, ok bool)
	// categories to listen to.
	categories() []eventstore.Category
	// name for spans and errors.
	name() string
}

// cursor is how far one of so many lanes was read.
type cursor struct {
	lane, lanes int
	at          Checkpoint
	shadow      bool // it was loaded as a shadow's
}

// look is what one read found for a lane.
type look struct {
	entries []eventstore.Entry // to be handled, in order
	next    Checkpoint         // the checkpoint behind them; owner as in the one before
	end     bool               // nothing stood behind next
	horizon eventstore.Position
	// gone: entries behind the cursor, none beyond this place, were trimmed before they
	// were read. 0: none, or nobody asks.
	gone uint64
}

// backlog is what lies between a checkpoint and a token.
type backlog struct {
	entries int  // to be handled, as far as they were counted
	more    bool // there may be others
	last    eventstore.Position
	lane    int // of the last one
}

// only keeps the entries of the types; none: all.
func only(entries []eventstore.Entry, types []string) []eventstore.Entry {
	if len(types) == 0 {
		return entries
	}
	var kept []eventstore.Entry
	for _, e := range entries {
		if slices.Contains(types, e.Type) {
			kept = append(kept, e)
		}
	}
	return kept
}

// outOfOrder is the error of a log that breaks its promise of order. Going on
// would handle an entry twice or skip one.
func outOfOrder(op string, s eventstore.Stream, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: op, Stream: s, Wanted: wanted, Found: found,
		Hint: "the log gave entries out of order; this is a defect of the backend"}
}
