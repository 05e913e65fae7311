// Dialogues that break at every n-th byte, in every way.

package remotetopic

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/topic"
)

// cutStep is how many bytes lie between two cuts; WATTLE_CUT_STEP sets it, 1 for all.
func cutStep(t *testing.T) int64 {
	if n, err := strconv.ParseInt(os.Getenv("WATTLE_CUT_STEP"), 10, 64); err == nil && n > 0 {
		return n
	}
	return 13
}

// cuts runs a dialogue once whole, to count its bytes, and then once for each cut. The
// dialogue has to come to its end whatever happens; n is another one each time.
func cuts(t *testing.T, address string, o Options, dialogue func(c *Client, n int)) {
	t.Helper()
	proxy, err := cutproxy.New(address)
	ok(t, err)
	defer proxy.Close()
	n := 0
	run := func() {
		n++
		q := o
		q.Transport, q.Lazy = h2(t), true
		c, err := Open(t.Context(), []string{fmt.Sprintf("http://127.0.0.1:%d", proxy.Port())}, &q)
		ok(t, err)
		c.minHeartbeat = 0
		dialogue(c, n)
		ok(t, c.Close())
		proxy.Disarm()
		proxy.Release()
	}
	proxy.Arm(cutproxy.Fault{After: 1 << 40})
	run()
	total := map[cutproxy.Direction]int64{}
	for _, d := range cutproxy.Directions {
		total[d] = proxy.Passed(d)
	}
	began, struck := time.Now(), 0
	slowest, which := time.Duration(0), ""
	for _, mode := range []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole} {
		step := cutStep(t)
		if mode == cutproxy.BlackHole {
			step *= 4 // each takes two tries
		}
		for _, d := range cutproxy.Directions {
			for at := int64(1); at <= total[d]; at += step {
				fired := proxy.Arm(cutproxy.Fault{Direction: d, After: at, Mode: mode})
				now := time.Now()
				run()
				if took := time.Since(now); took > slowest {
					slowest, which = took, fmt.Sprint(mode, d, at)
				}
				select {
				case <-fired:
					struck++
				default:
				}
			}
		}
	}
	t.Logf("%d bytes to the server, %d to the client; %d runs, %d cuts struck, %v, the slowest %v (%s)", total[cutproxy.ToServer], total[cutproxy.ToClient], n, struck, time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond), which)
	if struck < 20 {
		t.Errorf("only %d cuts struck", struck)
	}
}

const cutTry = 60 * time.Millisecond // for what a black hole swallows

// cutNode is one server with a topic of two partitions, which is the owner.
func cutNode(t *testing.T) (*env, *node) {
	e := newEnv(t)
	n := e.node(ServiceOptions{}, false)
	e.topic("orders", 2, 1)
	return e, n
}

func TestCutPublish(t *testing.T) {
	e, n := cutNode(t)
	var a acks
	cuts(t, n.address, Options{TryTimeout: cutTry}, func(c *Client, run int) {
		for i := 1; i <= 2; i++ {
			key := fmt.Sprint("run-", run)
			got, err := c.Publish(within(t), publication("orders", key, i))
			ok(t, err)
			a.note(key, got)
		}
	})
	e.verify("orders", 2, &a)
}

func TestCutPublisher(t *testing.T) {
	e, n := cutNode(t)
	var a acks
	cuts(t, n.address, Options{TryTimeout: cutTry}, func(c *Client, run int) {
		p, err := c.Publisher(within(t))
		ok(t, err)
		pipeline(t, p, &a, []string{fmt.Sprint("run-", run, "-a"), fmt.Sprint("run-", run, "-b")}, 1, 2)
		ok(t, p.Close())
	})
	e.verify("orders", 2, &a)
}

func TestCutConsume(t *testing.T) {
	const n = 5
	noLeaks(t)
	f := serve(t, &fakeTopics{consume: func(ctx context.Context, c topic.Consumption, yield func(topic.Delivery) bool) error {
		var at [2]eventstore.Seqno
		for _, p := range c.Places {
			at[p.Partition] = p.Offset
		}
		for p := range at {
			for at[p] < n {
				at[p]++
				e := event(fmt.Sprint("key-", p), int(at[p]))
				e.ID = eventstore.NewUUID()
				if !yield(topic.Delivery{Partition: p, Messages: []topic.Message{{Event: e, Partition: p, Offset: at[p], Key: fmt.Sprint("key-", p)}}}) {
					return nil
				}
			}
		}
		for sleep(ctx, cutTry/3) && yield(topic.Delivery{}) {
		}
		return ctx.Err()
	}}, ServiceOptions{})
	cuts(t, f.Listener.Addr().String(), Options{Heartbeat: cutTry / 2}, func(c *Client, _ int) {
		var got seen
		for d, err := range c.Consume(within(t), topic.Consumption{Topic: "orders"}) {
			ok(t, err)
			if got.take(d) >= 2*n {
				break
			}
		}
		got.once(t, []string{"key-0", "key-1"}, n)
	})
}
