// What the tests stand on: a real HTTP server on the loopback, and clients of it.

package remotelog_test

import (
	"flag"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestMain has the conformance suite run short histories: what they look for is in the
// logs behind, which run long ones themselves.
func TestMain(m *testing.M) {
	flag.Parse()
	if !soak() {
		if err := flag.Set("test.short", "true"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(pgtest.M{M: m})
}

func soak() bool { return os.Getenv("WATTLE_SOAK") != "" }

// full is all that the client implements.
type full interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Streams
	eventstore.Snapshots
	eventstore.TrimmedStreams
	eventstore.Holds
	eventstore.Leases
	eventstore.BackwardReader
	eventstore.Verifier
	eventstore.Doctor
}

var _ full = (*remotelog.Log)(nil)

// listen serves a handler by HTTP/1.1 and by HTTP/2 without TLS on one port.
func listen(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(serveOn(l, h))
	return "http://" + l.Addr().String()
}

// serve serves a log.
func serve(t testing.TB, log eventstore.Log, o *remotelog.ServiceOptions) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	remotelog.NewService(eventstore.New(log, nil), o).Mount(mux)
	return listen(t, mux)
}

// open opens a client, and closes it in the end.
func open(t testing.TB, url string, o *remotelog.Options) *remotelog.Log {
	t.Helper()
	l, err := remotelog.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// http1 is a transport that speaks HTTP/1.1.
func http1(t testing.TB) *http.Transport {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// listenAt serves a service at an address until stop is called.
func listenAt(t testing.TB, addr string, s *remotelog.Service) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Mount(mux)
	return l.Addr().String(), serveOn(l, mux)
}

// serveOn serves on a listener until stop is called.
func serveOn(l net.Listener, h http.Handler) (stop func()) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with Close
	}()
	return func() {
		server.Close()
		<-done
	}
}

func exampleServer(log eventstore.Log) (url string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	remotelog.NewService(eventstore.New(log, nil), nil).Mount(mux)
	return "http://" + l.Addr().String(), serveOn(l, mux)
}
