// One decision of the loan process: called directly, in the encoded form, and over
// loopback, signed, compressed.

package httpcarrier_test

import (
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

func BenchmarkDecide(b *testing.B) {
	h, err := wire.Handler()
	ok(b, err)
	s, err := httpcarrier.NewSigner(secretA)
	ok(b, err)
	v, err := httpcarrier.NewVerifier(nil, secretA)
	ok(b, err)
	private, public := pair('1')
	s25519, err := httpcarrier.NewSigner(private)
	ok(b, err)
	v25519, err := httpcarrier.NewVerifier(nil, public)
	ok(b, err)
	over := func(co *httpcarrier.ClientOptions, so *httpcarrier.ServerOptions) handler.Handler {
		return client(b, serve(b, httpcarrier.NewHandler(h, so)), co)
	}
	for _, c := range []struct {
		name string
		h    handler.Handler
	}{
		{"native", h},
		{"http", over(nil, nil)},
		{"http signed HMAC", over(&httpcarrier.ClientOptions{Signer: s}, &httpcarrier.ServerOptions{Verifier: v})},
		{"http signed Ed25519", over(&httpcarrier.ClientOptions{Signer: s25519}, &httpcarrier.ServerOptions{Verifier: v25519})},
		{"http gzip", over(&httpcarrier.ClientOptions{GzipOver: 1}, &httpcarrier.ServerOptions{GzipOver: 1})},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := &handler.Request{Op: handler.Decide, Key: eventstore.NewUUID(), ID: eventstore.NewUUID(), Stream: "application-1", Command: submit(5000)}
			b.ReportAllocs()
			for b.Loop() {
				reply, err := c.h.Handle(b.Context(), r)
				if err != nil || len(reply.Events) != 1 {
					b.Fatal(reply, err)
				}
			}
		})
	}
}

func BenchmarkSign(b *testing.B) {
	private, public := pair('1')
	body := make([]byte, 1024)
	for name, keys := range map[string][2]string{"HMAC": {secretA, secretA}, "Ed25519": {private, public}} {
		s, err := httpcarrier.NewSigner(keys[0])
		ok(b, err)
		v, err := httpcarrier.NewVerifier(&httpcarrier.VerifierOptions{Now: at(1000)}, keys[1])
		ok(b, err)
		h := make(map[string][]string)
		b.Run(name+" sign", func(b *testing.B) {
			for b.Loop() {
				s.Sign(h, "id", at(1000)(), body)
			}
		})
		b.Run(name+" verify", func(b *testing.B) {
			for b.Loop() {
				if _, err := v.Verify(h, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
