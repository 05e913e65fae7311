// Hub: announcements inside one process, at once, and those of another announcer.

package remotelog

import (
	"context"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// Hub is an eventstore.Announcer for one process. What is announced to it reaches the
// subscribers in this process at once, and then the announcer behind it, if there is one;
// what that one hears from elsewhere reaches the subscribers too, so also what it heard
// of this process. Give it to the Store that a Service serves, and to the Service.
//
// A hint costs each subscriber it concerns some ten nanoseconds and never waits for one:
// a subscriber keeps the newest hint of up to 1024 streams until it has taken them, and
// gets the empty Announcement in place of more. One that is idle has no goroutine.
// All methods may be called from several goroutines at once.
type Hub struct {
	next eventstore.Announcer // may be nil

	mu        sync.RWMutex
	listeners map[string]map[listener]struct{} // by what they listen to: see announce

	link   sync.Mutex // guards what follows, and is held while next is called
	linked int        // how many want the hints of next
	unlink func()     // nil: they do not come
}

// listener hears hints, under a lock of the hub: it must not block nor call the hub.
type listener interface{ hear(eventstore.Announcement) }

// NewHub returns a hub in front of another announcer, which may be nil.
func NewHub(next eventstore.Announcer) *Hub {
	return &Hub{next: next, listeners: map[string]map[listener]struct{}{}}
}

// Announce tells the subscribers, and then the announcer behind the hub. The error is
// that one's.
func (h *Hub) Announce(ctx context.Context, hints []eventstore.Announcement) error {
	for _, a := range hints {
		h.announce(a)
	}
	if h.next == nil {
		return nil
	}
	return h.next.Announce(ctx, hints)
}

// Subscribe calls f with the hints of the categories (none: all), one at a time, until
// stop is called, which waits for a running f to return. The error is that of the
// announcer behind the hub.
func (h *Hub) Subscribe(ctx context.Context, categories []eventstore.Category, f func(eventstore.Announcement)) (stop func(), err error) {
	s := &hubSubscriber{f: f}
	remove := h.add(s, categoryKeys(categories)...)
	unlink, err := h.connect(ctx)
	if err != nil {
		remove()
		return nil, err
	}
	return sync.OnceFunc(func() {
		remove()
		s.stop()
		unlink()
	}), nil
}

// categoryKeys are what a listener to categories listens to; none: to everything.
func categoryKeys(categories []eventstore.Category) []string {
	if len(categories) == 0 {
		return []string{""}
	}
	keys := make([]string, len(categories))
	for i, c := range categories {
		keys[i] = string(c)
	}
	return keys
}

// streamsOf is the key of those who listen to a stream of a category, beside the
// stream's own. No category and no stream has a line break.
func streamsOf(c eventstore.Category) string { return "\n" + string(c) }

// add has a listener hear what goes to the keys.
func (h *Hub) add(l listener, keys ...string) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range keys {
		if h.listeners[k] == nil {
			h.listeners[k] = map[listener]struct{}{}
		}
		h.listeners[k][l] = struct{}{}
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, k := range keys {
			if delete(h.listeners[k], l); len(h.listeners[k]) == 0 {
				delete(h.listeners, k)
			}
		}
	}
}

// announce tells those who listen to everything, to the category and to the stream.
func (h *Hub) announce(a eventstore.Announcement) {
	if a == (eventstore.Announcement{}) {
		h.lost()
		return
	}
	h.tell(a, "", string(a.Category), string(a.Stream))
}

func (h *Hub) tell(a eventstore.Announcement, keys ...string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, k := range keys {
		for l := range h.listeners[k] {
			l.hear(a)
		}
	}
}

// lost tells everybody that hints may have been lost.
func (h *Hub) lost() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, all := range h.listeners {
		for l := range all {
			l.hear(eventstore.Announcement{})
		}
	}
}

// wake tells the followers alone: what a poll found is no news to who gets hints.
func (h *Hub) wake(a eventstore.Announcement, keys ...string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, k := range keys {
		for l := range h.listeners[k] {
			if e, ok := l.(*ear); ok {
				e.hear(a)
			}
		}
	}
}

// connect has the hints of next come in until disconnect is called.
func (h *Hub) connect(ctx context.Context) (disconnect func(), err error) {
	if h.next == nil {
		return func() {}, nil
	}
	h.link.Lock()
	defer h.link.Unlock()
	if h.unlink == nil {
		if h.unlink, err = h.next.Subscribe(ctx, nil, h.announce); err != nil {
			return nil, err
		}
	}
	h.linked++
	return sync.OnceFunc(func() {
		h.link.Lock()
		defer h.link.Unlock()
		if h.linked--; h.linked == 0 {
			h.unlink()
			h.unlink = nil
		}
	}), nil
}
