// Errors: what the server says, and what is known when it says nothing.

package lean

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// Kinds of error that only a server gives.
var (
	// ErrUnauthenticated: the server does not know who asks, or does not take the token.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrDenied: the server's access policy does not allow it.
	ErrDenied = errors.New("denied")
)

// kinds are the kinds by their number in wattle.v1.
var kinds = map[uint64]error{
	1: eventstore.ErrFenced, 2: eventstore.ErrDiverged, 3: eventstore.ErrAlreadyWritten, 4: eventstore.ErrGap, 5: eventstore.ErrGuard,
	6: eventstore.ErrBatchIDReused, 7: eventstore.ErrNoSuchCategory, 8: eventstore.ErrNoSuchStream, 9: eventstore.ErrInvalid,
	10: eventstore.ErrZeroEpoch, 11: eventstore.ErrNotMigrated, 12: eventstore.ErrTrimmed, 13: eventstore.ErrTooLarge,
	14: eventstore.ErrOverloaded, 15: eventstore.ErrUnavailable, 16: eventstore.ErrReadOnly, 17: eventstore.ErrIsolation,
	18: eventstore.ErrUnknown, 19: eventstore.ErrLeaseLost, 20: eventstore.ErrParked, 21: eventstore.ErrCrossBackend,
	22: eventstore.ErrCorrupt, 23: eventstore.ErrClosed, 24: errors.ErrUnsupported, 25: ErrUnauthenticated, 26: ErrDenied,
	27: eventstore.ErrUnavailable, // the server ends
	32: context.DeadlineExceeded,
}

// detailType is what the detail of an error is of.
const detailType = "wattle.v1.ErrorDetail"

func (a action) error(kind error, wanted, found string, cause error) *eventstore.Error {
	return &eventstore.Error{Kind: kind, Op: a.op, Stream: a.stream, Wanted: wanted, Found: found, Err: cause}
}

// lost is the error of a call whose answer has not come, or cannot be understood.
func (a action) lost(ctx context.Context, wanted string, cause error) error {
	if a.writes {
		return a.error(eventstore.ErrUnknown, wanted, "", cause)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.error(eventstore.ErrUnavailable, wanted, "", cause)
}

// failed reads an answer that is an error. One without a detail is not the service's: a
// proxy's, say, which does not know what has happened behind it.
func (a action) failed(status int, reply []byte) error {
	var e struct {
		Code    string
		Details []struct{ Type, Value string }
	}
	if json.Unmarshal(reply, &e) == nil {
		for _, d := range e.Details {
			if d.Type != detailType {
				continue
			}
			if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(d.Value, "=")); err == nil {
				if err, ok := a.detail(b); ok {
					return err
				}
			}
		}
	}
	found := "status " + strconv.Itoa(status)
	if e.Code != "" {
		found += ", " + strconv.Quote(e.Code)
	}
	kind := eventstore.ErrUnavailable
	if a.writes {
		kind = eventstore.ErrUnknown
	}
	return a.error(kind, "an answer of a Wattle server", found, nil)
}

// detail reads an ErrorDetail.
func (a action) detail(b []byte) (error, bool) {
	e := a.error(nil, "", "", nil)
	ok := fields(b, func(field int, n uint64, s []byte) bool {
		switch field {
		case 1:
			e.Kind = kinds[n]
		case 2:
			e.Op = string(s)
		case 3:
			e.Stream = eventstore.Stream(s)
		case 4:
			e.Category = eventstore.Category(s)
		case 5:
			e.Wanted = string(s)
		case 6:
			e.Found = string(s)
		case 7:
			e.Hint = string(s)
		case 8:
			h, ok := headOf(s)
			e.Head = &h
			return ok
		case 9:
			e.First = eventstore.Seqno(n)
		case 10:
			e.FirstPosition = eventstore.Position(n)
		case 11:
			e.Unprovable = n == 1
		}
		return true
	})
	if !ok || e.Kind == nil {
		return nil, false
	}
	return e, true
}

func headOf(b []byte) (h eventstore.Head, ok bool) {
	ok = fields(b, func(field int, n uint64, s []byte) bool {
		switch field {
		case 1:
			h.Epoch = eventstore.Epoch(n)
		case 2:
			return text(s, &h.Holder)
		case 3:
			return fields(s, func(field int, n uint64, s []byte) bool {
				switch field {
				case 1:
					h.Last.Seqno = eventstore.Seqno(n)
				case 2:
					return text(s, &h.Last.ID)
				}
				return true
			})
		case 4:
			h.Trimmed = eventstore.Seqno(n)
		}
		return true
	})
	return h, ok
}

func text(s []byte, u *eventstore.UUID) bool { return len(s) == 0 || u.UnmarshalText(s) == nil }
