// The JetStream stream: what it has to be like, and what its refusals mean.

package natssink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// op is the Op of the errors made here.
const op = "publish"

// Codes of the server's refusals, as server/errors.json of nats-server has them.
const (
	codeInsufficient     = 10023 // resources of the server
	codeMemory           = 10028 // the account's limit
	codeStorage          = 10047
	codeMessageTooLarge  = 10054
	codeStreamNotFound   = 10059
	codeStreamNotMatched = 10060
	codeStoreFailed      = 10077 // a limit of a stream that discards the new
)

// look asks for the stream, unless that was done since the last error.
func (s *sink) look(ctx context.Context) error {
	s.mu.Lock()
	known := s.subjects != nil
	s.mu.Unlock()
	if known {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	stream, err := s.js.Stream(waiting, s.stream)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return s.translate(err)
	}
	c := stream.CachedInfo().Config
	switch {
	case c.NoAck:
		return s.invalid("a stream that acknowledges", "no_ack")
	case c.Sealed || c.Mirror != nil || len(c.Subjects) == 0:
		return s.invalid("a stream that takes messages", "one that is sealed, a mirror or without subjects")
	case c.Duplicates < s.o.MinWindow:
		e := s.invalid("a duplicate window of at least "+s.o.MinWindow.String(), c.Duplicates.String())
		e.Hint = "raise it with `nats stream edit --dupe-window`, or set Options.MinWindow if consumers tell repeats by Nats-Msg-Id"
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subjects = c.Subjects
	return nil
}

func (s *sink) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subjects = nil
}

// takes says if the stream takes the subjects of a batch. A subject that no stream takes
// would be published into the void, or to another stream.
func (s *sink) takes(ctx context.Context, batch []eventstore.Entry) error {
	s.mu.Lock()
	subjects := s.subjects
	s.mu.Unlock()
	seen := ""
	for i := range batch {
		subject := s.subject(&batch[i])
		if subject == seen {
			continue
		}
		seen = subject
		if !slices.ContainsFunc(subjects, func(pattern string) bool { return matches(pattern, subject) }) {
			return s.wrongStream(subject, "subjects "+strings.Join(subjects, ", "))
		}
	}
	return ctx.Err()
}

// matches says if a subject without wildcards is one of a pattern's.
func matches(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return len(have) > i
		case i >= len(have) || token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

// refused is the error of an entry that was not acknowledged.
func (s *sink) refused(e *eventstore.Entry, err error) error {
	api, _ := errors.AsType[*jetstream.APIError](err)
	if errors.Is(err, nats.ErrMaxPayload) || api != nil && api.ErrorCode == codeMessageTooLarge {
		bad := projector.NewEntryError([]eventstore.Entry{*e}, &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: op, Stream: e.Stream,
			Wanted: "a message that server and stream allow", Found: fmt.Sprintf("%d bytes of data", len(e.Data)), Err: err,
			Hint: "raise max_payload of the server and max_msg_size of stream " + s.stream})
		bad.Permanent = true
		return bad
	}
	return s.translate(err)
}

// translate makes an *eventstore.Error of one of NATS, by its code.
func (s *sink) translate(err error) error {
	e := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: op, Err: err, Wanted: "an answer of JetStream stream " + s.stream}
	api, answered := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, nats.ErrConnectionClosed):
		e.Kind, e.Hint = eventstore.ErrClosed, "connect with nats.MaxReconnects(-1)"
	case errors.Is(err, jetstream.ErrInvalidStreamName):
		e.Kind = eventstore.ErrInvalid
	case !answered:
		e.Hint = "is the server up, JetStream enabled, and has the stream a leader?"
	case api.ErrorCode == codeStreamNotFound:
		e.Kind, e.Found, e.Hint = eventstore.ErrInvalid, "no such stream", "create it with subject "+s.o.Prefix+".>"
	case api.ErrorCode == codeStreamNotMatched:
		e.Kind, e.Found, e.Hint = eventstore.ErrInvalid, "another stream that has the subject", "give it to "+s.stream
	case api.ErrorCode == codeStoreFailed:
		e.Kind, e.Hint = eventstore.ErrOverloaded, "the stream is full and refuses the new: raise its limits, or let it discard the old"
	case api.ErrorCode == codeInsufficient, api.ErrorCode == codeMemory, api.ErrorCode == codeStorage:
		e.Kind, e.Hint = eventstore.ErrOverloaded, "the server or account is out of memory or storage for JetStream"
	case api.Code < 500:
		e.Kind = eventstore.ErrInvalid
	}
	return e
}

func (s *sink) wrongStream(subject, found string) error {
	e := s.invalid("JetStream stream "+s.stream+" to take subject "+subject, found)
	e.Hint = "add " + s.o.Prefix + ".> to its subjects"
	return e
}

func (s *sink) invalid(wanted, found string) *eventstore.Error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Wanted: wanted, Found: found}
}
