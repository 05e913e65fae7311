// ReplayGuard: one key, one request.

package httpcarrier

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// ReplayGuard refuses a key under which another request came before. The same request
// may come again, as after a lost answer: that is harmless, whoever sends it. A guard is
// of one process and remembers the newest keys only; what keeps a command from being
// executed twice is its ID in the log, not this. It may be used from several goroutines
// at once.
type ReplayGuard struct {
	mu     sync.Mutex
	digest map[eventstore.UUID][sha256.Size]byte
	ring   []eventstore.UUID // oldest at next, once it is full
	next   int
}

// NewReplayGuard returns a guard that remembers so many keys, 48 bytes and a map's share
// each. 0: DefaultRemembered.
func NewReplayGuard(remembered int) *ReplayGuard {
	if remembered <= 0 {
		remembered = DefaultRemembered
	}
	return &ReplayGuard{digest: map[eventstore.UUID][sha256.Size]byte{}, ring: make([]eventstore.UUID, 0, remembered)}
}

// check lets a request pass if its key is new, or its content the same as before. When it
// has to be answered and who traces it may change from one try to the next. One without a
// key, which nobody can have signed, is like no other.
func (g *ReplayGuard) check(r *handler.Request) error {
	if r.Key.IsZero() {
		return nil
	}
	same := *r
	same.Deadline, same.Traceparent, same.Tracestate = time.Time{}, "", ""
	digest := sha256.Sum256(handler.AppendRequest(nil, &same))
	g.mu.Lock()
	defer g.mu.Unlock()
	if before, there := g.digest[r.Key]; there {
		if before != digest {
			return &SignatureError{ErrReused, "the request that had this key before", "another one"}
		}
		return nil
	}
	if len(g.ring) < cap(g.ring) {
		g.ring = append(g.ring, r.Key)
	} else {
		delete(g.digest, g.ring[g.next])
		g.ring[g.next] = r.Key
		g.next = (g.next + 1) % len(g.ring)
	}
	g.digest[r.Key] = digest
	return nil
}
