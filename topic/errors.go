// Errors of topics, beside those of eventstore.

package topic

import "errors"

// Kinds of error. Test for them with errors.Is; the facts are in *eventstore.Error.
var (
	// ErrNoSuchTopic: the topic has not been created.
	ErrNoSuchTopic = errors.New("no such topic")
	// ErrNotOwner: another broker owns the partition, or none does yet; see [Owner].
	ErrNotOwner = errors.New("not the owner")
)

// ErrLeave is no error that is returned: a context that was cancelled with it as its cause
// (context.WithCancelCause) has the member of a Broker's Consume leave at once, as one does
// that breaks out of the loop. It is for who waits for the next Delivery.
var ErrLeave = errors.New("the member leaves")

// NotOwnerError says who owns a partition. It is the Err of an *eventstore.Error of
// kind ErrNotOwner.
type NotOwnerError struct {
	Owner string // address of the broker that does; "" if none is known yet
}

func (e *NotOwnerError) Error() string {
	if e.Owner == "" {
		return "no broker owns it yet"
	}
	return "it is owned by " + e.Owner
}

// Owner returns the address of the broker to ask instead, if err says so.
func Owner(err error) (address string, ok bool) {
	e, ok := errors.AsType[*NotOwnerError](err)
	if !ok || e.Owner == "" {
		return "", false
	}
	return e.Owner, true
}
