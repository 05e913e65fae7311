// By chance: brokers are frozen, thawed, killed and replaced at any moment, logs are slow
// and lose answers, and publishers give up waiting and try again elsewhere.

package topic_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/topic"
)

func TestPublishersByChance(t *testing.T) {
	rounds, first := 3, rand.Uint64()
	if s := os.Getenv("WATTLE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		rounds, first = 1, n
	} else if os.Getenv("WATTLE_SOAK") != "" {
		rounds = 300
	}
	messages, moves := 0, 0
	for i := range rounds {
		synctest.Test(t, func(t *testing.T) {
			c := &chances{env: newEnv(t, memlog.New(nil)), random: rand.New(rand.NewPCG(first+uint64(i), 0))}
			n, m := c.run()
			messages, moves = messages+n, moves+m
		})
		if t.Failed() {
			t.Fatalf("WATTLE_SEED=%d", first+uint64(i))
		}
	}
	t.Logf("%d rounds from seed %d: %d messages, partitions owned anew %d times", rounds, first, messages, moves)
}

type chances struct {
	*env
	mu     sync.Mutex
	random *rand.Rand
	slots  [3]slot
}

// slot is where a broker runs, or ran.
type slot struct {
	log    *bent
	node   *node
	frozen bool
}

func (c *chances) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// start puts a broker into a slot, on a log that is slow and loses answers.
func (c *chances) start(i int) {
	log := bend(c.log)
	log.lose(func() int {
		time.Sleep(time.Duration(c.intN(30)) * time.Millisecond)
		return c.intN(25)
	})
	c.mu.Lock()
	c.slots[i].log, c.slots[i].frozen = log, false
	c.mu.Unlock()
	n := c.brokerOn(log, &topic.Options{LeaseTTL: time.Second, QueuePublications: 5, Address: fmt.Sprint(i)})
	c.mu.Lock()
	c.slots[i].node = n
	c.mu.Unlock()
}

func (c *chances) service(i int) topic.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots[i].node
}

// run is one round: 60 seconds of trouble, then 20 of peace in which everything is done.
func (c *chances) run() (messages, moves int) {
	spec := topic.Spec{Name: "orders", Partitions: 1 + c.intN(5), Retention: topic.Retention{MaxBytes: int64(c.intN(2) * 1 << 20)}}
	for i := range c.slots {
		c.start(i)
	}
	c.ok(c.slots[0].node.Create(c.t.Context(), spec))
	ctx, stop := context.WithCancel(c.t.Context())
	a := &acks{by: map[string][]topic.Published{}}
	var wg sync.WaitGroup
	for k := range 6 {
		wg.Go(func() { c.publisher(ctx, a, fmt.Sprintf("key%d", k%4), k/4) })
	}
	for began := time.Now(); time.Since(began) < time.Minute; {
		time.Sleep(time.Duration(c.intN(4000)) * time.Millisecond)
		c.trouble(c.intN(len(c.slots)), c.intN(4))
	}
	for i := range c.slots {
		if c.slots[i].frozen {
			c.slots[i].log.thaw()
			c.slots[i].frozen = false
		}
	}
	time.Sleep(20 * time.Second)
	before := a.total()
	time.Sleep(5 * time.Second)
	if a.total() == before {
		c.t.Error("nothing is published though nothing is in the way any more")
	}
	stop()
	wg.Wait()
	for n := range spec.Partitions {
		h, err := c.store.Head(context.Background(), eventstore.Stream(fmt.Sprintf("orders-%d", n)))
		c.ok(err)
		moves += int(h.Epoch)
	}
	return c.compare(a, spec.Partitions), moves
}

func (c *chances) trouble(i, what int) {
	s := &c.slots[i]
	switch {
	case s.frozen:
		s.log.thaw()
		s.frozen = false
	case what == 0:
		s.log.kill()
		go s.node.stop() // it is gone, but its process may take a while to notice
		c.start(i)
	case what == 1:
		s.node.stop()
		c.start(i)
	default:
		s.log.freeze()
		s.frozen = true
	}
}

func (a *acks) total() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, all := range a.by {
		n += len(all)
	}
	return n
}

// publisher publishes one after the other, each of one to three events, at brokers by
// chance, waiting for each for a short while, until ctx ends.
func (c *chances) publisher(ctx context.Context, a *acks, key string, line int) {
	for n := 0; ctx.Err() == nil; n++ {
		p := several(fmt.Sprintf("%s/%d", key, line), n, 1+n%3)
		p.Key = key
		for ctx.Err() == nil {
			got, err := func() (topic.Published, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(50+c.intN(1000))*time.Millisecond)
				defer cancel()
				return c.service(c.intN(3)).Publish(ctx, p)
			}()
			if err == nil {
				a.mu.Lock()
				a.by[fmt.Sprintf("%s/%d", key, line)] = append(a.by[fmt.Sprintf("%s/%d", key, line)], got)
				a.mu.Unlock()
				time.Sleep(time.Duration(c.intN(300)) * time.Millisecond)
				break
			}
			if !retriable(err) && ctx.Err() == nil && !isDeadline(err) {
				c.t.Errorf("%s %d: %v", key, n, err)
				return
			}
			time.Sleep(time.Duration(c.intN(50)) * time.Millisecond)
		}
	}
}

// compare finds every publication that was acknowledged where it was said to be, whole,
// once, and in the order of who published it.
func (c *chances) compare(a *acks, partitions int) (messages int) {
	c.t.Helper()
	byID := map[eventstore.UUID]eventstore.Entry{}
	part := map[eventstore.UUID]int{}
	for n, log := range c.all("orders", partitions) {
		for _, e := range log {
			if _, twice := byID[e.ID]; twice {
				c.t.Errorf("%s stands there twice: %s", e.ID, e.Data)
			}
			byID[e.ID], part[e.ID] = e, n
			messages++
		}
	}
	for who, all := range a.by {
		last := eventstore.Seqno(0)
		for n, got := range all {
			id := eventstore.NameUUID(fmt.Sprintf("orders/%s/%d", who, n))
			if got.First <= last || got.Last != got.First+eventstore.Seqno(n%3) {
				c.t.Errorf("%s %d was acknowledged at %d to %d, the one before at %d", who, n, got.First, got.Last, last)
			}
			last = got.Last
			for i := range 1 + n%3 {
				e, ok := byID[eventstore.DeriveUUID(id, i)]
				if !ok || e.Seqno != got.First+eventstore.Seqno(i) || part[e.ID] != got.Partition {
					c.t.Errorf("%s %d, event %d was acknowledged at %d/%d: is there: %v, at %d", who, n, i, got.Partition, got.First, ok, e.Seqno)
				}
				delete(byID, e.ID)
			}
		}
	}
	if left := len(byID); left > 6*3 {
		c.t.Errorf("%d messages that nobody was told of", left)
	}
	return messages
}
