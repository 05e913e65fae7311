// Publish: into the queue of a partition, and what came of it.

package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Publish writes a publication; see [Service]. An ID is known in the partition of its
// key: it must not be used with another key. Without a key the partition goes by the ID.
func (b *Broker) Publish(ctx context.Context, p Publication) (Published, error) {
	wait, err := b.Begin(ctx, p)
	if err != nil {
		return Published{}, err
	}
	return wait(ctx)
}

// Begin is the first half of Publish: when it returns nil the publication has its place
// behind those that were begun before it, and wait, which is to be called once, returns
// the outcome. So one goroutine can have many publications of a key under way, in order.
// An error of Begin means that nothing was written.
func (b *Broker) Begin(ctx context.Context, p Publication) (wait func(context.Context) (Published, error), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k, ok := b.find(p.Topic)
	if !ok {
		if k, err = b.lookup(ctx, "publish", p.Topic); err != nil {
			return nil, err
		}
	}
	w, at, err := b.prepare(ctx, p, k.spec)
	if err != nil {
		return nil, err
	}
	part := b.partition(at)
	if part == nil {
		if err := b.seeOwners(ctx, false); err != nil {
			return nil, err
		}
		if _, ok := b.find(p.Topic); !ok {
			return nil, noSuchTopic("publish", p.Topic)
		}
		return nil, b.otherOwner(at)
	}
	first, err := part.enqueue(w)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Published, error) { return part.outcome(ctx, w, first) }, nil
}

// partition returns a partition that this broker has or is taking, or nil.
func (b *Broker) partition(at place) *partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.partitions[at]
}

// owned returns all of them, those that end just now among them.
func (b *Broker) owned() (all []*partition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.partitions {
		all = append(all, p)
	}
	return all
}

// enqueue puts a publication behind those that wait, or joins one of the same ID that is
// there already and returns that.
func (p *partition) enqueue(w *pending) (first *pending, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	low, _ := p.term.clock.Now()
	switch {
	case p.leaving || p.ended || p.lapsed():
		return nil, p.b.otherOwner(p.place)
	case w.tried.After(low.Add(MaxAhead)):
		return nil, invalid("publish", p.place.topic, fmt.Sprintf("a first try at most %v ahead of the store's clock, %s", MaxAhead, low.UTC().Format(time.RFC3339)),
			w.tried.UTC().Format(time.RFC3339), "set the publisher's clock")
	}
	if other := p.underway[w.id]; other != nil {
		if !other.same(w.events) {
			return nil, p.reused(w.id)
		}
		other.waiters++
		return other, nil
	}
	if p.waiting+1 > p.b.o.QueuePublications || p.waiting > 0 && p.waitingBytes+w.size > p.b.o.QueueBytes {
		return nil, overloaded(p.place, fmt.Sprintf("room for at most %d publications and %d bytes to wait", p.b.o.QueuePublications, p.b.o.QueueBytes),
			fmt.Sprintf("%d and %d", p.waiting, p.waitingBytes))
	}
	p.queue = append(p.queue, w)
	p.underway[w.id] = w
	p.waiting++
	p.waitingBytes += w.size
	p.signal()
	return w, nil
}

// outcome waits for what becomes of a publication, w itself or the one it joined.
func (p *partition) outcome(ctx context.Context, w, first *pending) (Published, error) {
	select {
	case <-first.done:
	case <-ctx.Done():
		if err := p.withdraw(ctx, first); err != nil {
			return Published{}, err
		}
	}
	switch {
	case first.err != nil:
		return Published{}, first.err
	case !first.written:
		return p.prove(ctx, w, first.at)
	}
	return Published{Partition: p.place.n, First: first.at, Last: first.at + eventstore.Seqno(len(w.events)) - 1, Replays: w != first}, nil
}

// withdraw is for a caller who waits no longer; nil if there is an outcome by now. What
// nobody waits for and has not been appended is not written.
func (p *partition) withdraw(ctx context.Context, w *pending) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.done:
		return nil
	default:
	}
	if w.waiters--; w.waiters == 0 && !w.flying {
		w.gone = true
		p.queue = slices.DeleteFunc(p.queue, func(w *pending) bool { return w.gone })
		p.leaveQueue(w)
		delete(p.underway, w.id)
		return ctx.Err()
	}
	return p.unknown(w.id, ctx.Err())
}

// unknown is the ErrUnknown of a publication that may have been written.
func (p *partition) unknown(id eventstore.UUID, cause error) error {
	return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "publish", Stream: p.stream, Category: p.place.topic,
		Wanted: "publication " + id.String(), Found: "no answer yet", Hint: "publish the same again", Err: cause}
}

// leaveQueue gives back the room of one that waits no longer.
func (p *partition) leaveQueue(w *pending) {
	p.waiting--
	p.waitingBytes -= w.size
}

// prove reads back what is in the log under the ID of a publication.
func (p *partition) prove(ctx context.Context, w *pending, at eventstore.Seqno) (Published, error) {
	n := len(w.events)
	var have []eventstore.Event
	for len(have) <= n {
		page, err := p.b.store.ReadFrom(ctx, p.stream, at-1+eventstore.Seqno(len(have)), n+1-len(have))
		if errors.Is(err, eventstore.ErrTrimmed) {
			return Published{}, p.unprovable(w.id, "that it has been trimmed")
		}
		if err != nil {
			return Published{}, err
		}
		for _, e := range page.Entries {
			have = append(have, e.Event)
		}
		if page.End {
			break
		}
	}
	// One more than it has: what is there may be the beginning of something longer.
	if len(have) < n || !w.same(have[:n]) || len(have) > n && have[n].ID == eventstore.DeriveUUID(w.id, n) {
		return Published{}, p.reused(w.id)
	}
	return Published{Partition: p.place.n, First: at, Last: at + eventstore.Seqno(n) - 1, Replays: true}, nil
}

func (p *partition) reused(id eventstore.UUID) error {
	return &eventstore.Error{Kind: eventstore.ErrBatchIDReused, Op: "publish", Stream: p.stream, Category: p.place.topic,
		Wanted: "the same content under the same ID", Found: "publication " + id.String() + " with other content",
		Hint: "give every publication an ID of its own; publish one again unchanged"}
}

func (p *partition) unprovable(id eventstore.UUID, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrUnknown, Unprovable: true, Op: "publish", Stream: p.stream, Category: p.place.topic,
		Wanted: "proof that publication " + id.String() + " is there or absent", Found: found,
		Hint: "nothing was written now; look for it among the messages, or publish it under a new ID if it may be there twice"}
}
