// The server: forms, limits, and what goes wrong inside of it.

package httpcarrier_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

const (
	jsonType   = "application/json"
	structured = "application/cloudevents+json"
)

func event(more ...string) []string {
	return append([]string{"Content-Type", jsonType, "Ce-Specversion", "1.0", "Ce-Source", "/test"}, more...)
}

func envelope(typ, id, subject, data string) string {
	return fmt.Sprintf(`{"specversion":"1.0","source":"/test","type":%q,"id":%q,"subject":%q,"data":%s}`, typ, id, subject, data)
}

// The same request in each form has the same reply, in the form of the request or as it
// accepts.
func TestForms(t *testing.T) {
	address := serve(t, httpcarrier.NewHandler(&accounts{}, nil))
	r := decide(5)
	body, key := encoded(r), r.Key.String()
	in64 := strings.Replace(envelope("wattle.decide.v1", key, string(r.Stream), "0"), `"data":0`, `"data_base64":"`+base64.StdEncoding.EncodeToString([]byte(body))+`"`, 1)
	for name, c := range map[string]struct {
		body    string
		headers []string
		form    string
	}{
		"plain":                 {body, []string{"Content-Type", jsonType}, "plain"},
		"plain, charset":        {body, []string{"Content-Type", "application/json; charset=UTF-8"}, "plain"},
		"without a type":        {body, nil, "plain"},
		"binary":                {body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", key, "Ce-Subject", "account-%C3%A4lice"), "binary"},
		"binary without more":   {body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", key), "binary"},
		"structured":            {envelope("wattle.decide.v1", key, string(r.Stream), body), []string{"Content-Type", structured + "; charset=utf-8"}, "structured"},
		"structured, base64":    {in64, []string{"Content-Type", structured}, "structured"},
		"plain, wants an event": {body, []string{"Content-Type", jsonType, "Accept", structured}, "structured"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, got := post(t, address, c.body, c.headers...)
			form := "plain"
			if strings.HasPrefix(resp.Header.Get("Content-Type"), structured) {
				form = "structured"
				e, err := httpcarrier.ParseStructured(got)
				ok(t, err)
				if e.ID != key || e.Type != "wattle.reply.v1" || e.Subject != string(r.Stream) {
					t.Errorf("event %+v", e)
				}
				got = e.Data
			} else if httpcarrier.IsBinary(resp.Header) {
				form = "binary"
				e, err := httpcarrier.ParseBinary(resp.Header, got)
				ok(t, err)
				if e.ID != key || e.Subject != string(r.Stream) {
					t.Errorf("event %+v", e)
				}
			}
			if resp.StatusCode != 200 || form != c.form || string(got) != answer([]byte(body)) {
				t.Errorf("status %d, form %s: %s", resp.StatusCode, form, got)
			}
		})
	}
}

// What is no request is told so, and does not reach the handler.
func TestBadRequests(t *testing.T) {
	h := &accounts{}
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{RequestBytes: 2000}))
	r := decide(5)
	body, key, other := encoded(r), r.Key.String(), eventstore.NewUUID().String()
	keyless := *r
	keyless.Key = eventstore.UUID{}
	asJSON := []string{"Content-Type", jsonType}
	asEvent := []string{"Content-Type", structured}
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
	}{
		"nothing":                   {"", asJSON, 400},
		"no JSON":                   {"x", asJSON, 400},
		"another version":           {strings.Replace(body, `"v":1`, `"v":2`, 1), asJSON, 400},
		"an older version":          {strings.Replace(body, `"v":1,`, ``, 1), asJSON, 400},
		"an unknown field":          {strings.Replace(body, `"v":1`, `"v":1,"epoch":3`, 1), asJSON, 400},
		"no UTF-8":                  {strings.Replace(body, `deposit`, "\xff", 1), asJSON, 400},
		"another type":              {body, []string{"Content-Type", "text/plain"}, 415},
		"another charset":           {body, []string{"Content-Type", "application/json; charset=latin1"}, 415},
		"another encoding":          {body, append(asJSON, "Content-Encoding", "br"), 415},
		"encoded twice":             {body, append(asJSON, "Content-Encoding", "gzip, gzip"), 415},
		"no gzip":                   {body, append(asJSON, "Content-Encoding", "gzip"), 400},
		"gzip that is cut":          {gzipped(body)[:50], append(asJSON, "Content-Encoding", "gzip"), 400},
		"too long":                  {strings.Repeat(" ", 2001), asJSON, 413},
		"too long unpacked":         {gzipped(strings.Repeat(" ", 3000)), append(asJSON, "Content-Encoding", "gzip"), 413},
		"a bomb":                    {gzipped(strings.Repeat(" ", 1<<20)), append(asJSON, "Content-Encoding", "gzip"), 413},
		"a batch":                   {"[" + envelope("wattle.decide.v1", key, "", body) + "]", []string{"Content-Type", "application/cloudevents-batch+json"}, 415},
		"an event in Avro":          {"x", []string{"Content-Type", "application/cloudevents+avro"}, 415},
		"id of another request":     {body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", other), 400},
		"subject of another stream": {body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", key, "Ce-Subject", "account-bob"), 400},
		"type of another operation": {body, event("Ce-Type", "wattle.evolve.v1", "Ce-Id", key), 400},
		"type of another version":   {body, event("Ce-Type", "wattle.decide.v2", "Ce-Id", key), 400},
		"no id":                     {body, event("Ce-Type", "wattle.decide.v1"), 400},
		"two ids":                   {body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", key, "Ce-Id", other), 400},
		"no UUID as the key":        {encoded(&keyless), event("Ce-Type", "wattle.decide.v1", "Ce-Id", "7"), 400},
		"another specversion":       {body, []string{"Content-Type", jsonType, "Ce-Specversion", "0.3", "Ce-Source", "/", "Ce-Type", "wattle.decide.v1", "Ce-Id", key}, 400},
		"a command, not taken":      {`{}`, event("Ce-Type", "deposit", "Ce-Id", "1", "Ce-Subject", "bob"), 400},
		"an event without data":     {`{"specversion":"1.0","source":"/","type":"wattle.decide.v1","id":"` + key + `"}`, asEvent, 400},
		"an event in an event":      {envelope("wattle.decide.v1", key, "", envelope("wattle.decide.v1", key, "", body)), asEvent, 400},
		"structured, other id":      {envelope("wattle.decide.v1", other, "", body), asEvent, 400},
		"attributes without end":    {body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", key, "Ce-More", strings.Repeat("x", 20<<10)), 400},
	} {
		t.Run(name, func(t *testing.T) {
			resp, got := post(t, address, c.body, c.headers...)
			reply, err := handler.ParseReply(got)
			if strings.HasPrefix(resp.Header.Get("Content-Type"), structured) {
				t.Errorf("answered in the form of what could not be read: %s", got)
			}
			if err != nil || resp.StatusCode != c.status || reply.Failure == nil {
				t.Errorf("status %d, wanted %d: %s %v", resp.StatusCode, c.status, got, err)
			}
		})
	}
	if n := h.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the handler", n)
	}
	resp, got := post(t, address, encoded(&keyless), event("Ce-Type", "wattle.decide.v1", "Ce-Id", key)...)
	if resp.StatusCode != 200 || !strings.Contains(string(got), key) {
		t.Errorf("a key that only the event has: %d %s", resp.StatusCode, got)
	}
}

// A length that is a lie: 1 GiB announced is refused at once, a body that stops coming
// after a while, and neither takes memory for what did not come.
func TestLyingLengths(t *testing.T) {
	h := &accounts{}
	address := strings.TrimPrefix(serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{ReadTimeout: 100 * time.Millisecond})), "http://")
	for head, status := range map[string]string{
		"Content-Length: 1073741824\r\n\r\n{":               "413",
		"Content-Length: 1000000\r\n\r\n{":                  "408",
		"Transfer-Encoding: chunked\r\n\r\n400\r\n{":        "408",
		"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n{": "408",
	} {
		conn, err := net.Dial("tcp", address)
		ok(t, err)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+head)
		got := make([]byte, 12)
		if _, err := io.ReadFull(conn, got); err != nil || string(got[9:]) != status {
			t.Errorf("%q: %q %v, wanted %s", head, got, err, status)
		}
		conn.Close()
	}
	if h.calls.Load() != 0 {
		t.Error("it reached the handler")
	}
}

// A read timeout is for the body alone: a handler may take longer.
func TestSlowHandler(t *testing.T) {
	slow := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		select {
		case <-time.After(700 * time.Millisecond):
			return &handler.Reply{State: []byte("1")}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	c := client(t, serve(t, httpcarrier.NewHandler(slow, &httpcarrier.ServerOptions{ReadTimeout: 350 * time.Millisecond})), nil)
	if _, err := c.Handle(t.Context(), decide(1)); err != nil {
		t.Error(err)
	}
}

// The caller's deadline is the handler's; one that has passed is not begun.
func TestDeadline(t *testing.T) {
	var got atomic.Pointer[time.Time]
	h := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		until, _ := ctx.Deadline()
		got.Store(&until)
		if r.Command.Type == "hang" {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(5 * time.Second): // for ever, nearly
			}
		}
		return &handler.Reply{}, nil
	})
	address := serve(t, httpcarrier.NewHandler(h, nil))
	until := time.Now().Add(time.Hour).UTC()
	for name, send := range map[string]func() int{
		"in the body": func() int {
			r := decide(1)
			r.Deadline = until
			resp, _ := post(t, address, encoded(r))
			return resp.StatusCode
		},
		"in the header": func() int {
			resp, _ := post(t, address, encoded(decide(1)), "Wattle-Deadline", until.Format(time.RFC3339Nano))
			return resp.StatusCode
		},
		"the sooner": func() int {
			r := decide(1)
			r.Deadline = until.Add(time.Hour)
			resp, _ := post(t, address, encoded(r), "Wattle-Deadline", until.Format(time.RFC3339Nano))
			return resp.StatusCode
		},
	} {
		if status := send(); status != 200 || !got.Load().Equal(until) {
			t.Errorf("%s: %d, %v, wanted %v", name, status, got.Load(), until)
		}
	}
	got.Store(nil)
	resp, _ := post(t, address, encoded(decide(1)), "Wattle-Deadline", time.Now().Add(-time.Second).Format(time.RFC3339Nano))
	if resp.StatusCode != 504 || got.Load() != nil {
		t.Errorf("too late: %d, begun %v", resp.StatusCode, got.Load())
	}
	r := decide(1)
	r.Command.Type, r.Deadline = "hang", time.Now().Add(50*time.Millisecond)
	if resp, _ := post(t, address, encoded(r)); resp.StatusCode != 504 {
		t.Errorf("a handler that hangs: %d", resp.StatusCode)
	}
}

// A panic is a failure of that call alone; its text and stack stay inside.
func TestPanic(t *testing.T) {
	var told bytes.Buffer
	h := &accounts{}
	panics := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Evolve {
			panic("the password is hunter2")
		}
		return h.Handle(ctx, r)
	})
	address := serve(t, httpcarrier.NewHandler(panics, &httpcarrier.ServerOptions{Logger: slog.New(slog.NewTextHandler(&told, nil))}))
	r := &handler.Request{Op: handler.Evolve, Key: eventstore.NewUUID(), Stream: "account-a"}
	resp, body := post(t, address, encoded(r))
	reply, err := handler.ParseReply(body)
	if err != nil || resp.StatusCode != 500 || reply.Failure == nil || reply.Failure.Code != handler.CodeFailed || reply.Key != r.Key {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	if strings.Contains(string(body), "hunter2") || strings.Contains(string(body), "server_test") {
		t.Errorf("it tells %s", body)
	}
	if !strings.Contains(told.String(), "hunter2") || !strings.Contains(told.String(), "server_test.go") {
		t.Errorf("the log has %s", told.String())
	}
	if _, err := client(t, address, nil).Handle(t.Context(), r); err != nil {
		t.Errorf("the client: %v", err) // a reply, with the failure in it
	}
	if resp, _ := post(t, address, encoded(decide(1))); resp.StatusCode != 200 {
		t.Errorf("the next call: %d", resp.StatusCode)
	}
}

// What a handler's errors are as a status, and as an error of the caller again.
func TestErrorsCrossOver(t *testing.T) {
	for kind, status := range map[error]int{
		handler.ErrFailed: 500, handler.ErrBadReply: 400, handler.ErrBadRequest: 400, handler.ErrStateVersion: 409, handler.ErrDenied: 403,
		eventstore.ErrTooLarge: 413, eventstore.ErrOverloaded: 429, eventstore.ErrUnknown: 503, eventstore.ErrAlreadyWritten: 409, eventstore.ErrClosed: 503,
	} {
		h := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if r.Op == handler.Describe {
				return (&accounts{}).Handle(ctx, r)
			}
			return nil, &handler.Error{Kind: kind, Op: r.Op}
		})
		address := serve(t, httpcarrier.NewHandler(h, nil))
		resp, body := post(t, address, encoded(decide(1)))
		if resp.StatusCode != status {
			t.Errorf("%v: %d %s", kind, resp.StatusCode, body)
		}
		caller, err := handler.NewCaller(t.Context(), client(t, address, nil), &handler.Options{Retries: -1})
		ok(t, err)
		want := kind
		switch kind {
		case handler.ErrBadReply:
			want = handler.ErrBadRequest // final, as it was
		case eventstore.ErrClosed:
			want = handler.ErrFailed // another copy may be open
		}
		if _, err := caller.Call(t.Context(), decide(1)); !errors.Is(err, want) {
			t.Errorf("%v came over as %v", kind, err)
		}
	}
	nothing := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) { return nil, nil })
	if resp, body := post(t, serve(t, httpcarrier.NewHandler(nothing, nil)), encoded(decide(1))); resp.StatusCode != 500 {
		t.Errorf("no reply: %d %s", resp.StatusCode, body)
	}
	big := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) {
		return &handler.Reply{State: []byte(`"` + strings.Repeat("x", 2000) + `"`)}, nil
	})
	if resp, body := post(t, serve(t, httpcarrier.NewHandler(big, &httpcarrier.ServerOptions{ReplyBytes: 1000})), encoded(decide(1))); resp.StatusCode != 413 || len(body) > 1000 {
		t.Errorf("a reply too long: %d, %d bytes", resp.StatusCode, len(body))
	}
}

func TestGzipReply(t *testing.T) {
	big := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) {
		return &handler.Reply{State: []byte(`"` + strings.Repeat("x", 5000) + `"`)}, nil
	})
	address := serve(t, httpcarrier.NewHandler(big, nil))
	for accept, want := range map[string]bool{"": false, "gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "*": true, "br": false, "x-gzip": false, "gzip;q=x": false} {
		headers := []string{"Accept-Encoding", accept}
		if resp, body := post(t, address, encoded(decide(1)), headers...); (resp.Header.Get("Content-Encoding") == "gzip") != want || (len(body) < 1000) != want {
			t.Errorf("%q: %v, %d bytes", accept, resp.Header, len(body))
		}
	}
}

func TestHealth(t *testing.T) {
	var down atomic.Bool
	h := &accounts{}
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Ready: func(context.Context) error {
		if down.Load() {
			return errors.New("password hunter2")
		}
		return nil
	}}))
	get := func(method, path string) (int, string) {
		q, err := http.NewRequestWithContext(t.Context(), method, address+path, nil)
		ok(t, err)
		resp, err := http.DefaultTransport.RoundTrip(q)
		ok(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		ok(t, err)
		return resp.StatusCode, string(body)
	}
	for _, c := range []struct {
		method, path string
		down         bool
		status       int
	}{{"GET", "/healthz", false, 200}, {"HEAD", "/healthz", false, 200}, {"GET", "/readyz", false, 200}, {"GET", "/healthz", true, 200}, {"GET", "/readyz", true, 503},
		{"GET", "/", false, 405}, {"PUT", "/", false, 405}, {"DELETE", "/healthz", false, 405}} {
		down.Store(c.down)
		if status, body := get(c.method, c.path); status != c.status || strings.Contains(body, "hunter2") {
			t.Errorf("%s %s, down %v: %d %q", c.method, c.path, c.down, status, body)
		}
	}
	if h.calls.Load() != 0 {
		t.Error("health reached the handler")
	}
}

// Shutdown lets calls that are under way be answered.
func TestShutdown(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	h := handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		close(begun)
		<-release
		return &handler.Reply{}, nil
	})
	srv := httptest.NewServer(httpcarrier.NewHandler(h, nil))
	defer srv.Close()
	answered := make(chan error, 1)
	c := client(t, srv.URL, nil)
	go func() { _, err := c.Handle(t.Context(), decide(1)); answered <- err }()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Config.Shutdown(t.Context()) }()
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// More calls than there is room for are answered at once, and are not begun.
func TestOverload(t *testing.T) {
	begun, release := make(chan struct{}, 10), make(chan struct{})
	var most, now atomic.Int64
	h := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		begun <- struct{}{}
		select {
		case <-release:
		case <-time.After(8 * time.Second):
			t.Error("the others are not refused")
		}
		return &handler.Reply{}, nil
	})
	c := client(t, serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Running: 1, Waiting: 1})), nil)
	answered := make(chan error, 8)
	for range 8 {
		go func() { _, err := c.Handle(t.Context(), decide(1)); answered <- err }()
	}
	<-begun
	for range 6 { // one runs, one waits
		if err := <-answered; !errors.Is(err, eventstore.ErrOverloaded) {
			t.Error(err)
		}
	}
	close(release)
	for range 2 {
		ok(t, <-answered)
	}
	if most.Load() != 1 {
		t.Errorf("%d ran at once", most.Load())
	}
}
