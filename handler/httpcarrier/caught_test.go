// A request that was caught, sent again with every set of headers there is: it is what was
// signed, or nothing.

package httpcarrier_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// forms are the headers that no signature covers, one set of each row at a time.
var forms = [][][]string{
	{nil, {"Content-Type", structured}, {"Content-Type", structured + "; ="}, {"Content-Type", jsonType}, {"Content-Type", "application/json; ="}, {"Content-Type", "text/plain"}},
	{nil, {"Accept", structured}, {"Accept", structured + "; q=1"}, {"Accept", jsonType + ", " + structured}},
	{nil, {"Ce-Specversion", "1.0", "Ce-Source", "/test"}, {"Ce-Specversion", "1.0", "Ce-Source", "/other", "Ce-Wattleversion", "3"}},
	{nil, {"Ce-Type", "close"}, {"Ce-Type", "deposit"}, {"Ce-Type", "wattle.execute.v1"}, {"Ce-Type", "wattle.catchup.v1"}},
	{nil, {"Ce-Subject", "alice"}, {"Ce-Subject", "account-alice"}},
	{nil, {"Content-Encoding", "gzip"}},
}

// eachForm calls f with all of them.
func eachForm(rows [][][]string, headers []string, f func(headers []string)) {
	if len(rows) == 0 {
		f(headers)
		return
	}
	for _, some := range rows[0] {
		eachForm(rows[1:], append(headers[:len(headers):len(headers)], some...), f)
	}
}

// What a request means is decided by what is signed alone. For each body there is one
// meaning; some bodies have none.
func TestCaughtInEveryForm(t *testing.T) {
	now := time.Unix(5000, 0)
	s, err := httpcarrier.NewSigner(secretA)
	ok(t, err)
	v, err := httpcarrier.NewVerifier(&httpcarrier.VerifierOptions{Now: at(5000)}, secretA)
	ok(t, err)
	key := eventstore.NewUUID()
	execute := &handler.Request{Op: handler.Execute, Key: key, ID: key, Stream: "account-bob", Now: now.UTC(), Command: &handler.Command{Type: "deposit", Data: []byte(`{}`)}}
	keyless := *execute
	keyless.Key = eventstore.UUID{}
	command := envelope("deposit", key.String(), "bob", `{"amount":5}`)
	event := &handler.Request{Op: handler.Execute, Key: key, ID: key, Stream: "account-bob", Command: &handler.Command{Type: "deposit", Data: []byte(`{"amount":5}`)}}
	for name, c := range map[string]struct {
		body string
		is   *handler.Request // nil: nothing
	}{
		"a command":                 {command, event},
		"a command, packed":         {gzipped(command), event},
		"a request":                 {encoded(execute), execute},
		"a request, packed":         {gzipped(encoded(execute)), execute},
		"a request without a key":   {encoded(&keyless), execute},
		"a request in an event":     {envelope("wattle.execute.v1", key.String(), "account-bob", encoded(execute)), execute},
		"a command's data":          {`{"amount":5}`, nil},
		"nothing":                   {"", nil},
		"a command under other ids": {envelope("deposit", "order-7", "bob", `{}`), nil},
	} {
		h := &recorder{}
		server := httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Commands: "account", Verifier: v})
		signed := http.Header{}
		s.Sign(signed, key.String(), now, []byte(c.body))
		reached, sent := 0, 0
		eachForm(forms, nil, func(headers []string) {
			for _, ceID := range []string{"", key.String(), "order-7"} {
				all := headers
				if ceID != "" {
					all = append(headers[:len(headers):len(headers)], "Ce-Id", ceID)
				}
				h.got = nil
				status := answered(server, c.body, signed, all)
				sent++
				if len(h.got) == 0 {
					if status < 400 {
						t.Fatalf("%s with %q: nothing was done, and the answer is %d", name, all, status)
					}
					continue
				}
				reached++
				if c.is == nil || !sameRequest(h.got[0], c.is) {
					t.Fatalf("%s with %q: %d, %s", name, all, status, encoded(h.got[0]))
				}
			}
		})
		if sent < 5000 || (reached > 0) != (c.is != nil) {
			t.Errorf("%s: %d of %d reached the handler", name, reached, sent)
		}
	}
}

// sameRequest compares all of two requests.
func sameRequest(a, b *handler.Request) bool {
	return bytes.Equal(handler.AppendRequest(nil, a), handler.AppendRequest(nil, b))
}

// answered has a server answer a body, without a connection: there are many.
func answered(h http.Handler, body string, signed http.Header, headers []string) (status int) {
	q := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	q.Header = signed.Clone()
	for i := 0; i < len(headers); i += 2 {
		q.Header[headers[i]] = append(q.Header[headers[i]], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w.Code
}
