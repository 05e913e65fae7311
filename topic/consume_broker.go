// What a Broker serves consumers with.

package topic

import (
	"context"
	"iter"

	"github.com/wattle-es/wattle/eventstore"
)

// Consume yields what there is in a topic and then what is published; see [Service] and
// [Consumption]. Any broker serves it, whoever owns the partitions, whether it runs or not.
//
// The goroutine that ranges over it reads: one page of a partition after the other, in
// turn, none ahead of the loop body. A Delivery carries about MaxDeliveryBytes at most and
// up to 500 messages. What this broker appended comes at once, what another did by an
// announcement, and without one within the poll interval (for each 16 partitions of the
// topic at whose end somebody waits). The first Delivery of one that starts with New and
// has no name is a sign of life: what is published from then on comes.
//
// A place below what was trimmed is ErrTrimmed, with the first offset that is there in the
// error's First; it is never passed over in silence. First begins behind what is trimmed.
// A place above the head, and a log that lost its end, are ErrDiverged. A topic that is
// deleted is ErrNoSuchTopic. While the store cannot be reached it tries again, without
// signs of life, and ends with the error when that has lasted longer than the lease's TTL.
//
// A member of a named consumer has its partitions for as long as its process runs and
// reaches the store, however long the loop body takes. Of one that comes, leaves, is
// killed or frozen, the partitions have moved within TTL and 5 s; the first Delivery is
// an Assignment, empty if there is none to have. To leave at once, break out of the loop,
// or cancel ctx with ErrLeave as the cause: that releases them. When ctx ends otherwise, or something fails, they are kept for the member
// until the TTL is over: a Consume with the same Member goes on with them, and ends one
// that still runs with ErrLeaseLost.
//
// What a member has more than its share it gives up as follows: it is delivered nothing
// more of it, an Assignment says so, and when all that was delivered is committed, or
// after half a TTL, the lease is released. A later commit still counts until the next
// member has fenced the position. So while nobody fails, and commits do not take longer
// than that, each message comes once.
//
// The first position in a partition is stored when a member takes it up: with New where
// the head was when the member came. To go on behind what was trimmed before it was
// consumed, commit the place before the error's First, as the same member, and consume again.
func (b *Broker) Consume(ctx context.Context, q Consumption) iter.Seq2[Delivery, error] {
	return b.consumers.consume(ctx, q)
}

// Commit stores how far a member has come; see [Service]. Any broker serves it; through
// the one that delivered it costs one append for all places together. A place above the
// head is ErrGap. A partition that is returned as lost although the last Assignment has it
// was taken from the member: by DeleteConsumer, or because its leases ran out. Consume anew
// if no other Assignment follows.
func (b *Broker) Commit(ctx context.Context, q Commit) (lost []int, err error) {
	return b.consumers.commit(ctx, q)
}

// DeleteConsumer removes a named consumer of a topic with its positions; nil if there is
// none. Members that it still has begin anew, as one that never was: what they commit of
// what they were delivered before is refused. One small entry for each partition stays in
// the store. ErrNoSuchTopic if there is no such topic.
func (b *Broker) DeleteConsumer(ctx context.Context, topic eventstore.Category, consumer string) error {
	k, err := b.lookup(ctx, "delete consumer", topic)
	if err != nil {
		return err
	}
	return b.consumers.delete(ctx, k, consumer)
}

// openConsumers makes sure that the store can keep positions; NewBroker calls it.
func (b *Broker) openConsumers(ctx context.Context) error {
	o := consumeOptions{ttl: b.o.LeaseTTL, poll: b.o.PollInterval, heartbeat: b.o.Heartbeat, logger: b.logger}
	b.consumers = newConsumers(b.store, b.lookup, b.watch, o)
	return b.consumers.prepare(ctx)
}

// slowest is the lowest offset that the named consumers of a topic have committed in a
// partition, 0 for one that has committed nothing; false if the topic has none.
func (b *Broker) slowest(ctx context.Context, topic eventstore.Category, partition int) (eventstore.Seqno, bool, error) {
	k, err := b.lookup(ctx, "trim", topic)
	if err != nil {
		return 0, false, err
	}
	return b.consumers.slowest(ctx, k, partition)
}
