// The client against servers that are right, wrong, slow, dead and hostile.

package httpcarrier_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// A decision over HTTP is the decision, compressed or not, signed or not.
func TestClientAndServer(t *testing.T) {
	signer, err := httpcarrier.NewSigner(secretA)
	ok(t, err)
	verifier, err := httpcarrier.NewVerifier(nil, secretA)
	ok(t, err)
	for name, o := range map[string]httpcarrier.ClientOptions{"bare": {}, "gzip": {GzipOver: 1}, "signed": {Signer: signer}, "signed gzip": {Signer: signer, GzipOver: 1}} {
		t.Run(name, func(t *testing.T) {
			so := &httpcarrier.ServerOptions{GzipOver: 1}
			if o.Signer != nil {
				so.Verifier = verifier
			}
			var last http.Header
			inner := httpcarrier.NewHandler(&accounts{}, so)
			c := client(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { last = q.Header.Clone(); inner.ServeHTTP(w, q) })), &o)
			caller, err := handler.NewCaller(t.Context(), c, nil)
			ok(t, err)
			r := decide(5)
			reply, err := caller.Call(t.Context(), r)
			ok(t, err)
			if string(reply.Events[0].Data) != `{"amount":5}` || string(reply.State) != `{"balance":5}` || reply.Key != r.Key {
				t.Errorf("reply %+v", reply)
			}
			for header, want := range map[string]string{"Ce-Specversion": "1.0", "Ce-Type": "wattle.decide.v1", "Ce-Id": r.Key.String(), "Ce-Subject": "account-%C3%A4lice", "Ce-Source": "/wattle"} {
				if got := last.Get(header); got != want {
					t.Errorf("%s: wanted %q, found %q", header, want, got)
				}
			}
			if last.Get("Wattle-Deadline") == "" || (last.Get("Content-Encoding") == "gzip") != (o.GzipOver > 0) || (last.Get("Webhook-Id") == r.Key.String()) != (o.Signer != nil) {
				t.Errorf("headers %v", last)
			}
			if _, err := caller.Call(t.Context(), decide(1000)); err == nil || err.Error() != "too-much: at most 999" {
				t.Errorf("wanted the refusal, found %v", err)
			}
			if d, err := c.Handle(t.Context(), &handler.Request{Op: handler.Describe}); err != nil || !d.Key.IsZero() || d.Description.Name != "accounts" {
				t.Errorf("a request without a key: %+v %v", d, err)
			}
		})
	}
}

// What each status means, with the body that the handler would have sent, with none, and
// with a page of somebody else.
func TestStatus(t *testing.T) {
	is := func(kinds ...error) []error { return kinds }
	rejected := `{"v":1,"key":"%s","rejected":{"code":"too-much"}}`
	failure := func(code string) string {
		return `{"v":1,"key":"%s","error":{"code":"` + code + `","message":"x"}}`
	}
	for _, c := range []struct {
		status int
		body   string
		want   []error // of Caller.Call
	}{
		{200, `{"v":1,"key":"%s"}`, nil},
		{200, `<html>`, is(handler.ErrBadReply)},
		{200, ``, is(handler.ErrBadReply)},
		{200, `{"v":2,"key":"%s"}`, is(handler.ErrBadReply)},
		{200, `{"key":"%s"}`, is(handler.ErrBadReply)},
		{200, rejected, is(errRejected)},
		{200, failure("failed"), is(handler.ErrFailed)},
		{201, `{"v":1,"key":"%s"}`, is(handler.ErrBadReply)},
		{202, ``, is(handler.ErrBadReply)},
		{301, ``, is(handler.ErrBadRequest)},
		{307, ``, is(handler.ErrBadRequest)},
		{400, ``, is(handler.ErrBadRequest)},
		{400, failure("invalid"), is(handler.ErrBadRequest)},
		{400, failure("failed"), is(handler.ErrBadRequest)}, // a lie
		{400, rejected, is(handler.ErrBadRequest)},
		{400, `{"v":1,"error":{"code":"invalid","message":"unreadable"}}`, is(handler.ErrBadRequest)},
		{409, `{"v":1,"error":{"code":"state"}}`, is(handler.ErrBadRequest)},
		{413, `{"v":1,"error":{"code":"toolarge"}}`, is(eventstore.ErrTooLarge)},
		{500, `{"v":1,"error":{"code":"failed"}}`, is(handler.ErrFailed)},
		{422, `{"v":1,"rejected":{"code":"x"}}`, is(handler.ErrBadRequest)},
		{401, ``, is(handler.ErrDenied)},
		{403, failure("failed"), is(handler.ErrDenied)},
		{404, `not found`, is(handler.ErrBadRequest)},
		{405, ``, is(handler.ErrBadRequest)},
		{408, ``, is(handler.ErrFailed)},
		{409, failure("state"), is(handler.ErrStateVersion)},
		{409, failure("conflict"), is(eventstore.ErrAlreadyWritten)},
		{409, ``, is(handler.ErrBadRequest)},
		{413, ``, is(eventstore.ErrTooLarge)},
		{413, failure("toolarge"), is(eventstore.ErrTooLarge)},
		{415, ``, is(handler.ErrBadRequest)},
		{422, rejected, is(errRejected)},
		{422, ``, is(handler.ErrBadRequest)},
		{422, `{"detail":[]}`, is(handler.ErrBadRequest)},
		{422, `{"v":1,"key":"%s"}`, is(handler.ErrBadRequest)},
		{422, failure("failed"), is(handler.ErrBadRequest)},
		{425, ``, is(handler.ErrFailed)},
		{429, ``, is(eventstore.ErrOverloaded)},
		{500, failure("failed"), is(handler.ErrFailed)},
		{500, rejected, is(handler.ErrFailed)},
		{501, ``, is(handler.ErrFailed)},
		{502, ``, is(handler.ErrFailed)},
		{503, ``, is(handler.ErrFailed)},
		{503, failure("unknown"), is(eventstore.ErrUnknown)},
		{504, ``, is(handler.ErrFailed)},
		{599, ``, is(handler.ErrFailed)},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.body), func(t *testing.T) {
			address := raw(t, func(w net.Conn, q *http.Request, body []byte) bool {
				r, err := handler.ParseRequest(body)
				if err != nil {
					t.Error(err)
				}
				if r.Op == handler.Describe {
					fmt.Fprint(w, response(200, answer(body)))
					return true
				}
				text := c.body
				if strings.Contains(text, "%s") {
					text = fmt.Sprintf(text, r.Key)
				}
				fmt.Fprint(w, response(c.status, text, "Location: /elsewhere"))
				return true
			})
			caller, err := handler.NewCaller(t.Context(), client(t, address, nil), &handler.Options{Retries: -1})
			ok(t, err)
			_, err = caller.Call(t.Context(), decide(1))
			if (err == nil) != (c.want == nil) {
				t.Fatalf("wanted %v, found %v", c.want, err)
			}
			if strings.Contains(c.body, "unreadable") && !strings.Contains(err.Error(), "unreadable") {
				t.Errorf("why is lost: %v", err)
			}
			for _, kind := range c.want {
				if _, refused := errors.AsType[*handler.Rejected](err); kind == errRejected {
					if !refused {
						t.Errorf("wanted a refusal, found %v", err)
					}
				} else if !errors.Is(err, kind) || refused {
					t.Errorf("wanted %v, found %v", kind, err)
				}
			}
		})
	}
}

var errRejected = errors.New("stands for a refusal")

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

// What a link and a server may do to a reply.
func TestFaults(t *testing.T) {
	huge := gzipped(strings.Repeat(" ", 8<<20))
	for name, c := range map[string]struct {
		send func(w net.Conn, right string)
		want error
	}{
		"dies before a byte":  {func(net.Conn, string) {}, handler.ErrFailed},
		"dies in the headers": {func(w net.Conn, _ string) { fmt.Fprint(w, "HTTP/1.1 200 OK\r\nContent-") }, handler.ErrFailed},
		"dies in the body":    {func(w net.Conn, right string) { fmt.Fprint(w, response(200, right)[:len(response(200, right))-5]) }, handler.ErrFailed},
		"length too short": {func(w net.Conn, right string) {
			fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(right)-3, right)
		}, handler.ErrBadReply},
		"no length, cut": {func(w net.Conn, right string) { fmt.Fprintf(w, "HTTP/1.0 200 OK\r\n\r\n%s", right[:len(right)-3]) }, handler.ErrFailed},
		"chunks without an end": {func(w net.Conn, right string) {
			fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(right), right)
		}, handler.ErrFailed},
		"a refusal that is cut": {func(w net.Conn, right string) { fmt.Fprint(w, response(422, right)[:len(response(422, right))-5]) }, handler.ErrFailed},
		"length of 1 GiB": {func(w net.Conn, right string) {
			fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 1<<30, right)
		}, eventstore.ErrTooLarge},
		"no length, no end": {func(w net.Conn, _ string) { endless(w) }, eventstore.ErrTooLarge},
		"a refusal over the limit": {func(w net.Conn, right string) {
			fmt.Fprint(w, response(422, right+strings.Repeat(" ", handler.DefaultReplyBytes)))
		}, eventstore.ErrTooLarge},
		"over the limit behind gzip": {func(w net.Conn, right string) {
			fmt.Fprint(w, response(200, gzipped(right+noise(1<<20)+strings.Repeat(" ", handler.DefaultReplyBytes)), "Content-Encoding: gzip"))
		}, eventstore.ErrTooLarge},
		"gzip bomb": {func(w net.Conn, _ string) { fmt.Fprint(w, response(200, huge, "Content-Encoding: gzip")) }, handler.ErrBadReply},
		"gzip that is cut": {func(w net.Conn, right string) {
			z := gzipped(right)
			fmt.Fprint(w, response(200, z[:len(z)-6], "Content-Encoding: gzip"))
		}, handler.ErrFailed},
		"no gzip":          {func(w net.Conn, right string) { fmt.Fprint(w, response(200, right, "Content-Encoding: gzip")) }, handler.ErrFailed},
		"headers of 1 MiB": {func(w net.Conn, right string) { fmt.Fprint(w, response(200, right, "X: "+strings.Repeat("x", 1<<20))) }, handler.ErrFailed},
		"another stream's reply": {func(w net.Conn, right string) {
			fmt.Fprint(w, response(200, strings.Replace(right, `"v":1,`, `"v":1,"stream":"account-bob",`, 1)))
		}, handler.ErrBadReply},
		"another call's reply": {func(w net.Conn, right string) {
			fmt.Fprint(w, response(200, strings.Replace(right, `"key":"0`, `"key":"1`, 1)))
		}, handler.ErrFailed},
		"an older contract's reply": {func(w net.Conn, right string) {
			fmt.Fprint(w, response(200, strings.Replace(right, `"v":1`, `"v":0`, 1)))
		}, handler.ErrBadReply},
		"a reply as an event": {func(w net.Conn, right string) { structuredReply(w, right) }, nil},
		"an event that is none": {func(w net.Conn, right string) {
			fmt.Fprint(w, strings.Replace(response(200, right), "application/json", "application/cloudevents+json", 1))
		}, handler.ErrBadReply},
		"no HTTP": {func(w net.Conn, _ string) { fmt.Fprint(w, "220 smtp\r\n") }, handler.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			address := raw(t, func(w net.Conn, _ *http.Request, body []byte) bool {
				if strings.Contains(string(body), `"describe"`) {
					fmt.Fprint(w, response(200, answer(body)))
					return true
				}
				c.send(w, answer(body))
				return false
			})
			caller, err := handler.NewCaller(t.Context(), client(t, address, nil), &handler.Options{Retries: -1})
			ok(t, err)
			_, err = caller.Call(t.Context(), decide(1))
			if e, _ := errors.AsType[*handler.Error](err); !errors.Is(err, c.want) || e != nil && e.Kind != c.want {
				t.Errorf("wanted %v, found %v", c.want, err)
			}
		})
	}
}

// noise does not compress well.
func noise(n int) string {
	b := make([]byte, n)
	dice := rand.New(rand.NewPCG(1, 1))
	for i := range b {
		b[i] = byte(dice.Uint32())
	}
	return string(b)
}

// endless writes until nobody reads.
func endless(w net.Conn) {
	fmt.Fprint(w, "HTTP/1.0 200 OK\r\n\r\n")
	_ = w.SetWriteDeadline(time.Now().Add(10 * time.Second))
	for blank := bytes.Repeat([]byte(" "), 64<<10); ; {
		if _, err := w.Write(blank); err != nil {
			return
		}
	}
}

func structuredReply(w net.Conn, right string) {
	body, err := httpcarrier.AppendStructured(nil, &httpcarrier.CloudEvent{ID: "1", Source: "/x", Type: "t", Data: []byte(right)})
	if err != nil {
		panic(err)
	}
	fmt.Fprint(w, strings.Replace(response(200, string(body)), "application/json", "application/cloudevents+json; charset=utf-8", 1))
}

// A server that is too slow is given up at the deadline, and what it says later is
// nobody's answer.
func TestLateReply(t *testing.T) {
	var late atomic.Bool
	release := make(chan struct{})
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if late.Load() {
			<-release
		}
		httpcarrier.NewHandler(&accounts{}, nil).ServeHTTP(w, q)
	}))
	c := client(t, address, nil)
	caller, err := handler.NewCaller(t.Context(), c, &handler.Options{Retries: -1})
	ok(t, err)
	late.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = caller.Call(ctx, decide(1))
	if !errors.Is(err, handler.ErrFailed) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	late.Store(false)
	close(release)
	for range 5 {
		if reply, err := caller.Call(t.Context(), decide(7)); err != nil || string(reply.Events[0].Data) != `{"amount":7}` {
			t.Errorf("the next call: %+v %v", reply, err)
		}
	}
}

// A server that answers twice does not answer the next call with that.
func TestReplyTwice(t *testing.T) {
	address := raw(t, func(w net.Conn, _ *http.Request, body []byte) bool {
		fmt.Fprint(w, response(200, answer(body))+response(200, answer(body)))
		return true
	})
	caller, err := handler.NewCaller(t.Context(), client(t, address, nil), nil)
	ok(t, err)
	for i := range 20 {
		reply, err := caller.Call(t.Context(), decide(i))
		ok(t, err)
		if got := string(reply.Events[0].Data); got != fmt.Sprintf(`{"amount":%d}`, i) {
			t.Errorf("call %d was answered %s", i, got)
		}
	}
}

// Tries are the Caller's, under one key; the client makes one.
func TestRetriesKeepTheKey(t *testing.T) {
	keys := map[string]int{}
	inner := httpcarrier.NewHandler(&accounts{}, nil)
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if keys[q.Header.Get("Ce-Id")]++; keys[q.Header.Get("Ce-Id")] < 3 {
			w.WriteHeader(503)
			return
		}
		inner.ServeHTTP(w, q)
	}))
	c := client(t, address, nil)
	if _, err := c.Handle(t.Context(), decide(1)); !errors.Is(err, handler.ErrFailed) || len(keys) != 1 {
		t.Errorf("one call made %v and answered %v", keys, err)
	}
	clear(keys)
	caller, err := handler.NewCaller(t.Context(), c, nil)
	ok(t, err)
	clear(keys)
	_, err = caller.Call(t.Context(), decide(1))
	ok(t, err)
	if len(keys) != 1 {
		t.Errorf("wanted one key, three times, found %v", keys)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var elsewhere atomic.Int64
	other := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	for _, status := range []int{301, 302, 303, 307, 308} {
		address := serve(t, http.RedirectHandler(other, status))
		followed := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
		_, err := client(t, address, &httpcarrier.ClientOptions{HTTP: followed}).Handle(t.Context(), decide(1))
		if !errors.Is(err, handler.ErrBadRequest) || !strings.Contains(err.Error(), "redirects are not followed") {
			t.Errorf("%d: %v", status, err)
		}
	}
	if elsewhere.Load() != 0 {
		t.Errorf("%d requests were redirected", elsewhere.Load())
	}
}

func TestClientMistakes(t *testing.T) {
	for _, address := range []string{"", "ftp://x", "http://", "/path", "http://a b"} {
		if _, err := httpcarrier.NewClient(address, nil); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := httpcarrier.NewClient("http://x", &httpcarrier.ClientOptions{Source: "a\nb"}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("source: %v", err)
	}
	var called atomic.Int64
	address := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	r := decide(1)
	r.Command.Data = fmt.Appendf(nil, "%q", strings.Repeat("x", 2000))
	_, err := client(t, address, &httpcarrier.ClientOptions{RequestBytes: 1000}).Handle(t.Context(), r)
	if !errors.Is(err, eventstore.ErrTooLarge) || called.Load() != 0 {
		t.Errorf("too large: %v, %d calls", err, called.Load())
	}
	// A password in the address is told nobody.
	secret := strings.Replace(address, "http://", "http://user:hunter2@", 1)
	_, err = client(t, secret, nil).Handle(t.Context(), decide(1))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an error that tells a password, or none: %v", err)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	dead.Close()
	_, err = client(t, "http://user:hunter2@"+dead.Addr().String(), nil).Handle(t.Context(), decide(1))
	if !errors.Is(err, handler.ErrFailed) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("nobody listens: %v", err)
	}
}
