// Publisher: publications sent one behind the other, each with its own answer, over
// streams that are taken up again.

package remotetopic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// Publisher publishes over one stream of messages: a publication need not wait for the
// answer to the one before it. Those of one key are written in the order in which Publish
// was called; servers carry out one of a key at a time, so who has few keys puts many
// events into a publication.
//
// When the stream is lost, or its server ends, what was not answered is sent again over
// the next one, in its order and under its IDs, before anything new: every publication is
// written once. It wants HTTP/2 from one end to the other.
//
// All methods may be called from several goroutines at once.
type Publisher struct {
	c    *Client
	ctx  context.Context
	done chan struct{} // closed when it has ended

	mu       sync.Mutex
	changed  sync.Cond  // any of what follows
	waiting  []*sending // without an answer, oldest first
	sent     int        // of these, over the stream there is now
	bytes    int        // of these
	over     bool       // the stream there is now has ended
	closing  bool       // nothing more is to come
	ended    bool
	watchdog *time.Timer // of the stream; nil: there is none
}

// sending is one publication that is not answered.
type sending struct {
	request *wattlev1.PublishStreamRequest
	bytes   int
	tries   resend
	done    chan struct{} // closed when what follows is set
	answer  topic.Published
	err     error
}

// Publisher returns one that goes on until it is closed or ctx ends: what is then without
// an answer is ErrUnknown, or ErrUnavailable if it was not sent.
func (c *Client) Publisher(ctx context.Context) (*Publisher, error) {
	if err := c.enter("publish", ""); err != nil {
		return nil, err
	}
	ctx, cancel := c.within(ctx)
	p := &Publisher{c: c, ctx: ctx, done: make(chan struct{})}
	p.changed.L = &p.mu
	wake := context.AfterFunc(ctx, p.wake)
	go func() {
		defer close(p.done)
		defer c.calls.Done()
		defer cancel()
		defer wake()
		p.run()
	}()
	return p, nil
}

func (p *Publisher) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

// Publish sends a publication, under a new ID if it has none, and returns a function that
// waits for the outcome, which is as that of Client.Publish; it may be called any number
// of times, or never. Publish itself waits while as much as the window holds is
// unanswered: if ctx ends before there is room nothing is sent and the error is the
// context's; the context of wait bounds the waiting only.
func (p *Publisher) Publish(ctx context.Context, q topic.Publication) (wait func(context.Context) (topic.Published, error)) {
	if q.ID.IsZero() {
		q.ID = eventstore.NewUUID()
	}
	x, err := newSending(q)
	if err == nil {
		err = p.enqueue(ctx, x)
	}
	if err != nil {
		return func(context.Context) (topic.Published, error) { return topic.Published{}, err }
	}
	return func(ctx context.Context) (topic.Published, error) {
		select {
		case <-x.done:
			return x.answer, x.err
		default:
		}
		select {
		case <-x.done:
			return x.answer, x.err
		case <-ctx.Done():
			return topic.Published{}, ctx.Err()
		}
	}
}

func newSending(q topic.Publication) (*sending, error) {
	x := &sending{done: make(chan struct{}), tries: resend{op: "publish", id: q.ID.String(), topic: q.Topic}}
	m := &wattlev1.PublishStreamRequest{Publish: fromPublication(q)}
	if x.bytes = proto.Size(m); x.bytes > wire.MaxRequestBytes {
		return nil, &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: "publish", Category: q.Topic, Wanted: fmt.Sprintf("a request of at most %d bytes", wire.MaxRequestBytes),
			Found: fmt.Sprintf("%d bytes", x.bytes), Hint: "nothing was sent; publish it in parts"}
	}
	x.request = proto.CloneOf(m) // the payload stays the caller's
	return x, nil
}

// enqueue waits for room.
func (p *Publisher) enqueue(ctx context.Context, x *sending) error {
	defer context.AfterFunc(ctx, p.wake)()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.ended || p.closing:
			return &eventstore.Error{Kind: eventstore.ErrClosed, Op: "publish", Category: x.tries.topic, Wanted: "a publisher that goes on",
				Found: "one that has ended", Hint: "nothing was sent"}
		case ctx.Err() != nil:
			return ctx.Err()
		case len(p.waiting) == 0 || len(p.waiting) < p.c.o.Window && p.bytes+x.bytes <= p.c.o.WindowBytes:
			p.waiting, p.bytes = append(p.waiting, x), p.bytes+x.bytes
			if len(p.waiting) == 1 {
				p.watch()
			}
			p.changed.Broadcast()
			return nil
		}
		p.changed.Wait()
	}
}

// Close waits for the answers to all publications. Later ones are ErrClosed.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closing = true
	p.watch()
	p.changed.Broadcast()
	p.mu.Unlock()
	<-p.done
	return nil
}

// run makes one stream after the other while there is something to send.
func (p *Publisher) run() {
	var pause pause
	c := p.c
	var why error
	for server := c.current.Load(); p.work(); server++ {
		i := server % int64(len(c.servers))
		answered, err := p.once(c.servers[i])
		if why = err; answered {
			c.current.CompareAndSwap(server, i)
			pause.reset()
		}
		p.settle(err)
		if err == nil && answered {
			continue
		}
		if !sleep(p.ctx, pause.next()) {
			break
		}
	}
	p.end(why)
}

// work waits until there is something to send, or says that there will not be.
func (p *Publisher) work() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) == 0 && !p.closing && p.ctx.Err() == nil {
		p.changed.Wait()
	}
	return len(p.waiting) > 0 && p.ctx.Err() == nil
}

// once sends what waits, and gives the answers out, over one stream until that ends.
func (p *Publisher) once(t *target) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	call := ctx
	if t.suspect.Swap(false) {
		call = onlyOnce(ctx)
	}
	conn, err := t.service.PublishStream(call)
	if err != nil {
		return false, t.ended(ctx, wire.Act{Op: "publish", Writes: true}, err)
	}
	// A stream that is cancelled is read on for as long as its request is open.
	defer context.AfterFunc(ctx, p.begin(cancel))()
	var sender sync.WaitGroup
	sender.Go(func() { p.send(conn, cancel) })
	answered, err = p.receive(ctx, t, conn)
	p.finish()
	cancel(nil)
	sender.Wait()
	_ = conn.CloseResponse()
	return answered, err
}

// publishConn is a PublishStream as connect has it.
type publishConn = connect.BidiStreamForClientSimple[wattlev1.PublishStreamRequest, wattlev1.PublishStreamResponse]

// receive gives the answers out until there are no more; nil if nobody said why.
func (p *Publisher) receive(ctx context.Context, t *target, conn *publishConn) (answered bool, err error) {
	a := wire.Act{Op: "publish", Writes: true}
	for ; ; answered = true {
		m, err := conn.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return answered, nil
		case err != nil:
			return answered, t.ended(ctx, a, err)
		}
		if err := p.answer(m); err != nil {
			return answered, t.caller.Misfit(a, err)
		}
	}
}

// begin is a new stream: nothing was sent over it. With cut nothing more is.
func (p *Publisher) begin(cancel context.CancelCauseFunc) (cut func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent, p.over = 0, false
	watchdog := time.AfterFunc(p.c.o.TryTimeout, func() { cancel(errSilent) })
	p.watchdog = watchdog
	p.watch()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watchdog == watchdog {
			p.over = true
			p.changed.Broadcast()
		}
	}
}

// watch sets the watchdog on the oldest that waits, or on the end of the stream.
func (p *Publisher) watch() {
	switch {
	case p.watchdog == nil:
	case len(p.waiting) == 0 && !p.closing:
		p.watchdog.Stop()
	default:
		p.watchdog.Reset(p.c.o.TryTimeout)
	}
}

// finish is the end of the stream.
func (p *Publisher) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.watchdog.Stop()
	p.watchdog = nil
	p.changed.Broadcast()
}

// send sends what waits, until the stream has ended or there is nothing more to come.
func (p *Publisher) send(conn *publishConn, cancel context.CancelCauseFunc) {
	defer conn.CloseRequest() // the receiving half learns of it
	for {
		x, request := p.next()
		if x == nil {
			return
		}
		err := conn.Send(request)
		if e, ok := errors.AsType[*eventstore.Error](err); ok && (errors.Is(e.Kind, eventstore.ErrTooLarge) || errors.Is(e.Kind, eventstore.ErrInvalid)) {
			p.refuse(x, e) // the codec's: nothing was sent of it
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) { // else the receiving half has the error
				cancel(err)
			}
			return
		}
	}
}

// next returns what is to be sent next; nil: nothing more over this stream.
func (p *Publisher) next() (*sending, *wattlev1.PublishStreamRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.sent == len(p.waiting) && !p.over && !p.closing && p.ctx.Err() == nil {
		p.changed.Wait()
	}
	if p.over || p.sent == len(p.waiting) || p.ctx.Err() != nil {
		return nil, nil
	}
	p.sent++
	x := p.waiting[p.sent-1]
	return x, x.request
}

// answer gives an answer to the oldest publication.
func (p *Publisher) answer(m *wattlev1.PublishStreamResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == 0 {
		return &eventstore.Error{Wanted: "no answer", Found: "one to nothing"}
	}
	x := p.waiting[0]
	got, err := read(m.GetPublished(), func(r *reader, m *wattlev1.PublishResponse) topic.Published {
		return r.published(m, len(x.request.GetPublish().GetEvents()))
	})
	if err != nil {
		return err
	}
	x.answer = got
	p.drop(0)
	return nil
}

// refuse ends one that cannot be sent: it was the last one that was taken to be.
func (p *Publisher) refuse(x *sending, err *eventstore.Error) {
	told := *err
	told.Op, told.Category = "publish", x.tries.topic
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent > 0 && p.waiting[p.sent-1] == x {
		x.err = &told
		p.drop(p.sent - 1)
	}
}

// drop takes one that was sent off those that wait: there is an outcome.
func (p *Publisher) drop(i int) {
	x := p.waiting[i]
	copy(p.waiting[i:], p.waiting[i+1:])
	p.waiting[len(p.waiting)-1] = nil
	p.waiting, p.bytes, p.sent = p.waiting[:len(p.waiting)-1], p.bytes-x.bytes, max(p.sent-1, 0)
	x.request = nil
	close(x.done)
	p.watch()
	p.changed.Broadcast()
}

// settle takes the error that a stream has ended with: that of the oldest one, if it will
// not pass and is not about the stream. All others that were sent may have been carried out.
func (p *Publisher) settle(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	refused := (final(err) || proves(err)) && p.ctx.Err() == nil && len(p.waiting) > 0
	for i, x := range p.waiting[:p.sent] {
		if i > 0 || !refused {
			x.tries.unknown = errLost
		}
	}
	if refused {
		_, p.waiting[0].err = p.waiting[0].tries.done(p.ctx, err)
		p.drop(0)
	}
}

var errLost = errors.New("remotetopic: the stream ended before the answer")

// end gives every publication that is unanswered its error.
func (p *Publisher) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for len(p.waiting) > 0 {
		x := p.waiting[0]
		x.err = x.tries.verdict(&eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "publish", Category: x.tries.topic, Wanted: "an answer",
			Found: "the end of the publisher", Hint: "nothing was sent; publish it with another", Err: errors.Join(context.Cause(p.ctx), why)})
		p.drop(0)
	}
	p.changed.Broadcast()
}
