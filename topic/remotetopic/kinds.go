// How the kinds of error that topics and servers have travel.

package remotetopic

import (
	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// kinds are those beside eventstore's.
var kinds = []wire.Kind{
	{Err: topic.ErrNoSuchTopic, Wire: wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_TOPIC, Code: connect.CodeNotFound},
	{Err: topic.ErrNotOwner, Wire: wattlev1.ErrorKind_ERROR_KIND_NOT_OWNER, Code: connect.CodeUnavailable, Send: sendOwner, Cause: ownerOf},
	{Err: remotelog.ErrUnauthenticated, Wire: wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED, Code: connect.CodeUnauthenticated},
	{Err: remotelog.ErrDenied, Wire: wattlev1.ErrorKind_ERROR_KIND_DENIED, Code: connect.CodePermissionDenied},
	{Err: remotelog.ErrGoingAway, Wire: wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY, Code: connect.CodeUnavailable},
	{Err: remotelog.ErrSlowConsumer, Wire: wattlev1.ErrorKind_ERROR_KIND_SLOW_CONSUMER, Code: connect.CodeResourceExhausted},
}

func sendOwner(e *eventstore.Error, d *wattlev1.ErrorDetail) {
	if owner, ok := topic.Owner(e); ok && len(owner) <= topic.MaxAddressBytes {
		d.Owner = owner
	}
}

func ownerOf(d *wattlev1.ErrorDetail) error {
	owner := d.GetOwner()
	if len(owner) > topic.MaxAddressBytes {
		owner = ""
	}
	return &topic.NotOwnerError{Owner: owner}
}
