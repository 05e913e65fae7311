// The client: consuming, taken up again wherever it was cut off.

package remotetopic

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

const (
	silentBeats = 3 // heartbeats that do not come make a connection dead
	leaveWithin = 2 * time.Second
)

// Consume yields what there is in a topic and then what is published; see [topic.Service].
// Where the connection is lost, the server ends, or nothing comes for three heartbeats, it
// goes on at another server, or the same later: without a name behind the last message of
// each partition, so that none comes twice and none is missing; as a named consumer as the
// same member, which keeps its partitions, from what was committed. It ends when ctx does,
// the loop body breaks, which releases a member's partitions, or with an error that will
// not pass.
func (c *Client) Consume(ctx context.Context, q topic.Consumption) iter.Seq2[topic.Delivery, error] {
	return func(yield func(topic.Delivery, error) bool) {
		if err := c.enter("consume", q.Topic); err != nil {
			yield(topic.Delivery{}, err)
			return
		}
		defer c.calls.Done()
		inner, cancel := c.within(ctx)
		defer cancel()
		x := &consumption{c: c, q: q, yield: yield}
		err := x.run(inner)
		switch {
		case errors.Is(err, errEnough):
		case ctx.Err() != nil:
			yield(topic.Delivery{}, ctx.Err())
		case inner.Err() != nil:
			yield(topic.Delivery{}, context.Cause(inner))
		default:
			yield(topic.Delivery{}, err)
		}
	}
}

var (
	errSilent = errors.New("remotetopic: nothing came for three heartbeats")
	errEnough = errors.New("remotetopic: the loop body has enough")
)

// consumption is one Consume.
type consumption struct {
	c          *Client
	q          topic.Consumption
	yield      func(topic.Delivery, error) bool
	check      checker
	pause      pause
	progressed bool // since the last connection was made
}

func (x *consumption) key() memberKey { return memberKey{x.q.Topic, x.q.Consumer, x.q.Member} }

// run consumes until ctx ends, the loop body has enough or something fails for good.
func (x *consumption) run(ctx context.Context) error {
	if x.q.Heartbeat <= 0 {
		x.q.Heartbeat = x.c.o.Heartbeat
	}
	x.q.Heartbeat = min(max(x.q.Heartbeat, x.c.minHeartbeat), MaxHeartbeat) // as the server has it
	x.check = newChecker(x.q)
	switch {
	case x.q.Consumer != "":
		if x.q.Member.IsZero() {
			x.q.Member = eventstore.NewUUID()
		}
		defer x.c.commits.begin(x.key())()
	case x.q.Start == topic.New && !x.q.Only:
		if err := x.beginNew(ctx); err != nil {
			return err
		}
	}
	for server := x.c.current.Load(); ; server++ {
		i := server % int64(len(x.c.servers))
		err := x.once(ctx, x.c.servers[i])
		if final(err) || ctx.Err() != nil {
			return err
		}
		if x.progressed {
			x.c.current.CompareAndSwap(server, i)
			x.pause.reset()
		}
		if !sleep(ctx, x.pause.next()) {
			return ctx.Err()
		}
	}
}

// beginNew settles where what is new begins, so that it begins there also after the
// connection was lost, and says when that is done.
func (x *consumption) beginNew(ctx context.Context) error {
	for {
		d, err := x.c.DescribeWithoutConsumers(ctx, x.q.Topic)
		if err == nil {
			for _, p := range d.Partitions {
				if _, named := x.check.at[p.Number]; !named {
					x.check.at[p.Number] = p.Head.Last.Seqno
				}
			}
			x.q.Start = topic.First
			if !x.yield(topic.Delivery{}, nil) {
				return errEnough
			}
			return nil
		}
		if final(err) || !sleep(ctx, x.pause.next()) {
			return err
		}
	}
}

// once receives one stream until it ends.
func (x *consumption) once(ctx context.Context, t *target) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call, silence := ctx, silentBeats*x.q.Heartbeat
	if t.suspect.Swap(false) {
		call = onlyOnce(ctx)
	}
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	x.progressed = false
	x.check.resume()
	a := wire.Act{Op: "consume", Category: x.q.Topic}
	r, err := t.service.Consume(call, fromConsumption(x.check.request(x.q)))
	if err != nil {
		return t.ended(ctx, a, err)
	}
	defer r.Close()
	defer cancel(nil) // else Close waits for what is still to come
	for r.Receive() {
		watchdog.Stop() // the caller may take his time
		x.progressed = true
		if err := x.take(r.Msg()); err != nil {
			if errors.Is(err, errEnough) && x.q.Consumer != "" {
				x.leave(ctx, t)
			}
			return err
		}
		watchdog.Reset(silence)
	}
	return t.ended(ctx, a, r.Err())
}

// take yields what came in a message.
func (x *consumption) take(m *wattlev1.ConsumeResponse) error {
	d, err := read(m, (*reader).delivery)
	if err != nil {
		return corrupt(x.q.Topic, "a message that can be", err.Error())
	}
	if err := x.check.next(&d); err != nil {
		return err
	}
	if d.Assignment != nil {
		x.c.commits.note(x.key(), m.GetAssignment().GetGeneration())
	}
	if !x.yield(d, nil) {
		return errEnough
	}
	return nil
}

// leave tells the server that the member goes. Where that does not arrive, its leases run
// out.
func (x *consumption) leave(ctx context.Context, t *target) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	m := fromCommit(topic.Commit{Topic: x.q.Topic, Consumer: x.q.Consumer, Member: x.q.Member})
	m.Leave = true
	_, _ = t.service.Commit(ctx, m)
}

// ended is the error of a stream that has ended; nil for one that was cut off.
func (t *target) ended(ctx context.Context, a wire.Act, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		t.suspect.Store(true)
		return nil
	}
	if err == nil {
		return nil // a stream ends with an error only
	}
	return t.caller.Failed(ctx, a, false, err)
}

// final says if an error will come again when the stream is resumed.
func final(err error) bool {
	return err != nil && outcomeOf(err) == settled && !errors.Is(err, remotelog.ErrSlowConsumer)
}

// generations are those of the assignments that were yielded last, by member.
type generations struct {
	mu sync.Mutex
	by map[memberKey]uint64
}

func (g *generations) begin(key memberKey) (end func()) {
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.by, key)
	}
}

func (g *generations) note(key memberKey, generation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil {
		g.by = map[memberKey]uint64{}
	}
	g.by[key] = generation
}

func (g *generations) of(key memberKey) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.by[key]
}
