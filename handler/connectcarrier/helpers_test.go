// What the tests share: a real HTTP server on loopback, and all ways to speak to it.

package connectcarrier_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a server of HTTP/1.1 and unencrypted HTTP/2.
type site struct {
	*http.Server
	url string
}

// host serves what it is given until the end of the test.
func host(t testing.TB, path string, h http.Handler) site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(path, h)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: mux, Protocols: &protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // until it is closed
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return site{s, "http://" + l.Addr().String()}
}

func serve(t testing.TB, h handler.Handler, o *connectcarrier.ServerOptions) site {
	t.Helper()
	path, served := connectcarrier.NewHandler(h, o)
	return host(t, path, served)
}

// httpClient speaks HTTP/1.1, or HTTP/2 without TLS.
func httpClient(t testing.TB, http2 bool) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// way is one way to speak to a server.
type way struct {
	protocol   connectcarrier.Protocol
	http2      bool
	json, gzip bool
}

func (w way) String() string {
	name := [...]string{"connect", "grpc", "grpc-web"}[w.protocol]
	version := map[bool]string{false: "1.1", true: "2"}[w.http2]
	return fmt.Sprintf("%s over HTTP/%s, JSON %v, gzip %v", name, version, w.json, w.gzip)
}

// ways are all there are: gRPC needs HTTP/2.
func ways() (all []way) {
	for _, p := range []connectcarrier.Protocol{connectcarrier.Connect, connectcarrier.GRPC, connectcarrier.GRPCWeb} {
		for _, http2 := range []bool{false, true} {
			if p == connectcarrier.GRPC && !http2 {
				continue
			}
			for _, coding := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
				all = append(all, way{p, http2, coding[0], coding[1]})
			}
		}
	}
	return all
}

// plainWays are those of the binary form without compression.
func plainWays() (all []way) {
	for _, w := range ways() {
		if !w.json && !w.gzip {
			all = append(all, w)
		}
	}
	return all
}

func (w way) client(t testing.TB, s site, o connectcarrier.ClientOptions) handler.Handler {
	o.Protocol, o.JSON, o.Gzip = w.protocol, w.json, w.gzip
	return connectcarrier.NewClient(httpClient(t, w.http2), s.url, &o)
}

func (w way) caller(t testing.TB, s site, o *handler.Options) *handler.Caller {
	t.Helper()
	c, err := handler.NewCaller(t.Context(), w.client(t, s, connectcarrier.ClientOptions{}), o)
	if err != nil {
		t.Fatalf("%v: %v", w, err)
	}
	return c
}

// on is a handler with another answer to one operation.
func on(op handler.Op, h handler.Handler, f handler.Func) handler.Handler {
	return handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == op {
			return f(ctx, r)
		}
		return h.Handle(ctx, r)
	})
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited in vain")
		}
	}
}
