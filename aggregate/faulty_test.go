// faulty: a memlog that counts its calls, loses answers and lets others in between.

package aggregate_test

import (
	"context"
	"errors"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// fault is what becomes of one call of Append.
type fault func(*faulty, context.Context, eventstore.Append) (eventstore.Appended, error)

// faulty keeps the contract of Log: a lost answer is ErrUnknown, and what it lets
// in between are appends like any other.
type faulty struct {
	*memlog.Log

	mu      sync.Mutex
	faults  []fault // of the next calls of Append, in order; then none
	appends int
	sent    []eventstore.Append
	loads   int
	heads   int
	loading func(eventstore.Stream) error // after each Load
}

func (f *faulty) next(faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

func (f *faulty) count() (appends, loads, heads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.appends, f.loads, f.heads
}

func (f *faulty) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	f.mu.Lock()
	f.appends++
	f.sent = append(f.sent, a)
	var now fault
	if len(f.faults) > 0 {
		now, f.faults = f.faults[0], f.faults[1:]
	}
	f.mu.Unlock()
	if now == nil {
		return f.Log.Append(ctx, a)
	}
	return now(f, ctx, a)
}

func (f *faulty) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	f.mu.Lock()
	f.loads++
	hook := f.loading
	f.mu.Unlock()
	l, err := f.Log.Load(ctx, s, fingerprint, limit)
	if hook != nil && err == nil {
		err = hook(s)
	}
	return l, err
}

func (f *faulty) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	f.mu.Lock()
	f.heads++
	f.mu.Unlock()
	return f.Log.Head(ctx, s)
}

var errLost = errors.New("connection reset")

func unknownErr(a eventstore.Append) error {
	return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Stream: a.Batches[0].Stream, Err: errLost}
}

// pass lets an append through.
func pass(f *faulty, ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	return f.Log.Append(ctx, a)
}

// landed writes and loses the answer.
func landed(f *faulty, ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if _, err := f.Log.Append(ctx, a); err != nil {
		return eventstore.Appended{}, err
	}
	return eventstore.Appended{}, unknownErr(a)
}

// lost writes nothing and gives no answer.
func lost(_ *faulty, _ context.Context, a eventstore.Append) (eventstore.Appended, error) {
	return eventstore.Appended{}, unknownErr(a)
}

// unavailable refuses before anything is written.
func unavailable(_ *faulty, _ context.Context, a eventstore.Append) (eventstore.Appended, error) {
	return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "append", Stream: a.Batches[0].Stream}
}

// then does f and afterwards what.
func then(f fault, what func()) fault {
	return func(l *faulty, ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		done, err := f(l, ctx, a)
		what()
		return done, err
	}
}

// before does what and afterwards f.
func before(what func(), f fault) fault {
	return func(l *faulty, ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		what()
		return f(l, ctx, a)
	}
}
