// Window: what bounds that which is under way.

package remotetopic

import (
	"context"
	"sync"
)

// window bounds what is under way by number and bytes; one that is larger goes alone.
// One goroutine takes, others give.
type window struct {
	most, mostBytes int

	mu           sync.Mutex
	count, bytes int
	changed      chan struct{} // holds one: something was given back
}

func newWindow(most, bytes int) *window {
	return &window{most: most, mostBytes: bytes, changed: make(chan struct{}, 1)}
}

// room waits until one more may be read.
func (w *window) room(ctx context.Context) error {
	return w.until(ctx, func() bool { return w.count < w.most && w.bytes < w.mostBytes })
}

// take waits until one of that size fits, or is alone.
func (w *window) take(ctx context.Context, bytes int) error {
	return w.until(ctx, func() bool {
		if w.count > 0 && (w.count >= w.most || w.bytes+bytes > w.mostBytes) {
			return false
		}
		w.count, w.bytes = w.count+1, w.bytes+bytes
		return true
	})
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

func (w *window) give(bytes int) {
	w.mu.Lock()
	w.count, w.bytes = w.count-1, w.bytes-bytes
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
