// Partition: a log that this broker owns, and the one goroutine that appends to it.

package topic

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/sharing"
)

// partition is one that this broker owns, from the moment it was granted the lease until
// it has ended. What waits when the lease comes in is appended once the log is fenced.
//
// There is one append under way at a time; the next one takes all that has come in
// meanwhile. An append whose outcome is not known is sent again, the same, until it is
// proved, and nothing else is decided before that.
type partition struct {
	b      *Broker
	place  place
	stream eventstore.Stream
	known  known
	more   chan struct{} // something waits, or the partition is to end
	stop   context.CancelFunc
	done   chan struct{} // closed when nothing works on it any more

	mu           sync.Mutex
	term         term
	epoch        eventstore.Epoch // of the lease
	leaving      bool             // take nothing more, answer what waits, end
	since        time.Time        // when it began to leave
	ended        bool
	queue        []*pending // in order
	underway     map[eventstore.UUID]*pending
	waiting      int // publications in queue that were not answered
	waitingBytes int
	memory       *memory
	head         eventstore.Mark
	taken        eventstore.Seqno // the head when it was fenced
	sizes        sizes
}

// term is how long a lease is good for, and what the store's clock says.
type term struct {
	until time.Time // on this process's clock
	clock sharing.Clock
}

// take has the broker work on a partition that it holds the lease of. It says if it has
// to be called again soon: what went before has not ended yet.
func (b *Broker) take(k known, at place, lease eventstore.Lease, t term) (again bool) {
	if p := b.partition(at); p != nil {
		return !p.extend(k, lease, t)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &partition{b: b, place: at, stream: streamOf(at.topic, at.n), known: k, more: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
		term: t, epoch: lease.Epoch, underway: map[eventstore.UUID]*pending{}, memory: newMemory(k.spec.DedupWindow, b.o.Remembered)}
	if most := k.spec.Retention.MaxBytes; most > 0 {
		p.sizes.piece = max(most/sizeChunks, 1)
	}
	b.mu.Lock()
	b.partitions[at] = p
	anew := b.used[at] >= lease.Epoch
	b.mu.Unlock()
	go p.run(ctx, lease, anew)
	return false
}

func (p *partition) epochNow() eventstore.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// extend prolongs the term of a partition that goes on. One whose lease was lost and had
// again, or whose topic is another one of the same name, is stopped.
func (p *partition) extend(k known, lease eventstore.Lease, t term) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lease.Epoch > p.epoch || k.id != p.known.id {
		p.stop()
		return false
	}
	p.term = t
	return !p.leaving && !p.ended
}

// leave has it answer what waits, and end.
func (p *partition) leave() {
	p.mu.Lock()
	if !p.leaving {
		p.leaving, p.since = true, time.Now()
	}
	p.mu.Unlock()
	p.signal()
}

// answering says if it leaves and has not done so for longer than it may take.
func (p *partition) answering(most time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving && time.Since(p.since) < most
}

func (p *partition) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// lapsed says if the lease may have run out.
func (p *partition) lapsed() bool { return !time.Now().Before(p.term.until) }

// run fences the log, remembers what was published lately, and appends until it is to end.
func (p *partition) run(ctx context.Context, lease eventstore.Lease, anew bool) {
	err := p.open(ctx, lease, anew)
	if err == nil {
		ctx, stop := context.WithCancel(ctx)
		var beside sync.WaitGroup
		beside.Go(func() { p.recall(ctx) })
		beside.Go(func() { p.tidy(ctx) })
		err = p.work(ctx)
		stop()
		beside.Wait()
	}
	if err != nil && ctx.Err() == nil && !isGone(err) { // else the topic is being created, or deleted
		p.b.logger.WarnContext(ctx, "partition given up", "stream", p.stream, "error", err)
	}
	p.close()
	p.stop()
	p.b.forget(p)
	close(p.done)
}

// forget takes a partition that has ended off the broker's, but for the epoch it had.
func (b *Broker) forget(p *partition) {
	epoch := p.epochNow()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used[p.place] = epoch
	delete(b.partitions, p.place)
}

// close answers what still waits: it was not written.
func (p *partition) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, w := range p.queue {
		p.settle(w, p.b.otherOwner(p.place))
	}
	p.queue = nil
}

// open fences the log at the lease's epoch: from here on nobody but this broker, at this
// epoch, appends to it, and its head is final.
func (p *partition) open(ctx context.Context, lease eventstore.Lease, anew bool) error {
	store, holder := p.b.store, p.b.holder
	for range fenceTries {
		if anew {
			// Under an epoch that it had before, this broker may have an append on its way.
			got, granted, err := store.AcquireLease(ctx, lease.Name, holder, p.b.o.LeaseTTL)
			if err != nil {
				return err
			}
			if !granted {
				return &eventstore.Error{Kind: eventstore.ErrLeaseLost, Op: "publish", Stream: p.stream, Found: "another holder"}
			}
			lease = got
		}
		h, err := store.FenceAt(ctx, p.stream, lease.Epoch, holder)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.epoch, p.head, p.taken = lease.Epoch, h.Last, h.Last.Seqno
			if h.Last.Seqno == 0 {
				p.memory.filled(time.Time{})
			}
			return nil
		}
		if !errors.Is(err, eventstore.ErrFenced) {
			return err
		}
		anew = true // the log's epoch is above the lease's: somebody fenced it without one
	}
	return &eventstore.Error{Kind: eventstore.ErrFenced, Op: "publish", Stream: p.stream, Found: "an epoch far above the lease's"}
}

// work appends what comes in until the partition is to end.
func (p *partition) work(ctx context.Context) error {
	for {
		group, end := p.gather()
		switch {
		case len(group) > 0:
			if err := p.append(ctx, group); err != nil {
				return err
			}
			continue
		case end:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.more:
		}
	}
}

// gather takes what waits, as much as one append may carry, in order. One of which it
// is not known yet if it is there holds up those of its key.
func (p *partition) gather() (group []*pending, end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	low, _ := p.term.clock.Now()
	p.memory.forget(low)
	limits := p.b.store.Limits()
	events, bytes := 0, 0
	held := map[string]bool{}
	rest := p.queue[:0]
	for i, w := range p.queue {
		if held[w.key] || p.decide(w, low, held) {
			rest = append(rest, w)
			continue
		}
		if w.err != nil || w.at > 0 {
			continue // it was answered
		}
		if len(group) > 0 && (events+len(w.events) > limits.BatchEvents || bytes+w.size > limits.AppendBytes) {
			rest = append(rest, p.queue[i:]...)
			break
		}
		events, bytes = events+len(w.events), bytes+w.size
		w.flying = true
		p.leaveQueue(w)
		group = append(group, w)
	}
	clear(p.queue[len(rest):])
	p.queue = rest
	return group, p.leaving && len(group) == 0
}

// decide answers a publication that is there, or of which nobody can tell, or for which
// there is no room. It says if it must wait.
func (p *partition) decide(w *pending, now time.Time, held map[string]bool) (wait bool) {
	if w.tried.IsZero() {
		return false // a new ID
	}
	switch what, at := p.memory.ask(w.first(), w.tried, now); what {
	case present:
		w.at = at
		p.settle(w, nil)
	case unsure:
		if w.key != "" {
			held[w.key] = true
		}
		return true
	case beyond:
		p.settle(w, p.unprovable(w.id, "a first try at "+w.tried.UTC().Format(time.RFC3339)+", before what is remembered"))
	case absent:
		if !p.memory.room(now) {
			p.settle(w, overloaded(p.place, "to remember the publication", "as many as can be within "+MinDedupWindow.String()))
		}
	}
	return false
}

// settle answers one that waits, or was in an append.
func (p *partition) settle(w *pending, err error) {
	w.err = err
	if !w.flying {
		p.leaveQueue(w)
	}
	delete(p.underway, w.id)
	close(w.done)
}
