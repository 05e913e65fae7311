// Package natssink republishes entries to a NATS JetStream stream, for consumers that
// know nothing of the store.
//
//	h := natssink.New(js, "EVENTS", checkpoints, nil)
//	p := projector.New(store, "republish", "account", h)
//
// # A message
//
// An entry is one message on the subject "prefix.category", with the entry's data as it
// is and these headers (Header…): the entry's ID, type, version, content type, stream,
// seqno, position and time, and the trace context of the append. Stream and type are
// percent-encoded, as [net/url.PathUnescape] reads them: keys may hold what a header may
// not. A category is one token without wildcards, so nothing a user writes widens a
// subject.
//
// # How often
//
// The header Nats-Msg-Id is "projector/version/position/entry-id". The server drops a
// message whose ID it has seen within the stream's duplicate window, so:
//
//   - exactly once, as long as an entry that is published again comes within the window.
//     It comes again after a crash between publishing and keeping the checkpoint, a lost
//     acknowledgement, or when another instance takes over;
//   - at least once beyond: when the projector or the server stood still for longer than
//     the window in such a moment, and when it is reset to an earlier place. Then the
//     message is there twice with the same Nats-Msg-Id, by which a consumer tells;
//   - the server remembers over a restart only what is still in the stream. What was
//     consumed from a work queue, purged, or kept in memory only can come again.
//
// Projector and version are in the ID because another version is another publication: it
// publishes everything again, under new IDs. A reset of the same version is not: within
// the window it publishes nothing twice. Position and entry ID are both there because a
// position alone can be given to another entry after a restore, which would then be
// dropped as a duplicate, and is 0 for all entries of a dedicated stream.
//
// # In which order
//
// The messages of one key stand in the order of its streams: an entry is published when
// the one before it was acknowledged. A message in the middle of a pipeline can be lost
// or refused (a cut connection, a new leader, a limit) while those behind it are stored,
// and what is stored cannot be taken back; so there is no pipeline within a key, but
// Options.Keys of them side by side. There is no order between keys. After an error the
// checkpoint is kept before the first entry that was not acknowledged.
//
// # The stream
//
// It is the operator's. It has to exist, take the subject "prefix.>" or those of the
// categories, acknowledge, and have a duplicate window of at least Options.MinWindow; it
// is looked at before the first message and after every error. Give the connection
// [nats.MaxReconnects](-1): what is closed for good is ErrClosed.
package natssink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Options of a handler; nil and the zero value are the defaults.
type Options struct {
	// Prefix of all subjects: one or more tokens. Empty: DefaultPrefix. It must not be that
	// of announcements, which go to subjects below their prefix and category.
	Prefix string
	// Keys is how many messages, each of another key, wait for their acknowledgement at
	// once; 0 means DefaultKeys, at most projector.MaxSinkKeys.
	Keys int
	// MinWindow is the least duplicate window that the stream must have; 0 means
	// DefaultMinWindow. Negative: any, also none, for consumers that tell repeats themselves.
	MinWindow time.Duration
	// Timeout is how long an acknowledgement is waited for; 0 means DefaultTimeout.
	Timeout time.Duration
}

// sink is the handler: it looks at the stream before the steps of a ConcurrentSink.
type sink struct {
	projector.Handler
	js      jetstream.JetStream
	stream  string
	o       Options
	mistake error

	mu       sync.Mutex
	subjects []string // of the stream, when last looked at; nil: it has to be looked at
}

// New returns a handler that publishes every entry to a JetStream stream and keeps its
// checkpoint in c. js and its connection stay the caller's. Mistakes are the ErrInvalid
// of every step.
//
// Errors: eventstore.ErrInvalid if the stream does not exist, does not take the subjects,
// does not acknowledge or has too short a window; ErrTooLarge, of the entry, if a message
// is larger than server or stream allow; ErrOverloaded if the stream is full and
// refuses; ErrUnavailable if no answer came; ErrClosed if the connection was closed.
func New(js jetstream.JetStream, stream string, c projector.Checkpoints, o *Options) projector.Handler {
	s := &sink{js: js, stream: stream}
	if o != nil {
		s.o = *o
	}
	s.mistake = s.configure(c)
	s.Handler = projector.ConcurrentSink(c, s.o.Keys, s.publish)
	return s
}

func (s *sink) configure(c projector.Checkpoints) error {
	if s.o.Prefix == "" {
		s.o.Prefix = DefaultPrefix
	}
	if s.o.Keys == 0 {
		s.o.Keys = DefaultKeys
	}
	if s.o.MinWindow == 0 {
		s.o.MinWindow = DefaultMinWindow
	}
	if s.o.Timeout == 0 {
		s.o.Timeout = DefaultTimeout
	}
	switch {
	case s.js == nil || c == nil:
		return s.invalid("JetStream and checkpoints", "nil")
	case s.stream == "":
		return s.invalid("the name of a JetStream stream", "an empty one")
	case !validPrefix(s.o.Prefix):
		return s.invalid(fmt.Sprintf("a prefix of at most %d bytes: tokens without blanks, * and >, joined by dots", MaxPrefixBytes), fmt.Sprintf("%.200q", s.o.Prefix))
	case s.o.Keys < 1 || s.o.Keys > projector.MaxSinkKeys:
		return s.invalid(fmt.Sprintf("1 to %d keys at once", projector.MaxSinkKeys), fmt.Sprint(s.o.Keys))
	case s.o.Timeout < 0:
		return s.invalid("a timeout above 0", s.o.Timeout.String())
	}
	return nil
}

func validPrefix(s string) bool {
	if len(s) > MaxPrefixBytes || !utf8.ValidString(s) {
		return false
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '*' || r == '>' }) {
			return false
		}
	}
	return true
}

// Keeps returns the checkpoints, which may be a projector.Control.
func (s *sink) Keeps() projector.Checkpoints {
	return s.Handler.(interface{ Keeps() projector.Checkpoints }).Keeps()
}

// Handle looks at the stream, if it must, and takes the step.
func (s *sink) Handle(ctx context.Context, st projector.Step) error {
	if s.mistake != nil {
		return s.mistake
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	err := s.takes(ctx, st.Batch)
	if err == nil {
		err = s.Handler.Handle(ctx, st)
	}
	if err == nil {
		return nil
	}
	s.forget()
	// What is wrong with the stream is no fault of the entry that met it.
	if bad, ok := errors.AsType[*projector.EntryError](err); ok && !bad.Permanent {
		if e, ok := bad.Err.(*eventstore.Error); ok && e.Op == op {
			return e
		}
	}
	return err
}

// publish publishes one entry and waits for the acknowledgement.
func (s *sink) publish(ctx context.Context, key projector.Key, e eventstore.Entry) error {
	// What the client would keep for later could come when another instance has gone on.
	if nc := s.js.Conn(); !nc.IsConnected() && !nc.IsClosed() {
		return s.translate(nats.ErrDisconnected)
	}
	waiting, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	ack, err := s.js.PublishMsg(waiting, s.message(key, &e))
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return s.refused(&e, err)
	case ack.Stream != s.stream:
		return s.wrongStream(s.subject(&e), "an acknowledgement of stream "+ack.Stream)
	}
	return nil
}
