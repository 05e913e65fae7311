// Peers: the owners that a server forwards to.

package remotetopic

import (
	"context"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// Peer publishes at one server, once, saying that the publication was forwarded: see
// [NewPeer].
type Peer interface {
	Publish(ctx context.Context, p topic.Publication) (topic.Published, error)
	Close() error
}

// maxPeers is how many connections to other servers are kept.
const maxPeers = 64

// peers are the servers that this one has forwarded to, by address.
type peers struct {
	dial func(address string) (Peer, error)

	mu     sync.Mutex
	by     map[string]*peerUse
	closed bool
}

type peerUse struct {
	peer  Peer
	calls int
	last  time.Time
	gone  bool // to be closed when the last call has ended
}

// use returns the peer at an address until done is called.
func (s *peers) use(address string) (p Peer, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "publish", Wanted: "to forward it to the owner", Found: "a server that ends"}
	}
	u := s.by[address]
	if u == nil {
		peer, err := s.dial(address) // opens no connection
		if err != nil {
			// What is wrong is for this server's operator, and may name files.
			return nil, nil, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "publish", Wanted: "to forward it to the owner", Found: "no way to it from here", Err: err,
				Hint: "publish at another server, or again later"}
		}
		if s.by == nil {
			s.by = map[string]*peerUse{}
		}
		if len(s.by) >= maxPeers {
			s.drop()
		}
		u = &peerUse{peer: peer}
		s.by[address] = u
	}
	u.calls, u.last = u.calls+1, time.Now()
	return u.peer, func() { s.release(u) }, nil
}

// drop forgets the peer that was not used for the longest time.
func (s *peers) drop() {
	oldest := ""
	for address, u := range s.by {
		if oldest == "" || u.last.Before(s.by[oldest].last) {
			oldest = address
		}
	}
	u := s.by[oldest]
	delete(s.by, oldest)
	if u.gone = true; u.calls == 0 {
		_ = u.peer.Close() // nothing of it is wanted any more
	}
}

func (s *peers) release(u *peerUse) {
	s.mu.Lock()
	u.calls--
	last := u.gone && u.calls == 0
	s.mu.Unlock()
	if last {
		_ = u.peer.Close()
	}
}

// close forgets all peers. Calls that are under way end by themselves.
func (s *peers) close() {
	s.mu.Lock()
	s.closed = true
	var idle []Peer
	for address, u := range s.by {
		if u.gone = true; u.calls == 0 {
			idle = append(idle, u.peer)
		}
		delete(s.by, address)
	}
	s.mu.Unlock()
	for _, p := range idle {
		_ = p.Close()
	}
}
