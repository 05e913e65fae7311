// Package target turns the name of a handler into a handler. It is the only place of the
// command that knows all carriers.
//
//	FILE.wasm, wasm:FILE              a WebAssembly module, ABI "es1"
//	http://HOST/PATH, https://…       a handler over HTTP
//	nats://HOST:PORT/PREFIX           a NATS micro service
//	connect:URL, grpc:URL             the handler service over Connect or gRPC, at an HTTP URL
package target

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

// Options of Open; the zero value is the default.
type Options struct {
	Wasm wasm.Options
	// Timeout bounds a call, for a module too.
	Timeout time.Duration
	// Secret signs requests over HTTP: whsec_… or a key of Ed25519. Empty: they are not
	// signed.
	Secret string
}

// Target is an open handler.
type Target struct {
	handler.Handler
	Name  string
	close []func() error
}

// Close closes the connection or module.
func (t *Target) Close() error {
	var errs []error
	for _, f := range t.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// InvalidError is a name that no handler has.
type InvalidError struct{ Wanted, Found string }

func (e *InvalidError) Error() string { return "target: wanted " + e.Wanted + ", found " + e.Found }

// Unwrap makes it an ErrInvalid of eventstore.
func (e *InvalidError) Unwrap() error { return eventstore.ErrInvalid }

// Help says what a name may look like, a line each.
const Help = `  FILE.wasm                  a WebAssembly module
  http://HOST/PATH, https:   an HTTP endpoint
  nats://HOST:PORT/PREFIX    a NATS micro service
  connect:URL, grpc:URL      the handler service over Connect or gRPC, at an HTTP URL`

const forms = "FILE.wasm, http://HOST/PATH, https://HOST/PATH, nats://HOST:PORT/PREFIX, connect:URL or grpc:URL"

// Open opens the handler of a name. It makes no call; a module is compiled.
func Open(ctx context.Context, name string, o Options) (*Target, error) {
	if file, ok := strings.CutPrefix(name, "wasm:"); ok || strings.HasSuffix(name, ".wasm") {
		return openModule(ctx, file, o)
	}
	protocol, name, isConnect := connectName(name)
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return nil, &InvalidError{forms, "another form"}
	}
	if isConnect {
		return openConnect(u, protocol)
	}
	switch u.Scheme {
	case "http", "https":
		return openHTTP(u, o)
	case "nats", "tls":
		return openNATS(u, o)
	}
	return nil, &InvalidError{forms, fmt.Sprintf("the scheme %q", u.Scheme)}
}

func openHTTP(u *url.URL, o Options) (*Target, error) {
	co := &httpcarrier.ClientOptions{}
	if o.Secret != "" {
		var err error
		if co.Signer, err = httpcarrier.NewSigner(o.Secret); err != nil {
			return nil, err
		}
	}
	c, err := httpcarrier.NewClient(u.String(), co)
	if err != nil {
		return nil, err
	}
	return &Target{Handler: c, Name: u.Redacted(), close: []func() error{c.Close}}, nil
}

// connectName takes what stands before the URL of a handler service.
func connectName(name string) (p connectcarrier.Protocol, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(name, "connect:"); ok {
		return connectcarrier.Connect, rest, true
	}
	rest, ok = strings.CutPrefix(name, "grpc:")
	return connectcarrier.GRPC, rest, ok
}

func openConnect(u *url.URL, p connectcarrier.Protocol) (*Target, error) {
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, &InvalidError{"connect: or grpc: before http://HOST or https://HOST", fmt.Sprintf("the scheme %q", u.Scheme)}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(p != connectcarrier.GRPC) // gRPC wants HTTP/2, without TLS as well
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(p == connectcarrier.GRPC)
	transport := &http.Transport{Protocols: &protocols, Proxy: http.ProxyFromEnvironment}
	h := connectcarrier.NewClient(&http.Client{Transport: transport}, u.String(), &connectcarrier.ClientOptions{Protocol: p})
	return &Target{Handler: h, Name: u.Redacted(), close: []func() error{func() error { transport.CloseIdleConnections(); return nil }}}, nil
}

func openNATS(u *url.URL, o Options) (*Target, error) {
	prefix := strings.Trim(u.Path, "/")
	if prefix == "" {
		return nil, &InvalidError{"a prefix of subjects, as in nats://HOST:PORT/handler.loan", "none"}
	}
	server := *u
	server.Path = ""
	nc, err := nats.Connect(server.String(), nats.Timeout(o.Timeout))
	if err != nil {
		return nil, &handler.Error{Kind: handler.ErrFailed, Op: handler.Describe, Target: u.Redacted(), Err: err}
	}
	return &Target{Handler: natscarrier.NewClient(nc, prefix, nil), Name: u.Redacted(), close: []func() error{func() error { nc.Close(); return nil }}}, nil
}

func openModule(ctx context.Context, file string, o Options) (*Target, error) {
	binary, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	wo := o.Wasm
	wo.Name = file
	if o.Timeout > 0 {
		wo.Timeout, wo.ProjectTimeout = o.Timeout, o.Timeout
	}
	m, err := wasm.Open(ctx, binary, &wo)
	if err != nil {
		return nil, err
	}
	return &Target{Handler: handler.Over(m, file), Name: file, close: []func() error{func() error { return m.Close(context.Background()) }}}, nil
}
