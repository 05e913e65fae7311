// Sending with an eye on the clock: who does not read is ended, and holds nobody up.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// controllerKey is where a call's context has its http.ResponseController.
type controllerKey struct{}

// streamable gives the calls of a handler what it takes to end a stream that is stuck.
func streamable(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 && strings.HasSuffix(r.URL.Path, wattlev1.LogServiceProduceProcedure) {
			w.Header().Set("Connection", "close") // the request does not end before its answer
			_ = refuse.Write(w, r, AsConnect(&eventstore.Error{Kind: errors.ErrUnsupported, Op: "produce", Wanted: "HTTP/2, for messages both ways at once",
				Found: r.Proto, Hint: "append one call at a time, or see to HTTP/2 from one end to the other"})) // who cannot be told has gone
			return
		}
		c := &controller{rc: http.NewResponseController(w)}
		defer c.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controllerKey{}, c)))
	})
}

// controller sets the deadlines of one exchange, and not after its end.
type controller struct {
	rc *http.ResponseController

	mu    sync.Mutex
	used  bool
	ended bool
}

// controllerOf returns the controller of a call; without one nothing is ever reset.
func controllerOf(ctx context.Context) *controller {
	c, _ := ctx.Value(controllerKey{}).(*controller)
	return c
}

// unbounded lets the exchange last: it is not one request and one answer.
func (c *controller) unbounded() {
	c.do(func() error {
		return errors.Join(c.rc.SetReadDeadline(time.Time{}), c.rc.SetWriteDeadline(time.Time{}))
	})
}

// writeBy sets when what is written must have gone out.
func (c *controller) writeBy(t time.Time) {
	c.do(func() error { c.used = true; return c.rc.SetWriteDeadline(t) })
}

// stopReading has the reading of the request fail.
func (c *controller) stopReading() {
	c.do(func() error { return c.rc.SetReadDeadline(time.Now()) })
}

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
	s    *streams
	op   string
	c    *controller
	last time.Time // when the last message went out
}

func (s *streams) sender(ctx context.Context, op string) *sender {
	x := &sender{s: s, op: op, c: controllerOf(ctx)}
	x.c.unbounded()
	return x
}

// send sends one message if the stream may go on.
func (x *sender) send(ctx context.Context, do func() error) error {
	if err := x.s.ending(ctx, x.op); err != nil {
		return err
	}
	if err := x.s.o.Still(ctx); err != nil {
		return err
	}
	return x.put(do)
}

// put sends one message. It answers ErrSlowConsumer if that took too long, and does not
// return later than StuckAfter beyond that, if the exchange can be reset.
func (x *sender) put(do func() error) error {
	began := time.Now()
	t := time.AfterFunc(x.s.o.SlowAfter+x.s.o.StuckAfter, func() { x.c.writeBy(time.Now()) })
	err := do()
	t.Stop()
	x.last = time.Now()
	if took := x.last.Sub(began); took > x.s.o.SlowAfter {
		return &eventstore.Error{Kind: ErrSlowConsumer, Op: x.op, Wanted: fmt.Sprintf("a message to be read within %v", x.s.o.SlowAfter),
			Found: fmt.Sprintf("%v", took.Round(time.Millisecond)), Hint: "go on from the last message", Err: err}
	}
	return err
}

// close bounds how long the end of the stream may take to be read.
func (x *sender) close() { x.c.writeBy(time.Now().Add(x.s.o.StuckAfter)) }

// isKind says if err is of a kind of eventstore's or of this package's.
func isKind(err error, kind error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && errors.Is(e.Kind, kind)
}
