// Members: a Consume call that shares a topic's partitions with others of its consumer.

package topic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/sharing"
)

// memberKey names a member.
type memberKey struct {
	topic    eventstore.Category
	consumer string
	id       eventstore.UUID
}

// member is one Consume call under the name of a consumer.
//
// Two goroutines are at it: the keeper renews leases, takes partitions up and gives them
// up; the flow delivers. What passes between them is parts, under the lock: the keeper
// puts a partition there when its lease is held, its position fenced at the lease's epoch
// and read; the flow asks before each Delivery whether it still may. The keeper goes on
// while a loop body takes its time, so a member is believed dead only if its process is
// frozen or has lost the store.
//
// A partition that is above the member's share is left in three steps. From the beat on
// that finds this nothing of it is delivered, and the next Delivery is an Assignment
// without it. Then it waits until all that was delivered is committed, for half a TTL at
// most. Then the lease is released. What is committed later still counts until the next
// member fences the position.
type member struct {
	c     *consumers
	topic eventstore.UUID // its id
	spec  Spec
	name  string
	id    eventstore.UUID
	start Start
	heads []eventstore.Head // when it came, if it starts with what is new
	begun []bool            // partitions that it began; it does so again when the consumer was deleted

	share *sharing.Member  // the keeper's; nil: to be taken up anew
	seat  eventstore.Epoch // of its seat, by which a second Consume of the same member is noticed

	alone time.Time // until then a Consume before this one may believe that it has what this one took up

	changed    chan struct{} // to the flow: parts have changed, or it is over
	kick       chan struct{} // to the keeper: look now
	committing chan struct{} // held by a Commit

	mu     sync.Mutex
	parts  map[int]*part
	stored map[int]position // the last one that a Commit of this member stored, by partition
	given  []bool           // partitions that an Assignment has had
	anew   []bool           // partitions taken up again, or begun, of which no Assignment has told yet
	until  time.Time        // when others may have them, on this process's clock
	met    bool             // its first beat is over
	told   bool             // the flow knows parts as they are
	failed error            // what ended it
	ill    bool             // the keeper cannot reach the store
}

// part is a partition that a member has.
type part struct {
	lease     eventstore.Lease
	pos       position
	delivered eventstore.Mark
	fresh     bool      // it begins with the first message that is there
	leaving   time.Time // since when it is to be given up; zero: it is not
	ids       idRing
}

// consumerPrefix begins the names of the leases of a consumer: "…member/0000" are its
// members' seats, "…partition/000" the partitions. In the consumer's name '~' and '/' are
// escaped as in a JSON pointer (RFC 6901); one that does not fit then stands as "~h" and
// its SHA-256, which no escape gives. A topic's name holds no '-'. So no prefix begins
// another one.
func consumerPrefix(topic eventstore.Category, consumer string) string {
	const most = 128 // with the longest topic the names stay within eventstore.MaxNameBytes
	name := strings.NewReplacer("~", "~0", "/", "~1").Replace(consumer)
	if len(name) > most {
		sum := sha256.Sum256([]byte(consumer))
		name = "~h" + hex.EncodeToString(sum[:])
	}
	return fmt.Sprintf("topic-consumer/%s-%s/", topic, name)
}

const seatNames = "member/"

func partitionItem(p int) string { return fmt.Sprintf("partition/%03d", p) }

// numberOf is the partition of an item, or false.
func numberOf(item string, partitions int) (p int, ok bool) {
	n, err := fmt.Sscanf(item, "partition/%d", &p)
	return p, n == 1 && err == nil && p >= 0 && p < partitions && item == partitionItem(p)
}

// runMember consumes under a name until the flow ends.
func (c *consumers) runMember(ctx context.Context, topic eventstore.UUID, q Consumption, f *flow) (err error) {
	m := &member{c: c, topic: topic, spec: f.spec, name: q.Consumer, id: q.Member, start: q.Start, parts: map[int]*part{}, stored: map[int]position{}, begun: make([]bool, f.spec.Partitions),
		given: make([]bool, f.spec.Partitions), anew: make([]bool, f.spec.Partitions), told: true,
		changed: make(chan struct{}, 1), kick: make(chan struct{}, 1), committing: make(chan struct{}, 1)}
	if m.id.IsZero() {
		m.id = eventstore.NewUUID()
	}
	f.m = m
	// The topic may be gone, and this broker not know it yet: no name is left behind.
	if m.heads, err = c.headsFor(ctx, f.spec, m.start); err != nil {
		return err
	}
	if err := c.register(ctx, m.spec.Name, m.name); err != nil {
		return err
	}
	defer c.enter(m)()
	keeping, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.keep(keeping)
	}()
	err = f.run(ctx)
	stop()
	<-done
	if errors.Is(err, errStopped) || errors.Is(context.Cause(ctx), ErrLeave) {
		m.giveUp(ctx)
	}
	return err
}

// headsFor returns the heads where what is new begins there, having made sure in any case
// that the topic has its logs.
func (c *consumers) headsFor(ctx context.Context, spec Spec, start Start) ([]eventstore.Head, error) {
	if start == New {
		return c.heads(ctx, spec)
	}
	_, err := c.store.Head(ctx, streamOf(spec.Name, 0))
	return nil, gone("consume", spec.Name, err)
}

// enter makes a member known to Commit. One that was known under the same key is told.
func (c *consumers) enter(m *member) (leave func()) {
	key := memberKey{m.spec.Name, m.name, m.id}
	c.mu.Lock()
	before := c.members[key]
	c.members[key] = m
	c.mu.Unlock()
	if before != nil {
		before.fail(before.superseded())
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.members[key] == m {
			delete(c.members, key)
		}
	}
}

func (c *consumers) memberOf(key memberKey) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[key]
}

// superseded is the end of a member that has come a second time, or whose leases were
// taken from it.
func (m *member) superseded() error {
	return &eventstore.Error{Kind: eventstore.ErrLeaseLost, Op: "consume", Category: m.spec.Name,
		Wanted: fmt.Sprintf("member %v of consumer %q", m.id, m.name), Found: "another Consume of the same member, or its leases taken away",
		Hint: "give each member a UUID of its own; consume again to go on"}
}

// fail ends a member.
func (m *member) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = err
	}
	m.parts = map[int]*part{}
	m.tellLocked()
}

// tellLocked has the flow look.
func (m *member) tellLocked() {
	m.told = false
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *member) wakeKeeper() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// giveUp releases what is held: the loop body has had enough.
func (m *member) giveUp(ctx context.Context) {
	m.mu.Lock()
	failed := m.failed
	m.parts = map[int]*part{}
	m.mu.Unlock()
	if m.share == nil || failed != nil || time.Now().Before(m.alone) {
		return
	}
	if err := m.share.GiveUp(ctx); err != nil {
		m.c.o.logger.WarnContext(ctx, "leases not released; they run out by themselves", "topic", m.spec.Name, "consumer", m.name, "error", err)
	}
}
