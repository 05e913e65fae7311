// Requests of one stream: those that touch one key in their order, others at once, and the
// answers in the order of the requests.

package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
)

// Request is one as it was read.
type Request[Q any] struct {
	Value Q
	Bytes int   // in memory
	Err   error // in place of Value: it could not be read
}

// Pipeline serves streams of requests Q with answers A, of which those that touch one K
// are carried out one behind the other. Its fields are not changed while it serves.
type Pipeline[Q, A any, K comparable] struct {
	// Window and Bytes bound what is not answered of one stream, and All what is not done
	// of every stream; what comes behind is not read yet. One request that is larger than
	// Bytes goes alone.
	Window, Bytes int
	All           *Room
	// Keys are those that a request touches, none for one that has no order.
	Keys func(*Q) []K
	// Do carries a request out, in the context of the stream. What is not to be broken off
	// when that ends Do has to do in another one.
	Do func(context.Context, Q) (A, error)
	// Still is asked with the stream's context before a request is begun: its error is the
	// request's.
	Still func(context.Context) error
	// Draining has streams begin nothing more when it is closed.
	Draining <-chan struct{}
}

// ErrCutShort: requests may be left that were not read.
var ErrCutShort = errors.New("streaming: no more requests are read")

// underway is one request that is.
type underway[Q, A any] struct {
	index int64
	Request[Q]
	done   chan struct{} // closed when answer or Err is set
	answer A
}

// run is one stream that is served.
type run[Q, A any, K comparable] struct {
	*Pipeline[Q, A, K]
	window *window

	mu   sync.Mutex
	last map[K]*underway[Q, A] // the last request that touches a key

	failed atomic.Int64 // index of the first request that failed
	wg     sync.WaitGroup
}

// Serve carries out what receive returns until it answers io.EOF, and sends the answers in
// their order. The first error ends it when all before it are answered: what was read
// behind it is not begun, unless it was already. What was begun is waited for. It is
// ErrCutShort that ends it where ctx ends, or Draining. receive must return when x is told
// to stop reading.
func (p *Pipeline[Q, A, K]) Serve(ctx context.Context, x *Exchange, receive func() (Request[Q], error), send func(A) error) error {
	r := &run[Q, A, K]{Pipeline: p, window: newWindow(p.Window, p.Bytes, p.All), last: map[K]*underway[Q, A]{}}
	r.failed.Store(math.MaxInt64)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan *underway[Q, A], p.Window)
	var last error // of receive; nil at the end of the requests
	r.wg.Go(func() {
		defer close(queue)
		last = r.receive(stop, ctx, receive, queue)
	})
	r.wg.Go(func() { // has receive return
		select {
		case <-stop.Done():
		case <-p.Draining:
			cancel()
		}
		x.StopReading()
	})
	err := r.answerAll(queue, send)
	cancel()
	for range queue { // read behind the error
	}
	r.wg.Wait()
	if err != nil {
		return err
	}
	return last
}

// receive reads requests into the queue, as many as the window has room for, and returns
// nil at their end.
func (r *run[Q, A, K]) receive(stop, ctx context.Context, receive func() (Request[Q], error), queue chan<- *underway[Q, A]) error {
	for index := int64(0); ; index++ {
		if r.window.room(stop) != nil {
			return ErrCutShort
		}
		q, err := receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case stop.Err() != nil:
			return ErrCutShort // what was read is not begun
		case err != nil:
			return err
		}
		if q.Err == nil {
			q.Err = r.Still(ctx)
		}
		if r.window.take(stop, q.Bytes) != nil {
			return ErrCutShort
		}
		u := &underway[Q, A]{index: index, Request: q, done: make(chan struct{})}
		r.begin(ctx, u)
		queue <- u // has room for the whole window
	}
}

// begin has a request carried out behind those before it that touch its keys.
func (r *run[Q, A, K]) begin(ctx context.Context, u *underway[Q, A]) {
	if u.Err != nil {
		r.fail(u.index)
		r.window.done(u.Bytes)
		close(u.done)
		return
	}
	keys := r.Keys(&u.Value)
	before := r.follow(u, keys)
	r.wg.Go(func() {
		defer close(u.done)
		defer r.window.done(u.Bytes)
		for _, b := range before {
			<-b.done
		}
		r.carryOut(ctx, u)
		r.forget(u, keys)
	})
}

// follow makes u the last one of its keys and returns those that were.
func (r *run[Q, A, K]) follow(u *underway[Q, A], keys []K) (before []*underway[Q, A]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		if b := r.last[k]; b != nil && b != u {
			before = append(before, b)
		}
		r.last[k] = u
	}
	return before
}

func (r *run[Q, A, K]) forget(u *underway[Q, A], keys []K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		if r.last[k] == u {
			delete(r.last, k)
		}
	}
}

func (r *run[Q, A, K]) carryOut(ctx context.Context, u *underway[Q, A]) {
	if u.index > r.failed.Load() || ctx.Err() != nil {
		u.Err = ErrCutShort // nobody will be answered
		return
	}
	if u.answer, u.Err = r.do(ctx, u.Value); u.Err != nil {
		r.fail(u.index)
	}
	u.Value = *new(Q) // its payload is no longer wanted
}

// do contains a panic: nobody else's requests end with it. It is no outcome.
func (r *run[Q, A, K]) do(ctx context.Context, q Q) (a A, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("streaming: a request panicked: %T", p) // its text may hold what was sent
		}
	}()
	return r.Do(ctx, q)
}

// fail notes that a request has failed: none behind it is begun from now on.
func (r *run[Q, A, K]) fail(index int64) {
	for old := r.failed.Load(); index < old && !r.failed.CompareAndSwap(old, index); old = r.failed.Load() {
	}
}

// answerAll answers what is in the queue in its order, until the first error, which it
// returns.
func (r *run[Q, A, K]) answerAll(queue <-chan *underway[Q, A], send func(A) error) error {
	for u := range queue {
		<-u.done
		if u.Err == nil {
			u.Err = send(u.answer)
		}
		r.window.give(u.Bytes)
		if u.Err != nil {
			r.fail(u.index)
			return u.Err
		}
	}
	return nil
}
