// The carriers over a network, both sides, on loopback.

package carriers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func overHTTP(t *testing.T, p trace.TracerProvider) handler.Handler {
	return servedHTTP(t, process(t), p)
}
func overNATS(t *testing.T, p trace.TracerProvider) handler.Handler {
	return servedNATS(t, process(t), p)
}

func overConnect(t *testing.T, p trace.TracerProvider) handler.Handler {
	return servedConnect(t, process(t), p, connectcarrier.Connect)
}
func overGRPC(t *testing.T, p trace.TracerProvider) handler.Handler {
	return servedConnect(t, process(t), p, connectcarrier.GRPC)
}

func servedConnect(t *testing.T, h handler.Handler, p trace.TracerProvider, protocol connectcarrier.Protocol) handler.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(connectcarrier.NewHandler(h, &connectcarrier.ServerOptions{TracerProvider: p}))
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return connectcarrier.NewClient(s.Client(), s.URL, &connectcarrier.ClientOptions{Protocol: protocol})
}

// servedHTTP is signed, and compressed where that pays.
func servedHTTP(t *testing.T, h handler.Handler, p trace.TracerProvider) handler.Handler {
	t.Helper()
	verifier, err := httpcarrier.NewVerifier(nil, secret)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Verifier: verifier, TracerProvider: p}))
	t.Cleanup(s.Close)
	signer, err := httpcarrier.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := httpcarrier.NewClient(s.URL, &httpcarrier.ClientOptions{HTTP: &http.Client{Transport: transport}, Signer: signer, GzipOver: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func servedNATS(t *testing.T, h handler.Handler, p trace.TracerProvider) handler.Handler {
	t.Helper()
	url := natsServer(t)
	far, near := connect(t, url), connect(t, url)
	if _, err := natscarrier.Serve(t.Context(), far, h, &natscarrier.ServeOptions{Prefix: "carriers", TracerProvider: p}); err != nil {
		t.Fatal(err)
	}
	return natscarrier.NewClient(near, "carriers", nil)
}

func natsServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s.ClientURL()
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}
