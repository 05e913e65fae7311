// What waits for one subscriber of a hub: the newest hint of each stream, up to a bound.

package remotelog

import (
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// maxInbox bounds the streams whose hints wait for one subscriber; more become the one
// empty hint, which says to look.
const maxInbox = 1024

// inbox keeps hints. Its methods may be called from several goroutines at once.
type inbox struct {
	mu      sync.Mutex
	waiting map[eventstore.Stream]eventstore.Announcement
	order   []eventstore.Stream // of waiting, oldest first
	lost    bool                // the empty hint comes first
}

// put keeps a hint.
func (q *inbox) put(a eventstore.Announcement) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a == (eventstore.Announcement{}) {
		q.lost = true
		return
	}
	old, there := q.waiting[a.Stream]
	switch {
	case there && old.Seqno > a.Seqno:
	case there:
		q.waiting[a.Stream] = a
	case len(q.order) < maxInbox:
		if q.waiting == nil {
			q.waiting = map[eventstore.Stream]eventstore.Announcement{}
		}
		q.waiting[a.Stream] = a
		q.order = append(q.order, a.Stream)
	default: // the empty hint covers them all
		q.lost, q.waiting, q.order = true, nil, nil
	}
}

// take returns up to n hints, in the order in which their streams came.
func (q *inbox) take(n int) []eventstore.Announcement {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []eventstore.Announcement
	if q.lost {
		q.lost = false
		all = append(all, eventstore.Announcement{})
	}
	for len(q.order) > 0 && len(all) < n {
		all = append(all, q.waiting[q.order[0]])
		delete(q.waiting, q.order[0])
		q.order = q.order[1:]
	}
	if len(q.order) == 0 {
		q.waiting, q.order = nil, nil // what a full inbox took is let go
	}
	return all
}

// hubSubscriber calls a function with what comes into its inbox.
type hubSubscriber struct {
	inbox
	f func(eventstore.Announcement)

	state   sync.Mutex
	stopped bool
	busy    bool // a goroutine calls f; it ends when nothing waits
	running sync.WaitGroup
}

func (s *hubSubscriber) hear(a eventstore.Announcement) {
	s.put(a)
	s.state.Lock()
	defer s.state.Unlock()
	if !s.busy && !s.stopped {
		s.busy = true
		s.running.Go(s.run)
	}
}

// run calls f until nothing waits.
func (s *hubSubscriber) run() {
	for {
		s.state.Lock()
		all := s.take(1)
		if s.stopped || len(all) == 0 {
			s.busy = false
			s.state.Unlock()
			return
		}
		s.state.Unlock()
		for _, a := range all {
			s.f(a)
		}
	}
}

// stop ends the calls, and waits for a running one.
func (s *hubSubscriber) stop() {
	s.state.Lock()
	s.stopped = true
	s.state.Unlock()
	s.running.Wait()
}
