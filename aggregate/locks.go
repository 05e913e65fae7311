// keyLocks: one command at a time on a stream, within this process.

package aggregate

import (
	"context"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// keyLocks keeps the commands of one Executor from fighting each other over a
// stream: they would fence and refuse one another for nothing. It is no part of
// safety, which is the log's. Waiters come in the order in which they came, as
// senders to a channel do.
type keyLocks struct {
	mu   sync.Mutex
	held map[eventstore.Stream]*keyLock
}

type keyLock struct {
	token chan struct{} // full while held
	users int           // holder and waiters; at 0 the lock is forgotten
}

// lock waits for all streams, which must be sorted (so that two callers cannot wait
// for each other) and each be there once, or until ctx ends.
func (l *keyLocks) lock(ctx context.Context, streams []eventstore.Stream) (unlock func(), err error) {
	for i, s := range streams {
		if err := l.lockOne(ctx, s); err != nil {
			l.unlock(streams[:i])
			return nil, err
		}
	}
	return func() { l.unlock(streams) }, nil
}

func (l *keyLocks) lockOne(ctx context.Context, s eventstore.Stream) error {
	k := l.enter(s)
	select {
	case k.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(s, k)
		return ctx.Err()
	}
}

func (l *keyLocks) unlock(streams []eventstore.Stream) {
	for _, s := range streams {
		l.mu.Lock()
		k := l.held[s]
		l.mu.Unlock()
		<-k.token
		l.leave(s, k)
	}
}

func (l *keyLocks) enter(s eventstore.Stream) *keyLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[s]
	if k == nil {
		k = &keyLock{token: make(chan struct{}, 1)}
		if l.held == nil {
			l.held = map[eventstore.Stream]*keyLock{}
		}
		l.held[s] = k
	}
	k.users++
	return k
}

func (l *keyLocks) leave(s eventstore.Stream, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, s)
	}
}
