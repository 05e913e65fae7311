// Package streaming is the serving side of message streams, for every service that has
// some: who does not read is ended and holds nobody up, what is under way is bounded, and
// requests of one stream are carried out side by side where their order allows.
package streaming

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Exchange sets the deadlines of one HTTP request and its answer, and not after their
// end. A nil Exchange does nothing: then nothing is ever reset. It is safe for concurrent
// use.
type Exchange struct {
	rc *http.ResponseController

	mu    sync.Mutex
	used  bool
	ended bool
}

type exchangeKey struct{}

// Handler gives the calls of a handler an Exchange, see [Of].
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &Exchange{rc: http.NewResponseController(w)}
		defer x.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	})
}

// Of returns the Exchange of a call; nil where there is none.
func Of(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}

// Unbounded lets the exchange last: it is not one request and one answer.
func (x *Exchange) Unbounded() {
	x.do(func() error {
		return errors.Join(x.rc.SetReadDeadline(time.Time{}), x.rc.SetWriteDeadline(time.Time{}))
	})
}

// WriteBy sets when what is written must have gone out.
func (x *Exchange) WriteBy(t time.Time) {
	x.do(func() error { x.used = true; return x.rc.SetWriteDeadline(t) })
}

// StopReading has the reading of the request fail.
func (x *Exchange) StopReading() {
	x.do(func() error { return x.rc.SetReadDeadline(time.Now()) })
}

func (x *Exchange) do(f func() error) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		_ = f() // an exchange that has no deadlines is one that cannot be stuck
	}
}

// end lets the next exchange on an HTTP/1.1 connection have its own deadlines.
func (x *Exchange) end() {
	x.do(func() error {
		if x.ended = true; x.used {
			return x.rc.SetWriteDeadline(time.Time{})
		}
		return nil
	})
}
