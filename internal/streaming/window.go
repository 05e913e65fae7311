// What bounds that which is under way.

package streaming

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Room is bytes that all streams of a service share: who finds none waits, in the order
// of coming, and reads nothing meanwhile.
type Room struct {
	most  int64
	bytes *semaphore.Weighted
}

// NewRoom returns a Room of so many bytes.
func NewRoom(most int64) *Room { return &Room{most, semaphore.NewWeighted(most)} }

// share is what something takes: what is larger than all takes all.
func (r *Room) share(bytes int) int64 { return min(int64(bytes), r.most) }

// window bounds what is under way by number and bytes, and that of all streams by a Room;
// one that is larger than the bytes goes alone. One goroutine takes, another gives.
type window struct {
	most, mostBytes int
	all             *Room

	mu           sync.Mutex
	count, bytes int
	changed      chan struct{} // holds one: something was given back
}

func newWindow(most, bytes int, all *Room) *window {
	return &window{most: most, mostBytes: bytes, all: all, changed: make(chan struct{}, 1)}
}

// room waits until one more may be read.
func (w *window) room(ctx context.Context) error {
	return w.until(ctx, func() bool { return w.count < w.most && w.bytes < w.mostBytes })
}

// take waits until one of that size fits, or is alone, and all have room for it.
func (w *window) take(ctx context.Context, bytes int) error {
	err := w.until(ctx, func() bool { return w.count == 0 || w.count < w.most && w.bytes+bytes <= w.mostBytes })
	if err != nil {
		return err
	}
	// Only here is more taken, so it still fits.
	if err := w.all.bytes.Acquire(ctx, w.all.share(bytes)); err != nil {
		return err
	}
	w.add(1, bytes)
	return nil
}

func (w *window) add(count, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count, w.bytes = w.count+count, w.bytes+bytes
}

func (w *window) until(ctx context.Context, ok func() bool) error {
	for {
		w.mu.Lock()
		fits := ok()
		w.mu.Unlock()
		if fits {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.changed:
		}
	}
}

// done gives back the room of all: what was taken for it is no longer in memory.
func (w *window) done(bytes int) { w.all.bytes.Release(w.all.share(bytes)) }

// give makes place in the window: it was answered.
func (w *window) give(bytes int) {
	w.add(-1, -bytes)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
