// Produce at the server: requests on one log stream in their order, others at once, and
// the answers in the order of the requests.

package remotelog

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/streaming"
)

// producing is how the requests of all Produces are carried out.
type producing = streaming.Pipeline[eventstore.Append, eventstore.Appended, eventstore.Stream]

func (s *streams) producing() *producing {
	return &producing{Window: s.o.ProduceWindow, Bytes: s.o.ProduceBytes, All: streaming.NewRoom(int64(s.o.ProduceBytesOfAll)), Keys: touched, Still: s.o.Still, Draining: s.draining,
		Do: func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.AppendTimeout)
			defer cancel()
			return s.store.Append(ctx, a)
		}}
}

// produce serves one Produce. What was begun is carried out whatever becomes of ctx,
// within AppendTimeout.
func (s *streams) produce(ctx context.Context, receive func() (streaming.Request[eventstore.Append], error), send func(eventstore.Appended) error) error {
	const op = "produce"
	leave, err := s.enter(op)
	if err != nil {
		return err
	}
	defer leave()
	out := s.sender(ctx, op)
	defer out.Close()
	err = s.pipeline.Serve(ctx, out.Exchange, receive, func(a eventstore.Appended) error { return out.Put(func() error { return send(a) }) })
	if errors.Is(err, streaming.ErrCutShort) {
		return s.ending(ctx, op)
	}
	return inStream(ctx, op, err)
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
