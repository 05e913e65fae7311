// A TCP proxy in front of servers: what a test cuts, stalls and points elsewhere.

package pgtest

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

// Proxy passes TCP connections on to a port of 127.0.0.1. Its methods may be called from several goroutines at once.
type Proxy struct {
	listener net.Listener

	mu     sync.Mutex
	target int // 0: connections are closed at once
	cuts   int // a connection that is being made must not outlive a Cut
	pairs  map[*pair]bool
	wg     sync.WaitGroup
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn
	stall          chan struct{} // nil, or holds up what passes until it is closed; guarded by the proxy
}

func (p *pair) close() { p.client.Close(); p.server.Close() }

// NewProxy starts a proxy to a port; it ends with the test.
func NewProxy(t testing.TB, port int) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: port, pairs: map[*pair]bool{}}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.Release()
		p.wg.Wait()
	})
	return p
}

// Port is where the proxy listens on 127.0.0.1.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// DSN is the URL of database postgres through the proxy.
func (p *Proxy) DSN() string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, p.Port())
}

// Point leads new connections to another port, 0 for none: they are closed at once. Those that are open stay.
func (p *Proxy) Point(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = port
}

// Cut closes all connections that are open.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts++
	for c := range p.pairs {
		c.close()
	}
}

// Stall lets no byte through on the connections that are open, as a network that drops all packets, until
// [Proxy.Release]. New ones pass.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if c.stall == nil {
			c.stall = make(chan struct{})
		}
	}
}

// Release ends a Stall; what was held up goes on its way.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if c.stall != nil {
			close(c.stall)
			c.stall = nil
		}
	}
}

// Open is how many connections go through the proxy.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.pass(client) })
	}
}

func (p *Proxy) pass(client net.Conn) {
	p.mu.Lock()
	target, cuts := p.target, p.cuts
	p.mu.Unlock()
	var server net.Conn
	err := error(net.ErrClosed)
	if target > 0 {
		server, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", target))
	}
	if err != nil {
		client.Close()
		return
	}
	c := &pair{client: client, server: server}
	p.mu.Lock()
	p.pairs[c] = true
	if p.cuts != cuts {
		c.close()
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, server, client) })
	both.Go(func() { p.copy(c, client, server) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// copy passes bytes one way. The end of one direction is that of both: PostgreSQL's protocol knows no half of one.
func (p *Proxy) copy(c *pair, to, from net.Conn) {
	defer c.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			stall := c.stall
			p.mu.Unlock()
			if stall != nil {
				<-stall
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
