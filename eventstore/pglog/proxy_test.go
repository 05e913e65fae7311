// proxy: a TCP proxy before the server that cuts connections, between messages and
// in the middle of one.

package pglog_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// proxy passes on what clients and server say, until it cuts a connection.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	links map[*link]bool
	wg    sync.WaitGroup
}

// link is one connection, of both sides.
type link struct {
	client, server *net.TCPConn
	// up and down are how many bytes still pass to the server and back before the
	// link is cut; negative: all.
	up, down atomic.Int64
}

// newProxy listens on loopback until the test ends.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, links: map[*link]bool{}}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		l.Close()
		p.each(func(l *link) { l.cut(true) })
		p.wg.Wait()
	})
	return p
}

// config lets a pool connect through the proxy.
func (p *proxy) config(c *pgxpool.Config) {
	c.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", p.listener.Addr().String())
	}
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client: client.(*net.TCPConn), server: server.(*net.TCPConn)}
		l.up.Store(-1)
		l.down.Store(-1)
		p.mu.Lock()
		p.links[l] = true
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(l, l.client, l.server, &l.up) })
		p.wg.Go(func() { p.pass(l, l.server, l.client, &l.down) })
	}
}

// pass copies one direction until its end, or its last byte.
func (p *proxy) pass(l *link, from, to *net.TCPConn, left *atomic.Int64) {
	defer func() {
		l.cut(false)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if may := left.Load(); may >= 0 && int64(n) > may {
			to.Write(b[:may])
			l.cut(true)
			return
		} else if may >= 0 {
			left.Add(-int64(n))
		}
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// cut ends both sides, with resets or in order.
func (l *link) cut(reset bool) {
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if reset {
			c.SetLinger(0)
		}
		c.Close()
	}
}

func (p *proxy) each(f func(l *link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}

// harm cuts one link: at once, or after some more bytes of the next request or of the
// next answer have passed.
func (p *proxy) harm(rng *rand.Rand) {
	var all []*link
	p.each(func(l *link) { all = append(all, l) })
	if len(all) == 0 {
		return
	}
	l := all[rng.IntN(len(all))]
	switch rng.IntN(4) {
	case 0:
		l.cut(true)
	case 1:
		l.cut(false)
	case 2:
		l.up.Store(int64(rng.IntN(1500)))
	case 3:
		l.down.Store(int64(rng.IntN(60))) // the server has carried it out, the answer does not arrive
	}
}
