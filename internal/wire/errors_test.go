// Errors over the wire: no kind and no fact is lost, and nothing else is told.

package wire

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// sentinels are all of eventstore, by name.
var sentinels = map[string]error{
	"ErrFenced": eventstore.ErrFenced, "ErrDiverged": eventstore.ErrDiverged, "ErrAlreadyWritten": eventstore.ErrAlreadyWritten,
	"ErrGap": eventstore.ErrGap, "ErrGuard": eventstore.ErrGuard, "ErrBatchIDReused": eventstore.ErrBatchIDReused,
	"ErrNoSuchCategory": eventstore.ErrNoSuchCategory, "ErrNoSuchStream": eventstore.ErrNoSuchStream, "ErrInvalid": eventstore.ErrInvalid,
	"ErrZeroEpoch": eventstore.ErrZeroEpoch, "ErrNotMigrated": eventstore.ErrNotMigrated, "ErrTrimmed": eventstore.ErrTrimmed,
	"ErrTooLarge": eventstore.ErrTooLarge, "ErrOverloaded": eventstore.ErrOverloaded, "ErrUnavailable": eventstore.ErrUnavailable,
	"ErrReadOnly": eventstore.ErrReadOnly, "ErrIsolation": eventstore.ErrIsolation, "ErrUnknown": eventstore.ErrUnknown,
	"ErrLeaseLost": eventstore.ErrLeaseLost, "ErrParked": eventstore.ErrParked, "ErrCrossBackend": eventstore.ErrCrossBackend,
	"ErrCorrupt": eventstore.ErrCorrupt, "ErrClosed": eventstore.ErrClosed,
}

// declared are the names of the sentinels in the source of eventstore.
func declared(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../eventstore/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// sent is an error as it comes over the wire.
func sent(err *connect.Error) error {
	wire := connect.NewWireError(err.Code(), errors.New(err.Message()))
	for _, d := range err.Details() {
		wire.AddDetail(d)
	}
	return wire
}

func TestEverySentinel(t *testing.T) {
	names := declared(t)
	if len(names) != len(sentinels) || len(names) < 20 {
		t.Errorf("eventstore declares %d kinds of error, the test knows %d", len(names), len(sentinels))
	}
	codes := map[connect.Code][]string{}
	for _, name := range names {
		kind, ok := sentinels[name]
		if !ok {
			t.Errorf("%s is not known here: give it a kind on the wire and a code", name)
			continue
		}
		before := &eventstore.Error{Kind: kind, Op: "append", Stream: "loan-a", Category: "loan", Wanted: "w", Found: "f", Hint: "h",
			Head: &eventstore.Head{Epoch: 3, Holder: eventstore.NameUUID("h"), Last: eventstore.Mark{Seqno: 7, ID: eventstore.NameUUID("e")}, Trimmed: 2}, First: 3, FirstPosition: 1 << 53,
			Unprovable: true}
		ce := FromError(fmt.Errorf("wrapped: %w", before))
		if ce.Code() == connect.CodeInternal || !strings.Contains(ce.Message(), kind.Error()) {
			t.Errorf("%s is sent as %v", name, ce)
		}
		codes[ce.Code()] = append(codes[ce.Code()], name)
		if after := ToError("other", sent(ce)); !reflect.DeepEqual(after, error(before)) {
			t.Errorf("%s comes back as %#v", name, after)
		}
	}
	// What clients of others try again by themselves must be safe to be tried again.
	for _, code := range []connect.Code{connect.CodeUnavailable, connect.CodeResourceExhausted} {
		for _, name := range codes[code] {
			switch name {
			case "ErrUnavailable", "ErrReadOnly", "ErrClosed", "ErrOverloaded":
			default:
				t.Errorf("%s has code %v, which invites to try again", name, code)
			}
		}
	}
	seen := map[wattlev1.ErrorKind]bool{}
	for _, k := range kinds {
		if seen[k.Wire] {
			t.Errorf("%v stands for two kinds", k.Wire)
		}
		seen[k.Wire] = true
	}
}

func TestOtherErrors(t *testing.T) {
	ours := errors.New("ours above")
	extra := Kind{Err: ours, Wire: wattlev1.ErrorKind_ERROR_KIND_NOT_OWNER, Code: connect.CodeAborted,
		Send:  func(e *eventstore.Error, d *wattlev1.ErrorDetail) { d.Owner = "http://b" },
		Cause: func(d *wattlev1.ErrorDetail) error { return errors.New("owned by " + d.GetOwner()) }}
	got := ToError("publish", sent(FromError(&eventstore.Error{Kind: ours, Stream: "t-0"}, extra)), extra)
	if e, ok := errors.AsType[*eventstore.Error](got); !ok || !errors.Is(got, ours) || e.Op != "publish" || e.Stream != "t-0" || e.Err.Error() != "owned by http://b" {
		t.Errorf("a kind from above comes back as %v", got)
	}
	if got := ToError("publish", sent(FromError(ours, extra)), extra); !errors.Is(got, ours) {
		t.Errorf("a bare sentinel from above comes back as %v", got)
	}
	if got := ToError("x", sent(FromError(fmt.Errorf("verify: %w", errors.ErrUnsupported)))); !errors.Is(got, errors.ErrUnsupported) {
		t.Errorf("unsupported comes back as %v", got)
	}
	for err, code := range map[error]connect.Code{context.Canceled: connect.CodeCanceled, context.DeadlineExceeded: connect.CodeDeadlineExceeded} {
		ce := FromError(fmt.Errorf("in between: %w", err))
		if got := ToError("x", sent(ce)); ce.Code() != code || !errors.Is(got, eventstore.ErrUnavailable) {
			t.Errorf("%v is sent as %v and comes back as %v", err, ce, got)
		}
	}
	for _, err := range []error{errors.New("odd"), &eventstore.Error{Kind: errors.New("odd")}, &eventstore.Error{}, connect.NewError(connect.CodeNotFound, errors.New("odd"))} {
		ce := FromError(err)
		if ce.Code() != connect.CodeInternal || strings.Contains(ce.Error(), "odd") {
			t.Errorf("%#v is sent as %v", err, ce)
		}
		if got := ToError("x", sent(ce)); got == nil || errors.As(got, new(*eventstore.Error)) {
			t.Errorf("%v comes back as %v, though nobody knows what it is", ce, got)
		}
	}
	if FromError(nil) != nil {
		t.Error("nil is an error")
	}
	passed := FromError(eventstore.ErrInvalid, Kind{Err: eventstore.ErrInvalid, Wire: wattlev1.ErrorKind_ERROR_KIND_DENIED, Code: connect.CodePermissionDenied})
	if FromError(passed) != passed {
		t.Error("an error with a detail does not pass")
	}
	// What this side has made itself is no answer, whatever it has.
	if got := ToError("x", FromError(&eventstore.Error{Kind: eventstore.ErrFenced})); errors.Is(got, eventstore.ErrFenced) {
		t.Errorf("an error of this side's comes back as %v", got)
	}
}

// What an error was caused by holds what no client may see; names from outside may hold
// anything.
func TestNothingElseIsTold(t *testing.T) {
	cause := errors.New("dial postgres://app:CANARY@db/x: SELECT secret")
	lengths := []int{1, 1 << 20} // what is too long is cut, and may hide what stands behind it
	for name, kind := range sentinels {
		ce := FromError(&eventstore.Error{Kind: kind, Op: "append", Stream: "loan-\xff\n", Wanted: "a\nb\x1b[31m\xff", Found: strings.Repeat("x", lengths[len(name)%2]), Err: fmt.Errorf("%w", cause)})
		text := ce.Error()
		for _, d := range ce.Details() {
			v, err := d.Value()
			if err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprint(v)
		}
		if strings.Contains(text, "CANARY") || strings.Contains(text, "SELECT") || strings.ContainsAny(ce.Message(), "\n\x1b") || len(text) > 20<<10 {
			t.Errorf("%s: %.300q of %d bytes is told", name, text, len(text))
		}
		if got := ToError("append", sent(ce)); !errors.Is(got, kind) {
			t.Errorf("%s comes back as %v", name, got)
		}
	}
}

// A server that is not to be trusted sends details.
func TestBadDetails(t *testing.T) {
	for name, d := range map[string]*wattlev1.ErrorDetail{
		"no kind":         {},
		"unheard-of kind": {Kind: 9999},
		"first":           {Kind: wattlev1.ErrorKind_ERROR_KIND_TRIMMED, First: 1 << 63},
		"first position":  {Kind: wattlev1.ErrorKind_ERROR_KIND_TRIMMED, FirstPosition: 1 << 63},
		"head":            {Kind: wattlev1.ErrorKind_ERROR_KIND_FENCED, Head: &wattlev1.Head{Epoch: 1 << 63}},
		"holder":          {Kind: wattlev1.ErrorKind_ERROR_KIND_FENCED, Head: &wattlev1.Head{Holder: "x"}},
		"foreign kind":    {Kind: wattlev1.ErrorKind_ERROR_KIND_NO_SUCH_TOPIC},
	} {
		err := sent(detailed(connect.CodeAborted, "text\nof theirs", d))
		if got := ToError("append", err); !errors.Is(got, err) || errors.As(got, new(*eventstore.Error)) {
			t.Errorf("%s comes back as %v", name, got)
		}
		c := &Caller{Target: "http://a"}
		for writes, kind := range map[bool]error{true: eventstore.ErrUnknown, false: eventstore.ErrUnavailable} {
			got := c.Failed(t.Context(), Act{Op: "append", Writes: writes}, false, err)
			if !errors.Is(got, kind) || strings.Contains(got.Error(), "\n") {
				t.Errorf("%s of a call that writes %t: %v", name, writes, got)
			}
		}
	}
}

// That the end of a context was the cause arrives, and no other cause does.
func TestEndOfContext(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled, errors.New("secret")} {
		got := sent(FromError(&eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Err: fmt.Errorf("more: %w", cause)}))
		e, ok := errors.AsType[*eventstore.Error](ToError("append", got))
		if !ok || e.Kind != eventstore.ErrUnknown {
			t.Fatalf("%v: %v", cause, got)
		}
		ended := errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, context.Canceled)
		if errors.Is(e, cause) != ended || strings.Contains(e.Error(), "secret") || strings.Contains(e.Error(), "more") {
			t.Errorf("%v arrived as %v", cause, e)
		}
	}
}
