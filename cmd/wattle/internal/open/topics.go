// Topics of a store: at a server, or by a broker in this process.

package open

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
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

// Topics opens the topics of a target's store. Where it is not at a server they are those
// of a broker in this process that has no partitions: for all but publishing.
func (t *Target) Topics(ctx context.Context, o *Options) (*Topics, error) {
	if t.remote != nil {
		return t.remote.topics(ctx)
	}
	topics, _, err := t.broker(ctx, o)
	return topics, err
}

// Publishing opens the topics of a target's store. Where it is not at a server a broker in
// this process takes the partitions, and gives them back when it is closed. Nobody reaches
// it there, so beside servers that is refused, and another one like this is waited for.
func (t *Target) Publishing(ctx context.Context, o *Options) (*Topics, error) {
	if t.remote != nil {
		return t.remote.topics(ctx)
	}
	topics, broker, err := t.broker(ctx, o)
	if err != nil {
		return nil, err
	}
	if t.InPostgres() { // else this process is the only one
		if err := alone(ctx, broker); err != nil {
			return nil, errors.Join(err, topics.Close())
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	run.Go(func() { _ = broker.Run(running) }) // its calls say what is wrong
	return &Topics{broker, func() error {
		stop()
		run.Wait()
		return topics.Close()
	}}, nil
}

// broker opens the store and a broker on it.
func (t *Target) broker(ctx context.Context, o *Options) (*Topics, *topic.Broker, error) {
	store, err := t.Open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	broker, err := topic.NewBroker(ctx, store.Store, nil)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return &Topics{broker, func() error { return errors.Join(broker.Close(), store.Close()) }}, broker, nil
}

// alonePause is between two looks whether others have gone.
const alonePause = 100 * time.Millisecond

// alone returns when no other broker has partitions of the store.
func alone(ctx context.Context, b *topic.Broker) error {
	const patience = eventstore.DefaultLeaseTTL + 2*time.Second // one that was killed has gone by then
	for until := time.Now().Add(patience); ; {
		others, err := b.Others(ctx)
		if err != nil || len(others) == 0 {
			return err
		}
		if server := others[len(others)-1]; server != "" { // they are in order
			return beside("a server, "+server, "publish through it: --store "+server)
		}
		if time.Now().After(until) {
			return beside("another process that publishes, or a server without an address", "wait until it has ended, or publish through the server: --store https://…")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(alonePause):
		}
	}
}

func beside(found, hint string) error {
	return &eventstore.Error{Kind: topic.ErrNotOwner, Op: "publish", Wanted: "nobody else on the store who owns partitions", Found: found, Hint: hint}
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
