// Commands and hints as CloudEvents of anybody.

package httpcarrier_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// recorder keeps what it was asked.
type recorder struct {
	mu    sync.Mutex
	got   []*handler.Request
	reply handler.Reply
}

func (r *recorder) Handle(_ context.Context, q *handler.Request) (*handler.Reply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, q)
	reply := r.reply
	return &reply, nil
}

func (r *recorder) last() *handler.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) == 0 {
		return nil
	}
	return r.got[len(r.got)-1]
}

func TestCommandAsEvent(t *testing.T) {
	h := &recorder{}
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Commands: "account"}))
	id := eventstore.NewUUID()
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	binary := event("Ce-Type", "deposit", "Ce-Id", id.String(), "Ce-Subject", "%C3%A4lice", "Ce-Time", "2026-11-30T12:00:00Z", "Ce-Wattleversion", "2", "Ce-Traceparent", traceparent)
	asJSON := `{"specversion":"1.0","source":"/test","type":"deposit","id":"` + id.String() + `","subject":"älice","time":"2026-11-30T13:00:00+01:00","wattleversion":2,"traceparent":"` + traceparent + `","data": {"amount": 5}}`
	for name, send := range map[string]func() *http.Response{
		"binary":     func() *http.Response { resp, _ := post(t, address, `{"amount": 5}`, binary...); return resp },
		"structured": func() *http.Response { resp, _ := post(t, address, asJSON, "Content-Type", structured); return resp },
	} {
		resp, r := send(), h.last()
		if resp.StatusCode != 200 || httpcarrier.IsBinary(resp.Header) || resp.Header.Get("Content-Type") != jsonType {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		if r.Op != handler.Execute || r.Key != id || r.ID != id || r.Stream != "account-älice" || !r.Now.Equal(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)) || r.Traceparent != traceparent ||
			r.Command.Type != "deposit" || r.Command.Version != 2 || r.Command.ContentType != "" || string(r.Command.Data) != `{"amount": 5}` {
			t.Errorf("%s: %+v %+v", name, r, r.Command)
		}
	}
	// An id that is no UUID is one of its source only, and always the same one.
	ids := map[eventstore.UUID]bool{}
	for _, source := range []string{"/a", "/b", "/a"} {
		post(t, address, `{}`, "Content-Type", jsonType, "Ce-Specversion", "1.0", "Ce-Source", source, "Ce-Type", "deposit", "Ce-Id", "1", "Ce-Subject", "bob")
		ids[h.last().ID] = true
	}
	if len(ids) != 2 || ids[eventstore.UUID{}] {
		t.Errorf("ids %v", ids)
	}
	for name, headers := range map[string][]string{
		"no subject":      event("Ce-Type", "deposit", "Ce-Id", "1"),
		"version 0":       event("Ce-Type", "deposit", "Ce-Id", "1", "Ce-Subject", "bob", "Ce-Wattleversion", "0"),
		"a key of no use": event("Ce-Type", "deposit", "Ce-Id", "1", "Ce-Subject", "a%0Ab"),
	} {
		n := len(h.got)
		if resp, _ := post(t, address, `{}`, headers...); resp.StatusCode != 400 || len(h.got) != n {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	h.reply.Rejected = &handler.Rejected{Code: "no"}
	if resp, _ := post(t, address, `{}`, binary...); resp.StatusCode != 422 {
		t.Errorf("refused: %d", resp.StatusCode)
	}
}

// Signed commands come with their attributes inside of what is signed.
func TestSignedCommand(t *testing.T) {
	h := &recorder{}
	v, err := httpcarrier.NewVerifier(nil, secretA)
	ok(t, err)
	s, err := httpcarrier.NewSigner(secretA)
	ok(t, err)
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Commands: "account", Verifier: v}))
	send := func(signedID, body string, headers ...string) int {
		signed := http.Header{}
		s.Sign(signed, signedID, time.Now(), []byte(body))
		for name := range signed {
			headers = append(headers, name, signed.Get(name))
		}
		resp, _ := post(t, address, body, headers...)
		return resp.StatusCode
	}
	body := envelope("deposit", "order-7", "bob", `{}`)
	if status := send("order-7", body, "Content-Type", structured); status != 200 || h.last().Stream != "account-bob" {
		t.Errorf("structured: %d %+v", status, h.last())
	}
	if status := send("order-8", body, "Content-Type", structured); status != 400 {
		t.Errorf("signed under another id: %d", status)
	}
	if status := send("order-7", `{}`, event("Ce-Type", "deposit", "Ce-Id", "order-7", "Ce-Subject", "bob")...); status != 415 {
		t.Errorf("binary: %d", status)
	}
	// Which form the reply is to have says nothing about the request.
	if status := send("order-7", body, event("Ce-Type", "close", "Ce-Id", "order-7", "Ce-Subject", "alice", "Accept", structured)...); status != 415 {
		t.Errorf("binary, with a structured reply: %d %+v", status, h.last())
	}
	if len(h.got) != 1 {
		t.Errorf("%d calls", len(h.got))
	}
}

// A hint is any POST to the path; of what it holds nothing matters.
func TestHints(t *testing.T) {
	h := &recorder{}
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Hints: "/hints", Projector: "report"}))
	for name, c := range map[string]struct {
		body    string
		headers []string
	}{
		"empty":      {"", nil},
		"text":       {"hello", []string{"Content-Type", "text/plain"}},
		"a push":     {`{"message":{"data":"eyJ9","messageId":"1"},"subscription":"s"}`, []string{"Content-Type", jsonType}},
		"an event":   {`{"category":"account"}`, event("Ce-Type", "anything", "Ce-Id", "9")},
		"structured": {envelope("anything", "9", "x", "{}"), []string{"Content-Type", structured}},
		"garbage":    {"\x00", []string{"Content-Type", structured}},
		"a batch":    {"[]", []string{"Content-Type", "application/cloudevents-batch+json"}},
	} {
		n := len(h.got)
		resp, body := post(t, address+"/hints", c.body, c.headers...)
		if r := h.last(); resp.StatusCode != 200 || len(h.got) != n+1 || r.Op != handler.CatchUp || r.Projector != "report" || r.Key.IsZero() {
			t.Errorf("%s: %d %s %+v", name, resp.StatusCode, body, r)
		}
	}
	h.reply.More = true
	if resp, _ := post(t, address+"/hints", ""); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("more to do: %d", resp.StatusCode)
	}
	r := &handler.Request{Op: handler.CatchUp, Projector: "report"}
	if reply, err := client(t, address, nil).Handle(t.Context(), r); err != nil || !reply.More {
		t.Errorf("by the contract: %+v %v", reply, err)
	}
}
