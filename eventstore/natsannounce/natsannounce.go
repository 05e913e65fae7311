// Package natsannounce carries announcements over core NATS.
//
// An announcement is one message on the subject "wattle.<category>.<slot>", a
// small JSON object:
//
//	{"category":"account","slot":12,"stream":"account-alice","seqno":5,"position":77,"traceparent":"00-…"}
//
// The trace context is in the header "traceparent" as well. Nothing is stored and
// nothing is acknowledged: an announcement is a hint, and readers poll anyhow. So
// hints are dropped rather than kept where keeping would block an append or grow
// without bound: while there is no connection (nothing that is older than the
// reconnection is ever sent after it), and when more streams wait to be announced
// than maxWaiting. Until it is sent, a newer hint replaces an older one of the
// same stream. After a connection comes back, every subscriber gets one empty
// hint, which says to look now.
//
// Messages are trusted for nothing: what is too long, malformed or does not fit
// its subject is ignored. Give the account of the publishers alone the right to
// publish below the prefix if others share the server.
package natsannounce

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	// DefaultPrefix is the first token of all subjects where none is named.
	DefaultPrefix = "wattle"
	// MaxPrefixBytes bounds Options.Prefix.
	MaxPrefixBytes = 128
	// MaxMessageBytes bounds a message; longer ones are ignored. The longest that
	// is sent has some 4 KiB, when every byte of a key needs an escape.
	MaxMessageBytes = 8 << 10

	maxWaiting   = 4096        // streams whose hint waits to be sent
	maxInbox     = 1024        // messages that wait for one subscriber; more are dropped
	flushTimeout = time.Second // for the server to know of a new subscription
)

// Options of an Announcer; nil and the zero value are the defaults.
type Options struct {
	// Prefix of all subjects: one or more tokens, as "wattle" or "prod.bank". Stores
	// that share a NATS need one each. Empty: DefaultPrefix.
	Prefix string
}

// Announcer implements eventstore.Announcer over a NATS connection, which stays
// the caller's. It may be used from several goroutines at once.
type Announcer struct {
	nc      *nats.Conn
	prefix  string
	mistake error // in the options; every method returns it

	mu      sync.Mutex
	waiting map[eventstore.Stream]eventstore.Announcement
	order   []eventstore.Stream // of waiting, oldest first
	sending bool                // a goroutine sends what waits; it ends when nothing does
	down    bool                // the last hint could not be sent
	unsaid  error               // why, until an Announce has said so
}

// New returns an announcer. A nil connection or a bad prefix is the ErrInvalid of
// every method.
func New(nc *nats.Conn, o *Options) *Announcer {
	a := &Announcer{nc: nc, prefix: DefaultPrefix, waiting: map[eventstore.Stream]eventstore.Announcement{}}
	if o != nil && o.Prefix != "" {
		a.prefix = o.Prefix
	}
	if nc == nil {
		a.mistake = invalid("a NATS connection", "nil")
	} else if !validPrefix(a.prefix) {
		a.mistake = invalid(fmt.Sprintf("a prefix of at most %d bytes: tokens without blanks, * and >, joined by dots", MaxPrefixBytes), fmt.Sprintf("%.200q", a.prefix))
	}
	return a
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

func invalid(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "announce", Wanted: wanted, Found: found}
}

// Announce hands hints over to be sent and returns at once: not even a connection
// that hangs holds an append up. The error is of hints before these: it is
// returned once when an outage begins, not for each of its hints.
func (a *Announcer) Announce(_ context.Context, hints []eventstore.Announcement) error {
	if a.mistake != nil {
		return a.mistake
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range hints {
		a.enqueue(h)
	}
	if !a.sending && len(a.order) > 0 {
		a.sending = true
		go a.send()
	}
	err := a.unsaid
	a.unsaid = nil
	return err
}

func (a *Announcer) enqueue(h eventstore.Announcement) {
	old, there := a.waiting[h.Stream]
	switch {
	case there && old.Seqno > h.Seqno:
	case there:
		a.waiting[h.Stream] = h
	case len(a.order) < maxWaiting:
		a.waiting[h.Stream] = h
		a.order = append(a.order, h.Stream)
	default:
		a.failed(&eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "announce", Stream: h.Stream,
			Wanted: fmt.Sprintf("at most %d streams waiting to be announced", maxWaiting), Found: "more; is the NATS server keeping up?"})
	}
}

// failed notes that a hint was dropped.
func (a *Announcer) failed(err error) {
	if !a.down {
		a.unsaid = err
	}
	a.down = true
}

// send sends what waits, until nothing does.
func (a *Announcer) send() {
	for {
		h, ok := a.take()
		if !ok {
			return
		}
		err := a.publish(h)
		a.mu.Lock()
		if err == nil {
			a.down = false
		} else {
			a.failed(err)
		}
		a.mu.Unlock()
	}
}

func (a *Announcer) take() (eventstore.Announcement, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.order) == 0 {
		a.sending, a.order = false, nil // the array behind a long queue is let go
		return eventstore.Announcement{}, false
	}
	h := a.waiting[a.order[0]]
	delete(a.waiting, a.order[0])
	a.order = a.order[1:]
	return h, true
}

// publish sends one hint, unless there is no connection now: what a client keeps
// for later comes out of order with what is published then.
func (a *Announcer) publish(h eventstore.Announcement) error {
	if !a.nc.IsConnected() {
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "announce", Stream: h.Stream,
			Wanted: "a connection to NATS", Found: a.nc.Status().String(), Hint: "hints are dropped until it is back; readers poll"}
	}
	m := &nats.Msg{Subject: a.subject(h.Category, strconv.Itoa(int(h.Slot))), Data: encode(h)}
	if h.Traceparent != "" && a.nc.HeadersSupported() {
		m.Header = nats.Header{headerTraceparent: []string{h.Traceparent}}
	}
	if err := a.nc.PublishMsg(m); err != nil {
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "announce", Stream: h.Stream, Err: err}
	}
	return nil
}

// subject joins prefix, category and slot. A Category is one NATS token without
// wildcards, so it cannot widen the subject.
func (a *Announcer) subject(c eventstore.Category, slot string) string {
	return a.prefix + "." + string(c) + "." + slot
}
