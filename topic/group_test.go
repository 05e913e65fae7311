// Consumers from outside: described, the slowest, deleted; what they know of one another.

package topic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// describe is what Describe says of a consumer: offset+lag by partition.
func (e *env) describe(c *consumers, partitions int) map[string]string {
	e.t.Helper()
	k, err := e.lookup(context.Background(), "", "t")
	e.ok(err)
	parts := make([]Partition, partitions)
	for p := range parts {
		h, err := e.store.Head(context.Background(), streamOf("t", p))
		e.ok(err)
		parts[p] = Partition{Number: p, Head: h}
	}
	all, err := c.describe(context.Background(), k, parts)
	e.ok(err)
	said := map[string]string{}
	for _, one := range all {
		for _, at := range one.Positions {
			said[one.Name] += fmt.Sprintf("%d+%d ", at.Offset, at.Lag)
			if at.Member.IsZero() {
				said[one.Name] += "- "
			}
		}
	}
	return said
}

func (e *env) slowest(c *consumers, p int) string {
	e.t.Helper()
	k, err := e.lookup(context.Background(), "", "t")
	e.ok(err)
	at, named, err := c.slowest(context.Background(), k, p)
	e.ok(err)
	return fmt.Sprint(at, " ", named)
}

func TestConsumersAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 2)
		p := e.proc()
		if said := e.describe(p.c, 2); len(said) != 0 || e.slowest(p.c, 0) != "0 false" {
			t.Errorf("nobody: %v", said)
		}
		e.publish("t", 0, 10, false)
		e.publish("t", 1, 4, false)
		fast, slow, late := newLedger(false), newLedger(true), newLedger(false)
		a := p.join("fast", fast, nil)
		b := p.join("slow", slow, func(r *run, _ *Consumption) { r.commit = false })
		late.seen = map[int]eventstore.Seqno{0: 10, 1: 4}
		c := p.join("late", late, func(_ *run, q *Consumption) { q.Start = New })
		eventually(t, time.Second, "all", func() bool { return fast.reached(e, "t", 2) && slow.given(e, "t", 2) && shares(c) == "[2]" })
		b.commitTo(t.Context(), 0, 6)
		want := map[string]string{"fast": "10+0 4+0 ", "slow": "6+4 0+4 ", "late": "10+0 4+0 "}
		if said := e.describe(p.c, 2); fmt.Sprint(said) != fmt.Sprint(want) {
			t.Errorf("described as %v, want %v", said, want)
		}
		if e.slowest(p.c, 0) != "6 true" || e.slowest(p.c, 1) != "0 true" {
			t.Errorf("the slowest: %s, %s", e.slowest(p.c, 0), e.slowest(p.c, 1))
		}
		e.publish("t", 1, 1, true)
		eventually(t, time.Second, "what is new", func() bool { return late.reached(e, "t", 2) || late.given(e, "t", 2) })
		for _, l := range []*ledger{fast, slow, late} {
			l.check(t)
		}
		for _, r := range []*run{a, b, c} {
			r.kill()
		}
		time.Sleep(settled)
		want = map[string]string{"fast": "10+0 - 5+0 - ", "slow": "6+4 - 0+5 - ", "late": "10+0 - 5+0 - "}
		if said := e.describe(p.c, 2); fmt.Sprint(said) != fmt.Sprint(want) {
			t.Errorf("gone, they are described as %v, want %v", said, want)
		}
	})
}

// A consumer that is deleted begins anew: its members too, which find out with the next
// commit, and a commit of what was delivered before is refused.
func TestDeleteConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 2), newLedger(true)
		p := e.proc()
		k, err := e.lookup(t.Context(), "", "t")
		e.ok(err)
		e.ok(p.c.delete(t.Context(), k, "c")) // there is none
		e.publish("t", 0, 10, false)
		e.publish("t", 1, 10, false)
		a := p.join("c", l, nil)
		other := p.join("other", newLedger(true), nil)
		eventually(t, time.Second, "all", func() bool { return l.reached(e, "t", 2) && shares(other) == "[2]" })
		e.ok(e.proc().c.delete(t.Context(), k, "c"))
		if said := e.describe(p.c, 2); said["c"] != "" || said["other"] != "10+0 10+0 " {
			t.Errorf("deleted: %v", said)
		}
		l.mu.Lock()
		clear(l.acked)
		clear(l.seen)
		l.mu.Unlock()
		e.publish("t", 0, 1, true) // 11: l takes it for a gap
		eventually(t, settled, "it begins anew", func() bool { return e.describe(p.c, 2)["c"] == "11+0 10+0 " || e.describe(p.c, 2)["c"] == "11+0 0+10 " })
		if a.losses() != 1 {
			t.Errorf("%d commits refused", a.losses())
		}
		l.mu.Lock()
		first, n := l.all[21], len(l.all)
		l.mu.Unlock()
		if n != 10+10+1+11 || first.offset != 1 || first.partition != 0 {
			t.Errorf("%d delivered, the first then %v", n, first)
		}
		a.kill()
		other.kill()
		for _, name := range []string{"c", "other"} {
			e.ok(p.c.delete(t.Context(), k, name))
			e.ok(p.c.delete(t.Context(), k, name))
		}
		if said := e.describe(p.c, 2); len(said) > 0 {
			t.Errorf("deleted: %v", said)
		}
		if err := p.c.delete(t.Context(), k, ""); !errors.Is(err, eventstore.ErrInvalid) {
			t.Error(err)
		}
	})
}

// A loop body that commits one message after the other of a Delivery, while the consumer is
// deleted and its partition taken up anew, does not pass them over: they come again.
func TestDeleteConsumerWithinADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 1)
		e.publish("t", 0, 3, false)
		p, id := e.proc(), eventstore.NewUUID()
		k, err := e.lookup(t.Context(), "", "t")
		e.ok(err)
		commit := func(at eventstore.Seqno) bool {
			lost, err := p.c.commit(t.Context(), Commit{Topic: "t", Consumer: "c", Member: id, Places: []Place{{0, at}}})
			e.ok(err)
			return len(lost) == 0
		}
		times := 0
		e.ok(collect(within(t), p.c, Consumption{Topic: "t", Consumer: "c", Member: id}, func(d Delivery) bool {
			if len(d.Messages) == 0 {
				return false
			}
			if times++; times == 1 {
				e.ok(p.c.delete(t.Context(), k, "c"))
			}
			for _, m := range d.Messages {
				if counts := commit(m.Offset); counts != (times == 2) {
					t.Errorf("delivered for the %d. time, then deleted: commit of %d counts %v", times, m.Offset, counts)
				}
				time.Sleep(settled)
			}
			return times == 2
		}))
		if said := e.describe(p.c, 1); said["c"] != "3+0 - " {
			t.Errorf("described as %v", said)
		}
	})
}

// What was stored of a topic that was deleted says nothing of one of the same name, though
// a member of the old one has stored it when all was thought to be gone.
func TestPositionOfADeletedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		p := e.proc()
		e.publish("t", 0, 10, false)
		a := p.join("c", l, nil)
		eventually(t, time.Second, "all", func() bool { return l.reached(e, "t", 1) })
		e.ok(e.store.DeleteCategory(t.Context(), "t"))
		a.ends()
		e.topic("t", 1)
		e.publish("t", 0, 20, false)
		again := newLedger(false)
		b := p.join("c", again, nil)
		eventually(t, settled, "all of the new one", func() bool { return again.reached(e, "t", 1) })
		again.check(t)
		b.kill()
	})
}

// A log that lost its end, and has grown again since, is not gone on with: the message at
// the position is another one.
func TestPositionOfALogThatDiverged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		p := e.proc()
		e.publish("t", 0, 10, false)
		a := p.join("c", l, nil)
		eventually(t, time.Second, "all", func() bool { return l.reached(e, "t", 1) })
		a.stop.Store(true)
		e.publish("t", 0, 1, true)
		a.ends()
		k := e.known["t"]
		e.ok(e.store.DeleteCategory(t.Context(), "t"))
		e.topic("t", 1)
		e.known["t"] = k // as a copy of the database would say
		for _, n := range []int{5, 15} {
			e.publish("t", 0, n, false)
			b := p.join("c", l, nil)
			b.ends()
			if !errors.Is(b.err, eventstore.ErrDiverged) || len(b.has()) > 0 {
				t.Errorf("head %d: %v, has been given %v", e.head("t", 0), b.err, b.has())
			}
			time.Sleep(settled)
		}
	})
}

// What is trimmed before a consumer has it is told to its member, again and again, until
// it says that it goes on behind.
func TestConsumerBehindTheTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		p := e.proc()
		e.publish("t", 0, 10, false)
		_, err := e.store.Trim(t.Context(), "t-0", 3, false)
		e.ok(err)
		l.seen = map[int]eventstore.Seqno{0: 3} // it begins behind what is trimmed
		a := p.join("c", l, func(r *run, _ *Consumption) { r.commit = false })
		eventually(t, time.Second, "all", func() bool { return l.given(e, "t", 1) })
		a.kill()
		_, err = e.store.Trim(t.Context(), "t-0", 7, false)
		e.ok(err)
		for range 2 {
			b := p.join("c", l, func(r *run, _ *Consumption) { r.id = a.id })
			b.ends()
			if x, ok := errors.AsType[*eventstore.Error](b.err); !ok || x.Kind != eventstore.ErrTrimmed || x.First != 8 {
				t.Fatalf("from what is trimmed: %v", b.err)
			}
		}
		a.commitTo(t.Context(), 0, 7)
		b := p.join("c", l, func(r *run, _ *Consumption) { r.id = a.id })
		eventually(t, time.Second, "the rest", func() bool { return l.reached(e, "t", 1) })
		l.check(t)
		b.kill()
	})
}

// A position only rises; a commit of what does not exist is refused; of what is trimmed it
// is not; many places go in one append; old positions are trimmed.
func TestCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 4), newLedger(true)
		for n := range 4 {
			e.publish("t", n, 300, false)
		}
		p := e.proc()
		a := p.join("c", l, func(r *run, _ *Consumption) { r.commit = false })
		eventually(t, time.Second, "all", func() bool { return l.given(e, "t", 4) })
		appends := 0
		p.gate.before = func(call string, _ eventstore.Stream) {
			if call == "append" {
				appends++
			}
		}
		commit := func(c *consumers, places ...Place) ([]int, error) {
			return c.commit(t.Context(), Commit{Topic: "t", Consumer: "c", Member: a.id, Places: places})
		}
		calls := p.gate.calls.Load()
		lost, err := commit(p.c, Place{0, 10}, Place{1, 20}, Place{2, 30}, Place{3, 0})
		if err != nil || len(lost) > 0 || appends != 1 || p.gate.calls.Load()-calls != 1 {
			t.Errorf("lost %v, %v, %d appends, %d calls", lost, err, appends, p.gate.calls.Load()-calls)
		}
		for _, c := range []*consumers{p.c, e.proc().c} {
			if lost, err := commit(c, Place{0, 9}, Place{1, 20}, Place{3, 0}); err != nil || len(lost) > 0 {
				t.Errorf("lower: lost %v, %v", lost, err)
			}
			if _, err := commit(c, Place{0, 301}, Place{1, 30}); !errors.Is(err, eventstore.ErrGap) {
				t.Errorf("above the head: %v", err)
			}
			if _, err := commit(c, Place{0, 1 << 62}); !errors.Is(err, eventstore.ErrGap) {
				t.Errorf("far above the head: %v", err)
			}
		}
		if said := e.describe(p.c, 4)["c"]; said != "10+290 20+280 30+270 0+300 " {
			t.Errorf("%s", said)
		}
		// By turns through two brokers: what one remembers is stale each time.
		other := e.proc()
		for n := eventstore.Seqno(11); n <= 250; n++ {
			c := p.c
			if n%2 == 0 {
				c = other.c
			}
			if lost, err := commit(c, Place{0, n}, Place{3, n}); err != nil || len(lost) > 0 {
				t.Fatalf("%d: lost %v, %v", n, lost, err)
			}
		}
		if said := e.describe(p.c, 4)["c"]; said != "250+50 20+280 30+270 250+50 " {
			t.Errorf("%s", said)
		}
		if h, err := e.store.Head(t.Context(), positionStream("t", 0, "c")); err != nil || h.Last.Seqno < 240 || h.Last.Seqno-h.Trimmed > keptPositions+1 {
			t.Errorf("the stream of a position: %+v, %v", h, err)
		}
		_, err = e.store.Trim(t.Context(), "t-0", 260, false)
		e.ok(err)
		for i, c := range []*consumers{p.c, other.c} {
			if lost, err := commit(c, Place{0, eventstore.Seqno(255 + i)}); err != nil || len(lost) > 0 {
				t.Errorf("trimmed: lost %v, %v", lost, err)
			}
		}
		// Some are lost, the others stored.
		_, err = e.store.Fence(t.Context(), positionStream("t", 1, "c"), eventstore.UUID{9})
		e.ok(err)
		if lost, err := commit(p.c, Place{0, 290}, Place{1, 290}, Place{2, 290}); err != nil || fmt.Sprint(lost) != "[1]" {
			t.Errorf("one is another's: lost %v, %v", lost, err)
		}
		if said := e.describe(p.c, 4)["c"]; said[:len("290+10 20+280 290+10 ")] != "290+10 20+280 290+10 " {
			t.Errorf("%s", said)
		}
		a.kill()
	})
}

// A consumer that begins with the first message may find that gone when it comes to read:
// it begins behind. From then on nothing is passed over.
func TestBeginningRacesTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, consumer := range []string{"", "c"} {
			e, l := memEnv(t, 1), newLedger(true)
			e.publish("t", 0, 10, false)
			p := e.proc()
			trim := sync.OnceFunc(func() {
				_, err := e.store.Trim(context.Background(), "t-0", 4, false)
				e.ok(err)
			})
			p.gate.before = func(call string, s eventstore.Stream) {
				if call == "read" && s == "t-0" {
					trim()
				}
			}
			l.seen = map[int]eventstore.Seqno{0: 4}
			r := p.join(consumer, l, func(r *run, _ *Consumption) { r.commit = false })
			eventually(t, time.Second, "the rest", func() bool { return l.given(e, "t", 1) })
			time.Sleep(time.Second)
			e.publish("t", 0, 10, false)
			_, err := e.store.Trim(t.Context(), "t-0", 15, false)
			e.ok(err)
			r.ends()
			if !errors.Is(r.err, eventstore.ErrTrimmed) {
				t.Errorf("%q: %v", consumer, r.err)
			}
			l.check(t)
		}
		// One that waits at the end of an empty log is not fresh any more.
		e := memEnv(t, 1)
		r := e.proc().join("", newLedger(false), nil)
		synctest.Wait()
		e.publish("t", 0, 10, false)
		_, err := e.store.Trim(t.Context(), "t-0", 5, false)
		e.ok(err)
		r.ends()
		if !errors.Is(r.err, eventstore.ErrTrimmed) {
			t.Error(r.err)
		}
	})
}
