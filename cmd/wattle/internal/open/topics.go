// Topics of a store: at a server, or by a broker in this process.

package open

import (
	"context"
	"errors"
	"sync"

	"github.com/wattle-es/wattle/topic"
	"github.com/wattle-es/wattle/topic/remotetopic"
)

// Topics are those of a store. Close ends what belongs to them.
type Topics struct {
	topic.Service
	close func() error
}

// Close ends what belongs to them.
func (t *Topics) Close() error { return t.close() }

// Topics opens the topics of a target's store. Where it is not at a server a broker in this
// process takes its share of the partitions, or all of them; it gives them back when it is
// closed.
func (t *Target) Topics(ctx context.Context, o *Options) (*Topics, error) {
	if t.remote != nil {
		return t.remote.topics(ctx)
	}
	store, err := t.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	broker, err := topic.NewBroker(ctx, store.Store, nil)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	run.Go(func() { _ = broker.Run(running) }) // its calls say what is wrong
	return &Topics{broker, func() error {
		stop()
		run.Wait()
		return errors.Join(broker.Close(), store.Close())
	}}, nil
}

func (r *remote) topics(ctx context.Context) (*Topics, error) {
	transport, err := r.transport()
	if err != nil {
		return nil, err
	}
	c, err := remotetopic.Open(ctx, []string{r.url}, &remotetopic.Options{Transport: transport, Token: func(context.Context) (string, error) { return r.bearer() }})
	if err != nil {
		return nil, err
	}
	return &Topics{c, c.Close}, nil
}
