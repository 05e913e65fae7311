// The queue of appends is bounded, in number and in bytes.

package pglog

import (
	"errors"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

func TestQueueIsBounded(t *testing.T) {
	for _, size := range []int{1, 32 << 20} {
		s := senders{most: 1, busy: 1}
		n := 0
		for ; n <= maxQueue; n++ {
			free, err := s.enter(&member{batch: &eventstore.Batch{Stream: "account-a"}, bytes: size})
			if errors.Is(err, eventstore.ErrOverloaded) {
				break
			}
			if free || err != nil {
				t.Fatal(free, err)
			}
		}
		if most := min(maxQueue, maxQueueBytes/size); n != most || len(s.queue) != most || s.bytes != most*size {
			t.Errorf("%d appends of %d bytes wait, %d are allowed", n, size, most)
		}
	}
}

// TestMemberIsACopy: a caller who has left may change his payload before the group
// that holds his append goes out.
func TestMemberIsACopy(t *testing.T) {
	b := &eventstore.Batch{Stream: "account-a", Events: []eventstore.Event{{Data: []byte("before"), Metadata: eventstore.Metadata{"k": "before"}}}}
	m := newMember(b, category{id: 1})
	copy(b.Events[0].Data, "after!")
	b.Events[0].Metadata["k"] = "after"
	b.Events[0].Type = "after"
	if e := m.batch.Events[0]; string(e.Data) != "before" || e.Metadata["k"] != "before" || e.Type != "" || m.bytes != 6 {
		t.Errorf("%+v, %d bytes, want what was given", e, m.bytes)
	}
}
