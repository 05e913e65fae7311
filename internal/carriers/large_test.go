// Replies over a limit, on every carrier: the host asks for less, and goes on.

package carriers_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan/summary/summarytest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/handler/natscarrier"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// limited are carriers with limits of a reply's bytes, of the near side and of the far one.
var limited = map[string]func(t *testing.T, h handler.Handler, near, far int) handler.Handler{
	"http": func(t *testing.T, h handler.Handler, near, far int) handler.Handler {
		s := httptest.NewServer(httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{ReplyBytes: far}))
		t.Cleanup(s.Close)
		c, err := httpcarrier.NewClient(s.URL, &httpcarrier.ClientOptions{ReplyBytes: near})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	},
	"nats": func(t *testing.T, h handler.Handler, near, far int) handler.Handler {
		url := natsServer(t)
		if _, err := natscarrier.Serve(t.Context(), connect(t, url), h, &natscarrier.ServeOptions{Prefix: "limited", Limits: handler.Limits{ReplyBytes: far}}); err != nil {
			t.Fatal(err)
		}
		return natscarrier.NewClient(connect(t, url), "limited", &natscarrier.ClientOptions{Limits: handler.Limits{ReplyBytes: near}})
	},
	"connect": func(t *testing.T, h handler.Handler, near, far int) handler.Handler {
		return limitedConnect(t, h, near, far, connectcarrier.Connect)
	},
	"grpc": func(t *testing.T, h handler.Handler, near, far int) handler.Handler {
		return limitedConnect(t, h, near, far, connectcarrier.GRPC)
	},
}

func limitedConnect(t *testing.T, h handler.Handler, near, far int, p connectcarrier.Protocol) handler.Handler {
	mux := http.NewServeMux()
	mux.Handle(connectcarrier.NewHandler(h, &connectcarrier.ServerOptions{Limits: handler.Limits{ReplyBytes: far}}))
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return connectcarrier.NewClient(s.Client(), s.URL, &connectcarrier.ClientOptions{Protocol: p, Limits: handler.Limits{ReplyBytes: near}})
}

const documentBytes = 10 << 10

// letters writes a long document for every entry.
func letters(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	reply := &handler.Reply{Key: r.Key}
	switch r.Op {
	case handler.Describe:
		reply.Description = &handler.Description{Name: "letters", Category: "bill", Capabilities: []string{"project"}, Events: []handler.Wire{{Name: "sent", Version: 1}}}
	case handler.Project:
		reply.Put = map[string][]byte{}
		for _, e := range r.Events {
			reply.Put[e.ID.String()] = bytes.Join([][]byte{{'"'}, {'"'}}, bytes.Repeat([]byte{'x'}, documentBytes))
		}
	default:
		return nil, handler.Unsupported(r, handler.Describe, handler.Project)
	}
	return reply, nil
}

// A projector that stops at what cannot be handled gets through: it is not the entries'
// fault.
func TestReplyTooLargeOnEveryCarrier(t *testing.T) {
	const low, high = 4 * documentBytes, 4 << 20
	for name, start := range limited {
		for side, limits := range map[string][2]int{"near": {low, high}, "far": {high, low}} {
			t.Run(name+", "+side, func(t *testing.T) {
				h := start(t, handler.Func(letters), limits[0], limits[1])
				conforms(t, h, &conformance.Options{TooLarge: &handler.Request{Op: handler.Project, Projector: "letters", ProjectorVersion: 1, Events: bills(10)}})
				store := eventstore.New(memlog.New(nil), nil)
				t.Cleanup(func() { _ = store.Close() })
				if err := store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "bill", TrimFreely: true}); err != nil {
					t.Fatal(err)
				}
				var events []eventstore.Event
				for range 10 {
					events = append(events, eventstore.Event{Type: "sent", Version: 1, Data: []byte("{}")})
				}
				if _, err := store.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: "bill-1", Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: events}}}); err != nil {
					t.Fatal(err)
				}
				gotThrough(t, store, h, 10)
			})
		}
	}
}

func gotThrough(t *testing.T, store *eventstore.Store, h handler.Handler, documents int) {
	t.Helper()
	caller, err := handler.NewCaller(t.Context(), h, &handler.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	docs := &guest.MemoryDocuments{}
	p := guest.NewProjector(store, "large", caller, docs, &guest.Options{Projector: projector.Options{StopOnPoison: true}})
	if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
		t.Fatal(more, err)
	}
	n := 0
	for _, err := range docs.All(t.Context(), "large", 1) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != documents {
		t.Errorf("%d documents, want %d", n, documents)
	}
}

// The same with a guest, whose limit is the host's alone.
func TestReplyTooLargeOfAGuest(t *testing.T) {
	b, err := built()
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Open(t.Context(), b.module, &wasm.Options{CacheDir: b.cache, Timeout: 30 * time.Second, ProjectTimeout: 30 * time.Second, StartTimeout: 30 * time.Second, MaxReplyBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	applications, err := summarytest.New(5, 40)
	if err != nil {
		t.Fatal(err)
	}
	store, err := applications.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want, err := applications.Documents()
	if err != nil {
		t.Fatal(err)
	}
	gotThrough(t, store, handler.Over(m, "loan.wasm"), len(want))
}
