// A log that can be frozen, killed, and made to lose its answers: what a broker's
// connection to its store does to it.

package topic_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

type wholeLog interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Streams
	eventstore.Snapshots
	eventstore.TrimmedStreams
	eventstore.Holds
	eventstore.Leases
}

// bent passes all calls on, as it is told.
type bent struct {
	wholeLog
	appends atomic.Int64 // of dedicated streams

	mu     sync.Mutex
	open   chan struct{} // closed: calls pass; else they wait, whatever their context says
	dead   chan struct{} // closed: no call ever passes again
	before func(op string, a *eventstore.Append) error
	after  func(op string, a *eventstore.Append, err error) error
}

func bend(log eventstore.Log) *bent {
	b := &bent{wholeLog: log.(wholeLog), open: make(chan struct{}), dead: make(chan struct{})}
	close(b.open)
	return b
}

func (b *bent) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = make(chan struct{})
}

func (b *bent) thaw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.open)
}

var errDead = &eventstore.Error{Kind: eventstore.ErrUnavailable, Found: "a log that is dead"}

// kill has every call wait for its context's end and fail: nothing of the broker reaches
// the log any more.
func (b *bent) kill() { close(b.dead) }

func (b *bent) hooks(before func(string, *eventstore.Append) error, after func(string, *eventstore.Append, error) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before, b.after = before, after
}

func (b *bent) pass(ctx context.Context, op string, a *eventstore.Append) error {
	b.mu.Lock()
	open, before := b.open, b.before
	b.mu.Unlock()
	select {
	case <-b.dead:
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		return errDead
	default:
	}
	<-open
	if before != nil {
		return before(op, a)
	}
	return nil
}

// answer is what the caller hears of a call that came to err.
func (b *bent) answer(op string, a *eventstore.Append, err error) error {
	b.mu.Lock()
	open, after := b.open, b.after
	b.mu.Unlock()
	<-open
	select {
	case <-b.dead:
		return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: op, Found: "a log that is dead"}
	default:
	}
	if after != nil {
		return after(op, a, err)
	}
	return err
}

func (b *bent) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := b.pass(ctx, "append", &a); err != nil {
		return eventstore.Appended{}, err
	}
	if a.Batches[0].Stream.Category() != "wattle_topics" {
		b.appends.Add(1)
	}
	done, err := b.wholeLog.Append(ctx, a)
	if err = b.answer("append", &a, err); err != nil {
		return eventstore.Appended{}, err
	}
	return done, nil
}

func (b *bent) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	if err := b.pass(ctx, "fence", nil); err != nil {
		return eventstore.Head{}, err
	}
	h, err := b.wholeLog.Fence(ctx, s, holder, at)
	return h, b.answer("fence", nil, err)
}

func (b *bent) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	if err := b.pass(ctx, "leases", nil); err != nil {
		return nil, err
	}
	all, err := b.wholeLog.UpdateLeases(ctx, u)
	if err = b.answer("leases", nil, err); err != nil {
		return nil, err
	}
	return all, nil
}

func (b *bent) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	if err := b.pass(ctx, "read", nil); err != nil {
		return eventstore.Page{}, err
	}
	page, err := b.wholeLog.ReadFrom(ctx, s, after, limit)
	return page, b.answer("read", nil, err)
}

func (b *bent) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if err := b.pass(ctx, "feed", nil); err != nil {
		return eventstore.FeedPage{}, err
	}
	page, err := b.wholeLog.ReadFeed(ctx, after, f, limit)
	return page, b.answer("feed", nil, err)
}

func (b *bent) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	if err := b.pass(ctx, "trim", nil); err != nil {
		return eventstore.TrimResult{}, err
	}
	got, err := b.wholeLog.Trim(ctx, s, through, dry)
	return got, b.answer("trim", nil, err)
}

func (b *bent) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	if err := b.pass(ctx, "create category", nil); err != nil {
		return err
	}
	return b.wholeLog.CreateCategory(ctx, spec)
}

func (b *bent) CreateStreams(ctx context.Context, streams []eventstore.Stream) error {
	if err := b.pass(ctx, "create streams", nil); err != nil {
		return err
	}
	return b.wholeLog.CreateStreams(ctx, streams)
}

func (b *bent) DeleteCategory(ctx context.Context, c eventstore.Category) error {
	if err := b.pass(ctx, "delete category", nil); err != nil {
		return err
	}
	return b.wholeLog.DeleteCategory(ctx, c)
}

func (b *bent) Close() error { return nil }

// lose makes some appends end with ErrUnknown, before or after they were written.
func (b *bent) lose(chance func() int) {
	lost := &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Found: "no answer"}
	b.hooks(func(op string, a *eventstore.Append) error {
		if op == "append" && chance() == 0 {
			return lost
		}
		return nil
	}, func(op string, a *eventstore.Append, err error) error {
		if op == "append" && err == nil && chance() == 1 {
			return lost
		}
		return err
	})
}
