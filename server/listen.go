// Listeners.

package server

import (
	"context"
	"log/slog"
	"net"
	"sync"
)

// local says if only this machine can reach an address.
func local(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// limitedListener closes connections over the limit at once: they cost no more than that.
type limitedListener struct {
	net.Listener
	s *Server
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.s.conns.Add(1) <= int64(l.s.limits.Connections) {
			return &countedConn{Conn: c, leave: func() { l.s.conns.Add(-1) }}, nil
		}
		l.s.conns.Add(-1)
		l.s.metrics.refusedConnection()
		_ = c.Close()
	}
}

// countedConn leaves once.
type countedConn struct {
	net.Conn
	once  sync.Once
	leave func()
}

func (c *countedConn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}

// quiet makes what net/http says of bad connections debug messages: anybody can cause
// them.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Message = "wattle: connection: " + clean(r.Message)
	return q.Handler.Handle(ctx, r)
}
