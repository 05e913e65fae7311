// The glue by itself, in Node.js, whose streams are those of the Workers.

package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall/js"
	"testing"
	"time"
)

// script makes JavaScript's value of an expression.
func script(text string) js.Value { return js.Global().Call("eval", "("+text+")") }

// begin gives this program a call, as worker.mjs does.
func begin(t *testing.T, call string) js.Value {
	t.Helper()
	args := os.Args
	t.Cleanup(func() { os.Args = args; js.Global().Delete("wattleCalls") })
	os.Args = []string{"worker", "7"}
	v := script(call)
	calls := script("new Map()")
	calls.Call("set", "7", v)
	js.Global().Set("wattleCalls", calls)
	return v
}

// echoes is a call whose sockets send back what they are sent, in chunks of 5 bytes.
const echoes = `{
	closed: 0,
	connect(hostname, port) {
		this.to = hostname + " " + port;
		const chunks = new TransformStream({ transform(all, out) { for (let i = 0; i < all.length; i += 5) out.enqueue(all.slice(i, i + 5)); } }, undefined, { highWaterMark: 100 });
		return { readable: chunks.readable, writable: chunks.writable, opened: Promise.resolve({}), close: () => { this.closed++; return Promise.resolve(); } };
	},
}`

func dial(t *testing.T) (net.Conn, js.Value) {
	t.Helper()
	call := begin(t, echoes)
	c, err := Dial(t.Context(), "tcp", "db.example:5432")
	if err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(10*time.Second, func() { c.Close() }) // what waits for ever is found out
	t.Cleanup(func() { limit.Stop(); c.Close() })
	if to := call.Get("to").String(); to != "db.example 5432" || c.RemoteAddr().String() != "db.example:5432" {
		t.Errorf("connected to %q, %v", to, c.RemoteAddr())
	}
	return c, call
}

// Every byte comes once and in order, whatever the sizes of chunks and buffers.
func TestConnEcho(t *testing.T) {
	c, _ := dial(t)
	for _, text := range []string{"a", "hello", "hello world, hello again", strings.Repeat("0123456789", 20)} {
		if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
		for _, size := range []int{1, 2, 7} {
			part := make([]byte, min(size, len(text)))
			if _, err := io.ReadFull(c, part); err != nil || string(part) != text[:len(part)] {
				t.Fatalf("read %q, %v, want the beginning of %q", part, err, text)
			}
			text = text[len(part):]
		}
		rest := make([]byte, len(text))
		if _, err := io.ReadFull(c, rest); err != nil || string(rest) != text {
			t.Fatalf("read %q, %v, want %q", rest, err, text)
		}
	}
}

// A deadline ends a Read that waits, in whatever order they come, and loses no byte.
func TestConnDeadline(t *testing.T) {
	c, _ := dial(t)
	p := make([]byte, 10)
	wants := func(when string) {
		t.Helper()
		if n, err := c.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: %d, %v, want the deadline's error", when, n, err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(-time.Second))
	wants("in the past")
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	wants("soon")
	_ = c.SetReadDeadline(time.Time{})
	timer := time.AfterFunc(20*time.Millisecond, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer timer.Stop()
	wants("set meanwhile")
	if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write: %v", err)
	}
	_ = c.SetDeadline(time.Time{})
	if _, err := c.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(p); string(p[:n]) != "after" || err != nil {
		t.Errorf("read %q, %v, want what was sent after the deadlines", p[:n], err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	_ = c.SetReadDeadline(time.Now().Add(time.Hour))
	sent := time.AfterFunc(60*time.Millisecond, func() { _, _ = c.Write([]byte("later")) })
	defer sent.Stop()
	if n, err := c.Read(p); string(p[:n]) != "later" || err != nil {
		t.Errorf("read %q, %v: a deadline that was moved still counted", p[:n], err)
	}
}

// Close ends a Read that waits, closes the socket once, and nothing works after it.
func TestConnClose(t *testing.T) {
	c, call := dial(t)
	timer := time.AfterFunc(20*time.Millisecond, func() { _ = c.Close() })
	defer timer.Stop()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read: %d, %v, want closed", n, err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write: %v, want closed", err)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) || call.Get("closed").Int() != 1 {
		t.Errorf("closed again: %v; the socket was closed %d times", err, call.Get("closed").Int())
	}
}

// The far side's end is io.EOF, again and again, behind all that came before.
func TestConnEnd(t *testing.T) {
	c, _ := dial(t)
	if _, err := c.Write([]byte("the last words")); err != nil {
		t.Fatal(err)
	}
	c.(*conn).writer.Call("close")
	if all, err := io.ReadAll(c); string(all) != "the last words" || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read %d, %v behind the end", n, err)
	}
}

// A connection that cannot be made, or is not made in time, is an error and not kept.
func TestDialFails(t *testing.T) {
	begin(t, `{ connect: () => ({ opened: Promise.reject(new Error("refused")) }) }`)
	if _, err := Dial(t.Context(), "tcp", "db.example:1"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Dial = %v, want what was refused", err)
	}
	call := begin(t, `{ closed: 0, connect() { return { opened: new Promise(() => {}), close: () => { this.closed++ } } } }`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, "tcp", "db.example:1"); !errors.Is(err, context.DeadlineExceeded) || call.Get("closed").Int() != 1 {
		t.Errorf("Dial = %v, the socket closed %d times, want the deadline's error and 1", err, call.Get("closed").Int())
	}
}

// A request arrives whole, and so does the answer.
func TestServe(t *testing.T) {
	call := begin(t, `{
		method: "POST", url: "https://edge.example/a/b?c=d", headers: [["content-type", "text/plain"], ["x-two", "1"], ["x-two", "2"]],
		body: new Blob(["to", " and ", "fro"]).stream().getReader(),
		respond(status, headers, body) { this.answer = [status, JSON.stringify(headers), new TextDecoder().decode(body)]; },
	}`)
	err := Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if q.Context() != t.Context() {
			t.Error("the request has another context")
		}
		if err != nil || q.Method != "POST" || q.URL.Path != "/a/b" || q.FormValue("c") != "d" || q.Host != "edge.example" || len(q.Header.Values("X-Two")) != 2 {
			t.Errorf("%v %+v", err, q)
		}
		w.Header().Add("Vary", "a")
		w.Header().Add("Vary", "b")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK) // too late
		_, _ = w.Write(bytes.ToUpper(body))
	}))
	if err != nil {
		t.Fatal(err)
	}
	answer := call.Get("answer")
	if status, headers, body := answer.Index(0).Int(), answer.Index(1).String(), answer.Index(2).String(); status != http.StatusTeapot || headers != `[["Vary","a"],["Vary","b"]]` || body != "TO AND FRO" {
		t.Errorf("answered %d %s %q", status, headers, body)
	}
}

// Without a call of its own a program serves nothing: it has that of nobody else.
func TestServeAlone(t *testing.T) {
	begin(t, `{ method: "GET", url: "https://edge.example/", headers: [], respond() {} }`)
	os.Args = []string{"worker", "8"}
	for _, args := range [][]string{{"worker", "8"}, {"worker"}} {
		if os.Args = args; Serve(t.Context(), http.NotFoundHandler()) == nil {
			t.Errorf("%q: Serve = nil, want an error", args)
		}
	}
}
