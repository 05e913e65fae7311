// What the tests share: a decider of deposits, servers that answer right, and servers
// that answer what they are told to, byte by byte.

package httpcarrier_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

var description = handler.Description{Name: "accounts", Release: "1", Category: "account", Capabilities: []string{"decide", "evolve"},
	Events: []handler.Wire{{Name: "deposited", Version: 1}}, Commands: []handler.Wire{{Name: "deposit", Version: 1}}, StateVersion: 1}

// accounts decides deposits: {"amount":n}, refused from 1000 on. calls counts what reached it.
type accounts struct{ calls atomic.Int64 }

func (a *accounts) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	a.calls.Add(1)
	switch r.Op {
	case handler.Describe:
		d := description
		return &handler.Reply{Description: &d}, nil
	case handler.Decide:
		var c struct{ Amount int }
		if err := json.Unmarshal(r.Command.Data, &c); err != nil {
			return nil, &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Err: err}
		}
		if c.Amount >= 1000 {
			return nil, &handler.Rejected{Code: "too-much", Message: "at most 999"}
		}
		return &handler.Reply{Events: []handler.Event{{Type: "deposited", Data: r.Command.Data}}, State: []byte(`{"balance":` + fmt.Sprint(c.Amount) + `}`)}, nil
	case handler.Evolve:
		return &handler.Reply{State: []byte(`{}`)}, nil
	}
	return nil, handler.Unsupported(r, handler.Describe, handler.Decide)
}

func decide(amount int) *handler.Request {
	return &handler.Request{Op: handler.Decide, Key: eventstore.NewUUID(), ID: eventstore.NewUUID(), Stream: "account-älice", Now: time.Unix(1_800_000_000, 0).UTC(),
		Command: &handler.Command{Type: "deposit", Data: fmt.Appendf(nil, `{"amount":%d}`, amount)}}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve starts a server and returns its address; the server counts its open requests out
// before the test ends.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func client(t testing.TB, address string, o *httpcarrier.ClientOptions) *httpcarrier.Client {
	t.Helper()
	c, err := httpcarrier.NewClient(address, o)
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// raw starts a server that answers each connection's requests with what f writes, and
// closes the connection when f says so.
func raw(t testing.TB, f func(w net.Conn, q *http.Request, body []byte) (keep bool)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewReader(conn); ; {
					q, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body, err := io.ReadAll(q.Body)
					if err != nil || !f(conn, q, body) {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// response is a whole HTTP response.
func response(status int, body string, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), lines(headers), body)
}

func lines(headers []string) string {
	if len(headers) == 0 {
		return ""
	}
	return strings.Join(headers, "\r\n") + "\r\n"
}

// answer is the right reply to a request that came over HTTP.
func answer(body []byte) string {
	return string(handler.Serve(context.Background(), &accounts{}, "", body))
}

// post sends a body with headers, name and value in turn.
func post(t testing.TB, url, body string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	ok(t, err)
	for i := 0; i < len(headers); i += 2 {
		q.Header[headers[i]] = append(q.Header[headers[i]], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(q)
	ok(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	ok(t, err)
	return resp, got
}

func encoded(r *handler.Request) string { return string(handler.AppendRequest(nil, r)) }
