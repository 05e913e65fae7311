// The messages of wattle.v1 as JSON, in the form that Protocol Buffers gives it: numbers
// of 64 bits as strings, bytes in base64, what is zero left out.

package lean

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// number is one of 64 bits.
type number uint64

func (n number) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatUint(uint64(n), 10)), nil
}

func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseUint(string(bytes.Trim(b, `"`)), 10, 64)
	if err == nil && v > eventstore.MaxNumber {
		err = errors.New("a number above 2^63-1")
	}
	*n = number(v)
	return err
}

// id is a UUID, the zero one as an empty string.
type id eventstore.UUID

func (u id) IsZero() bool { return u == id{} }

func (u id) MarshalText() ([]byte, error) {
	if u.IsZero() {
		return []byte{}, nil
	}
	return []byte(eventstore.UUID(u).String()), nil
}

func (u *id) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*u = id{}
		return nil
	}
	return (*eventstore.UUID)(u).UnmarshalText(b)
}

// seconds is a duration.
type seconds time.Duration

func (s seconds) MarshalText() ([]byte, error) {
	d, sign := time.Duration(s), ""
	if d < 0 {
		d, sign = -d, "-"
	}
	return fmt.Appendf(nil, "%s%d.%09ds", sign, d/time.Second, d%time.Second), nil
}

func (s *seconds) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	*s = seconds(d)
	return err
}

type mark struct {
	Seqno number `json:"seqno,omitzero"`
	ID    id     `json:"id,omitzero"`
}

func markOf(m eventstore.Mark) mark { return mark{number(m.Seqno), id(m.ID)} }

func (m mark) mark() eventstore.Mark {
	return eventstore.Mark{Seqno: eventstore.Seqno(m.Seqno), ID: eventstore.UUID(m.ID)}
}

type event struct {
	ID          id                  `json:"id,omitzero"`
	Type        string              `json:"type,omitzero"`
	Version     uint32              `json:"version,omitzero"`
	ContentType string              `json:"contentType,omitzero"`
	Data        []byte              `json:"data,omitempty"`
	Metadata    eventstore.Metadata `json:"metadata,omitempty"`
}

func eventsOf(events []eventstore.Event) []event {
	all := make([]event, len(events))
	for i, e := range events {
		all[i] = event{id(e.ID), e.Type, uint32(e.Version), e.ContentType, e.Data, e.Metadata}
	}
	return all
}

type entry struct {
	Event    event             `json:"event"`
	Stream   eventstore.Stream `json:"stream"`
	Seqno    number            `json:"seqno"`
	Epoch    number            `json:"epoch"`
	BatchID  id                `json:"batchId"`
	Position number            `json:"position"`
	Time     time.Time         `json:"time"`
}

func entries(all []entry) []eventstore.Entry {
	out := make([]eventstore.Entry, len(all))
	for i, e := range all {
		out[i] = eventstore.Entry{
			Event: eventstore.Event{ID: eventstore.UUID(e.Event.ID), Type: e.Event.Type, Version: int(e.Event.Version),
				ContentType: e.Event.ContentType, Data: present(e.Event.Data), Metadata: e.Event.Metadata},
			Stream: e.Stream, Seqno: eventstore.Seqno(e.Seqno), Epoch: eventstore.Epoch(e.Epoch), BatchID: eventstore.UUID(e.BatchID),
			Position: eventstore.Position(e.Position), Time: e.Time.UTC(),
		}
	}
	return out
}

// present is data that is never nil.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

type head struct {
	Epoch   number `json:"epoch"`
	Holder  id     `json:"holder"`
	Last    mark   `json:"last"`
	Trimmed number `json:"trimmed"`
}

func (h head) head() eventstore.Head {
	return eventstore.Head{Epoch: eventstore.Epoch(h.Epoch), Holder: eventstore.UUID(h.Holder), Last: h.Last.mark(), Trimmed: eventstore.Seqno(h.Trimmed)}
}

type batch struct {
	ID     id                `json:"id,omitzero"`
	Stream eventstore.Stream `json:"stream"`
	Epoch  number            `json:"epoch,omitzero"`
	Holder id                `json:"holder,omitzero"`
	Claim  bool              `json:"claim,omitzero"`
	After  mark              `json:"after"`
	Events []event           `json:"events,omitempty"`
}

type guard struct {
	Stream eventstore.Stream `json:"stream"`
	At     mark              `json:"at"`
}

type receipt struct {
	Stream  eventstore.Stream `json:"stream"`
	First   number            `json:"first"`
	Last    mark              `json:"last"`
	Fenced  bool              `json:"fenced"`
	Replays bool              `json:"replays"`
}

type filter struct {
	Categories    []eventstore.Category `json:"categories,omitempty"`
	Types         []string              `json:"types,omitempty"`
	Slots         []eventstore.Slot     `json:"slots,omitempty"`
	AcceptTrimmed bool                  `json:"acceptTrimmed,omitzero"`
}

type snapshot struct {
	Stream      eventstore.Stream `json:"stream"`
	At          mark              `json:"at"`
	Fingerprint string            `json:"fingerprint,omitzero"`
	ContentType string            `json:"contentType,omitzero"`
	Data        []byte            `json:"data,omitempty"`
	Checksum    []byte            `json:"checksum,omitempty"`
	Time        time.Time         `json:"time,omitzero"`
}

func (s *snapshot) snapshot() (*eventstore.Snapshot, error) {
	if len(s.Checksum) != sha256.Size {
		return nil, fmt.Errorf("a checksum of %d bytes", len(s.Checksum))
	}
	return &eventstore.Snapshot{Stream: s.Stream, At: s.At.mark(), Fingerprint: s.Fingerprint, ContentType: s.ContentType,
		Data: present(s.Data), Checksum: [sha256.Size]byte(s.Checksum), Time: s.Time.UTC()}, nil
}

type category struct {
	Name       eventstore.Category `json:"name"`
	Layout     string              `json:"layout,omitzero"`
	TrimFreely bool                `json:"trimFreely,omitzero"`
}

const dedicated = "LAYOUT_DEDICATED"

type hold struct {
	Name     string              `json:"name"`
	Category eventstore.Category `json:"category,omitzero"`
	Stream   eventstore.Stream   `json:"stream,omitzero"`
	Seqno    number              `json:"seqno,omitzero"`
	Position number              `json:"position,omitzero"`
	ID       id                  `json:"id,omitzero"`
}

type lease struct {
	Name   string    `json:"name"`
	Holder id        `json:"holder,omitzero"`
	Epoch  number    `json:"epoch,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Left   seconds   `json:"left,omitzero"`
}

func leaseOf(l eventstore.Lease) lease {
	return lease{l.Name, id(l.Holder), number(l.Epoch), l.Until, seconds(l.Left)}
}

func (l lease) lease() eventstore.Lease {
	return eventstore.Lease{Name: l.Name, Holder: eventstore.UUID(l.Holder), Epoch: eventstore.Epoch(l.Epoch), Until: l.Until.UTC(), Left: time.Duration(l.Left)}
}

func mapped[A, B any](all []A, f func(A) B) []B {
	out := make([]B, len(all))
	for i, a := range all {
		out[i] = f(a)
	}
	return out
}
