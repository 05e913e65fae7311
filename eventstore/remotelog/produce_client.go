// Produce at the client: appends sent one behind the other, each with its own answer.

package remotelog

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
)

// Bounds of a Producer.
const (
	produceWaiting = DefaultProduceWindow // appends that were not answered
	produceBytes   = DefaultProduceBytes  // of these together; one that is larger goes alone
	produceSilence = time.Minute          // how long the oldest of them waits for an answer
)

// Producer appends over one stream of messages: an append need not wait for the answer to
// the one before it. Appends that touch the same log stream are carried out in the order
// in which Append was called; the After of one that follows another unanswered has no ID.
//
// It ends with its first error. That error is the answer of the append that was refused;
// what was sent behind it may or may not have been carried out (ErrUnknown): append the
// same batches again, with another Producer or with Log.Append, to learn which. The same
// goes for all that is unanswered when the connection breaks or the server ends. It wants
// HTTP/2 from one end to the other.
//
// All methods may be called from several goroutines at once.
type Producer struct {
	caller  *wire.Caller
	conn    produceConn
	cancel  context.CancelCauseFunc
	release func() // called at the end

	mu      sync.Mutex
	changed sync.Cond   // any of what follows
	waiting []*awaiting // sent or to be sent, oldest first
	unsent  int         // of these, at their end
	bytes   int         // of these
	closing bool        // nothing more is to come
	err     error       // why it ended
	ended   bool
	silence *time.Timer
	wg      sync.WaitGroup
}

// produceConn is a Produce as connect has it.
type produceConn interface {
	Send(*wattlev1.ProduceRequest) error
	CloseRequest() error
	Receive() (*wattlev1.ProduceResponse, error)
	CloseResponse() error
}

// awaiting is one append that is not answered.
type awaiting struct {
	request *wattlev1.ProduceRequest
	append  eventstore.Append // without events
	bytes   int
	done    chan struct{} // closed when what follows is set
	answer  eventstore.Appended
	err     error
}

func newProducer(ctx context.Context, release func(), caller *wire.Caller, open func(context.Context) (produceConn, error)) *Producer {
	ctx, cancel := context.WithCancelCause(ctx)
	p := &Producer{caller: caller, cancel: cancel, release: release}
	p.changed.L = &p.mu
	p.silence = time.AfterFunc(produceSilence, func() { cancel(errSilent) })
	p.silence.Stop()
	conn, err := open(ctx)
	if err != nil {
		p.end(err)
		return p
	}
	p.conn = conn
	p.wg.Go(p.send)
	p.wg.Go(p.receive)
	return p
}

// Append sends batches, each with an ID of its own, so that they can be sent again, and
// returns a function that waits for the answer, which is as that of Log.Append; it may be
// called any number of times, or never. Append itself waits while 64 appends or 32 MiB
// are unanswered. If ctx ends before there is room nothing is sent and the error is the
// context's; the context of wait bounds the waiting only.
func (p *Producer) Append(ctx context.Context, a eventstore.Append) (wait func(context.Context) (eventstore.Appended, error)) {
	x, err := newAwaiting(a)
	if err == nil {
		err = p.enqueue(ctx, x)
	}
	if err != nil {
		return func(context.Context) (eventstore.Appended, error) { return eventstore.Appended{}, err }
	}
	return func(ctx context.Context) (eventstore.Appended, error) {
		select {
		case <-x.done:
			return x.answer, x.err
		default:
		}
		select {
		case <-x.done:
			return x.answer, x.err
		case <-ctx.Done():
			return eventstore.Appended{}, ctx.Err()
		}
	}
}

func newAwaiting(a eventstore.Append) (*awaiting, error) {
	if err := a.CheckShape(); err != nil {
		return nil, err
	}
	x := &awaiting{append: eventstore.Append{Batches: make([]eventstore.Batch, len(a.Batches))}, done: make(chan struct{})}
	for i, b := range a.Batches {
		if b.ID.IsZero() {
			return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "append", Stream: b.Stream, Wanted: "a batch with an ID, so that it can be sent again", Found: "none"}
		}
		x.append.Batches[i] = eventstore.Batch{ID: b.ID, Stream: b.Stream, After: eventstore.Mark{Seqno: b.Last()}} // Seqno is that of its last event
	}
	m := wire.FromAppend(a)
	// The payload stays the caller's.
	x.request = proto.CloneOf(&wattlev1.ProduceRequest{Batches: m.GetBatches(), Guards: m.GetGuards()})
	x.bytes = proto.Size(x.request)
	return x, nil
}

// enqueue waits for room.
func (p *Producer) enqueue(ctx context.Context, x *awaiting) error {
	defer context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.ended || p.closing:
			return &eventstore.Error{Kind: eventstore.ErrClosed, Op: "append", Stream: x.append.Batches[0].Stream, Wanted: "a producer that goes on",
				Found: "one that has ended", Hint: "nothing was sent; make another", Err: p.err}
		case ctx.Err() != nil:
			return ctx.Err()
		case len(p.waiting) == 0 || len(p.waiting) < produceWaiting && p.bytes+x.bytes <= produceBytes:
			if len(p.waiting) == 0 {
				p.silence.Reset(produceSilence)
			}
			p.waiting, p.bytes, p.unsent = append(p.waiting, x), p.bytes+x.bytes, p.unsent+1
			p.changed.Broadcast()
			return nil
		}
		p.changed.Wait()
	}
}

// Close waits for the answers to all appends and returns what the producer ended with, if
// not with this. Later appends are ErrClosed.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closing = true
	p.changed.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
	p.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// send sends what waits, until there is nothing more to come.
func (p *Producer) send() {
	for {
		x := p.next()
		if x == nil {
			_ = p.conn.CloseRequest() // receive learns of it
			return
		}
		if err := p.conn.Send(x.request); err != nil {
			if !errors.Is(err, io.EOF) { // else receive has the error
				p.cancel(err)
			}
			return
		}
		x.request = nil
	}
}

// next returns what is to be sent next.
func (p *Producer) next() *awaiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.unsent == 0 && !p.closing && !p.ended {
		p.changed.Wait()
	}
	if p.ended || p.unsent == 0 {
		return nil
	}
	p.unsent--
	return p.waiting[len(p.waiting)-1-p.unsent]
}

// receive gives the answers out, until the stream ends.
func (p *Producer) receive() {
	defer p.conn.CloseResponse()
	for {
		m, err := p.conn.Receive()
		if err != nil {
			p.end(err)
			return
		}
		if err := p.answer(m); err != nil {
			p.end(err)
			return
		}
	}
}

// answer gives an answer to the oldest append.
func (p *Producer) answer(m *wattlev1.ProduceResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == p.unsent {
		return errors.New("remotelog: an answer to nothing")
	}
	x := p.waiting[0]
	done, err := wire.ToAppended(m.GetReceipts(), m.GetToken())
	if err == nil {
		err = x.fits(done)
	}
	if err != nil {
		return err
	}
	x.answer = done
	p.drop(x)
	if len(p.waiting) > 0 {
		p.silence.Reset(produceSilence)
	}
	return nil
}

// fits says if an answer can be one to this append.
func (x *awaiting) fits(done eventstore.Appended) error {
	if len(done.Receipts) != len(x.append.Batches) {
		return fmt.Errorf("remotelog: %d receipts for %d batches", len(done.Receipts), len(x.append.Batches))
	}
	for i, r := range done.Receipts {
		if b := &x.append.Batches[i]; r.Stream != b.Stream || r.Last.Seqno != b.After.Seqno || r.Last.ID.IsZero() {
			return fmt.Errorf("remotelog: a receipt of %s at %v for a batch of %s at %v", r.Stream, r.Last, b.Stream, b.After.Seqno)
		}
	}
	return nil
}

// drop takes the oldest append out, answered.
func (p *Producer) drop(x *awaiting) {
	p.silence.Stop()
	p.waiting[0] = nil
	p.waiting, p.bytes = p.waiting[1:], p.bytes-x.bytes
	close(x.done)
	p.changed.Broadcast()
}

// end gives every append that is unanswered its error.
func (p *Producer) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.release()
	defer p.cancel(nil)
	if p.ended = true; errors.Is(err, io.EOF) && p.closing && len(p.waiting) == 0 {
		p.changed.Broadcast()
		return
	}
	told := wire.ToError("append", err, kinds...)
	p.err = told
	for len(p.waiting) > 0 {
		x := p.waiting[0]
		if x.err = p.unanswered(x, p.err, len(p.waiting) <= p.unsent); refuses(told) && len(p.waiting) > p.unsent {
			x.err, told = told, nil
		}
		p.drop(x)
	}
	p.unsent = 0
	p.changed.Broadcast()
}

// refuses says if an error is the server's answer to an append, not about the stream.
func refuses(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && e.Kind != ErrGoingAway && e.Kind != ErrSlowConsumer && e.Kind != ErrUnauthenticated
}

// unanswered is the error of an append that got no answer.
func (p *Producer) unanswered(x *awaiting, err error, unsent bool) error {
	e := &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Stream: x.append.Batches[0].Stream, Wanted: "an answer of " + p.caller.Target,
		Found: "the end of the stream", Hint: "send the same batch again to learn the outcome", Err: err}
	switch {
	case unsent:
		e.Kind, e.Hint = eventstore.ErrUnavailable, "nothing was sent; append it with another producer"
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		e.Hint = "producing wants HTTP/2 from one end to the other; send the same batch again with Append to learn the outcome"
	}
	return e
}
