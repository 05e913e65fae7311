// Dial: a connection over cloudflare:sockets.

package worker

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall/js"
	"time"
)

// Dial opens a TCP connection from the request that this program was started for. It is
// what pgconn.Config wants as DialFunc. The name is resolved outside, so a LookupFunc
// must give it back as it is: see Lookup.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	failed := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
	}
	call, err := current()
	if err != nil {
		return failed(err)
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return failed(err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return failed(err)
	}
	socket := call.Call("connect", host, port)
	select {
	case s := <-await(socket.Get("opened")):
		if s.err != nil {
			return failed(s.err)
		}
	case <-ctx.Done():
		socket.Call("close")
		return failed(ctx.Err())
	}
	c := &conn{socket: socket, writer: socket.Get("writable").Call("getWriter"), address: addr(address), chunks: make(chan settled), closed: make(chan struct{})}
	go c.pump(socket.Get("readable").Call("getReader"))
	return c, nil
}

// Lookup leaves a name to whoever dials.
func Lookup(_ context.Context, host string) ([]string, error) { return []string{host}, nil }

type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }

// conn is a net.Conn over a socket. A chunk that came while no Read waited, or one whose
// Read met its deadline, waits for the next.
type conn struct {
	socket, writer js.Value
	address        addr
	chunks         chan settled
	reads, writes  deadline
	once           sync.Once
	closed         chan struct{}

	mu   sync.Mutex // of Read
	rest []byte
	err  error
}

// pump reads one chunk ahead of Read.
func (c *conn) pump(reader js.Value) {
	for {
		var s settled
		select {
		case s = <-await(reader.Call("read")):
		case <-c.closed:
			return
		}
		select {
		case c.chunks <- s:
		case <-c.closed:
			return
		}
		if s.err != nil || s.value.Get("done").Bool() {
			return
		}
	}
}

// Read reads what has come, and waits if nothing has.
func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.rest) == 0 && c.err == nil {
		past, changed := c.reads.get()
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		case <-past:
			return 0, os.ErrDeadlineExceeded
		case <-changed:
		case s := <-c.chunks:
			c.rest, c.err = chunk(s)
		}
	}
	if len(c.rest) == 0 {
		return 0, c.err
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write waits until the socket has taken p. After a deadline it is not known how much of
// p went out.
func (c *conn) Write(p []byte) (int, error) {
	if past, _ := c.writes.get(); isClosed(past) {
		return 0, os.ErrDeadlineExceeded
	}
	if isClosed(c.closed) {
		return 0, net.ErrClosed
	}
	written := await(c.writer.Call("write", toJS(p)))
	for {
		past, changed := c.writes.get()
		select {
		case s := <-written:
			if s.err != nil {
				return 0, s.err
			}
			return len(p), nil
		case <-past:
			return 0, os.ErrDeadlineExceeded
		case <-c.closed:
			return 0, net.ErrClosed
		case <-changed:
		}
	}
}

// Close ends the connection, and every Read and Write that waits.
func (c *conn) Close() error {
	err := error(net.ErrClosed)
	c.once.Do(func() {
		close(c.closed)
		err = (<-await(c.socket.Call("close"))).err
	})
	return err
}

func (c *conn) LocalAddr() net.Addr  { return addr("worker") }
func (c *conn) RemoteAddr() net.Addr { return c.address }

func (c *conn) SetDeadline(t time.Time) error {
	c.reads.set(t)
	c.writes.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.reads.set(t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.writes.set(t); return nil }
