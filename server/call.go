// A call on its way: its body and its answer, bounded.

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
)

// call is what the layers know of a request.
type call struct {
	proc    *procedure
	caller  *caller
	account account
	control *http.ResponseController
	began   time.Time
	reached bool  // the interceptor was
	read    int64 // bytes of the message that is being received
	code    atomic.Pointer[string]
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// end notes what the call came to, for the log.
func (c *call) end(err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	c.code.Store(&code)
}

// body counts what is read of a request, and bounds for how long.
type body struct {
	io.ReadCloser
	s     *Server
	c     *call
	w     *writer
	http1 bool
	begun bool
	most  int64 // bytes of a message, with its envelope
	ahead int64 // counted already: what the request announced
}

// Read is called by one goroutine at a time. The time for reading runs since the request
// came, to its end; where the client sends message after message, to the first byte.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.c.read += int64(n)
	if errors.Is(err, io.EOF) || b.c.proc.pours && n > 0 && !b.begun {
		_ = b.c.control.SetReadDeadline(time.Time{})
	}
	b.begun = b.begun || n > 0
	if err != nil && !errors.Is(err, io.EOF) {
		return n, b.failed(err)
	}
	if b.c.read > b.most {
		return 0, b.failed(tooLarge(fmt.Sprintf("a request of at most %d bytes", b.s.limits.MessageBytes), "more"))
	}
	fresh := int64(n) - min(int64(n), b.ahead)
	b.ahead -= int64(n) - fresh
	if fresh > 0 && !b.c.account.take(fresh) {
		b.s.metrics.overloaded()
		return 0, b.failed(b.s.budget.full())
	}
	return n, err
}

// failed takes care that what is left of a body is not taken for another request.
func (b *body) failed(err error) error {
	if b.http1 && b.w.status == 0 {
		b.w.Header().Set("Connection", "close")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return late()
	}
	return err
}

// writer is a response whose writes end: who has not read for so long is cut off.
type writer struct {
	http.ResponseWriter
	timeout time.Duration
	timer   *time.Timer
	status  int
	bytes   int64
}

func newWriter(w http.ResponseWriter, timeout time.Duration) *writer {
	control := http.NewResponseController(w)
	out := &writer{ResponseWriter: w, timeout: timeout}
	out.timer = time.AfterFunc(time.Hour, func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
	out.timer.Stop()
	return out
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.timer.Reset(w.timeout)
	defer w.timer.Stop()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Flush sends what was written.
func (w *writer) Flush() {
	w.timer.Reset(w.timeout)
	defer w.timer.Stop()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
