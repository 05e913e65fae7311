// Random histories of consumers: who comes, goes, is lost, frozen, comes back, commits late
// or elsewhere, while the store fails now and then. What is delivered is compared with the
// simplest model: each partition in order from the last position.

package topic

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var (
	chanceSeed  = flag.Int64("consume.seed", 0, "first seed of the random histories of consumers; 0: 1")
	chanceCount = flag.Int("consume.histories", 100, "how many")
)

func TestByChance(t *testing.T) {
	first := max(*chanceSeed, 1)
	for seed := first; seed < first+int64(*chanceCount); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, seed).play(60) })
		})
	}
}

// history is one of them.
type history struct {
	t          *testing.T
	rng        *rand.Rand
	e          *env
	partitions int
	procs      []*proc
	thaw       map[*proc]func()
	consumers  []string
	ledgers    map[string]*ledger
	runs       []*run // that have not been ended by the history
	gone       []*run // that may come back
	twice      bool   // a member may come while it is there, and commit through other processes than its own
	model      map[string][]eventstore.Seqno
}

func newHistory(t *testing.T, seed int64) *history {
	h := &history{t: t, rng: rand.New(rand.NewSource(seed)), thaw: map[*proc]func(){}, ledgers: map[string]*ledger{}, model: map[string][]eventstore.Seqno{}}
	h.twice = h.rng.Intn(2) == 0
	h.partitions = 1 + h.rng.Intn(5)
	h.e = memEnv(t, h.partitions)
	for range 1 + h.rng.Intn(4) {
		h.procs = append(h.procs, h.e.proc())
	}
	for n := range 1 + h.rng.Intn(2) {
		name := fmt.Sprint("c", n)
		h.consumers = append(h.consumers, name)
		h.ledgers[name] = newLedger(true)
		h.ledgers[name].twice = h.twice
		h.model[name] = make([]eventstore.Seqno, h.partitions)
	}
	return h
}

// say adds to the stories of all consumers.
func (h *history) say(format string, args ...any) {
	for _, l := range h.ledgers {
		l.mu.Lock()
		l.say(format, args...)
		l.mu.Unlock()
	}
}

func (h *history) play(steps int) {
	for range steps {
		switch n := h.rng.Intn(100); {
		case n < 35:
			h.e.publish("t", h.rng.Intn(h.partitions), 1+h.rng.Intn(20), h.rng.Intn(4) > 0)
		case n < 55:
			time.Sleep(time.Duration(h.rng.Int63n(int64(testTTL))))
		case n < 70:
			h.join()
		case n < 80:
			h.leave()
		case n < 90:
			h.freeze()
		case n < 95:
			h.fail()
		default:
			h.heal()
		}
		h.look()
	}
	h.heal()
	for _, name := range h.consumers {
		h.start(name, eventstore.NewUUID(), false) // the others may have ended with an error
	}
	// Who commits nothing has a share too: it goes, as all faults have been healed.
	for _, r := range h.runs {
		if !r.commit {
			r.kill()
		}
	}
	for _, name := range h.consumers {
		l, until := h.ledgers[name], time.Now().Add(2*settled+testTTL/2)
		for !l.reached(h.e, "t", h.partitions) && time.Now().Before(until) {
			time.Sleep(10 * time.Millisecond)
		}
		if !l.reached(h.e, "t", h.partitions) {
			h.t.Errorf("not all came to %s: committed %v", name, l.acked)
		}
		l.check(h.t)
	}
	h.look()
	for _, r := range h.runs {
		r.kill()
		if r.err != nil && !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, eventstore.ErrLeaseLost) && !temporary(r.err) {
			h.t.Errorf("a member ended with %v", r.err)
		}
	}
}

// join starts a member, one that was lost or a new one.
func (h *history) join() {
	if len(h.runs) > 8 {
		return
	}
	if n := len(h.gone); n > 0 && h.rng.Intn(2) == 0 {
		h.start(h.gone[n-1].consumer, h.gone[n-1].id, h.rng.Intn(5) == 0)
		h.gone = h.gone[:n-1]
		return
	}
	if h.twice && len(h.runs) > 0 && h.rng.Intn(4) == 0 {
		r := h.runs[h.rng.Intn(len(h.runs))]
		h.start(r.consumer, r.id, false)
		return
	}
	h.start(h.consumers[h.rng.Intn(len(h.consumers))], eventstore.NewUUID(), h.rng.Intn(5) == 0)
}

func (h *history) start(name string, id eventstore.UUID, lazy bool) {
	p := h.procs[h.rng.Intn(len(h.procs))]
	for h.thaw[p] != nil && len(h.thaw) < len(h.procs) {
		p = h.procs[h.rng.Intn(len(h.procs))]
	}
	slow, own := rand.New(rand.NewSource(h.rng.Int63())), !h.twice || h.rng.Intn(3) > 0
	elsewhere := h.procs[h.rng.Intn(len(h.procs))]
	h.say("%x joins %s on %d, lazy %v, commits elsewhere %v", id[12:], name, slices.Index(h.procs, p), lazy, !own)
	h.runs = append(h.runs, p.join(name, h.ledgers[name], func(r *run, _ *Consumption) {
		r.id, r.commit = id, !lazy
		if !own {
			r.via = elsewhere
		}
		r.body = func(Delivery) {
			if slow.Intn(4) == 0 {
				time.Sleep(time.Duration(slow.Int63n(int64(testTTL))))
			}
			r.frozen()
		}
	}))
}

// leave ends a member: as one that has had enough, or as one that is lost.
func (h *history) leave() {
	if len(h.runs) == 0 {
		return
	}
	i := h.rng.Intn(len(h.runs))
	r := h.runs[i]
	if h.thaw[r.p] != nil || r.via != nil && h.thaw[r.via] != nil {
		return // it could not be waited for
	}
	h.runs = slices.Delete(h.runs, i, i+1)
	away := h.rng.Intn(2) == 0
	h.say("%x is ended, released %v", r.id[12:], away)
	if away {
		r.stop.Store(true) // it ends with its next Delivery
		<-r.done
	} else {
		r.kill()
	}
	h.gone = append(h.gone, r)
}

// freeze stops a process: its calls to the store, and its loop bodies at the next Delivery.
func (h *history) freeze() {
	p := h.procs[h.rng.Intn(len(h.procs))]
	if h.thaw[p] == nil {
		h.say("%d freezes", slices.Index(h.procs, p))
		h.thaw[p] = p.gate.freeze()
	}
}

func (h *history) fail() {
	p := h.procs[h.rng.Intn(len(h.procs))]
	kind := []error{eventstore.ErrUnavailable, eventstore.ErrOverloaded}[h.rng.Intn(2)]
	h.say("the store fails %d", slices.Index(h.procs, p))
	p.gate.failWith(&eventstore.Error{Kind: kind, Op: "test"})
	time.Sleep(time.Duration(h.rng.Int63n(int64(testTTL))))
	p.gate.failWith(nil)
	h.say("it does not any more")
}

func (h *history) heal() {
	for p, thaw := range h.thaw {
		h.say("%d thaws", slices.Index(h.procs, p))
		thaw()
		delete(h.thaw, p)
	}
}

// look compares the positions that are stored with the model: they never fall, and stand
// where a Commit was answered or beyond.
func (h *history) look() {
	reader := newConsumers(h.e.store, h.e.lookup, nil, consumeOptions{})
	for _, name := range h.consumers {
		for p := range h.partitions {
			l := h.ledgers[name]
			l.mu.Lock()
			acked := l.acked[p]
			l.mu.Unlock()
			pos, err := reader.loadPosition(context.Background(), h.e.known["t"].id, positionStream("t", p, name))
			if errors.Is(err, eventstore.ErrNoSuchCategory) {
				continue
			}
			h.e.ok(err)
			if at := pos.at.Seqno; at < h.model[name][p] || at < acked || at > h.e.head("t", p) {
				h.t.Errorf("%s: the position in %d is %d, was %d, committed through %d", name, p, at, h.model[name][p], acked)
			}
			h.model[name][p] = pos.at.Seqno
		}
	}
}
