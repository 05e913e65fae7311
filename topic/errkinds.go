// What an error of the store means to a broker.

package topic

import (
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

func isUnknown(err error) bool { return errors.Is(err, eventstore.ErrUnknown) && !isUnprovable(err) }

func isUnprovable(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && e.Unprovable
}

// isGone says that the log of a partition is not there: the topic was deleted, or is
// still being created.
func isGone(err error) bool {
	return errors.Is(err, eventstore.ErrNoSuchCategory) || errors.Is(err, eventstore.ErrNoSuchStream)
}

func notOwner(p place, owner string) error {
	return &eventstore.Error{Kind: ErrNotOwner, Op: "publish", Stream: streamOf(p.topic, p.n), Category: p.topic, Err: &NotOwnerError{Owner: owner},
		Hint: "ask the owner; nothing was written"}
}

func overloaded(p place, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "publish", Stream: streamOf(p.topic, p.n), Category: p.topic,
		Wanted: wanted, Found: found, Hint: "nothing was written; publish again later"}
}
