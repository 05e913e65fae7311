// Package topic serves plain publishers and consumers: who publishes names a topic and a
// key, and gets a partition and an offset; who consumes gets the messages of a partition
// in order.
//
// A topic is a category of dedicated logs, its partitions. Each is owned by one of the
// brokers on a store, under a lease; its owner fences the log at the lease's epoch and is
// then the only one that appends to it. So it can put the publications of all publishers
// into few large appends, and knows without asking what was published lately.
package topic

import (
	"context"
	"iter"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Service is what publishers and consumers call: a [Broker] in this process, or a client
// of a server. All methods may be called from several goroutines at once. Errors are
// *eventstore.Error, with the kinds of this package beside those of eventstore.
type Service interface {
	// Create creates a topic. It is idempotent: nil if it exists with the same spec,
	// ErrInvalid naming both if with another.
	Create(ctx context.Context, spec Spec) error
	// Describe tells all about a topic. ErrNoSuchTopic if there is none.
	Describe(ctx context.Context, name eventstore.Category) (Description, error)
	// List returns all topics ordered by name.
	List(ctx context.Context) ([]Spec, error)
	// Delete removes a topic with its messages and its consumers' positions.
	// ErrNoSuchTopic if there is none.
	Delete(ctx context.Context, name eventstore.Category) error

	// Publish writes the events of a publication, all or none, side by side, to the
	// partition of its key. When it returns nil they are durable. Publishing the same
	// publication again is safe within the topic's dedup window: what is there is found,
	// and the answer is the first one. ErrBatchIDReused if its ID is there with other
	// content; ErrUnknown (Unprovable) for one whose first try lies before the window,
	// with nothing written; ErrUnknown without it if the outcome is not known: publish
	// the same again. ErrNotOwner (see [Owner]) if another broker has the partition.
	Publish(ctx context.Context, p Publication) (Published, error)

	// Consume yields what there is in a topic and then what is published, without end;
	// see [Consumption]. An error ends the sequence: ctx's when that ends.
	// The loop body may call the service.
	Consume(ctx context.Context, c Consumption) iter.Seq2[Delivery, error]

	// Commit stores how far a member of a named consumer has come: everything through
	// each place is done. It returns the partitions that the member no longer has, whose
	// places are not stored. A place never falls.
	Commit(ctx context.Context, c Commit) (lost []int, err error)
}

// Spec says what a topic is.
type Spec struct {
	Name       eventstore.Category // of its logs; their streams are "name-0", "name-1"…
	Partitions int                 // 1 to MaxPartitions, fixed; 0 means DefaultPartitions
	Retention  Retention
	// DedupWindow is how long a publication is known by its ID, by the store's clock; 0
	// means DefaultDedupWindow, at most MaxDedupWindow.
	DedupWindow time.Duration
}

// Retention says what is trimmed: what is over any of the bounds. With none of them
// nothing is. What is younger than half a minute stays in any case, with the last message
// before it, and so does the last message of a partition: by these it is known what may
// have been published lately.
type Retention struct {
	MaxBytes int64         // data and metadata of one partition
	MaxAge   time.Duration // of a message, on the store's clock
	// Consumed: what all named consumers have committed is trimmed, and the bounds above
	// never remove what one of them still needs.
	Consumed bool
}

// Publication is what one Publish writes.
type Publication struct {
	Topic eventstore.Category
	// Key: publications of one key are in one partition, in order. Empty: any partition.
	Key string
	// ID names the publication for ever; zero: it gets a new one and cannot be resent. A
	// UUIDv7 says when it was made. With any other FirstTried must be set. ErrInvalid for
	// one that was first tried more than MaxAhead from now, on the store's clock. An ID
	// belongs to one key: it is known in the partition of that.
	ID         eventstore.UUID
	FirstTried time.Time
	// Events get IDs derived from the publication's, and the key into their metadata (MetaKey).
	Events []eventstore.Event
}

// Published is the answer to a Publication that is durably there.
type Published struct {
	Partition   int
	First, Last eventstore.Seqno // offsets of its events
	Replays     bool             // it was there already; nothing was written
}

// Consumption says what is to be consumed.
//
// Without Consumer it is from Places on, of all partitions, or of those in Places only.
//
// With Consumer, from where the consumer of that name left off. Its members, any number
// of Consume calls anywhere, share the partitions under leases: one that comes, goes, is
// killed or frozen changes who has which within the lease's TTL and 5 s. A member is told
// by an Assignment. Messages are delivered at least once: again if a member went before it
// committed them. Two members never commit for one partition at once: the position is
// fenced by the lease's epoch. One that breaks out of the loop leaves at once; when ctx
// ends, or something fails, its partitions are kept for it until the TTL is over.
type Consumption struct {
	Topic    eventstore.Category
	Places   []Place
	Only     bool // the partitions in Places and no others
	Start    Start
	Consumer string // 1 to MaxConsumerBytes bytes of UTF-8 without control characters
	// Member is who consumes, as Commit says too; zero: somebody new, who cannot commit. The
	// same after a lost connection keeps its partitions, and a Consume that still runs under
	// it ends with ErrLeaseLost.
	Member eventstore.UUID
	// Heartbeat is how long it is silent at most; 0: as the service has it.
	Heartbeat time.Duration
}

// Start is where a partition begins for which there is no place or stored position.
type Start uint8

const (
	// First: with the first message that is still there.
	First Start = iota
	// New: with what is published from now on.
	New
)

// Place is an offset in a partition: of the last message one has, 0 for none.
type Place struct {
	Partition int
	Offset    eventstore.Seqno
}

// Delivery is what Consume yields: messages of one partition, or an assignment, or
// neither: then it is a sign of life.
type Delivery struct {
	Partition int
	Messages  []Message
	End       bool // nothing stood behind Messages when they were read
	// Assignment is set when the partitions of a member have changed: what it has from
	// here on, and where each goes on. Nil otherwise.
	Assignment []Place
}

// Message is a published event in its place. Its data may be shared: it is read-only.
type Message struct {
	eventstore.Event
	Partition int
	Offset    eventstore.Seqno
	Key       string
	Time      time.Time // of the append, on the store's clock
}

// Commit is how far a member of a consumer has come.
type Commit struct {
	Topic    eventstore.Category
	Consumer string
	Member   eventstore.UUID
	Places   []Place
}

// Description tells all about a topic.
type Description struct {
	Spec       Spec
	Partitions []Partition
	Consumers  []Consumer // by name
}

// Partition is one log of a topic.
type Partition struct {
	Number int
	Head   eventstore.Head
	Owner  string // address of the broker that owns it; "" if none does now
}

// Consumer is a named consumer of a topic.
type Consumer struct {
	Name      string
	Positions []ConsumerPosition // by partition
}

// ConsumerPosition is how far a consumer has come in one partition.
type ConsumerPosition struct {
	Place
	Lag    uint64          // messages behind it
	Member eventstore.UUID // that has the partition; zero if none does now
}
