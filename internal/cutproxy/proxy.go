// Package cutproxy is a TCP proxy for tests that breaks a connection at an exact byte
// of a dialogue.
//
// A [Proxy] forwards what comes to its address to one server. [Proxy.Arm] sets a fault:
// after so many bytes of one direction, counted over all connections from that moment
// on, the connection that carried the last of them is broken. Other connections, and
// those made later, are forwarded as before, so what is tested can recover through the
// same proxy.
package cutproxy

import (
	"fmt"
	"net"
	"sync"
)

// Direction is the way that bytes go.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// Directions are both of them.
var Directions = []Direction{ToServer, ToClient}

func (d Direction) String() string { return [...]string{"to the server", "to the client"}[d] }

// Mode is how a connection breaks.
type Mode int

// The modes.
const (
	// FIN ends both halves in order: each side reads what was forwarded, then the end.
	FIN Mode = iota
	// RST resets both halves: what a side has not read yet may be lost.
	RST
	// BlackHole forwards nothing more, either way, and keeps both halves open: the
	// server does not learn that its client has gone.
	BlackHole
	// Hold keeps back what comes in the direction of the fault until Release; the other
	// direction goes on.
	Hold
)

func (m Mode) String() string { return [...]string{"FIN", "RST", "black hole", "hold"}[m] }

// Fault is one break. After is how many bytes of the direction still pass.
type Fault struct {
	Direction Direction
	After     int64
	Mode      Mode
}

func (f Fault) String() string {
	return fmt.Sprintf("%v after %d bytes %v", f.Mode, f.After, f.Direction)
}

// Proxy forwards connections to a server. Its methods may be called by any goroutine.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	fault  *Fault        // armed
	struck bool          // the fault armed last has
	fired  chan struct{} // of the fault armed last
	passed [2]int64      // since then
	closed bool
}

// link is a connection to the proxy and its connection to the server.
type link struct {
	to [2]*net.TCPConn // where the bytes of a direction go

	// Guarded by the proxy's mutex.
	broken bool          // nothing passes any more
	held   chan struct{} // closed when what is held may go on; nil if nothing is
}

func (l *link) resume() {
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

func (l *link) close() {
	l.resume()
	for _, c := range l.to {
		c.Close()
	}
}

// New starts a proxy to the server at target, host:port, on a port of 127.0.0.1.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, links: map[*link]bool{}, fired: make(chan struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

// Port is where on 127.0.0.1 the proxy listens.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Arm sets a fault, in place of any before, and counts from now. The channel is closed
// when it has struck.
func (p *Proxy) Arm(f Fault) (fired <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.struck, p.fired, p.passed = &f, false, make(chan struct{}), [2]int64{}
	return p.fired
}

// Disarm takes back a fault that has not struck. It says if it had, which is so before
// an end of the connection can know.
func (p *Proxy) Disarm() (struck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = nil
	return p.struck
}

// Passed is how many bytes went in a direction since Arm was called last.
func (p *Proxy) Passed(d Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[d]
}

// Release lets what is held go on, and ends the connections that vanished in a black
// hole, as if the network had told both sides at last.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.broken {
			l.close()
		}
		l.resume()
	}
}

// Break ends all connections there are with RST; what is held is lost.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.broken = true
		l.strike(RST)
		l.close()
	}
}

// Close ends all connections and waits for the proxy's goroutines.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{to: [2]*net.TCPConn{ToServer: server.(*net.TCPConn), ToClient: client}}
	p.mu.Lock()
	p.links[l] = true
	if p.closed {
		l.close()
	}
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, d := range Directions {
		wg.Go(func() { p.forward(l, d) })
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	l.close()
	delete(p.links, l)
}

// forward copies one direction until it ends.
func (p *Proxy) forward(l *link, d Direction) {
	from, to := l.to[1-d], l.to[d]
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		pass, cut := p.count(l, d, n)
		to.Write(buf[:pass]) // an error comes again with the next read
		if cut != nil {
			l.strike(cut.mode)
			close(cut.fired)
			if cut.held != nil {
				<-cut.held
				to.Write(buf[pass:n]) // into the void if the link has been broken
			}
		}
		if err != nil {
			if !p.broken(l) {
				to.CloseWrite()
			}
			return
		}
	}
}

// cut is a fault that has struck.
type cut struct {
	mode  Mode
	fired chan struct{} // to be closed
	held  chan struct{} // to be waited for if not nil
}

// count says how many of n bytes may pass, and what strikes behind them.
func (p *Proxy) count(l *link, d Direction, n int) (pass int, c *cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.broken || p.closed {
		return 0, nil
	}
	if f := p.fault; f != nil && f.Direction == d && n > 0 && p.passed[d]+int64(n) >= f.After {
		n = int(f.After - p.passed[d])
		c, p.fault, p.struck = &cut{mode: f.Mode, fired: p.fired}, nil, true
		if l.broken = f.Mode != Hold; !l.broken {
			c.held = make(chan struct{})
			l.held = c.held
		}
	}
	p.passed[d] += int64(n)
	return n, c
}

// broken says if a link has been struck: how its ends learn of that is the mode's.
func (p *Proxy) broken(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.broken
}

func (l *link) strike(m Mode) {
	for _, c := range l.to {
		switch m {
		case FIN:
			c.CloseWrite()
		case RST:
			reset(c)
		}
	}
}

// reset closes a connection with RST.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
