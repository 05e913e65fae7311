// Linear: concurrent histories, checked to be linearizable.

package logtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/wattle-es/wattle/eventstore"
)

// LinearOptions bound [Linear]; the zero value is 500 histories of 100 operations by
// six clients on three streams, through one log.
type LinearOptions struct {
	Histories  int           // 0: 500, 20 000 with WATTLE_SOAK, a tenth with -short
	Operations int           // in each, on all its streams; 0: 100
	Clients    int           // in each; 0: 6
	Streams    int           // of each; 0: 3
	Logs       int           // how many logs on the store the clients are spread over; 0: 1
	Parallel   int           // histories side by side; 0: 1
	Limit      time.Duration // no history begins after that, at least one is run; 0: 20 minutes
	Seed       uint64        // of what the clients do; 0: a new one, which is printed
	Dir        string        // for the drawing of a history that fails; empty: that of temporary files

	// Fault does some harm to the log beside the histories; one fault at a time, one
	// for about 25 answers. Calls may then be refused as unavailable or overloaded,
	// and wrote nothing. Nil: no faults.
	Fault func(rng *rand.Rand)
}

// linearFaultEvery is how many answers come between two faults. Counting answers, not
// time, leaves a slow machine as far as a fast one.
const linearFaultEvery = 25

// Linear runs histories of clients that append, fence, trim and read the same streams
// at once, and demands that every stream of each is linearizable: all answers are
// those of one stream on which the calls took effect one after the other, each
// somewhere between its start and its return. Answers are compared whole: receipts,
// kinds of refusals by their rank and the facts in them, heads, pages.
//
// Clients claim, own, guess epochs and marks, send batches ahead of the answers, send
// again what they or others have sent, with the same content or another, give up
// while a call is under way, and lose answers. A call of which nothing is known may
// have its effect at any later time, or never.
//
// A history that fails is made small and printed, and drawn in a file that a browser
// shows. The seed gives the calls that clients draw, not how they fall together.
func Linear(t testing.TB, h Harness, o LinearOptions) {
	o.defaults()
	r := &linearRun{TB: t, o: o, faulty: o.Fault != nil, harm: make(chan bool, 1), counts: map[string]int{}}
	first := h.Open(t)
	r.stores = append(r.stores, eventstore.New(first, nil))
	for len(r.stores) < o.Logs {
		log := first
		if h.Reopen != nil {
			log = h.Reopen(t, first)
		}
		r.stores = append(r.stores, eventstore.New(log, nil))
	}
	e := newEnv(t, h, first, "linear")
	r.category = e.category
	r.run()
	t.Logf("linear: %s; seed %d", r, o.Seed)
	if n := r.done.Load(); !t.Failed() && int(n) == o.Histories && n >= 100 {
		r.wantAll()
	}
}

func (o *LinearOptions) defaults() {
	for _, d := range []struct {
		of   *int
		want int
	}{{&o.Operations, 100}, {&o.Clients, 6}, {&o.Streams, 3}, {&o.Logs, 1}, {&o.Parallel, 1}} {
		if *d.of == 0 {
			*d.of = d.want
		}
	}
	switch {
	case o.Histories != 0:
	case soak():
		o.Histories = 20_000
	default:
		o.Histories = rounds(500)
	}
	if o.Limit == 0 {
		o.Limit = 20 * time.Minute
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
}

// linearRun is one call of Linear.
type linearRun struct {
	testing.TB
	o        LinearOptions
	faulty   bool
	harm     chan bool // a fault is due
	stores   []*eventstore.Store
	category eventstore.Category
	began    time.Time
	done     atomic.Int64 // histories

	mu      sync.Mutex
	counts  map[string]int // of calls by operation and outcome
	open    int            // calls of which nothing is known
	answers int            // that faults are counted by
	checks  int            // streams that were checked
	slowest time.Duration  // that a check took
}

func (r *linearRun) run() {
	ctx, cancel := context.WithTimeout(context.Background(), r.o.Limit+caseTimeout)
	defer cancel()
	r.began = time.Now()
	var histories, faults sync.WaitGroup
	if r.faulty {
		rng := rand.New(rand.NewPCG(r.o.Seed, 1))
		faults.Go(func() {
			for range r.harm {
				r.o.Fault(rng)
			}
		})
	}
	var next atomic.Int64
	for range r.o.Parallel {
		histories.Go(func() {
			for n := next.Add(1); int(n) <= r.o.Histories && !r.Failed() && (n == 1 || time.Since(r.began) < r.o.Limit); n = next.Add(1) {
				r.history(ctx, int(n))
			}
		})
	}
	histories.Wait()
	close(r.harm)
	faults.Wait()
}

// history runs one history and checks it.
func (r *linearRun) history(ctx context.Context, n int) {
	h := &linearHistory{linearRun: r, ctx: ctx, n: n}
	for i := range r.o.Streams {
		h.streams = append(h.streams, &linearStream{name: streamIn(r.category, fmt.Sprintf("%d-%d", n, i))})
	}
	for range 3 {
		h.holders = append(h.holders, eventstore.NewUUID())
	}
	h.left.Store(int64(r.o.Operations))
	together(r.o.Clients, func(i int) {
		for c := h.client(i); h.left.Add(-1) >= 0 && ctx.Err() == nil; {
			c.act()
		}
	})
	h.late.Wait()
	h.client(r.o.Clients).conclude()
	if ctx.Err() != nil {
		r.Errorf("history %d did not come to an end; seed %d", n, r.o.Seed)
		return
	}
	h.close()
	h.check()
	r.done.Add(1)
}

// linearHistory is one history.
type linearHistory struct {
	*linearRun
	ctx     context.Context
	n       int
	streams []*linearStream
	holders []eventstore.UUID // epochs are claimed for
	left    atomic.Int64      // calls still to be drawn
	clock   atomic.Int64      // orders starts and returns
	late    sync.WaitGroup    // calls whose answers were lost on their way

	mu  sync.Mutex
	ops []porcupine.Operation
}

// linearStream is what all clients of a history know of a stream together.
type linearStream struct {
	name eventstore.Stream

	mu    sync.Mutex
	sent  []*linearBatch
	marks []eventstore.Mark // of entries that were seen, and of some that are none
}

// note adds a call and its answer to the history. An answer that says that nothing
// was done is none of it: should something have been done, no call explains it.
func (h *linearHistory) note(client int, begin int64, c *linearCall, a *linearAnswer, outcome string) {
	end := h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if a != nil {
		h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: begin, Output: a, Return: end})
	}
	h.linearRun.mu.Lock()
	defer h.linearRun.mu.Unlock()
	h.counts[c.op+" "+outcome]++
	if a == nil {
		return
	}
	if a.unknown {
		h.open++
	}
	if h.answers++; h.faulty && h.answers%linearFaultEvery == 0 {
		select {
		case h.harm <- true:
		default: // one is under way and one waits: no more
		}
	}
}

// close lets the calls of which nothing is known return when all is over.
func (h *linearHistory) close() {
	end := h.clock.Add(1)
	for i := range h.ops {
		if h.ops[i].Output.(*linearAnswer).unknown {
			h.ops[i].Return = end
		}
	}
}

// checkLimit ends a check that finds no answer; they take milliseconds.
const checkLimit = time.Minute

// check looks for an order of the calls, then at what is the same in every order.
func (h *linearHistory) check() {
	began := time.Now()
	parts := byStream(h.ops)
	verdict := porcupine.CheckOperationsTimeout(linearModel, h.ops, checkLimit)
	took := time.Since(began)
	h.linearRun.mu.Lock()
	h.checks += len(parts)
	h.slowest = max(h.slowest, took)
	h.linearRun.mu.Unlock()
	switch verdict {
	case porcupine.Illegal:
		h.report(parts)
	case porcupine.Unknown:
		h.Errorf("history %d: no order of its calls found or excluded in %v; seed %d", h.n, checkLimit, h.o.Seed)
	}
	for _, part := range parts {
		h.checkPlaces(part)
	}
}

// checkPlaces: an entry has one position and one time, whoever reads it; positions
// rise and times never fall along the stream; a token is its last entry's position.
func (h *linearHistory) checkPlaces(part []porcupine.Operation) {
	at := map[eventstore.Seqno]eventstore.Entry{}
	for _, op := range part {
		for _, e := range op.Output.(*linearAnswer).page {
			if was, ok := at[e.Seqno]; ok && (was.Position != e.Position || !was.Time.Equal(e.Time)) {
				h.Errorf("%s: entry %d was read at position %d of %v and at %d of %v", e.Stream, e.Seqno, was.Position, was.Time, e.Position, e.Time)
			}
			at[e.Seqno] = e
		}
	}
	before := eventstore.Entry{}
	for _, n := range slices.Sorted(maps.Keys(at)) {
		if e := at[n]; e.Position <= before.Position || e.Time.Before(before.Time) {
			h.Errorf("%s: entry %d at position %d of %v, behind %d of %v", e.Stream, n, e.Position, e.Time, before.Position, before.Time)
		}
		before = at[n]
	}
	for _, op := range part {
		a := op.Output.(*linearAnswer)
		if e, ok := at[a.receipt.Last.Seqno]; ok && a.token != e.Position {
			h.Errorf("%s: append through %d was answered with position %d, its last entry stands at %d", e.Stream, e.Seqno, a.token, e.Position)
		}
	}
}

// String is one line of what was done.
func (r *linearRun) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		total += r.counts[k]
		parts = append(parts, fmt.Sprintf("%s %d", k, r.counts[k]))
	}
	return fmt.Sprintf("%d histories of %d clients through %d logs, %d operations, %d with unknown outcome, %d streams checked, the slowest history in %v, %.1f s (%s)",
		r.done.Load(), r.o.Clients, len(r.stores), total, r.open, r.checks, r.slowest.Round(time.Millisecond), time.Since(r.began).Seconds(), strings.Join(parts, ", "))
}

// wantAll demands that many histories have shown every outcome that there is.
func (r *linearRun) wantAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, want := range []string{"append ok", "append replayed", "append lost", "append fenced", "append history diverged", "append already written", "append gap",
		"append batch ID reused", "append unprovable", "fence ok", "fence fenced", "head ok", "read ok", "read trimmed", "load ok", "load trimmed", "trim ok"} {
		if r.counts[want] == 0 {
			r.Errorf("linear: no outcome %q in all histories; seed %d", want, r.o.Seed)
		}
	}
	if r.faulty && r.counts["append outcome unknown"] == 0 {
		r.Errorf("linear: no append with unknown outcome for all faults; seed %d", r.o.Seed)
	}
}
