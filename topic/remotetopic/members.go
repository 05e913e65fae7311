// The members of named consumers that a server serves, and what each was assigned.

package remotetopic

import (
	"math/rand/v2"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// memberKey names a member.
type memberKey struct {
	topic    eventstore.Category
	consumer string
	id       eventstore.UUID
}

// memberStream is one Consume of a member. Its assignments are numbered from a number left
// to chance, so that a Commit that goes by one of another Consume is not mistaken.
//
// All methods may be called on nil: it is not served here.
type memberStream struct {
	end func(cause error) // of the topics' context

	mu        sync.Mutex
	base, now uint64         // generations: before the first, and the last
	since     map[int]uint64 // generation in which each partition came that it has
}

func (s *Service) join(key memberKey, end func(error)) (m *memberStream, leave func()) {
	base := rand.Uint64N(1 << 52) // exact also where JSON numbers are doubles
	m = &memberStream{base: base, now: base, end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[key] = m
	return m, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.members[key] == m {
			delete(s.members, key)
		}
	}
}

func (s *Service) memberOf(key memberKey) *memberStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key]
}

// assign takes note of an assignment and returns its generation.
func (m *memberStream) assign(places []topic.Place) uint64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now++
	since := make(map[int]uint64, len(places))
	for _, p := range places {
		if since[p.Partition] = m.now; m.since[p.Partition] != 0 {
			since[p.Partition] = m.since[p.Partition]
		}
	}
	m.since = since
	return m.now
}

// stale says that what was delivered of a partition under a generation of this Consume was
// so before the member lost it. Of a generation of another Consume nothing can be said:
// the fence of the position decides.
func (m *memberStream) stale(partition int, generation uint64) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation <= m.base || generation > m.now {
		return false
	}
	since, has := m.since[partition]
	return has && generation < since
}

// leave has the member's partitions released, and its stream end.
func (m *memberStream) leave() {
	if m != nil {
		m.end(topic.ErrLeave)
	}
}
