// Members at work in tests: what each is given, and what it does with it.

package topic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// run is a member at work.
type run struct {
	p        *proc
	id       eventstore.UUID
	consumer string
	l        *ledger
	cancel   context.CancelFunc
	done     chan struct{}
	err      error
	commit   bool
	via      *proc            // that its commits go through; nil: its own
	stop     atomic.Bool      // the loop body has had enough
	body     func(Delivery)   // called with each Delivery, before it is committed
	mu       sync.Mutex       //
	parts    map[int]struct{} // of the last Assignment; nil: none yet
	told     int              // assignments
	lives    int              // signs of life
	lost     map[int]int      // commits that were refused, by partition
}

// join starts a member of a consumer.
func (p *proc) join(consumer string, l *ledger, change func(*run, *Consumption)) *run {
	r := &run{p: p, id: eventstore.NewUUID(), consumer: consumer, l: l, done: make(chan struct{}), commit: true, lost: map[int]int{}}
	q := Consumption{Topic: "t", Consumer: consumer}
	if change != nil {
		change(r, &q)
	}
	if q.Member = r.id; consumer == "" {
		q.Member = eventstore.UUID{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		for d, err := range p.c.consume(ctx, q) {
			if err != nil {
				r.err = err
				return
			}
			if r.take(ctx, q, d); r.stop.Load() {
				return
			}
		}
	}()
	p.e.t.Cleanup(func() { r.kill() })
	return r
}

func (r *run) take(ctx context.Context, q Consumption, d Delivery) {
	r.mu.Lock()
	switch {
	case d.Assignment != nil:
		r.told++
		r.parts = map[int]struct{}{}
		for _, p := range d.Assignment {
			r.parts[p.Partition] = struct{}{}
		}
	case d.Messages == nil:
		r.lives++
	}
	r.mu.Unlock()
	r.l.note(r.id, d)
	if r.body != nil {
		r.body(d)
	}
	switch n := len(d.Messages); {
	case n > 0 && r.consumer == "":
		r.l.ack(r.id, d.Partition, d.Messages[n-1].Offset) // done is done
	case n > 0 && r.commit:
		r.commitTo(ctx, d.Partition, d.Messages[n-1].Offset)
	}
}

func (r *run) commitTo(ctx context.Context, p int, at eventstore.Seqno) {
	via := r.p
	if r.via != nil {
		via = r.via
	}
	lost, err := via.c.commit(ctx, Commit{Topic: "t", Consumer: r.consumer, Member: r.id, Places: []Place{{p, at}}})
	for temporary(err) && pause(ctx, 50*time.Millisecond) {
		lost, err = via.c.commit(ctx, Commit{Topic: "t", Consumer: r.consumer, Member: r.id, Places: []Place{{p, at}}})
	}
	switch {
	case err != nil && ctx.Err() == nil && !temporary(err):
		r.p.e.t.Errorf("commit of %d/%d: %v", p, at, err)
	case err == nil && len(lost) == 0:
		r.l.ack(r.id, p, at)
	case err == nil:
		r.mu.Lock()
		r.lost[p]++
		r.mu.Unlock()
	}
}

// frozen waits while its process is frozen.
func (r *run) frozen() {
	r.p.gate.mu.Lock()
	frozen := r.p.gate.frozen
	r.p.gate.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// kill ends a member as a lost connection would: it releases nothing.
func (r *run) kill() { r.cancel(); <-r.done }

// signs is the number of signs of life it was given.
func (r *run) signs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives
}

// assignments is the number of those it was given.
func (r *run) assignments() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

// losses is the number of its commits that were refused.
func (r *run) losses() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.lost {
		n += one
	}
	return n
}

// ends waits until it has ended by itself.
func (r *run) ends() {
	r.p.e.t.Helper()
	select {
	case <-r.done:
	case <-time.After(time.Minute):
		r.p.e.t.Fatal("it goes on")
	}
}

// within is a context that ends.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// has returns the partitions of the last Assignment, in order.
func (r *run) has() (all []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.parts {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// shares are the sizes of what members have, in order; with whose parts overlap as -1.
func shares(runs ...*run) string {
	var n []int
	seen := map[int]bool{}
	for _, r := range runs {
		all := r.has()
		for _, p := range all {
			if seen[p] {
				n = append(n, -1)
			}
			seen[p] = true
		}
		n = append(n, len(all))
	}
	slices.Sort(n)
	return fmt.Sprint(n)
}

func eventually(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(within); !is(); {
		if time.Now().After(until) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
