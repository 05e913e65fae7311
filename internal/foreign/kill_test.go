// Our own clients beside a server that is killed, again and again: they go on by
// themselves, what was acked is there once, and who follows misses nothing and gets
// nothing twice.

package foreign

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/internal/foreign/servetest"
	"github.com/wattle-es/wattle/topic"
	"github.com/wattle-es/wattle/topic/remotetopic"
)

var kills = flag.Int("kills", 5, "how often TestKilledServer kills the server")

// load is clients of one server, and what they were told.
type load struct {
	t     *testing.T
	url   string
	store *eventstore.Store
	log   *remotelog.Log

	done    chan struct{} // closed: begin nothing new
	writing sync.WaitGroup
	reading sync.WaitGroup

	mu        sync.Mutex
	acked     map[eventstore.Stream]int // events, by stream
	published []topic.Published
	followed  []eventstore.Entry // of account-0
	feed      []eventstore.Entry // of category account
	consumed  map[topic.Place]int
}

const (
	appenders   = 3 // one append after the other
	producers   = 2 // many under way
	underWay    = 8
	killTimeout = 2 * time.Minute
)

func TestKilledServer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	s := servetest.StartDev(t, program, "--lease-ttl", "1s")
	l := &load{t: t, url: s.URL, done: make(chan struct{}), acked: map[eventstore.Stream]int{}, consumed: map[topic.Place]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), killTimeout)
	defer cancel()
	l.begin(ctx)
	for range *kills {
		time.Sleep(time.Duration(200+random.IntN(600)) * time.Millisecond)
		s.Kill(t)
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		s.Revive(t)
	}
	time.Sleep(300 * time.Millisecond)
	close(l.done)
	l.writing.Wait()
	l.check(ctx)
	cancel()
	l.reading.Wait()
}

func (l *load) ok(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// begin starts all clients.
func (l *load) begin(ctx context.Context) {
	var err error
	l.log, err = remotelog.Open(ctx, l.url, nil)
	l.ok(err)
	l.t.Cleanup(func() { _ = l.log.Close() })
	l.store = eventstore.New(l.log, nil)
	l.ok(l.store.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}))
	topics, err := remotetopic.Open(ctx, []string{l.url}, nil)
	l.ok(err)
	l.t.Cleanup(func() { _ = topics.Close() })
	l.ok(topics.Create(ctx, topic.Spec{Name: "orders", Partitions: 2}))
	for i := range appenders + producers {
		name := eventstore.Stream(fmt.Sprint("account-", i))
		l.writing.Go(func() {
			if i < appenders {
				l.append(ctx, name)
			} else {
				l.produce(ctx, name)
			}
		})
	}
	l.writing.Go(func() { l.publish(ctx, topics) })
	l.reading.Go(func() { l.follow(ctx) })
	l.reading.Go(func() { l.followFeed(ctx) })
	l.reading.Go(func() { l.consume(ctx, topics) })
}

// ended says that nothing new is to be begun.
func (l *load) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// chain yields appends to one stream, each behind the one before: events with the numbers
// from 1 on.
func (l *load) chain(name eventstore.Stream) iter.Seq[eventstore.Append] {
	return func(yield func(eventstore.Append) bool) {
		holder, after := eventstore.NewUUID(), eventstore.Mark{}
		for !l.ended() {
			b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: name, Epoch: 1, Holder: holder, Claim: after.Seqno == 0, After: after}
			for range 1 + after.Seqno%3 {
				b.Events = append(b.Events, eventstore.Event{ID: eventstore.NewUUID(), Type: "counted", Data: number(b.Last() + 1)})
			}
			after = eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}
			if !yield(eventstore.Append{Batches: []eventstore.Batch{b}}) {
				return
			}
		}
	}
}

func number(n eventstore.Seqno) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// passes says that an append may be sent again: the server was not there, or what became
// of it is not known.
func passes(err error) bool {
	for _, kind := range []error{eventstore.ErrUnknown, eventstore.ErrUnavailable, remotelog.ErrGoingAway, eventstore.ErrClosed} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func (l *load) ack(a eventstore.Append) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[a.Batches[0].Stream] = int(a.Batches[0].Last())
}

// append sends each append until it is acked.
func (l *load) append(ctx context.Context, name eventstore.Stream) {
	for a := range l.chain(name) {
		for {
			_, err := l.store.Append(ctx, a)
			if err == nil {
				break
			}
			if !passes(err) || ctx.Err() != nil {
				l.t.Errorf("append: %v", err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		l.ack(a)
	}
}

// produce keeps several appends under way, and sends those that were not acked again
// where the stream of them ends.
func (l *load) produce(ctx context.Context, name eventstore.Stream) {
	next, stop := iter.Pull(l.chain(name))
	defer stop()
	var pending []eventstore.Append
	more := true
	for more || len(pending) > 0 {
		p := l.log.Produce(ctx)
		var waits []func(context.Context) (eventstore.Appended, error)
		send := func(a eventstore.Append) { waits = append(waits, p.Append(ctx, a)) }
		for _, a := range pending {
			send(a)
		}
		for {
			for more && len(pending) < underWay {
				var a eventstore.Append
				if a, more = next(); more {
					pending = append(pending, a)
					send(a)
				}
			}
			if len(pending) == 0 {
				break
			}
			if _, err := waits[0](ctx); err != nil {
				if !passes(err) || ctx.Err() != nil {
					l.t.Errorf("produce: %v", err)
					return
				}
				time.Sleep(10 * time.Millisecond)
				break
			}
			l.ack(pending[0])
			pending, waits = pending[1:], waits[1:]
		}
		_ = p.Close() // what it ended with was told already
	}
}

// publish publishes without seqnos; the publisher sends again by itself.
func (l *load) publish(ctx context.Context, topics *remotetopic.Client) {
	p, err := topics.Publisher(ctx)
	if err != nil {
		l.t.Errorf("publisher: %v", err)
		return
	}
	for n := 1; !l.ended(); n++ {
		wait := p.Publish(ctx, topic.Publication{Topic: "orders", Key: fmt.Sprint("key-", n%7), Events: []eventstore.Event{{Type: "ordered", Data: number(eventstore.Seqno(n))}}})
		done, err := wait(ctx)
		if err != nil {
			l.t.Errorf("publish: %v", err)
			break
		}
		l.mu.Lock()
		l.published = append(l.published, done)
		l.mu.Unlock()
	}
	if err := p.Close(); err != nil {
		l.t.Errorf("publisher: %v", err)
	}
}

// readingEnded reports what ended a sequence but for the end of the test.
func (l *load) readingEnded(what string, ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		l.t.Errorf("%s: %v", what, err)
	}
}

func (l *load) follow(ctx context.Context) {
	for e, err := range l.log.Follow(ctx, "account-0", eventstore.Mark{}) {
		if err != nil {
			l.readingEnded("follow", ctx, err)
			return
		}
		l.mu.Lock()
		l.followed = append(l.followed, e)
		l.mu.Unlock()
	}
}

func (l *load) followFeed(ctx context.Context) {
	for f, err := range l.log.FollowFeed(ctx, eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"account"}}) {
		if err != nil {
			l.readingEnded("feed", ctx, err)
			return
		}
		l.mu.Lock()
		l.feed = append(l.feed, f.Entries...)
		l.mu.Unlock()
	}
}

// consume is a member of a named consumer, who commits what it has.
func (l *load) consume(ctx context.Context, topics *remotetopic.Client) {
	member := eventstore.NewUUID()
	for d, err := range topics.Consume(ctx, topic.Consumption{Topic: "orders", Consumer: "billing", Member: member}) {
		if err != nil {
			l.readingEnded("consume", ctx, err)
			return
		}
		if len(d.Messages) == 0 {
			continue
		}
		l.mu.Lock()
		for _, m := range d.Messages {
			l.consumed[topic.Place{Partition: m.Partition, Offset: m.Offset}]++
		}
		l.mu.Unlock()
		last := d.Messages[len(d.Messages)-1]
		_, err := topics.Commit(ctx, topic.Commit{Topic: "orders", Consumer: "billing", Member: member, Places: []topic.Place{{Partition: d.Partition, Offset: last.Offset}}})
		if err != nil && !passes(err) && !errors.Is(err, eventstore.ErrLeaseLost) {
			l.readingEnded("commit", ctx, err)
		}
	}
}

// check waits for those who read and compares what everybody was told.
func (l *load) check(ctx context.Context) {
	stored := map[eventstore.Stream]int{}
	all, acks := 0, 0
	for name, n := range l.acked {
		for e, err := range l.store.Read(ctx, name, 0) {
			l.ok(err)
			stored[name]++
			if string(e.Data) != string(number(eventstore.Seqno(stored[name]))) || e.Seqno != eventstore.Seqno(stored[name]) {
				l.t.Fatalf("%s: entry %d is %x with seqno %d", name, stored[name], e.Data, e.Seqno)
			}
		}
		if stored[name] != n || n == 0 {
			l.t.Errorf("%s: found %d entries, want the %d that were acked", name, stored[name], n)
		}
		all, acks = all+stored[name], acks+n
	}
	if len(l.acked) != appenders+producers {
		l.t.Errorf("only %d of %d streams had an ack", len(l.acked), appenders+producers)
	}
	l.until(ctx, "the follower", func() bool { return len(l.followed) >= stored["account-0"] })
	l.until(ctx, "the feed's follower", func() bool { return len(l.feed) >= all })
	l.until(ctx, "the consumer", func() bool { return len(l.consumed) >= len(l.published) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.followed {
		if e.Seqno != eventstore.Seqno(i+1) {
			l.t.Fatalf("followed: entry %d has seqno %d", i+1, e.Seqno)
		}
	}
	seen, at := map[eventstore.Stream]eventstore.Seqno{}, eventstore.Position(0)
	for _, e := range l.feed {
		if seen[e.Stream]++; e.Seqno != seen[e.Stream] || e.Position < at {
			l.t.Fatalf("feed: %s has seqno %d at %d behind %d", e.Stream, e.Seqno, e.Position, at)
		}
		at = e.Position
	}
	places := map[topic.Place]bool{}
	for _, p := range l.published {
		place := topic.Place{Partition: p.Partition, Offset: p.Last}
		if places[place] || l.consumed[place] == 0 {
			l.t.Errorf("published at %v: twice %v, consumed %d times", place, places[place], l.consumed[place])
		}
		places[place] = true
	}
	again := 0
	for _, n := range l.consumed {
		again += n - 1
	}
	if len(l.followed) != stored["account-0"] || len(l.feed) != all || len(l.consumed) != len(l.published) || len(l.published) == 0 {
		l.t.Errorf("followed %d of %d, feed %d of %d, consumed %d of %d", len(l.followed), stored["account-0"], len(l.feed), all, len(l.consumed), len(l.published))
	}
	l.t.Logf("%d kills: %d events acked and stored, %d of the feed, %d publications acked and consumed, %d of them again", *kills, acks, len(l.feed), len(l.published), again)
}

func (l *load) until(ctx context.Context, what string, ok func() bool) {
	l.t.Helper()
	for {
		l.mu.Lock()
		done := ok()
		l.mu.Unlock()
		if done {
			return
		}
		if ctx.Err() != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.t.Fatalf("%s has not all: followed %d, feed %d, consumed %d of %d; consumed at %v", what, len(l.followed), len(l.feed), len(l.consumed), len(l.published), last(l.consumed))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func last(m map[topic.Place]int) []topic.Place {
	var all []topic.Place
	for p := range m {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b topic.Place) int { return int(b.Offset) - int(a.Offset) })
	return all[:min(len(all), 4)]
}
