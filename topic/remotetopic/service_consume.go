// Consume at the server: what the topics deliver, in messages.

package remotetopic

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/streaming"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// Consume implements the service.
func (s *Service) Consume(ctx context.Context, m *wattlev1.ConsumeRequest, out *connect.ServerStream[wattlev1.ConsumeResponse]) error {
	const op = "consume"
	c, err := read(m, (*reader).consumption)
	if err != nil {
		return s.fail(ctx, op, m.GetTopic(), err)
	}
	bytes, err := wire.ToCount("max_bytes", m.GetMaxBytes())
	if err != nil {
		return s.fail(ctx, op, m.GetTopic(), err)
	}
	if bytes <= 0 || bytes > s.o.MessageBytes {
		bytes = s.o.MessageBytes
	}
	leave, err := s.enter(op)
	if err != nil {
		return s.fail(ctx, op, m.GetTopic(), err)
	}
	defer leave()
	if c.Heartbeat <= 0 {
		c.Heartbeat = topic.DefaultHeartbeat
	}
	c.Heartbeat = min(max(c.Heartbeat, s.minHeartbeat), MaxHeartbeat)
	x := &consuming{s: s, ctx: ctx, bytes: bytes, send: out.Send, out: s.sender(ctx, op)}
	defer x.out.Close()
	return s.fail(ctx, op, m.GetTopic(), x.run(c))
}

// consuming is one Consume that is served.
type consuming struct {
	s      *Service
	ctx    context.Context // of the call
	bytes  int
	send   func(*wattlev1.ConsumeResponse) error
	out    *streaming.Sender
	member *memberStream // nil: without a name
}

// run delivers until the call ends. What fails here ends the topics' context, so that a
// member keeps its partitions until it comes again; that one leaves does so too, with the
// cause that releases them.
func (x *consuming) run(c topic.Consumption) error {
	ctx, end := context.WithCancelCause(context.WithoutCancel(x.ctx))
	defer end(nil)
	if c.Consumer != "" {
		if c.Member.IsZero() {
			c.Member = eventstore.NewUUID()
		}
		var leave func()
		x.member, leave = x.s.join(memberKey{c.Topic, c.Consumer, c.Member}, end)
		defer leave()
	}
	defer x.watch(end)()
	for d, err := range x.s.topics.Consume(ctx, c) {
		switch {
		case ctx.Err() != nil: // it ends at its next look
			if err != nil {
				return ending(ctx)
			}
			continue
		case err != nil:
			return err
		}
		if err := x.deliver(d); err != nil {
			end(err)
		}
	}
	return ending(ctx)
}

// ending is why the topics' context has ended; nil: the member leaves.
func ending(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, topic.ErrLeave) {
		return err
	}
	return nil
}

// watch ends the topics' context with that of the call, and when the server drains.
func (x *consuming) watch(end context.CancelCauseFunc) (stop func()) {
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-over:
		case <-x.s.draining:
			end(goingAway(x.out.Op))
		case <-x.ctx.Done():
			end(context.Cause(x.ctx))
		}
	}()
	return func() { close(over); <-done }
}

// deliver sends a delivery in messages.
func (x *consuming) deliver(d topic.Delivery) error {
	for rest := d.Messages; ; {
		n := cutBytes(rest, x.bytes)
		piece := topic.Delivery{Partition: d.Partition, Messages: rest[:n], End: d.End && n == len(rest), Assignment: d.Assignment}
		rest = rest[n:]
		m := fromDelivery(piece)
		if d.Assignment != nil {
			m.Assignment.Generation = x.member.assign(d.Assignment)
		}
		if err := x.s.o.Still(x.ctx); err != nil {
			return err
		}
		if err := x.out.Put(func() error { return x.send(m) }); err != nil {
			return err
		}
		if d.Assignment = nil; len(rest) == 0 {
			return nil
		}
	}
}

// cutBytes is how many messages make one: through the one that passes the bound.
func cutBytes(messages []topic.Message, bytes int) int {
	for i := range messages {
		m := &messages[i]
		bytes -= len(m.Data) + len(m.Key)
		for k, v := range m.Metadata {
			bytes -= len(k) + len(v)
		}
		if bytes <= 0 {
			return i + 1
		}
	}
	return len(messages)
}
