// Announcements within one process, where no NATS carries them.

package open

import (
	"context"
	"slices"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// local implements eventstore.Announcer: hints go to the subscribers at once, in
// the goroutine of the append, which a subscriber must not block anyhow.
type local struct {
	mu   sync.RWMutex
	last int
	subs map[int]subscriber
}

type subscriber struct {
	categories []eventstore.Category
	f          func(eventstore.Announcement)
}

// Announce hands hints on.
func (l *local) Announce(_ context.Context, hints []eventstore.Announcement) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, h := range hints {
		for _, s := range l.subs {
			if len(s.categories) == 0 || slices.Contains(s.categories, h.Category) {
				s.f(h)
			}
		}
	}
	return nil
}

// Subscribe calls f until stop is called, which waits for a running f.
func (l *local) Subscribe(_ context.Context, categories []eventstore.Category, f func(eventstore.Announcement)) (stop func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs == nil {
		l.subs = map[int]subscriber{}
	}
	l.last++
	n := l.last
	l.subs[n] = subscriber{slices.Clone(categories), f}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, n)
	}, nil
}
