// What the tests share: a real NATS server, an aggregate, waiting.

package natscarrier_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

// The nats-server starts goroutines of its process once and keeps them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"))
}

// natsServer remembers its port, to be started there again.
type natsServer struct {
	*server.Server
	port int
}

// start starts a server on loopback; port -1 takes a free one, maxPayload 0 is the default.
func start(t testing.TB, port int, maxPayload int32) natsServer {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, StoreDir: t.TempDir(), MaxPayload: maxPayload})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { shutdown(natsServer{Server: s}) })
	return natsServer{s, s.Addr().(*net.TCPAddr).Port}
}

func shutdown(s natsServer) {
	s.Shutdown()
	s.WaitForShutdown()
}

func connect(t testing.TB, s natsServer) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond),
		nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// serve serves a handler until the end of the test.
func serve(t testing.TB, nc *nats.Conn, h handler.Handler, o *natscarrier.ServeOptions) *natscarrier.Service {
	t.Helper()
	s, err := natscarrier.Serve(t.Context(), nc, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Error(err)
		}
	})
	return s
}

// caller calls through a client of its own connection.
func caller(t testing.TB, s natsServer, prefix string, o *handler.Options) *handler.Caller {
	t.Helper()
	c, err := handler.NewCaller(t.Context(), natscarrier.NewClient(connect(t, s), prefix, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited in vain")
		}
	}
}
