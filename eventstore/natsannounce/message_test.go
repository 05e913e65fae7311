// Fuzzing the reader of messages.

package natsannounce

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
)

func FuzzDecode(f *testing.F) {
	a := &Announcer{prefix: DefaultPrefix}
	s := eventstore.Stream("account-a")
	good := eventstore.Announcement{Category: "account", Slot: s.Slot(), Stream: s, Seqno: 1, Position: 2}
	f.Add(a.subject("account", "12"), encode(good), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("", []byte("{}"), "")
	f.Fuzz(func(t *testing.T, subject string, data []byte, trace string) {
		h, ok := a.decode(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{headerTraceparent: {trace}}})
		if !ok {
			return
		}
		// What gets through is what an Announcer could have sent.
		again, ok := a.decode(&nats.Msg{Subject: subject, Data: encode(h)})
		if !ok || again != h || h.Stream.Category() != h.Category || h.Stream.Slot() != h.Slot || !bytes.Contains([]byte(subject), []byte(h.Category)) {
			t.Fatalf("%q %q gives %+v, then %+v", subject, data, h, again)
		}
	})
}
