// Tails: who waits at the end of partitions is told when something was published.

package topic

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// tails watches the topics that somebody consumes through a broker. What the broker's
// publications and announcements show are hints, which may be lost. So heads are looked at too, once for all who wait at the end of a partition:
// pollPartitions of a topic every poll interval, in turn.
type tails struct {
	store  *eventstore.Store
	watch  func(context.Context, eventstore.Category) (*watch, error) // hints
	poll   time.Duration
	logger *slog.Logger

	mu     sync.Mutex
	topics map[eventstore.UUID]*tail // by id: one of the same name may have come since
}

// tail is one topic that is watched.
type tail struct {
	waiters map[*waiter]struct{}
	end     func() // stops watching, and waits for that
	next    int    // partition to be looked at next
}

// waiter is one flow's view of a topic. Its fields are guarded by the tails' lock.
type waiter struct {
	t     *tails
	topic eventstore.UUID
	shown chan struct{} // holds one when a partition was shown
	show  []bool        // partitions to look at
	idles []bool        // partitions at whose end the flow waits
	at    []eventstore.Mark
}

// join begins to watch a topic for a flow; stop must be called.
func (t *tails) join(ctx context.Context, k known) *waiter {
	n := k.spec.Partitions
	w := &waiter{t: t, topic: k.id, shown: make(chan struct{}, 1), show: make([]bool, n), idles: make([]bool, n), at: make([]eventstore.Mark, n)}
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.topics[k.id]
	if one == nil {
		one = &tail{waiters: map[*waiter]struct{}{}}
		one.end = t.follow(context.WithoutCancel(ctx), k.spec, one)
		t.topics[k.id] = one
	}
	one.waiters[w] = struct{}{}
	return w
}

// stop ends a watch, and what was done for it if it was the last.
func (w *waiter) stop() {
	w.t.mu.Lock()
	one := w.t.topics[w.topic]
	delete(one.waiters, w)
	last := len(one.waiters) == 0
	if last {
		delete(w.t.topics, w.topic)
	}
	w.t.mu.Unlock()
	if last {
		one.end()
	}
}

// follow passes hints on and polls, until end is called.
func (t *tails) follow(ctx context.Context, spec Spec, one *tail) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h := hints{t: t, topic: spec.Name}
		defer h.stop()
		ticker := time.NewTicker(t.poll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.changed(ctx):
				t.show(one, h.watch)
			case <-ticker.C:
				t.look(ctx, spec, one)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// hints are those of a topic. A subscription that fails is asked for again.
type hints struct {
	t     *tails
	topic eventstore.Category
	watch *watch    // nil: there is none now
	tried time.Time // last
}

// changed is where they come; nil while there are none.
func (h *hints) changed(ctx context.Context) <-chan struct{} {
	if h.watch == nil && time.Since(h.tried) >= maxRetryPause {
		h.tried = time.Now()
		w, err := h.t.watch(ctx, h.topic)
		if err != nil {
			h.t.logger.WarnContext(ctx, "no hints of what is published; polling", "topic", h.topic, "error", err)
			return nil
		}
		h.watch = w
	}
	if h.watch == nil {
		return nil
	}
	return h.watch.changed
}

func (h *hints) stop() {
	if h.watch != nil {
		h.watch.stop()
	}
}

// show shows what was hinted at.
func (t *tails) show(one *tail, hinted *watch) {
	which, all := hinted.grown()
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range one.waiters {
		for p := range w.show {
			if all || slices.Contains(which, p) {
				w.showLocked(p)
			}
		}
	}
}

// look polls the next partitions at whose end somebody waits.
func (t *tails) look(ctx context.Context, spec Spec, one *tail) {
	for _, p := range t.waitedFor(spec, one) {
		h, err := t.store.Head(ctx, streamOf(spec.Name, p))
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		for w := range one.waiters {
			if w.idles[p] && (err != nil || h.Last != w.at[p]) {
				w.showLocked(p) // who reads it learns what is the matter
			}
		}
		t.mu.Unlock()
	}
}

// waitedFor returns the partitions to be polled now.
func (t *tails) waitedFor(spec Spec, one *tail) (parts []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < spec.Partitions && len(parts) < pollPartitions; i++ {
		p := one.next
		one.next = (one.next + 1) % spec.Partitions
		for w := range one.waiters {
			if p < len(w.idles) && w.idles[p] {
				parts = append(parts, p)
				break
			}
		}
	}
	return parts
}

func (w *waiter) showLocked(p int) {
	w.show[p], w.idles[p] = true, false
	select {
	case w.shown <- struct{}{}:
	default:
	}
}

// look shows a partition to the flow itself.
func (w *waiter) look(p int) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.showLocked(p)
}

// take returns the first partition behind last, in turn, that was shown or is ready, and
// takes note that it was seen. It is taken before it is read: what is published meanwhile
// shows it again.
func (w *waiter) take(last int, ready func(p int) (consumed, more bool)) (partition int, ok bool) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	for i := range w.show {
		p := (last + 1 + i) % len(w.show)
		consumed, more := ready(p)
		if !w.show[p] && !more {
			continue
		}
		w.show[p], w.idles[p] = false, false
		if consumed {
			return p, true
		}
	}
	return 0, false
}

// idle says that the flow waits at the end of a partition, behind this message. What was
// shown since it was taken stays shown.
func (w *waiter) idle(p int, at eventstore.Mark) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.idles[p], w.at[p] = !w.show[p], at
}
