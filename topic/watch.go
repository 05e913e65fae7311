// Watching: how a consumer in this process hears that a partition has grown.

package topic

import (
	"context"
	"strconv"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// watch says which partitions of a topic may have grown. It is a hint: it comes at once
// for what this broker appended, by an announcement for what another did, and it can be
// lost, so who watches looks by himself now and then.
type watch struct {
	changed chan struct{} // holds one signal at most: call grown
	topic   eventstore.Category
	stop    func()

	mu    sync.Mutex
	which map[int]bool
	all   bool
}

// watch begins to watch a topic; the caller calls stop when he is done.
func (b *Broker) watch(ctx context.Context, topic eventstore.Category) (*watch, error) {
	w := &watch{changed: make(chan struct{}, 1), topic: topic, which: map[int]bool{}}
	b.watches.add(w)
	unsubscribe, err := b.store.Subscribe(ctx, []eventstore.Category{topic}, w.hint)
	if err != nil {
		b.watches.remove(w)
		return nil, err
	}
	w.stop = func() { unsubscribe(); b.watches.remove(w) }
	return w, nil
}

// grown returns the partitions that may have grown since the last call, or that any may.
func (w *watch) grown() (which []int, any bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range w.which {
		which = append(which, n)
	}
	any = w.all
	clear(w.which)
	w.all = false
	return which, any
}

// hint takes an announcement.
func (w *watch) hint(a eventstore.Announcement) {
	n, err := strconv.Atoi(a.Stream.Key())
	w.mark(n, a.Stream == "" || err != nil)
}

func (w *watch) mark(n int, all bool) {
	w.mu.Lock()
	if all {
		w.all = true
	} else {
		w.which[n] = true
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// watches are all that watch in this process.
type watches struct {
	mu sync.Mutex
	by map[eventstore.Category]map[*watch]bool
}

func (s *watches) add(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[eventstore.Category]map[*watch]bool{}
	}
	if s.by[w.topic] == nil {
		s.by[w.topic] = map[*watch]bool{}
	}
	s.by[w.topic][w] = true
}

func (s *watches) remove(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.by[w.topic], w); len(s.by[w.topic]) == 0 {
		delete(s.by, w.topic)
	}
}

// grew tells them that this broker has appended to a partition.
func (s *watches) grew(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.by[p.topic] {
		w.mark(p.n, false)
	}
}
