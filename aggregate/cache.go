// cache: states kept warm, bounded in bytes.

package aggregate

import (
	"container/list"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// cache keeps histories by stream, least recently used out first. Who works on one
// takes it out, and puts it back only when all went well: a state whose append
// failed, whose outcome is unknown or whose Decider panicked is gone by itself.
type cache[S any] struct {
	limit int // bytes; below 1 nothing is kept

	mu    sync.Mutex
	used  int
	order list.List // of *cached[S], most recently used in front
	at    map[eventstore.Stream]*list.Element
}

type cached[S any] struct {
	history *history[S]
	bytes   int
}

func (c *cache[S]) take(s eventstore.Stream) *history[S] {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[s]
	if e == nil {
		return nil
	}
	return c.remove(e)
}

func (c *cache[S]) put(h *history[S], bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes > c.limit {
		return
	}
	if e := c.at[h.stream]; e != nil {
		c.remove(e)
	}
	for c.used+bytes > c.limit {
		c.remove(c.order.Back())
	}
	if c.at == nil {
		c.at = map[eventstore.Stream]*list.Element{}
	}
	c.at[h.stream] = c.order.PushFront(&cached[S]{h, bytes})
	c.used += bytes
}

func (c *cache[S]) remove(e *list.Element) *history[S] {
	entry := c.order.Remove(e).(*cached[S])
	delete(c.at, entry.history.stream)
	c.used -= entry.bytes
	return entry.history
}
