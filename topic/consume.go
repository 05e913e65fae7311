// Consuming: what all Consume calls of a broker share, and what may be asked for.

package topic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// consumers is the half of a broker that serves who consumes. It owns nothing: any broker
// on the store serves any consumer, since it reads the logs and what is kept about
// consumers is fenced in the store.
type consumers struct {
	store  *eventstore.Store
	lookup func(ctx context.Context, op string, topic eventstore.Category) (known, error)
	o      consumeOptions
	tails  *tails

	mu      sync.Mutex
	members map[memberKey]*member // that consume through this broker
	ready   bool                  // the category of positions exists
}

// consumeOptions of a broker; all are set.
type consumeOptions struct {
	ttl       time.Duration // of the leases of members
	poll      time.Duration // between looks for what nobody announced
	heartbeat time.Duration
	logger    *slog.Logger
}

// newConsumers returns what serves consumers on a store. lookup answers ErrNoSuchTopic if
// there is none; watch gives hints of what was published.
func newConsumers(store *eventstore.Store, lookup func(context.Context, string, eventstore.Category) (known, error),
	watch func(context.Context, eventstore.Category) (*watch, error), o consumeOptions) *consumers {
	t := &tails{store: store, watch: watch, poll: o.poll, logger: o.logger, topics: map[eventstore.UUID]*tail{}}
	return &consumers{store: store, lookup: lookup, o: o, members: map[memberKey]*member{}, tails: t}
}

// errStopped ends a flow whose loop body has had enough. It does not leave the package.
var errStopped = errors.New("stopped by the loop body")

// consume is Service.Consume.
func (c *consumers) consume(ctx context.Context, q Consumption) iter.Seq2[Delivery, error] {
	return func(yield func(Delivery, error) bool) {
		err := c.run(ctx, q, func(d Delivery) bool { return yield(d, nil) })
		switch {
		case errors.Is(err, errStopped):
		case ctx.Err() != nil:
			yield(Delivery{}, ctx.Err())
		default:
			yield(Delivery{}, err)
		}
	}
}

// run serves one Consume until it fails or yield says no.
func (c *consumers) run(ctx context.Context, q Consumption, yield func(Delivery) bool) error {
	k, err := c.lookup(ctx, "consume", q.Topic)
	if err != nil {
		return err
	}
	spec := k.spec
	if err := q.check(spec); err != nil {
		return err
	}
	f := &flow{c: c, spec: spec, w: c.tails.join(ctx, k), cursors: make([]*cursor, spec.Partitions), yield: yield, heartbeat: q.Heartbeat}
	if f.heartbeat <= 0 {
		f.heartbeat = c.o.heartbeat
	}
	defer f.w.stop()
	if q.Consumer != "" {
		return c.runMember(ctx, k.id, q, f)
	}
	if err := f.begin(ctx, q); err != nil {
		return err
	}
	return f.run(ctx)
}

// check refuses what no topic of this spec can give.
func (q *Consumption) check(spec Spec) error {
	wrong := func(wanted, found string) error {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "consume", Category: spec.Name, Wanted: wanted, Found: found}
	}
	switch {
	case q.Start > New:
		return wrong("start First or New", fmt.Sprint(uint8(q.Start)))
	case q.Consumer == "" && !q.Member.IsZero():
		return wrong("a member of a named consumer", "no name of a consumer")
	case q.Consumer != "" && (len(q.Places) > 0 || q.Only):
		return wrong("places or a named consumer", "both: a named consumer has its places in the store")
	case q.Only && len(q.Places) == 0:
		return wrong("places to consume only", "none")
	case q.Consumer != "":
		return checkConsumer("consume", spec.Name, q.Consumer)
	}
	return checkPlaces("consume", spec, q.Places)
}

// checkPlaces is the rule for places: each partition once, and one that there is.
func checkPlaces(op string, spec Spec, places []Place) error {
	seen := make([]bool, spec.Partitions)
	for _, p := range places {
		e := &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Category: spec.Name}
		switch {
		case p.Partition < 0 || p.Partition >= spec.Partitions:
			e.Wanted, e.Found = fmt.Sprintf("a partition from 0 to %d", spec.Partitions-1), fmt.Sprint(p.Partition)
		case seen[p.Partition]:
			e.Wanted, e.Found = "each partition once", fmt.Sprintf("partition %d twice", p.Partition)
		case p.Offset > eventstore.MaxNumber:
			e.Wanted, e.Found = "an offset of at most 2^63-1", p.Offset.String()
		default:
			seen[p.Partition] = true
			continue
		}
		return e
	}
	return nil
}

// gone turns the absence of a partition's log into that of its topic.
func gone(op string, topic eventstore.Category, err error) error {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Kind != eventstore.ErrNoSuchCategory && e.Kind != eventstore.ErrNoSuchStream {
		return err
	}
	return &eventstore.Error{Kind: ErrNoSuchTopic, Op: op, Category: topic, Wanted: "topic " + string(topic),
		Found: "none of that name, or it has been deleted", Err: err}
}

// temporary says if what failed is worth another try before anybody is told.
func temporary(err error) bool {
	for _, kind := range []error{eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrReadOnly} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
