// Probe: feed readers that must miss nothing, whatever commits late or rolls back.

package logtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// ProbeOptions bound a Probe; the zero value is a second of eight writers.
type ProbeOptions struct {
	Duration time.Duration // of writing; 0: one second, ten with WATTLE_SOAK
	Writers  int           // 0: 8
	Seed     uint64        // of what the writers do; 0: a new one, which is printed
}

// Probe lets many writers append to streams of their own and to streams that they
// fight for, some in transactions that stay open for a while and some in ones that
// roll back, while readers follow the feed without pause, each from the position
// of the last entry it was told it has passed. In the end every entry must have
// been delivered to every reader that it concerns, once, and in the order of its
// stream. The counts and the seed are logged.
func Probe(t testing.TB, h Harness, o ProbeOptions) {
	if o.Duration == 0 {
		o.Duration = time.Second
		if soak() {
			o.Duration *= 10
		}
	}
	if o.Writers == 0 {
		o.Writers = 8
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	p := newProbe(t, h, o)
	var writers, readers sync.WaitGroup
	for i := range p.readers {
		readers.Go(func() { p.follow(&p.readers[i]) })
	}
	for i := range o.Writers {
		writers.Go(func() { p.write(i) })
	}
	writers.Wait()
	p.found = p.collect()
	p.finished.Store(true)
	readers.Wait()
	p.judge()
	Check(t, p.store, p.history)
}

type probe struct {
	*env
	o        ProbeOptions
	deadline time.Time
	other    eventstore.Category
	readers  []Reader

	appends, several, long, rolledBack, refused atomic.Int64

	finished atomic.Bool
	found    map[eventstore.Stream][]eventstore.Entry // set before finished
}

// types of the events that the writers append.
var probeTypes = []string{"probed", "other"}

func newProbe(t testing.TB, h Harness, o ProbeOptions) *probe {
	p := &probe{env: newEnv(t, h, h.Open(t), "probe"), o: o}
	ctx, cancel := context.WithTimeout(context.Background(), o.Duration+caseTimeout)
	t.Cleanup(cancel)
	p.ctx = ctx
	p.deadline = time.Now().Add(o.Duration)
	p.other = p.newCategory("probe", true)
	both := []eventstore.Category{p.category, p.other}
	p.readers = []Reader{
		{Name: "of everything", Filter: eventstore.Filter{}, Limit: 500},
		{Name: "of both, in small pages", Filter: eventstore.Filter{Categories: both}, Limit: 3},
		{Name: "of one category and type", Filter: eventstore.Filter{Categories: both[1:], Types: probeTypes[:1]}, Limit: 20},
	}
	return p
}

// write appends until the time is up.
func (p *probe) write(i int) {
	rng := rand.New(rand.NewPCG(p.o.Seed, uint64(i)))
	mine := []*writer{p.owned(p.category, i), p.owned(p.other, i)}
	for time.Now().Before(p.deadline) && !p.Failed() {
		switch n := rng.IntN(100); {
		case n < 50:
			p.send(rng, mine[n%2:n%2+1], rng.IntN(10) == 0)
		case n < 70:
			p.several.Add(1)
			p.send(rng, mine, rng.IntN(5) == 0)
		default:
			p.fight(rng)
		}
	}
}

func (p *probe) owned(c eventstore.Category, i int) *writer {
	return &writer{e: p.env, stream: streamIn(c, fmt.Sprint(i)), holder: eventstore.NewUUID(), epoch: 1}
}

// send appends to streams of the writer's own, where nothing can be refused. If
// long, then in a transaction that stays open for a while, and rolls back each
// second time.
func (p *probe) send(rng *rand.Rand, ws []*writer, long bool) {
	var a eventstore.Append
	for _, w := range ws {
		a.Batches = append(a.Batches, whole(w.batch(probeEvents(rng)...)))
	}
	commit := true
	var err error
	if long {
		commit = rng.IntN(2) == 0
		pause := time.Duration(rng.IntN(20_000)) * time.Microsecond
		err = p.longTx(a, func() { time.Sleep(pause) }, commit)
	} else {
		_, err = p.append(a)
	}
	switch {
	case err != nil:
		p.Errorf("append to streams that nobody else writes = %v, want nil", err)
		return
	case !commit:
		p.rolledBack.Add(1)
		return
	case long:
		p.long.Add(1)
	default:
		p.appends.Add(1)
	}
	for i, b := range a.Batches {
		ws[i].last = eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}
		ws[i].owns = true
	}
}

// fight claims a stream that all writers want.
func (p *probe) fight(rng *rand.Rand) {
	s := streamIn([]eventstore.Category{p.category, p.other}[rng.IntN(2)], fmt.Sprint("hot", rng.IntN(2)))
	h, err := p.store.Head(p.ctx, s)
	if err == nil {
		_, err = p.append(appendOf(eventstore.Batch{Stream: s, Epoch: h.Epoch + 1, Holder: eventstore.NewUUID(), Claim: true, After: h.Last, Events: probeEvents(rng)}))
	}
	switch {
	case err == nil:
		p.appends.Add(1)
	case errors.Is(err, eventstore.ErrFenced) || errors.Is(err, eventstore.ErrAlreadyWritten):
		p.refused.Add(1)
	default:
		p.Errorf("append to a stream that all want = %v, want nil, fenced or already written", err)
	}
}

func probeEvents(rng *rand.Rand) []eventstore.Event {
	all := events(1 + rng.IntN(3))
	for i := range all {
		all[i].Type = probeTypes[rng.IntN(2)]
	}
	return all
}

// follow reads the feed until all that was written has been passed.
func (p *probe) follow(r *Reader) {
	err := r.Follow(p.ctx, p.store, func() (eventstore.Position, bool) {
		if !p.finished.Load() {
			return 0, false
		}
		return p.highest(), true
	})
	if err != nil {
		p.Errorf("%v", err)
	}
}

// highest is the highest position that was written.
func (p *probe) highest() eventstore.Position {
	highest := eventstore.Position(0)
	for _, entries := range p.found {
		if n := len(entries); n > 0 {
			highest = max(highest, entries[n-1].Position)
		}
	}
	return highest
}

// collect reads all streams.
func (p *probe) collect() map[eventstore.Stream][]eventstore.Entry {
	found := map[eventstore.Stream][]eventstore.Entry{}
	for _, c := range []eventstore.Category{p.category, p.other} {
		keys := []string{"hot0", "hot1"}
		for i := range p.o.Writers {
			keys = append(keys, fmt.Sprint(i))
		}
		for _, k := range keys {
			found[streamIn(c, k)] = p.read(streamIn(c, k), 0)
		}
	}
	return found
}

// judge counts what each reader missed, saw twice or saw out of order.
func (p *probe) judge() {
	entries := 0
	for _, all := range p.found {
		entries += len(all)
	}
	p.Logf("probe: %d entries by %d appends (%d of several streams), %d in long transactions, %d rolled back, %d refused; seed %d",
		entries, p.appends.Load(), p.several.Load(), p.long.Load(), p.rolledBack.Load(), p.refused.Load(), p.o.Seed)
	for _, r := range p.readers {
		r.Judge(p, p.found)
	}
	if p.Failed() {
		p.Errorf("seed %d", p.o.Seed)
	}
}
