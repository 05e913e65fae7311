// Quiet: effects that another version of the projector has had, or will have.

package projector

import (
	"context"

	"github.com/wattle-es/wattle/eventstore"
)

// quietKey is the context key under which a handler finds what is quiet.
type quietKey struct{}

// quiet says of which entries a version is to have no effects but on its read model.
type quiet struct {
	role   Role
	places []uint64
	seqnos bool // places are those of one stream
}

func (q quiet) of(e *eventstore.Entry) bool {
	switch {
	case q.role == Shadow:
		return true
	case len(q.places) == 0:
		return false
	case q.seqnos:
		return uint64(e.Seqno) <= q.places[0]
	}
	return uint64(e.Position) <= q.places[LaneOf(e.Stream.Slot(), len(q.places))]
}

// Quiet says if a handler is to apply an entry to its read model only and to leave out
// whatever cannot be taken back: mails, commands, messages. So it is while a version is
// built in the shadow of the live one, and after the switch up to where that had come.
// ctx is the one the handler was called with.
func Quiet(ctx context.Context, e eventstore.Entry) bool {
	q, ok := ctx.Value(quietKey{}).(quiet)
	return ok && q.of(&e)
}

// loud returns the entries that are not quiet.
func loud(ctx context.Context, batch []eventstore.Entry) []eventstore.Entry {
	q, ok := ctx.Value(quietKey{}).(quiet)
	if !ok {
		return batch
	}
	var all []eventstore.Entry
	for i := range batch {
		if !q.of(&batch[i]) {
			all = append(all, batch[i])
		}
	}
	return all
}
