// PublishStream at the server: publications of one key in their order, others at once, and
// the answers in the order of the requests.

package remotetopic

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/topic"
)

// PublishStream implements the service. One publication of a key is under way at a time:
// the next one begins when the answer to it is known, so that what is sent again, after
// whatever fault, is never behind what follows it. The first error ends the stream, when
// all before it is answered; what was read behind it was not begun unless it has another key.
func (s *Service) PublishStream(ctx context.Context, stream *connect.BidiStream[wattlev1.PublishStreamRequest, wattlev1.PublishStreamResponse]) error {
	const op = "publish"
	leave, err := s.enter(op)
	if err != nil {
		return s.fail(ctx, op, "", err)
	}
	defer leave()
	receive := func() (x *request, err error) {
		m, err := stream.Receive()
		if err != nil {
			return nil, err
		}
		x = &request{bytes: proto.Size(m), done: make(chan struct{})}
		x.publication, x.err = read(m.GetPublish(), (*reader).publication)
		return x, nil
	}
	send := func(p topic.Published) error {
		return stream.Send(&wattlev1.PublishStreamResponse{Published: fromPublished(p)})
	}
	return s.fail(ctx, op, "", s.publishStream(ctx, receive, send))
}

// request is one publication of a stream.
type request struct {
	index       int64
	bytes       int
	publication topic.Publication
	done        chan struct{} // closed when what follows is set
	answer      topic.Published
	err         error
}

// streamKey is what has an order.
type streamKey struct {
	topic eventstore.Category
	key   string
}

// publisher is one PublishStream that is served.
type publisher struct {
	*Service
	window *window

	mu   sync.Mutex
	last map[streamKey]*request // the last request of a key

	failed atomic.Int64 // index of the first request that failed
	wg     sync.WaitGroup
}

// errCutShort: requests may be left that were not read.
var errCutShort = errors.New("remotetopic: no more requests are read")

// publishStream carries out what receive returns until it answers io.EOF, and gives the
// answers to send in their order. What was begun is carried out whatever becomes of ctx.
func (s *Service) publishStream(ctx context.Context, receive func() (*request, error), send func(topic.Published) error) error {
	out := &sender{o: &s.o, op: "publish", c: controllerOf(ctx)}
	defer out.close()
	p := &publisher{Service: s, window: newWindow(s.o.Window, s.o.WindowBytes), last: map[streamKey]*request{}}
	p.failed.Store(math.MaxInt64)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan *request, s.o.Window)
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
	err := p.answerAll(queue, func(a topic.Published) error { return out.put(func() error { return send(a) }) })
	cancel()
	for range queue { // read behind the error
	}
	p.wg.Wait()
	if err == nil {
		err = last
	}
	switch {
	case !errors.Is(err, errCutShort):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return goingAway("publish")
}

// receive reads requests into the queue, as many as the window has room for, and returns
// nil at their end.
func (p *publisher) receive(stop, ctx context.Context, receive func() (*request, error), queue chan<- *request) error {
	for index := int64(0); ; index++ {
		if p.window.room(stop) != nil {
			return errCutShort
		}
		x, err := receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case stop.Err() != nil:
			return errCutShort // what was read is not begun
		case err != nil:
			return err
		}
		if x.index = index; x.err == nil {
			x.err = p.o.Still(ctx)
		}
		if p.window.take(stop, x.bytes) != nil {
			return errCutShort
		}
		p.begin(ctx, x)
		queue <- x // has room for the whole window
	}
}

// begin has a request carried out behind the one before it that has its key.
func (p *publisher) begin(ctx context.Context, x *request) {
	if x.err != nil {
		p.fail(x.index)
		close(x.done)
		return
	}
	key := streamKey{x.publication.Topic, x.publication.Key}
	var before *request
	if key.key != "" {
		p.mu.Lock()
		before, p.last[key] = p.last[key], x
		p.mu.Unlock()
	}
	p.wg.Go(func() {
		defer close(x.done)
		if before != nil {
			<-before.done
		}
		p.carryOut(ctx, x)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.last[key] == x {
			delete(p.last, key)
		}
	})
}

func (p *publisher) carryOut(ctx context.Context, x *request) {
	if x.index > p.failed.Load() || ctx.Err() != nil {
		x.err = errCutShort // nobody will be answered
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.PublishTimeout)
	defer cancel()
	if x.answer, _, x.err = p.publish(ctx, x.publication, false); x.err != nil {
		p.fail(x.index)
	}
	x.publication = topic.Publication{} // its payload is no longer wanted
}

// fail notes that a request has failed: none behind it is begun from now on.
func (p *publisher) fail(index int64) {
	for old := p.failed.Load(); index < old && !p.failed.CompareAndSwap(old, index); old = p.failed.Load() {
	}
}

// answerAll answers what is in the queue in its order, until the first error, which it
// returns.
func (p *publisher) answerAll(queue <-chan *request, send func(topic.Published) error) error {
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
