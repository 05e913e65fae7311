// The real services behind the server: the whole contract of a log, through mutual TLS, a
// policy and all limits, and the errors of the server as the client has them.

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

// backed serves a store over TLS and returns its URL.
func backed(t testing.TB, o Options, store *eventstore.Store) string {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(&told, nil))
	o.Ready = ProbeStore(store, "server/ready")
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	service := remotelog.NewService(store, &remotelog.ServiceOptions{Options: s.HandlerOptions(),
		Visible: func(ctx context.Context, c eventstore.Category) bool { return s.Visible(ctx, string(c)) }})
	for _, h := range service.Handlers() {
		if err := s.Mount(h.Path, h); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return "https://" + l.Addr().String()
}

// transport is that of a client with a certificate.
func (w *world) transport(t testing.TB, name string) http.RoundTripper {
	pair, err := w.issue(w.ca, name).TLS()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func (w *world) open(t testing.TB, url, name string, o remotelog.Options) *remotelog.Log {
	t.Helper()
	o.Transport = w.transport(t, name)
	l, err := remotelog.Open(t.Context(), url, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// placed is a client that knows where its server is.
type placed struct {
	*remotelog.Log
	url string
}

func TestConformance(t *testing.T) {
	w := newWorld(t, func(w *world) { w.o.Policy = rules(t, "uri:spiffe://bank/* * *\n") })
	logtest.Run(t, logtest.Harness{
		Open: func(t testing.TB) eventstore.Log {
			store := eventstore.New(memlog.New(nil), nil)
			t.Cleanup(func() { _ = store.Close() })
			url := backed(t, w.o, store)
			return &placed{w.open(t, url, "spiffe://bank/teller", remotelog.Options{Protocol: remotelog.GRPC}), url}
		},
		Reopen: func(t testing.TB, l eventstore.Log) eventstore.Log {
			url := l.(*placed).url
			return &placed{w.open(t, url, "spiffe://bank/teller", remotelog.Options{}), url}
		},
	})
}

// What the server refuses arrives as the kinds of package remotelog, and lists show what
// the caller may do something with.
func TestRefusalsAtTheClient(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.o.Policy = rules(t, "uri:spiffe://bank/ops * *\nuri:spiffe://bank/teller,uri:spiffe://bank/quiet read,append account\n")
	})
	store := eventstore.New(memlog.New(nil), nil)
	defer func() { _ = store.Close() }()
	url := backed(t, w.o, store)
	ops, teller := eventstore.New(w.open(t, url, "spiffe://bank/ops", remotelog.Options{}), nil), eventstore.New(w.open(t, url, "spiffe://bank/teller", remotelog.Options{}), nil)
	w.open(t, url, "spiffe://bank/quiet", remotelog.Options{})
	if strings.Contains(told.String(), "bank/quiet") {
		t.Error("to open a client that may not everything is told as a denial")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, c := range []eventstore.Category{"account", "loan"} {
		if err := ops.CreateCategory(ctx, eventstore.CategorySpec{Name: c}); err != nil {
			t.Fatal(err)
		}
	}
	appending := func(s *eventstore.Store, streams ...eventstore.Stream) error {
		a := eventstore.Append{}
		for _, stream := range streams {
			a.Batches = append(a.Batches, eventstore.Batch{ID: eventstore.NewUUID(), Stream: stream, Epoch: 1, Claim: true, Holder: eventstore.NewUUID(),
				Events: []eventstore.Event{{Type: "x", Data: []byte(canaryPayload)}}})
		}
		_, err := s.Append(ctx, a)
		return note(err)
	}
	if err := appending(teller, "account-1"); err != nil {
		t.Error(err)
	}
	for _, streams := range [][]eventstore.Stream{{"loan-1"}, {"account-2", "loan-1"}} {
		if err := appending(teller, streams...); !errors.Is(err, remotelog.ErrDenied) {
			t.Errorf("%v: %v", streams, err)
		}
	}
	if list, err := teller.ListCategories(ctx); err != nil || len(list) != 1 || list[0].Name != "account" {
		t.Errorf("%v %v", list, err)
	}
	if h, err := ops.Head(ctx, "account-2"); err != nil || h.Last.Seqno != 0 {
		t.Errorf("half of what was denied was written: %v %v", h, err)
	}
	if _, err := teller.ReadFeed(ctx, 0, eventstore.Filter{}, 10); !errors.Is(note(err), remotelog.ErrDenied) {
		t.Errorf("the whole feed: %v", err)
	}
	stranger := eventstore.New(w.open(t, url, "spiffe://bank/stranger", remotelog.Options{Lazy: true}), nil)
	if _, err := stranger.ListCategories(ctx); !errors.Is(note(err), remotelog.ErrDenied) {
		t.Errorf("a stranger: %v", err)
	}
}

// A limit below what a client may send is told as such: nothing was written, and it is no
// use to send it again.
func TestLoweredMessageLimit(t *testing.T) {
	const most = 100_000
	w := newWorld(t, func(w *world) {
		w.o.Policy, w.o.Limits.MessageBytes = rules(t, "uri:spiffe://bank/* * *\n"), most
	})
	store := eventstore.New(memlog.New(nil), nil)
	defer func() { _ = store.Close() }()
	url := backed(t, w.o, store)
	if err := store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}); err != nil {
		t.Fatal(err)
	}
	batch := func(n int) eventstore.Append {
		data := make([]byte, n)
		for i := range data { // not to be packed
			data[i] = byte(rand.Uint32())
		}
		return eventstore.Append{Batches: []eventstore.Batch{{ID: eventstore.NewUUID(), Stream: eventstore.Stream("account-" + eventstore.NewUUID().String()), Epoch: 1, Claim: true, Holder: eventstore.NewUUID(),
			Events: []eventstore.Event{{Type: "x", Data: data}}}}}
	}
	for name, o := range map[string]remotelog.Options{"connect": {}, "grpc": {Protocol: remotelog.GRPC}, "grpc-web": {Protocol: remotelog.GRPCWeb}, "json": {JSON: true}} {
		t.Run(name, func(t *testing.T) {
			l := w.open(t, url, "spiffe://bank/teller", o)
			for _, n := range []int{most - 100, most, most + envelopeBytes, most * 2, 10 << 20} {
				if _, err := l.Append(within(t), batch(n)); !errors.Is(note(err), eventstore.ErrTooLarge) || !strings.Contains(err.Error(), "100000") {
					t.Errorf("append of %d bytes: %v", n, err)
				}
				p := l.Produce(within(t))
				_, err := p.Append(within(t), batch(n))(within(t))
				if !errors.Is(note(err), eventstore.ErrTooLarge) || !strings.Contains(err.Error(), "100000") {
					t.Errorf("produce of %d bytes: %v", n, err)
				}
				_ = p.Close()
			}
			p := l.Produce(within(t))
			for range 3 { // each for itself, not all together
				if _, err := p.Append(within(t), batch(most/2))(within(t)); note(err) != nil {
					t.Error(err)
				}
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
