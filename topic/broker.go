// Broker: the Service in process, over a Store.

package topic

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/sharing"
)

// Options of a Broker; nil and the zero value are the defaults.
type Options struct {
	// Address is the URL under which the clients of other brokers reach this one, at most
	// MaxAddressBytes; it may be empty for one that is alone. It is told in NotOwnerErrors.
	Address string
	// LeaseTTL is how long a broker that is silent keeps its partitions; 0 means
	// eventstore.DefaultLeaseTTL. All brokers on a store should have the same.
	LeaseTTL time.Duration
	// QueuePublications and QueueBytes bound what waits in one partition to be appended:
	// over either, Publish answers ErrOverloaded at once. 0 means DefaultQueuePublications
	// and DefaultQueueBytes.
	QueuePublications int
	QueueBytes        int
	// Remembered is how many publications of one partition are known by their ID, some 100
	// bytes each; 0 means DefaultRemembered. Where more come within the topic's
	// DedupWindow, the window is in effect shorter, down to MinDedupWindow: what was first
	// tried before it is refused with ErrUnknown (Unprovable). Where more come within
	// that, Publish answers ErrOverloaded. A second copy is never written.
	Remembered int
	// PollInterval is how often Consume looks for what nobody announced, and Heartbeat how
	// long it is silent at most; 0 means eventstore.DefaultPollInterval and DefaultHeartbeat.
	PollInterval time.Duration
	Heartbeat    time.Duration
	Logger       *slog.Logger // for what Run does; nil: the store's
}

// Broker is a [Service] over a Store: the publications of the partitions it owns are its
// to append. Any number of brokers, anywhere, may work on one store: they share the
// partitions. All methods may be called from several goroutines at once.
//
// What topics there are is written to the store, in the category CategoryName: a stream
// for each topic. What brokers there are stands there too, in a stream for each seat
// with the address of who has it: a lease's name would be too short for a URL, and is
// remembered for ever.
type Broker struct {
	store  *eventstore.Store
	o      Options
	holder eventstore.UUID // of its leases and epochs
	logger *slog.Logger

	poke chan struct{} // look at everything now

	tidyEvery, keepYoung time.Duration // the constants of these names but in tests

	reading chan struct{} // holds one for each page that partitions read back at once

	mu         sync.Mutex
	topics     topics
	partitions map[place]*partition       // that it owns, is taking or has just left
	used       map[place]eventstore.Epoch // the last epoch of those that it had and has no more
	owners     owners
	running    bool
	closed     bool
	stop       context.CancelFunc // has Run end
	ended      chan struct{}      // closed when Run has returned; nil before the first one

	watches   watches
	consumers *consumers
}

// place names a partition.
type place struct {
	topic eventstore.Category
	n     int
}

// Names of leases. '/' may stand in a topic's name, so what is behind it comes last.
const (
	leasePrefix     = "topic/"
	seatPrefix      = "broker/"
	partitionPrefix = "partition/"
)

// item is the name of the partition's lease behind leasePrefix.
func (p place) item() string { return fmt.Sprintf("%s%s/%04d", partitionPrefix, p.topic, p.n) }

// streamOf is the log of a partition.
func streamOf(topic eventstore.Category, n int) eventstore.Stream {
	return eventstore.Stream(string(topic) + "-" + strconv.Itoa(n))
}

// partitionOf is the partition of a key: its slot modulo their number. Publications
// without a key go by their ID, so that one that is sent again comes to the same.
func partitionOf(key string, id eventstore.UUID, partitions int) int {
	if key == "" {
		key = string(id[:])
	}
	return int(eventstore.Stream("topic-"+key).Slot()) % partitions
}

// NewBroker returns a broker, having made sure that the store can keep topics. It owns
// nothing before Run.
func NewBroker(ctx context.Context, store *eventstore.Store, o *Options) (*Broker, error) {
	b := &Broker{store: store, holder: eventstore.NewUUID(), poke: make(chan struct{}, 1), tidyEvery: tidyInterval, keepYoung: keepYoung,
		partitions: map[place]*partition{}, used: map[place]eventstore.Epoch{}, reading: make(chan struct{}, recallPages),
		owners: owners{asking: make(chan struct{}, 1)}}
	if o != nil {
		b.o = *o
	}
	if err := b.o.complete(store); err != nil {
		return nil, err
	}
	b.logger = b.o.Logger
	spec := eventstore.CategorySpec{Name: CategoryName, TrimFreely: true}
	if err := store.CreateCategory(ctx, spec); err != nil {
		return nil, err
	}
	if err := b.openConsumers(ctx); err != nil {
		return nil, err
	}
	return b, b.refresh(ctx)
}

func (o *Options) complete(store *eventstore.Store) error {
	if o.LeaseTTL == 0 {
		o.LeaseTTL = eventstore.DefaultLeaseTTL
	}
	if o.QueuePublications <= 0 {
		o.QueuePublications = DefaultQueuePublications
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = DefaultQueueBytes
	}
	if o.Remembered <= 0 {
		o.Remembered = DefaultRemembered
	}
	if o.PollInterval <= 0 {
		o.PollInterval = eventstore.DefaultPollInterval
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = DefaultHeartbeat
	}
	if o.Logger == nil {
		o.Logger = store.Logger()
	}
	if len(o.Address) > MaxAddressBytes {
		return invalid("new broker", "", fmt.Sprintf("an address of at most %d bytes", MaxAddressBytes), fmt.Sprintf("%d bytes", len(o.Address)), "")
	}
	return nil
}

// wake has Run look at everything now.
func (b *Broker) wake() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

func newMember(b *Broker) *sharing.Member {
	return sharing.New(b.store, sharing.Options{Holder: b.holder, TTL: b.o.LeaseTTL, Prefix: leasePrefix, Seats: seatPrefix})
}

func invalid(op string, name eventstore.Category, wanted, found, hint string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Category: name, Wanted: wanted, Found: found, Hint: hint}
}
