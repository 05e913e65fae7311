// Messages: their JSON, written exactly and read with suspicion.

package natsannounce

import (
	"encoding/json"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
)

const headerTraceparent = "traceparent"

// message is the JSON of an announcement. Fields may be added.
type message struct {
	Category    eventstore.Category `json:"category"`
	Slot        eventstore.Slot     `json:"slot"`
	Stream      eventstore.Stream   `json:"stream"`
	Seqno       eventstore.Seqno    `json:"seqno"`
	Position    eventstore.Position `json:"position"`
	Traceparent string              `json:"traceparent,omitempty"`
}

func encode(h eventstore.Announcement) []byte {
	b, err := json.Marshal(message(h))
	if err != nil {
		panic(err) // numbers and strings: cannot fail
	}
	return b
}

// decode returns the hint of a message; ok is false for one that no Announcer of
// this prefix has sent.
func (a *Announcer) decode(m *nats.Msg) (h eventstore.Announcement, ok bool) {
	if len(m.Data) > MaxMessageBytes {
		return h, false
	}
	var got message
	if err := json.Unmarshal(m.Data, &got); err != nil {
		return h, false
	}
	stream, err := eventstore.ParseStream(string(got.Stream))
	switch {
	case err != nil, got.Category != stream.Category(), got.Slot != stream.Slot(),
		got.Seqno == 0, got.Seqno > eventstore.MaxNumber, got.Position > eventstore.MaxNumber,
		m.Subject != a.subject(got.Category, strconv.Itoa(int(got.Slot))):
		return h, false
	}
	if t := m.Header.Get(headerTraceparent); t != "" {
		got.Traceparent = t
	}
	if _, valid := eventstore.ParseTraceparent(got.Traceparent, ""); !valid {
		got.Traceparent = ""
	}
	return eventstore.Announcement(got), true
}
