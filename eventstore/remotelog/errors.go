// Kinds of error that only a server gives.

package remotelog

import "errors"

// Kinds of error beside those of eventstore. Test for them with errors.Is; the facts are
// in *eventstore.Error.
var (
	// ErrUnauthenticated: the server does not know who asks, or does not take the
	// certificate or token.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrDenied: the server's access policy does not allow it.
	ErrDenied = errors.New("denied")
	// ErrGoingAway: the server ends; go on at another one, or at this one later.
	ErrGoingAway = errors.New("going away")
	// ErrSlowConsumer: what was sent was not read in time; go on from the last message.
	ErrSlowConsumer = errors.New("slow consumer")
	// ErrNoSuchProjector: what is to be waited for is not registered.
	ErrNoSuchProjector = errors.New("no such projector")
)
