// Streams that are open: what each has been allowed, and how it is ended.

package server

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// stream is an open one.
type stream struct {
	s      *Server
	c      *call
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	accesses  map[Access]bool
	crowded   bool // more accesses than are remembered
	receiving bool
	cause     *connect.Error
}

// streams are those that are open, and how many each identity has.
type streams struct {
	mu    sync.Mutex
	all   map[*stream]struct{}
	of    map[string]int
	ended *connect.Error // the cause for those that come now
}

// open adds a stream. Its context ends with a cause when the stream is to end.
func (s *Server) open(ctx context.Context, c *call) (*stream, context.Context, *connect.Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	st := &stream{s: s, c: c, cancel: cancel, accesses: map[Access]bool{}}
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	if s.streams.ended != nil {
		cancel(s.streams.ended)
		return nil, ctx, s.streams.ended
	}
	s.streams.all[st] = struct{}{}
	return st, ctx, nil
}

func (s *Server) close(st *stream) {
	st.cancel(context.Canceled)
	s.streams.mu.Lock()
	delete(s.streams.all, st)
	s.streams.mu.Unlock()
}

// enter counts a stream of an identity before it is opened, and says if there is room.
func (t *streams) enter(identity string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[identity] >= most {
		return false
	}
	t.of[identity]++
	return true
}

func (t *streams) leave(identity string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[identity]--; t.of[identity] <= 0 {
		delete(t.of, identity)
	}
}

func (t *streams) list() []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*stream, 0, len(t.all))
	for st := range t.all {
		all = append(all, st)
	}
	return all
}

// end ends a stream with a cause, the first one that is given. A handler that waits for
// the client's next message is woken.
func (st *stream) end(cause *connect.Error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cause != nil {
		return
	}
	st.cause = cause
	st.cancel(cause)
	if st.receiving {
		_ = st.c.control.SetReadDeadline(time.Unix(1, 0))
	}
}

func (st *stream) why() *connect.Error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.cause
}

// remember keeps what was allowed.
func (st *stream) remember(list []Access) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, a := range list {
		if !st.accesses[a] && len(st.accesses) == maxStreamAccesses {
			st.crowded = true
			return
		}
		st.accesses[a] = true
	}
}

func (st *stream) remembered() (list []Access, crowded bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for a := range st.accesses {
		list = append(list, a)
	}
	return list, st.crowded
}

// recheck ends the streams that what is in force now forbids.
func (s *Server) recheck() {
	for _, st := range s.streams.list() {
		if why := st.c.caller.still(); why != "" {
			s.logUnauthenticated(st.c.proc.path, st.c.caller.identity, why)
			st.end(unauthenticated(why))
			continue
		}
		list, crowded := st.remembered()
		if err := s.allow(st.c, list); err != nil {
			st.end(err)
		} else if crowded {
			st.end(goingAway())
		}
	}
}

// endAll ends all streams, and those that come from now on.
func (s *Server) endAll(cause *connect.Error) {
	s.streams.mu.Lock()
	s.streams.ended = cause
	s.streams.mu.Unlock()
	for _, st := range s.streams.list() {
		st.end(cause)
	}
}
