// The carriers, each with the loan process behind it.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/handler/natscarrier"
	"github.com/wattle-es/wattle/internal/guests"
)

// site is where everything of a run is.
type site struct {
	dir     string
	loan    handler.Handler
	cleanup []func()
	guest   []byte // built when first wanted
	cache   string
}

func newSite() (*site, error) {
	h, err := wire.Handler()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "wattle-carrier")
	if err != nil {
		return nil, err
	}
	return &site{dir: dir, loan: h, cleanup: []func(){func() { _ = os.RemoveAll(dir) }}}, nil
}

func (s *site) close() {
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		s.cleanup[i]()
	}
}

func (s *site) later(f func()) { s.cleanup = append(s.cleanup, f) }

func jsonOf(state loan.State) ([]byte, error) { return json.Marshal(state) }

var carriers = []carried{
	{"handler", func(_ context.Context, s *site) (handler.Handler, error) { return s.loan, nil }},
	{"encoded", func(_ context.Context, s *site) (handler.Handler, error) {
		return handler.Over(encoded{s.loan}, "encoded"), nil
	}},
	{"wasm", func(ctx context.Context, s *site) (handler.Handler, error) { return s.module(ctx, false) }},
	{"wasm trusted", func(ctx context.Context, s *site) (handler.Handler, error) { return s.module(ctx, true) }},
	{"http", overHTTP},
	{"http signed", overSignedHTTP},
	{"nats", overNATS},
	{"connect", overConnect(connectcarrier.Connect)},
	{"grpc", overConnect(connectcarrier.GRPC)},
}

type encoded struct{ h handler.Handler }

func (e encoded) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(ctx, e.h, op, request), nil
}

// module is the loan guest, compiled in this process if it is trusted: what was compiled
// for the other setting does not serve.
func (s *site) module(ctx context.Context, trusted bool) (handler.Handler, error) {
	if s.guest == nil {
		var err error
		if s.guest, s.cache, err = guests.Build(".", "./examples/guest/loan", s.dir); err != nil {
			return nil, err
		}
	}
	m, err := wasm.Open(ctx, s.guest, &wasm.Options{Name: "loan", CacheDir: s.cache, Trusted: trusted, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	s.later(func() { _ = m.Close(context.Background()) })
	return handler.Over(m, "loan"), nil
}

func overHTTP(_ context.Context, s *site) (handler.Handler, error) {
	return s.http(&httpcarrier.ServerOptions{}, &httpcarrier.ClientOptions{})
}

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func overSignedHTTP(_ context.Context, s *site) (handler.Handler, error) {
	verifier, err := httpcarrier.NewVerifier(nil, secret)
	if err != nil {
		return nil, err
	}
	signer, err := httpcarrier.NewSigner(secret)
	if err != nil {
		return nil, err
	}
	return s.http(&httpcarrier.ServerOptions{Verifier: verifier}, &httpcarrier.ClientOptions{Signer: signer})
}

func (s *site) http(far *httpcarrier.ServerOptions, near *httpcarrier.ClientOptions) (handler.Handler, error) {
	served := httptest.NewServer(httpcarrier.NewHandler(s.loan, far))
	s.later(served.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	s.later(transport.CloseIdleConnections)
	near.HTTP = &http.Client{Transport: transport}
	return httpcarrier.NewClient(served.URL, near)
}

// overConnect is without TLS, so that what it costs can be compared; gRPC takes HTTP/2.
func overConnect(p connectcarrier.Protocol) func(context.Context, *site) (handler.Handler, error) {
	return func(_ context.Context, s *site) (handler.Handler, error) {
		var protocols http.Protocols
		protocols.SetHTTP1(p != connectcarrier.GRPC)
		protocols.SetUnencryptedHTTP2(p == connectcarrier.GRPC)
		mux := http.NewServeMux()
		mux.Handle(connectcarrier.NewHandler(s.loan, nil))
		served := httptest.NewUnstartedServer(mux)
		served.Config.Protocols = &protocols
		served.Start()
		s.later(served.Close)
		transport := &http.Transport{Protocols: &protocols, MaxIdleConnsPerHost: 8}
		s.later(transport.CloseIdleConnections)
		return connectcarrier.NewClient(&http.Client{Transport: transport}, served.URL, &connectcarrier.ClientOptions{Protocol: p}), nil
	}
}

func overNATS(ctx context.Context, s *site) (handler.Handler, error) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, StoreDir: s.dir})
	if err != nil {
		return nil, err
	}
	ns.Start()
	s.later(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server does not start")
	}
	far, err := nats.Connect(ns.ClientURL())
	if err != nil {
		return nil, err
	}
	s.later(far.Close)
	near, err := nats.Connect(ns.ClientURL())
	if err != nil {
		return nil, err
	}
	s.later(near.Close)
	if _, err := natscarrier.Serve(ctx, far, s.loan, &natscarrier.ServeOptions{Prefix: "bench"}); err != nil {
		return nil, err
	}
	return natscarrier.NewClient(near, "bench", nil), nil
}
