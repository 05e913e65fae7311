// The proxy's own promises: exact to the byte, one connection only, in every mode.

package cutproxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/internal/cutproxy"
)

// echo answers each byte it receives with two, and tells what it got and how it ended.
func echo(t *testing.T) (target string, got <-chan []byte, ended <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	all, ends := make(chan []byte, 9), make(chan error, 9)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				var mine []byte
				b := make([]byte, 1)
				for {
					if _, err := c.Read(b); err != nil {
						c.Close()
						all <- mine
						ends <- err
						return
					}
					mine = append(mine, b[0])
					c.Write([]byte{b[0], b[0]})
				}
			}()
		}
	}()
	return l.Addr().String(), all, ends
}

func dial(t *testing.T, p *cutproxy.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 2*len(text))); err != nil {
		t.Fatal(err)
	}
}

func TestCuts(t *testing.T) {
	for _, d := range cutproxy.Directions {
		for _, m := range []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole, cutproxy.Hold} {
			for after := range int64(4) {
				f := cutproxy.Fault{Direction: d, After: after, Mode: m}
				t.Run(f.String(), func(t *testing.T) { cut(t, f) })
			}
		}
	}
}

func cut(t *testing.T, f cutproxy.Fault) {
	target, got, ended := echo(t)
	p, err := cutproxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, other := dial(t, p), dial(t, p)
	exchange(t, c, "warm")
	exchange(t, other, "warm")
	fired := p.Arm(f)
	if _, err := c.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	<-fired
	if !p.Disarm() || p.Passed(f.Direction) != f.After {
		t.Errorf("%d bytes passed, want %d", p.Passed(f.Direction), f.After)
	}
	exchange(t, other, "xyz") // the other connection goes on
	exchange(t, dial(t, p), "new")

	want := "aabbcc" // what the client reads before the connection ends or falls silent
	if f.Direction == cutproxy.ToServer {
		want = want[:2*f.After]
	} else {
		want = want[:f.After]
	}
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	read, err := io.ReadAll(c)
	silent := f.Mode == cutproxy.BlackHole || f.Mode == cutproxy.Hold
	switch {
	case silent && !errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("the client reads %v, want the connection open and silent", err)
	case f.Mode == cutproxy.FIN && err != nil:
		t.Errorf("the client reads %v, want the end", err)
	case f.Mode == cutproxy.RST && !errors.Is(err, syscall.ECONNRESET):
		t.Errorf("the client reads %v, want a reset", err)
	}
	// Of a cut to the server the answers to what passed are lost where both ways end.
	exact := f.Direction == cutproxy.ToClient && f.Mode != cutproxy.RST || f.Mode == cutproxy.Hold
	if !bytes.HasPrefix([]byte(want), read) || exact && string(read) != want {
		t.Errorf("the client reads %q, want %q", read, want)
	}
	if f.Mode == cutproxy.Hold {
		p.Release()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, len("aabbcc")-len(read))); err != nil {
			t.Errorf("released: %v", err)
		}
		return
	}
	if f.Mode == cutproxy.BlackHole {
		c.Close()
		select {
		case err := <-ended:
			t.Errorf("the server learned that its client has gone: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		p.Release()
	}
	if at := string(<-got); f.Direction == cutproxy.ToServer && f.Mode != cutproxy.RST && at != "warm"+"abc"[:f.After] {
		t.Errorf("the server got %q, want warm and %d bytes", at, f.After)
	}
	if err := <-ended; f.Mode == cutproxy.RST && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("the server reads %v", err)
	}
}
