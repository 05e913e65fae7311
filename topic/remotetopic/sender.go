// Sending with an eye on the clock: who does not read is ended, and holds nobody up.

package remotetopic

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

// controllerKey is where a call's context has its controller.
type controllerKey struct{}

// streamable gives the calls of a handler what it takes to end a stream that is stuck.
func streamable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &controller{rc: http.NewResponseController(w)}
		defer c.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{}, c)))
	})
}

// controller sets the deadlines of one exchange, and not after its end. Without one, nil,
// nothing is ever reset.
type controller struct {
	rc *http.ResponseController

	mu    sync.Mutex
	used  bool
	ended bool
}

func controllerOf(ctx context.Context) *controller {
	c, _ := ctx.Value(controllerKey{}).(*controller)
	return c
}

// writeBy sets when what is written must have gone out.
func (c *controller) writeBy(t time.Time) {
	c.do(func() error { c.used = true; return c.rc.SetWriteDeadline(t) })
}

// stopReading has the reading of the request fail.
func (c *controller) stopReading() { c.do(func() error { return c.rc.SetReadDeadline(time.Now()) }) }

func (c *controller) do(f func() error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		_ = f() // an exchange that has no deadlines is one that cannot be stuck
	}
}

// end lets the next exchange on an HTTP/1.1 connection have its own deadlines.
func (c *controller) end() {
	c.do(func() error {
		if c.ended = true; c.used {
			return c.rc.SetWriteDeadline(time.Time{})
		}
		return nil
	})
}

// sender sends the messages of one stream.
type sender struct {
	o  *ServiceOptions
	op string
	c  *controller
}

// put sends one message. It answers ErrSlowConsumer if that took too long, and does not
// return later than StuckAfter beyond that, if the exchange can be reset.
func (x *sender) put(do func() error) error {
	began := time.Now()
	t := time.AfterFunc(x.o.SlowAfter+x.o.StuckAfter, func() { x.c.writeBy(time.Now()) })
	err := do()
	t.Stop()
	if took := time.Since(began); took > x.o.SlowAfter {
		return &eventstore.Error{Kind: remotelog.ErrSlowConsumer, Op: x.op, Wanted: fmt.Sprintf("a message to be read within %v", x.o.SlowAfter),
			Found: fmt.Sprintf("%v", took.Round(time.Millisecond)), Hint: "go on from the last message", Err: err}
	}
	return err
}

// close bounds how long the end of the stream may take to be read.
func (x *sender) close() { x.c.writeBy(time.Now().Add(x.o.StuckAfter)) }
