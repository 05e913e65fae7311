// Consumers of a topic from outside: described, the slowest found, deleted.

package topic

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// describe describes the named consumers of a topic. Lag is reckoned from the heads of
// its partitions.
func (c *consumers) describe(ctx context.Context, k known, partitions []Partition) ([]Consumer, error) {
	names, _, err := c.names(ctx, k.spec.Name)
	if err != nil {
		return nil, err
	}
	all := make([]Consumer, len(names))
	for i, name := range names {
		if all[i], err = c.describeOne(ctx, k, partitions, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *consumers) describeOne(ctx context.Context, k known, partitions []Partition, name string) (Consumer, error) {
	spec := k.spec
	members, err := c.membersOf(ctx, spec, name)
	if err != nil {
		return Consumer{}, err
	}
	one := Consumer{Name: name, Positions: make([]ConsumerPosition, spec.Partitions)}
	err = each(spec.Partitions, func(p int) error {
		pos, err := c.loadPosition(ctx, k.id, positionStream(spec.Name, p, name))
		if err != nil {
			return err
		}
		at := ConsumerPosition{Place: Place{Partition: p, Offset: pos.at.Seqno}, Member: members[p]}
		if h := partitions[p].Head; h.Last.Seqno > at.Offset {
			at.Lag = uint64(h.Last.Seqno - max(at.Offset, h.Trimmed))
		}
		one.Positions[p] = at
		return nil
	})
	return one, err
}

// membersOf returns who has each partition of a consumer now.
func (c *consumers) membersOf(ctx context.Context, spec Spec, name string) ([]eventstore.UUID, error) {
	prefix := consumerPrefix(spec.Name, name)
	all, err := c.store.UpdateLeases(ctx, eventstore.LeaseUpdate{Holder: eventstore.NewUUID(), Prefix: prefix}) // changes nothing
	members := make([]eventstore.UUID, spec.Partitions)
	for _, l := range all {
		if p, ok := numberOf(strings.TrimPrefix(l.Name, prefix), spec.Partitions); ok && l.Left > 0 {
			members[p] = l.Holder
		}
	}
	return members, err
}

// slowest is the lowest offset that the named consumers of a topic have committed in a
// partition, 0 for one that has committed nothing; false if the topic has none.
func (c *consumers) slowest(ctx context.Context, k known, partition int) (eventstore.Seqno, bool, error) {
	names, _, err := c.names(ctx, k.spec.Name)
	if err != nil || len(names) == 0 {
		return 0, false, err
	}
	offsets := make([]eventstore.Seqno, len(names))
	err = each(len(names), func(i int) error {
		pos, err := c.loadPosition(ctx, k.id, positionStream(k.spec.Name, partition, names[i]))
		offsets[i] = pos.at.Seqno
		return err
	})
	return slices.Min(offsets), true, err
}

// delete removes a consumer with its positions. Members that it has begin anew, as if it
// had never been: what they commit of what was delivered before is refused.
func (c *consumers) delete(ctx context.Context, k known, name string) error {
	spec := k.spec
	if err := checkConsumer("delete consumer", spec.Name, name); err != nil {
		return err
	}
	if err := each(spec.Partitions, func(p int) error { return c.erase(ctx, k.id, positionStream(spec.Name, p, name)) }); err != nil {
		return err
	}
	return c.changeNames(ctx, spec.Name, func(names []string) ([]string, error) {
		return slices.DeleteFunc(names, func(n string) bool { return n == name }), nil
	})
}

// drop removes all consumers of a topic. It can be repeated.
func (c *consumers) drop(ctx context.Context, k known) error {
	names, _, err := c.names(ctx, k.spec.Name)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.delete(ctx, k, name); err != nil {
			return err
		}
	}
	return nil
}

// erase puts an end to a position, in one step that fences whoever has it. One entry that
// says so stays.
func (c *consumers) erase(ctx context.Context, topic eventstore.UUID, stream eventstore.Stream) error {
	for try := 1; ; try++ {
		pos, err := c.loadPosition(ctx, topic, stream)
		if errors.Is(err, eventstore.ErrNoSuchCategory) || err == nil && !pos.is {
			return nil
		}
		if err != nil {
			return err
		}
		b := pos.batch(eventstore.Mark{})
		b.Claim, b.Epoch, b.Holder = true, pos.epoch+1, eventstore.NewUUID()
		b.Events = []eventstore.Event{{Type: typeErased, Data: json.RawMessage("{}")}}
		done, err := c.append(ctx, []eventstore.Batch{b})
		if err == nil {
			pos.moved(eventstore.Mark{}, done.Receipts[0])
			_, err = c.store.Trim(ctx, stream, pos.last.Seqno-1, false)
			return err
		}
		if !refused(err) || try == commitTries {
			return err
		}
	}
}
