// The queue of appends is bounded, in number and in bytes.

package pglog

import (
	"errors"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

func TestQueueIsBounded(t *testing.T) {
	for _, size := range []int{1, 32 << 20} {
		s := lanes{most: 1, busy: 1}
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
