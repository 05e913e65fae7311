// PublishStream at the server: publications of one key in their order, others at once, and
// the answers in the order of the requests.

package remotetopic

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/streaming"
	"github.com/wattle-es/wattle/internal/wire"
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
	receive := func() (x streaming.Request[topic.Publication], err error) {
		m, err := stream.Receive()
		if err != nil {
			return x, err
		}
		x.Bytes = wire.Weight(m)
		x.Value, x.Err = read(m.GetPublish(), (*reader).publication)
		return x, nil
	}
	send := func(p topic.Published) error {
		return stream.Send(&wattlev1.PublishStreamResponse{Published: fromPublished(p)})
	}
	return s.fail(ctx, op, "", s.publishStream(ctx, receive, send))
}

// streamKey is what has an order.
type streamKey struct {
	topic eventstore.Category
	key   string
}

// publishing is how the requests of all PublishStreams are carried out.
type publishing = streaming.Pipeline[topic.Publication, topic.Published, streamKey]

func (s *Service) publishing() *publishing {
	return &publishing{Window: s.o.Window, Bytes: s.o.WindowBytes, All: streaming.NewRoom(int64(s.o.WindowBytesOfAll)), Still: s.o.Still, Draining: s.draining,
		Keys: func(p *topic.Publication) []streamKey {
			if p.Key == "" {
				return nil
			}
			return []streamKey{{p.Topic, p.Key}}
		},
		Do: func(ctx context.Context, p topic.Publication) (topic.Published, error) {
			lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.PublishTimeout)
			defer cancel()
			done, _, err := s.publish(lasting, ctx, p, false)
			return done, err
		}}
}

// publishStream serves one PublishStream.
func (s *Service) publishStream(ctx context.Context, receive func() (streaming.Request[topic.Publication], error), send func(topic.Published) error) error {
	out := s.sender(ctx, "publish")
	defer out.Close()
	err := s.pipeline.Serve(ctx, out.Exchange, receive, func(a topic.Published) error { return out.Put(func() error { return send(a) }) })
	switch {
	case !errors.Is(err, streaming.ErrCutShort):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return goingAway("publish")
}

// sender sends the messages of one stream.
func (s *Service) sender(ctx context.Context, op string) *streaming.Sender {
	x := streaming.Of(ctx)
	x.Unbounded()
	return &streaming.Sender{Op: op, Exchange: x, Slow: remotelog.ErrSlowConsumer, SlowAfter: s.o.SlowAfter, StuckAfter: s.o.StuckAfter}
}
