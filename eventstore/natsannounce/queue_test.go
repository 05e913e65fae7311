// The queue of hints that wait to be sent.

package natsannounce

import (
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

// Of the hints of one stream that wait, the newest is sent, in the place of the first.
func TestNewestHintIsSent(t *testing.T) {
	a := New(nil, nil)
	for _, h := range []struct {
		stream eventstore.Stream
		seqno  eventstore.Seqno
	}{{"account-a", 3}, {"account-b", 1}, {"account-a", 5}, {"account-a", 4}} {
		a.enqueue(eventstore.Announcement{Stream: h.stream, Seqno: h.seqno})
	}
	for _, want := range []eventstore.Announcement{{Stream: "account-a", Seqno: 5}, {Stream: "account-b", Seqno: 1}} {
		if h, ok := a.take(); !ok || h != want {
			t.Errorf("took %v, %v, want %v", h, ok, want)
		}
	}
	if h, ok := a.take(); ok {
		t.Errorf("took %v of nothing", h)
	}
}
