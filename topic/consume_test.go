// Consuming without a name: from places, from the first, from now on; live; in turn.

package topic

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

func TestConsumeFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 4), newLedger(false)
		for p := range 4 {
			e.publish("t", p, 700*p+1, false) // more than a page
		}
		r := e.proc().join("", l, nil)
		eventually(t, time.Second, "what was there", func() bool { return l.reached(e, "t", 4) })
		began := time.Now()
		for p := range 4 {
			e.publish("t", p, 3, true)
		}
		synctest.Wait()
		if !l.reached(e, "t", 4) || time.Since(began) > 0 {
			t.Error("what the broker was told of was not delivered at once")
		}
		e.publish("t", 2, 3, false)
		eventually(t, 2*eventstore.DefaultPollInterval, "what nobody told of", func() bool { return l.reached(e, "t", 4) })
		r.kill()
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("it ended with %v", r.err)
		}
		l.check(t)
	})
}

func TestConsumeFromPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 3)
		for p := range 3 {
			e.publish("t", p, 10, false)
		}
		read := func(q Consumption, n int) (offsets []int) {
			q.Topic = "t"
			e.ok(collect(within(t), e.proc().c, q, func(d Delivery) bool {
				for _, m := range d.Messages {
					offsets = append(offsets, 100*m.Partition+int(m.Offset))
				}
				return len(offsets) >= n
			}))
			return offsets
		}
		if got := read(Consumption{Places: []Place{{1, 8}}, Only: true}, 2); len(got) != 2 || got[0] != 109 || got[1] != 110 {
			t.Errorf("only 1 from 8: %v", got)
		}
		if got := read(Consumption{Places: []Place{{1, 8}}}, 22); len(got) != 22 {
			t.Errorf("1 from 8, the others from the first: %v", got)
		}
		// The others from now on: publish when the first Delivery says that it has begun.
		var offsets []eventstore.Seqno
		began := false
		e.ok(collect(within(t), e.proc().c, Consumption{Topic: "t", Places: []Place{{1, 8}}, Start: New}, func(d Delivery) bool {
			if !began {
				began = true
				e.publish("t", 0, 1, false)
			}
			for _, m := range d.Messages {
				offsets = append(offsets, m.Offset)
			}
			return len(offsets) == 3
		}))
	})
}

// What is published while a Consume from now on begins is delivered, from the moment on
// that it looked.
func TestNewLosesNothingBehindTheHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, consumer := range []string{"", "c"} {
			e, l := memEnv(t, 2), newLedger(false)
			e.publish("t", 0, 5, false)
			e.publish("t", 1, 5, false)
			p := e.proc()
			heads := 0
			var mu sync.Mutex
			p.gate.before = func(call string, s eventstore.Stream) {
				mu.Lock()
				defer mu.Unlock()
				// Between the look at the heads and all that follows.
				if s.Category() == "t" && call == "head" {
					heads++
				}
				if heads == 2 && (s.Category() == positionCategory || call == "read" || call == "leases") {
					heads++
					e.publish("t", 0, 1, false)
					e.publish("t", 1, 1, false)
				}
			}
			l.seen = map[int]eventstore.Seqno{0: 5, 1: 5}
			r := p.join(consumer, l, func(r *run, q *Consumption) { q.Start = New })
			eventually(t, 2*time.Second, "what came meanwhile", func() bool { return l.reached(e, "t", 2) })
			r.kill()
			l.check(t)
		}
	})
}

func TestConsumeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 3)
		e.publish("t", 0, 10, false)
		c := e.proc().c
		long := strings.Repeat("x", MaxConsumerBytes+1)
		for name, test := range map[string]struct {
			q    Consumption
			want error
		}{
			"no such topic":     {Consumption{Topic: "other"}, ErrNoSuchTopic},
			"start":             {Consumption{Topic: "t", Start: 2}, eventstore.ErrInvalid},
			"partition":         {Consumption{Topic: "t", Places: []Place{{3, 0}}}, eventstore.ErrInvalid},
			"negative":          {Consumption{Topic: "t", Places: []Place{{-1, 0}}}, eventstore.ErrInvalid},
			"twice":             {Consumption{Topic: "t", Places: []Place{{1, 0}, {1, 1}}}, eventstore.ErrInvalid},
			"huge":              {Consumption{Topic: "t", Places: []Place{{1, 1 << 63}}}, eventstore.ErrInvalid},
			"only nothing":      {Consumption{Topic: "t", Only: true}, eventstore.ErrInvalid},
			"member, no name":   {Consumption{Topic: "t", Member: eventstore.UUID{1}}, eventstore.ErrInvalid},
			"name and places":   {Consumption{Topic: "t", Consumer: "c", Places: []Place{{1, 1}}}, eventstore.ErrInvalid},
			"long name":         {Consumption{Topic: "t", Consumer: long}, eventstore.ErrInvalid},
			"line break":        {Consumption{Topic: "t", Consumer: "a\nb"}, eventstore.ErrInvalid},
			"bad UTF-8":         {Consumption{Topic: "t", Consumer: "a\xff"}, eventstore.ErrInvalid},
			"above the head":    {Consumption{Topic: "t", Places: []Place{{0, 11}}}, eventstore.ErrDiverged},
			"above, empty":      {Consumption{Topic: "t", Places: []Place{{1, 1}}}, eventstore.ErrDiverged},
			"far above, only":   {Consumption{Topic: "t", Places: []Place{{0, 1<<63 - 1}}, Only: true}, eventstore.ErrDiverged},
			"from now on, also": {Consumption{Topic: "t", Places: []Place{{1, 1}}, Start: New}, eventstore.ErrDiverged},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := collect(ctx, c, test.q, func(Delivery) bool { return false }); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
			cancel()
		}
		for name, q := range map[string]Commit{
			"nobody":    {Topic: "t", Consumer: "c"},
			"no name":   {Topic: "t", Member: eventstore.UUID{1}},
			"partition": {Topic: "t", Consumer: "c", Member: eventstore.UUID{1}, Places: []Place{{3, 1}}},
		} {
			if _, err := c.commit(t.Context(), q); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("commit, %s: %v", name, err)
			}
		}
		if _, err := c.commit(t.Context(), Commit{Topic: "u", Consumer: "c", Member: eventstore.UUID{1}}); !errors.Is(err, ErrNoSuchTopic) {
			t.Errorf("commit: %v", err)
		}
		// Nobody ever consumed: nothing is there to commit to.
		lost, err := c.commit(t.Context(), Commit{Topic: "t", Consumer: "c", Member: eventstore.UUID{1}, Places: []Place{{0, 1}}})
		if err != nil || len(lost) != 1 {
			t.Errorf("commit by nobody: lost %v, %v", lost, err)
		}
	})
}

// What is trimmed is never passed over in silence; only who asks for the first that is
// there begins behind it.
func TestTrimmedIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 2)
		e.publish("t", 0, 10, false)
		_, err := e.store.Trim(t.Context(), "t-0", 6, false)
		e.ok(err)
		c := e.proc().c
		for _, at := range []eventstore.Seqno{0, 5} {
			err := collect(within(t), c, Consumption{Topic: "t", Places: []Place{{0, at}}}, func(Delivery) bool { return false })
			if x, ok := errors.AsType[*eventstore.Error](err); !ok || x.Kind != eventstore.ErrTrimmed || x.First != 7 || x.Stream != "t-0" {
				t.Errorf("from %d: %v", at, err)
			}
		}
		var first eventstore.Seqno
		e.ok(collect(within(t), c, Consumption{Topic: "t"}, func(d Delivery) bool { first = d.Messages[0].Offset; return true }))
		if first != 7 {
			t.Errorf("the first that is there: %d", first)
		}
		// Trimmed between two turns of one who has been delivered something.
		err = collect(within(t), c, Consumption{Topic: "t"}, func(d Delivery) bool {
			if len(d.Messages) > 0 && d.Messages[0].Offset == 7 {
				e.publish("t", 0, 5, false)
				_, err := e.store.Trim(context.Background(), "t-0", 13, false)
				e.ok(err)
			}
			return false
		})
		if x, ok := errors.AsType[*eventstore.Error](err); !ok || x.Kind != eventstore.ErrTrimmed || x.First != 14 {
			t.Errorf("trimmed behind it: %v", err)
		}
	})
}

// A topic that is deleted, or whose log loses its end, ends who consumes it.
func TestEndOfATopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, consumer := range []string{"", "c"} {
			for name, want := range map[string]error{"deleted": ErrNoSuchTopic, "anew": eventstore.ErrDiverged} {
				e, l := memEnv(t, 2), newLedger(false)
				e.publish("t", 0, 5, false)
				e.publish("t", 1, 5, false)
				r := e.proc().join(consumer, l, nil)
				eventually(t, time.Minute, "all", func() bool { return l.reached(e, "t", 2) })
				e.ok(e.store.DeleteCategory(t.Context(), "t"))
				if name == "anew" {
					e.topic("t", 2)
					e.publish("t", 0, 5, false) // as long as the one before
					e.publish("t", 1, 5, false)
				}
				if r.ends(); !errors.Is(r.err, want) {
					t.Errorf("%q, %s: %v", consumer, name, r.err)
				}
			}
		}
	})
}

// A partition in which there is always more does not hold up the others: they have their
// turn after one page of it.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 3)
		for p := range 3 {
			e.publish("t", p, 5*pageEntries, false)
		}
		var turns []int
		e.ok(collect(within(t), e.proc().c, Consumption{Topic: "t"}, func(d Delivery) bool {
			if turns = append(turns, d.Partition); d.Partition == 0 {
				e.publish("t", 0, len(d.Messages), true) // always more
			}
			return len(turns) == 15
		}))
		for i, p := range turns {
			if p != (turns[0]+i)%3 {
				t.Fatalf("turns of partitions: %v", turns)
			}
		}
	})
}

func TestDeliveriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 1)
		b := eventstore.Batch{Stream: "t-0", Epoch: 1, Holder: eventstore.UUID{1}, Claim: true}
		for range 20 {
			b.Events = append(b.Events, eventstore.Event{Type: "big", Data: make([]byte, MaxDeliveryBytes/4+1)})
		}
		_, err := e.store.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}})
		e.ok(err)
		n, ends := 0, 0
		e.ok(collect(within(t), e.proc().c, Consumption{Topic: "t"}, func(d Delivery) bool {
			bytes := 0
			for _, m := range d.Messages {
				bytes += len(m.Data)
			}
			if bytes > MaxDeliveryBytes+MaxDeliveryBytes/4 {
				t.Errorf("a Delivery of %d bytes", bytes)
			}
			if n += len(d.Messages); d.End {
				ends++
			}
			return n == 20
		}))
		if ends != 1 {
			t.Errorf("%d ends", ends)
		}
	})
}

// While nothing happens the store is asked once a poll for each partition, however many
// consume, and there is a sign of life now and then.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 40
		e, l := memEnv(t, partitions), newLedger(false)
		p := e.proc()
		runs := []*run{p.join("", newLedger(false), nil), p.join("", newLedger(false), nil), p.join("c", l, nil), p.join("c", l, nil), p.join("d", newLedger(false), nil)}
		time.Sleep(30 * time.Second)
		calls, reads := p.gate.calls.Load(), p.gate.reads.Load()
		lives := runs[0].signs()
		time.Sleep(time.Minute)
		polls := int64(time.Minute / eventstore.DefaultPollInterval)
		if n := p.gate.reads.Load() - reads; n > (polls+1)*pollPartitions || n < (polls-1)*pollPartitions {
			t.Errorf("%d reads in a minute of %d polls of %d partitions", n, polls, pollPartitions)
		}
		beats := int64(time.Minute / (testTTL / 3))
		if n := p.gate.calls.Load() - calls - (p.gate.reads.Load() - reads); n > 3*(beats+1) {
			t.Errorf("%d other calls in a minute of %d beats of three members", n, beats)
		}
		if n := runs[0].signs() - lives; n < 11 || n > 13 {
			t.Errorf("%d signs of life in a minute", n)
		}
		for _, r := range runs {
			r.kill()
		}
	})
}

// An outage is passed over while it is short. One that lasts is told, and there are no
// signs of life meanwhile.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, consumer := range []string{"", "c"} {
			e, l := memEnv(t, 2), newLedger(false)
			p := e.proc()
			e.publish("t", 0, 1, false)
			e.publish("t", 1, 1, false)
			r := p.join(consumer, l, nil)
			eventually(t, time.Minute, "all", func() bool { return l.reached(e, "t", 2) })
			down := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}
			p.gate.failWith(down)
			e.publish("t", 0, 1, true)
			time.Sleep(testTTL / 2)
			p.gate.failWith(nil)
			eventually(t, time.Minute, "what came meanwhile", func() bool { return l.reached(e, "t", 2) })
			p.gate.failWith(down)
			lives := r.signs()
			if r.ends(); !errors.Is(r.err, eventstore.ErrUnavailable) || r.lives != lives {
				t.Errorf("%q: %v, %d signs of life", consumer, r.err, r.lives-lives)
			}
			l.check(t)
		}
	})
}

// A log that lost its end while a loop body took its time, or nothing came, and has grown past
// the place since, is not gone on with. Where the message at the place is trimmed nobody can
// tell.
func TestConsumeDivergesBelowTheHead(t *testing.T) {
	for _, idle := range []bool{false, true} {
		for _, trimmed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				e := memEnv(t, 1)
				e.publish("t", 0, 100, false)
				p := e.proc()
				fails := func() {
					time.Sleep(2 * time.Second)
					thaw := p.gate.freeze()
					defer thaw()
					e.ok(e.store.DeleteCategory(t.Context(), "t"))
					e.topic("t", 1)
					if e.publish("t", 0, 105, false); trimmed {
						_, err := e.store.Trim(t.Context(), "t-0", 100, false)
						e.ok(err)
					}
				}
				if idle {
					time.AfterFunc(2*time.Second, fails)
				}
				n := 0
				err := collect(within(t), p.c, Consumption{Topic: "t"}, func(d Delivery) bool {
					if n += len(d.Messages); n == 100 && len(d.Messages) > 0 && !idle {
						fails()
					}
					return n > 100
				})
				if trimmed != (err == nil) || err != nil && !errors.Is(err, eventstore.ErrDiverged) {
					t.Errorf("idle %v, trimmed %v: %d messages, %v", idle, trimmed, n, err)
				}
			})
		}
	}
}
