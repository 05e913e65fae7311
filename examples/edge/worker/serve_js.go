// Serve: the one request that this program was started for.

package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall/js"
)

// Serve answers the request that this program was started for, and returns when the
// answer is on its way. What the program still does before it ends goes on beside that.
// The request's context is ctx.
func Serve(ctx context.Context, h http.Handler) error {
	call, err := current()
	if err != nil {
		return err
	}
	q, err := request(ctx, call)
	if err != nil {
		return err
	}
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, q)
	w.respond(call)
	return nil
}

// current is what worker.mjs says of the request.
func current() (js.Value, error) {
	if len(os.Args) != 2 {
		return js.Value{}, fmt.Errorf("worker: wanted the number of a call as the only argument, found %q; run it with worker.mjs", os.Args)
	}
	call := js.Global().Get("wattleCalls").Call("get", os.Args[1])
	if call.IsUndefined() {
		return js.Value{}, fmt.Errorf("worker: there is no call %s; run it with worker.mjs", os.Args[1])
	}
	return call, nil
}

func request(ctx context.Context, call js.Value) (*http.Request, error) {
	var body io.Reader
	if reader := call.Get("body"); reader.Truthy() {
		body = &stream{reader: reader}
	}
	q, err := http.NewRequestWithContext(ctx, call.Get("method").String(), call.Get("url").String(), body)
	if err != nil {
		return nil, err
	}
	headers := call.Get("headers")
	for i := range headers.Length() {
		q.Header.Add(headers.Index(i).Index(0).String(), headers.Index(i).Index(1).String())
	}
	q.Host, q.RequestURI = q.URL.Host, q.URL.RequestURI()
	q.ContentLength = -1 // a stream's end says how long it was
	if body == nil {
		q.Body, q.ContentLength = http.NoBody, 0
	}
	return q, nil
}

// recorder is an http.ResponseWriter that keeps the answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // informational ones have no place here
		w.status = status
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *recorder) respond(call js.Value) {
	w.WriteHeader(http.StatusOK)
	headers := js.Global().Get("Array").New()
	for name, values := range w.header {
		for _, v := range values {
			headers.Call("push", js.ValueOf([]any{name, v}))
		}
	}
	body := js.Null()
	if w.body.Len() > 0 {
		body = toJS(w.body.Bytes())
	}
	call.Call("respond", w.status, headers, body)
}

func toJS(p []byte) js.Value {
	a := js.Global().Get("Uint8Array").New(len(p))
	js.CopyBytesToJS(a, p)
	return a
}

// settled is what became of a promise.
type settled struct {
	value js.Value
	err   error
}

// await tells on a channel, once, what becomes of a promise.
func await(promise js.Value) <-chan settled {
	done := make(chan settled, 1)
	var resolved, rejected js.Func
	release := func() { resolved.Release(); rejected.Release() }
	resolved = js.FuncOf(func(_ js.Value, args []js.Value) any {
		defer release()
		done <- settled{value: args[0]}
		return nil
	})
	rejected = js.FuncOf(func(_ js.Value, args []js.Value) any {
		defer release()
		done <- settled{err: errors.New(js.Global().Get("String").Invoke(args[0]).String())}
		return nil
	})
	promise.Call("then", resolved, rejected)
	return done
}

// stream reads a ReadableStream to its end, by one goroutine.
type stream struct {
	reader js.Value
	rest   []byte
	err    error
}

// Read waits for the next chunk.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil {
		s.rest, s.err = chunk(<-await(s.reader.Call("read")))
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// chunk is what a reader has read: io.EOF at the end.
func chunk(s settled) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.value.Get("done").Bool() {
		return nil, io.EOF
	}
	value := s.value.Get("value")
	p := make([]byte, value.Get("byteLength").Int())
	js.CopyBytesToGo(p, value)
	return p, nil
}
