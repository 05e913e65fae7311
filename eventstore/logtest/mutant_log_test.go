// mutant: a memlog that does some of its work wrong, and the recorder under which
// cases run on it.

package logtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// mutant is a memlog that does some of its work wrong.
type mutant struct {
	*memlog.Log
	appendFn   func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error)
	readFn     func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error)
	feedFn     func(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error)
	headFn     func(ctx context.Context, s eventstore.Stream) (eventstore.Head, error)
	fenceFn    func(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error)
	loadFn     func(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error)
	trimFn     func(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error)
	backwardFn func(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (eventstore.Page, error)
	renewFn    func(ctx context.Context, l eventstore.Lease, ttl time.Duration) (eventstore.Lease, error)
	listFn     func(ctx context.Context, c eventstore.Category, slots []eventstore.Slot, after string, limit int) (eventstore.TrimmedPage, error)
	deleteFn   func(ctx context.Context, c eventstore.Category) error
}

func (m *mutant) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if m.appendFn != nil {
		return m.appendFn(ctx, a)
	}
	return m.Log.Append(ctx, a)
}

func (m *mutant) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	if m.readFn != nil {
		return m.readFn(ctx, s, after, limit)
	}
	return m.Log.ReadFrom(ctx, s, after, limit)
}

func (m *mutant) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if m.feedFn != nil {
		return m.feedFn(ctx, after, f, limit)
	}
	return m.Log.ReadFeed(ctx, after, f, limit)
}

func (m *mutant) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	if m.headFn != nil {
		return m.headFn(ctx, s)
	}
	return m.Log.Head(ctx, s)
}

func (m *mutant) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	if m.fenceFn != nil {
		return m.fenceFn(ctx, s, holder, at)
	}
	return m.Log.Fence(ctx, s, holder, at)
}

func (m *mutant) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	if m.loadFn != nil {
		return m.loadFn(ctx, s, fingerprint, limit)
	}
	return m.Log.Load(ctx, s, fingerprint, limit)
}

func (m *mutant) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	if m.trimFn != nil {
		return m.trimFn(ctx, s, through, dry)
	}
	return m.Log.Trim(ctx, s, through, dry)
}

func (m *mutant) ListTrimmed(ctx context.Context, c eventstore.Category, slots []eventstore.Slot, after string, limit int) (eventstore.TrimmedPage, error) {
	if m.listFn != nil {
		return m.listFn(ctx, c, slots, after, limit)
	}
	return m.Log.ListTrimmed(ctx, c, slots, after, limit)
}

func (m *mutant) RenewLease(ctx context.Context, l eventstore.Lease, ttl time.Duration) (eventstore.Lease, error) {
	if m.renewFn != nil {
		return m.renewFn(ctx, l, ttl)
	}
	return m.Log.RenewLease(ctx, l, ttl)
}

func (m *mutant) DeleteCategory(ctx context.Context, c eventstore.Category) error {
	if m.deleteFn != nil {
		return m.deleteFn(ctx, c)
	}
	return m.Log.DeleteCategory(ctx, c)
}

// backwardMutant also reads backward natively.
type backwardMutant struct{ *mutant }

func (m backwardMutant) ReadBackward(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (eventstore.Page, error) {
	return m.backwardFn(ctx, s, before, limit)
}

// rewrite changes every batch, knowing the head, before it is appended.
func (m *mutant) rewrite(change func(b *eventstore.Batch, h eventstore.Head)) {
	m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		a.Batches = slices.Clone(a.Batches)
		for i := range a.Batches {
			h, _ := m.Head(ctx, a.Batches[i].Stream)
			change(&a.Batches[i], h)
		}
		return m.Log.Append(ctx, a)
	}
}

// await waits a moment until the head has moved on, so that others get in between.
func (m *mutant) await(ctx context.Context, s eventstore.Stream, h eventstore.Head) eventstore.Head {
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); runtime.Gosched() {
		if now, err := m.Head(ctx, s); err == nil && now != h {
			return now
		}
	}
	return h
}

// instead answers a kind of refusal in another way.
func (m *mutant) instead(kind error, answer func(eventstore.Append, error) (eventstore.Appended, error)) {
	m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		done, err := m.Log.Append(ctx, a)
		if errors.Is(err, kind) {
			return answer(a, err)
		}
		return done, err
	}
}

// entries changes every entry that is read.
func (m *mutant) entries(change func(e *eventstore.Entry)) {
	m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
		p, err := m.Log.ReadFrom(ctx, s, after, limit)
		p.Entries = slices.Clone(p.Entries)
		for i := range p.Entries {
			change(&p.Entries[i])
		}
		return p, err
	}
}

// pages changes every page of the feed.
func (m *mutant) pages(change func(p *eventstore.FeedPage)) {
	m.feedFn = func(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
		p, err := m.Log.ReadFeed(ctx, after, f, limit)
		change(&p)
		return p, err
	}
}

// late hides entries from the feed for a while after their append, one stream
// longer than another: as a store that shows what is committed, by its position.
func (m *mutant) late() {
	var mu sync.Mutex
	hidden := map[eventstore.UUID]time.Time{}
	m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		mu.Lock()
		for _, b := range a.Batches {
			if int(b.ID[15])%3 == 0 {
				hidden[b.ID] = time.Now().Add(time.Millisecond)
			}
		}
		mu.Unlock()
		return m.Log.Append(ctx, a)
	}
	m.pages(func(p *eventstore.FeedPage) {
		mu.Lock()
		defer mu.Unlock()
		p.Entries = slices.DeleteFunc(p.Entries, func(e eventstore.Entry) bool { return time.Now().Before(hidden[e.BatchID]) })
	})
}

// acked is the answer to an append as if it had been written.
func acked(a eventstore.Append) (done eventstore.Appended) {
	for _, b := range a.Batches {
		done.Receipts = append(done.Receipts, eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1,
			Last: eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}})
	}
	return done
}

func kindOf(err, kind error) error {
	e := *err.(*eventstore.Error)
	e.Kind, e.Unprovable = kind, false
	return &e
}

// recorder is a testing.TB that only notes whether it failed.
type recorder struct {
	testing.TB // for what is not overridden
	mu         sync.Mutex
	failed     bool
	first      string
	cleanups   []func()
	deadline   time.Time
}

func (r *recorder) Helper()                        {}
func (r *recorder) Logf(string, ...any)            {}
func (r *recorder) Deadline() (time.Time, bool)    { return r.deadline, true }
func (r *recorder) Cleanup(f func())               { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatalf(format string, a ...any) { r.Errorf(format, a...); runtime.Goexit() }
func (r *recorder) Failed() bool                   { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }
func (r *recorder) Errorf(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.failed, r.first = true, fmt.Sprintf(format, a...)
	}
}

// record runs f with a recorder and returns it.
func record(t *testing.T, f func(testing.TB)) *recorder {
	r := &recorder{TB: t, deadline: time.Now().Add(10 * time.Second)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		f(r)
	}()
	<-done
	return r
}
