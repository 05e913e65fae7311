// Exit codes: what an error means to the shell.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/topic"
)

// The exit codes; exitCodesHelp is their documentation.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnavailable = 5
	exitNotMigrated = 6
	exitBadInput    = 7
	exitFound       = 8
	exitBehind      = 9
)

const exitCodesHelp = `Exit codes of wattle:

    0  it is done
    1  it failed for a reason that is none of the others; damaged data is here
    2  usage: unknown command, flag or argument; an invalid name, number or store URL
    3  not found: no such category, stream, topic or projector, or what was asked for has been
       trimmed
    4  refused: by a fence, a guard or a conflict, by a server that does not know who asks or
       does not allow it, because history diverged, by a rule of the demo's domain, because a
       question was not answered with yes or a file is there already; wattle policy check found
       that it is not allowed
    5  unavailable: the store, NATS or a handler cannot be reached, is overloaded, takes no writes, is
       open in another process that writes to it, or its answer was lost; try again
    6  not migrated: there is no store in the directory, or the schema is absent, or either is
       of another version; run: wattle migrate up
    7  bad input: the file read with --xes is damaged or cannot be read; a module is no
       WebAssembly guest, or one that is refused; an access policy is broken
    8  wattle verify or wattle doctor found a fault, or what --fail-on says; with --check,
       wattle projector show found it not ready; wattle handler test and wattle guest test
       found a broken rule
    9  a projector has not come so far in time: wattle projector wait, or --wait
  130  interrupted (SIGINT); 143 by SIGTERM. wattle tail, consume and serve end with 0 then`

// usageError is a command line that cannot be understood.
type usageError struct{ wanted, found, hint string }

func (e *usageError) Error() string {
	s := "wanted " + e.wanted + ", found " + e.found
	if e.hint != "" {
		s += " (" + e.hint + ")"
	}
	return s
}

// refusal is a command that was not done because nobody said yes.
type refusal struct{ wanted, found, hint string }

func (e *refusal) Error() string {
	return fmt.Sprintf("refused: wanted %s, found %s (%s)", e.wanted, e.found, e.hint)
}

// coded is an error whose exit code is not that of its kind.
type coded struct {
	error
	code int
}

func (e *coded) Unwrap() error { return e.error }

// codes says which kinds of error end with which code, the first that fits.
var codes = []struct {
	code  int
	kinds []error
}{
	{exitBadInput, []error{loan.ErrXES}},
	{exitBadInput, []error{wasm.ErrNotAModule, wasm.ErrComponent, wasm.ErrImport, wasm.ErrExport}},
	{exitRefused, []error{loan.ErrRefused, bank.ErrDiffers}},
	{exitNotMigrated, []error{eventstore.ErrNotMigrated}},
	{exitNotFound, []error{eventstore.ErrNoSuchCategory, eventstore.ErrNoSuchStream, eventstore.ErrTrimmed, projector.ErrNotRegistered, topic.ErrNoSuchTopic, remotelog.ErrNoSuchProjector}},
	{exitRefused, []error{eventstore.ErrFenced, eventstore.ErrDiverged, eventstore.ErrAlreadyWritten, eventstore.ErrGap,
		eventstore.ErrGuard, eventstore.ErrBatchIDReused, eventstore.ErrIsolation, eventstore.ErrLeaseLost, eventstore.ErrParked}},
	{exitRefused, []error{handler.ErrDenied, remotelog.ErrDenied, remotelog.ErrUnauthenticated}},
	{exitUnavailable, []error{handler.ErrFailed, eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrReadOnly, eventstore.ErrUnknown, topic.ErrNotOwner, remotelog.ErrGoingAway, context.DeadlineExceeded}},
	{exitUsage, []error{eventstore.ErrInvalid, eventstore.ErrTooLarge, eventstore.ErrZeroEpoch, errors.ErrUnsupported}},
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	if i, ok := errors.AsType[interruption](err); ok {
		return i.code()
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return exitRefused
	}
	if _, ok := errors.AsType[*foundError](err); ok {
		return exitFound
	}
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	if _, ok := errors.AsType[*projector.LagError](err); ok {
		return exitBehind
	}
	if _, ok := errors.AsType[*lateError](err); ok {
		return exitBehind
	}
	for _, c := range codes {
		for _, kind := range c.kinds {
			if errors.Is(err, kind) {
				return c.code
			}
		}
	}
	if down(err) {
		return exitUnavailable
	}
	return exitFailure
}

// down says if a database's own error, that no package of ours has translated,
// is one of connection, resources or shutdown: SQLSTATE classes 08, 53, 57.
func down(err error) bool {
	var e interface {
		error
		SQLState() string
	}
	if !errors.As(err, &e) {
		return false
	}
	class, _, _ := strings.Cut(e.SQLState()+"  ", " ")
	return len(class) == 5 && (class[:2] == "08" || class[:2] == "53" || class[:2] == "57")
}

// message is the one line that an error becomes on stderr, with our name once.
func message(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	return "wattle: " + strings.ReplaceAll(strings.TrimPrefix(s, "wattle: "), ": wattle: ", ": ")
}
