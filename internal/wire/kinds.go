// Which kind of error is which on the wire.

package wire

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// Kind says how one kind of error travels. Who has kinds beside those of eventstore
// gives them to [FromError] and to a [Caller].
type Kind struct {
	Err  error              // the sentinel
	Wire wattlev1.ErrorKind // no two kinds have the same
	// Code is for those who know nothing of the detail, and for generic retries: only
	// kinds that may be tried again as they are have Unavailable or ResourceExhausted.
	Code connect.Code
	// Send fills in facts that stand in e.Err; nil: there are none.
	Send func(e *eventstore.Error, d *wattlev1.ErrorDetail)
	// Cause makes an e.Err of these facts; nil: there is none.
	Cause func(d *wattlev1.ErrorDetail) error
}

// kinds are those of eventstore.
var kinds = []Kind{
	{Err: eventstore.ErrFenced, Wire: wattlev1.ErrorKind_ERROR_KIND_FENCED, Code: connect.CodeAborted},
	{Err: eventstore.ErrDiverged, Wire: wattlev1.ErrorKind_ERROR_KIND_DIVERGED, Code: connect.CodeDataLoss},
	{Err: eventstore.ErrAlreadyWritten, Wire: wattlev1.ErrorKind_ERROR_KIND_ALREADY_WRITTEN, Code: connect.CodeAborted},
	{Err: eventstore.ErrGap, Wire: wattlev1.ErrorKind_ERROR_KIND_GAP, Code: connect.CodeFailedPrecondition},
	{Err: eventstore.ErrGuard, Wire: wattlev1.ErrorKind_ERROR_KIND_GUARD, Code: connect.CodeAborted},
	{Err: eventstore.ErrBatchIDReused, Wire: wattlev1.ErrorKind_ERROR_KIND_BATCH_ID_REUSED, Code: connect.CodeAlreadyExists},
	{Err: eventstore.ErrNoSuchCategory, Wire: wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_CATEGORY, Code: connect.CodeNotFound},
	{Err: eventstore.ErrNoSuchStream, Wire: wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_STREAM, Code: connect.CodeNotFound},
	{Err: eventstore.ErrInvalid, Wire: wattlev1.ErrorKind_ERROR_KIND_INVALID, Code: connect.CodeInvalidArgument},
	{Err: eventstore.ErrZeroEpoch, Wire: wattlev1.ErrorKind_ERROR_KIND_ZERO_EPOCH, Code: connect.CodeInvalidArgument},
	{Err: eventstore.ErrNotMigrated, Wire: wattlev1.ErrorKind_ERROR_KIND_NOT_MIGRATED, Code: connect.CodeFailedPrecondition},
	{Err: eventstore.ErrTrimmed, Wire: wattlev1.ErrorKind_ERROR_KIND_TRIMMED, Code: connect.CodeOutOfRange},
	{Err: eventstore.ErrTooLarge, Wire: wattlev1.ErrorKind_ERROR_KIND_TOO_LARGE, Code: connect.CodeInvalidArgument},
	{Err: eventstore.ErrOverloaded, Wire: wattlev1.ErrorKind_ERROR_KIND_OVERLOADED, Code: connect.CodeResourceExhausted},
	{Err: eventstore.ErrUnavailable, Wire: wattlev1.ErrorKind_ERROR_KIND_UNAVAILABLE, Code: connect.CodeUnavailable},
	{Err: eventstore.ErrReadOnly, Wire: wattlev1.ErrorKind_ERROR_KIND_READ_ONLY, Code: connect.CodeUnavailable},
	{Err: eventstore.ErrIsolation, Wire: wattlev1.ErrorKind_ERROR_KIND_ISOLATION, Code: connect.CodeFailedPrecondition},
	{Err: eventstore.ErrUnknown, Wire: wattlev1.ErrorKind_ERROR_KIND_UNKNOWN, Code: connect.CodeUnknown},
	{Err: eventstore.ErrLeaseLost, Wire: wattlev1.ErrorKind_ERROR_KIND_LEASE_LOST, Code: connect.CodeAborted},
	{Err: eventstore.ErrParked, Wire: wattlev1.ErrorKind_ERROR_KIND_PARKED, Code: connect.CodeFailedPrecondition},
	{Err: eventstore.ErrCrossBackend, Wire: wattlev1.ErrorKind_ERROR_KIND_CROSS_BACKEND, Code: connect.CodeInvalidArgument},
	{Err: eventstore.ErrCorrupt, Wire: wattlev1.ErrorKind_ERROR_KIND_CORRUPT, Code: connect.CodeDataLoss},
	{Err: eventstore.ErrClosed, Wire: wattlev1.ErrorKind_ERROR_KIND_CLOSED, Code: connect.CodeUnavailable},
	{Err: errors.ErrUnsupported, Wire: wattlev1.ErrorKind_ERROR_KIND_UNSUPPORTED, Code: connect.CodeUnimplemented},
}

// find returns the first kind, of eventstore or else of extra, that is so.
func find(extra []Kind, is func(*Kind) bool) *Kind {
	for _, table := range [][]Kind{kinds, extra} {
		for i := range table {
			if is(&table[i]) {
				return &table[i]
			}
		}
	}
	return nil
}
