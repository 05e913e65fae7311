// Produce at the server: requests on one log stream in their order, others at once, and
// the answers in the order of the requests.

package remotelog

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"github.com/wattle-es/wattle/eventstore"
)

// produceRequest is one request as it was read.
type produceRequest struct {
	append eventstore.Append
	bytes  int   // of the message
	err    error // in place of append: it could not be read
}

// produced is one request that is under way.
type produced struct {
	index  int64
	bytes  int
	append eventstore.Append
	done   chan struct{} // closed when what follows is set
	answer eventstore.Appended
	err    error
}

// producer is one Produce that is served.
type producer struct {
	*streams
	window *produceWindow

	mu   sync.Mutex
	last map[eventstore.Stream]*produced // the last request that touches a stream

	failed atomic.Int64 // index of the first request that failed
	wg     sync.WaitGroup
}

// produce carries out what receive returns until it answers io.EOF, and gives the answers
// to send in their order. The first error ends it when all before it are answered: what
// was read behind it is not begun, unless it was already. What was begun is carried out
// whatever becomes of ctx, within AppendTimeout.
func (s *streams) produce(ctx context.Context, receive func() (produceRequest, error), send func(eventstore.Appended) error) error {
	const op = "produce"
	leave, err := s.enter(op)
	if err != nil {
		return err
	}
	defer leave()
	out := s.sender(ctx, op)
	defer out.close()
	p := &producer{streams: s, window: newProduceWindow(s.o.ProduceWindow, s.o.ProduceBytes), last: map[eventstore.Stream]*produced{}}
	p.failed.Store(math.MaxInt64)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan *produced, s.o.ProduceWindow)
	var last error // of receive; nil at the end of the requests
	p.wg.Go(func() {
		defer close(queue)
		last = p.receive(stop, ctx, receive, queue)
	})
	p.wg.Go(func() { // has receive return
		select {
		case <-stop.Done():
		case <-s.draining:
			cancel()
		}
		out.c.stopReading()
	})
	err = p.answerAll(queue, func(a eventstore.Appended) error { return out.put(func() error { return send(a) }) })
	cancel()
	for range queue { // read behind the error
	}
	p.wg.Wait()
	switch {
	case err != nil:
		return inStream(op, err)
	case errors.Is(last, errCutShort):
		return s.ending(ctx, op)
	}
	return last
}

// errCutShort: requests may be left that were not read.
var errCutShort = errors.New("remotelog: no more requests are read")

// receive reads requests into the queue, as many as the window has room for, and returns
// nil at their end.
func (p *producer) receive(stop, ctx context.Context, receive func() (produceRequest, error), queue chan<- *produced) error {
	for index := int64(0); ; index++ {
		if p.window.room(stop) != nil {
			return errCutShort
		}
		r, err := receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case stop.Err() != nil:
			return errCutShort // what was read is not begun
		case err != nil:
			return err
		}
		if r.err == nil {
			r.err = p.o.Still(ctx)
		}
		if p.window.take(stop, r.bytes) != nil {
			return errCutShort
		}
		x := &produced{index: index, bytes: r.bytes, append: r.append, err: r.err, done: make(chan struct{})}
		p.begin(ctx, x)
		queue <- x // has room for the whole window
	}
}

// begin has a request carried out behind those before it that touch its streams.
func (p *producer) begin(ctx context.Context, x *produced) {
	if x.err != nil {
		p.fail(x.index)
		close(x.done)
		return
	}
	var before []*produced
	names := touched(&x.append)
	p.mu.Lock()
	for _, s := range names {
		if y := p.last[s]; y != nil && y != x {
			before = append(before, y)
		}
		p.last[s] = x
	}
	p.mu.Unlock()
	p.wg.Go(func() {
		defer close(x.done)
		for _, y := range before {
			<-y.done
		}
		p.carryOut(ctx, x)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range names {
			if p.last[s] == x {
				delete(p.last, s)
			}
		}
	})
}

func touched(a *eventstore.Append) []eventstore.Stream {
	names := make([]eventstore.Stream, 0, len(a.Batches)+len(a.Guards))
	for i := range a.Batches {
		names = append(names, a.Batches[i].Stream)
	}
	for i := range a.Guards {
		names = append(names, a.Guards[i].Stream)
	}
	return names
}

func (p *producer) carryOut(ctx context.Context, x *produced) {
	if x.index > p.failed.Load() {
		return // nobody will be answered
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.AppendTimeout)
	defer cancel()
	if x.answer, x.err = p.store.Append(ctx, x.append); x.err != nil {
		p.fail(x.index)
	}
	x.append = eventstore.Append{} // its payload is no longer wanted
}

// fail notes that a request has failed: none behind it is begun from now on.
func (p *producer) fail(index int64) {
	for old := p.failed.Load(); index < old && !p.failed.CompareAndSwap(old, index); old = p.failed.Load() {
	}
}

// answerAll answers what is in the queue in its order, until the first error, which it
// returns.
func (p *producer) answerAll(queue <-chan *produced, send func(eventstore.Appended) error) error {
	for x := range queue {
		<-x.done
		if x.err == nil {
			x.err = send(x.answer)
		}
		p.window.give(x.bytes)
		if x.err != nil {
			p.fail(x.index)
			return x.err
		}
	}
	return nil
}

// produceWindow bounds what is under way. One goroutine takes, another gives.
type produceWindow struct {
	most, mostBytes int

	mu           sync.Mutex
	count, bytes int
	changed      chan struct{} // holds one: something was given back
}

func newProduceWindow(most, bytes int) *produceWindow {
	return &produceWindow{most: most, mostBytes: bytes, changed: make(chan struct{}, 1)}
}

// room waits until one more may be read.
func (w *produceWindow) room(ctx context.Context) error {
	return w.until(ctx, func() bool { return w.count < w.most && w.bytes < w.mostBytes })
}

// take waits until one of that size fits, or is alone.
func (w *produceWindow) take(ctx context.Context, bytes int) error {
	return w.until(ctx, func() bool {
		if w.count > 0 && (w.count >= w.most || w.bytes+bytes > w.mostBytes) {
			return false
		}
		w.count, w.bytes = w.count+1, w.bytes+bytes
		return true
	})
}

func (w *produceWindow) until(ctx context.Context, ok func() bool) error {
	for {
		w.mu.Lock()
		fits := ok()
		w.mu.Unlock()
		if fits {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
		}
	}
}

func (w *produceWindow) give(bytes int) {
	w.mu.Lock()
	w.count, w.bytes = w.count-1, w.bytes-bytes
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
