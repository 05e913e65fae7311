// How the kinds of error that only a server gives travel.

package remotelog

import (
	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// kinds are those beside eventstore's.
var kinds = []wire.Kind{
	{Err: ErrUnauthenticated, Wire: wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED, Code: connect.CodeUnauthenticated},
	{Err: ErrDenied, Wire: wattlev1.ErrorKind_ERROR_KIND_DENIED, Code: connect.CodePermissionDenied},
	{Err: ErrGoingAway, Wire: wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY, Code: connect.CodeUnavailable},
	{Err: ErrSlowConsumer, Wire: wattlev1.ErrorKind_ERROR_KIND_SLOW_CONSUMER, Code: connect.CodeResourceExhausted},
	{Err: ErrNoSuchProjector, Wire: wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_PROJECTOR, Code: connect.CodeNotFound},
}

// AsConnect puts an error into the form in which it leaves a server of wattle.v1, for
// interceptors that refuse calls: an *eventstore.Error of a kind of eventstore or of this
// package, with its facts and without its cause.
func AsConnect(err error) *connect.Error { return wire.FromError(err, kinds...) }
