// queue: pending timers of one clock in the order in which they are due.

package timer

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// item is a pending timer as a scheduler knows it: where to look, and when.
type item struct {
	name     string
	due      int64 // Unix microseconds
	seqno    eventstore.Seqno
	position eventstore.Position // of the entry that set it
	at       int                 // index in its queue; below 0: in none
	by       *Cause              // of a log timer that is due
	log      bool
}

// order is the order in which timers are due; no two have the same.
type order struct {
	due      int64
	position eventstore.Position
}

func (o order) compare(p order) int {
	return cmp.Or(cmp.Compare(o.due, p.due), cmp.Compare(o.position, p.position))
}

func (it *item) order() order { return order{it.due, it.position} }

// queue is a heap by order. At its limit the half that is due last is left out; who
// owns it fills it up again when it is starved.
type queue struct {
	items  []*item
	limit  int
	beyond order // whatever comes there or later is left out; unlimited: all is in
}

var unlimited = order{due: math.MaxInt64}

func newQueue(limit int) *queue { return &queue{limit: limit, beyond: unlimited} }

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (q *queue) Len() int { return len(q.items) }

func (q *queue) Less(i, j int) bool { return q.items[i].order().compare(q.items[j].order()) < 0 }

func (q *queue) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	q.items[i].at, q.items[j].at = i, j
}

func (q *queue) Push(x any) {
	it := x.(*item)
	it.at = len(q.items)
	q.items = append(q.items, it)
}

func (q *queue) Pop() any {
	last := len(q.items) - 1
	it := q.items[last]
	q.items[last] = nil
	q.items = q.items[:last]
	it.at = -1
	return it
}

// add takes an item in, and returns those that are left out for it.
func (q *queue) add(it *item) (out []*item) {
	if it.order().compare(q.beyond) >= 0 {
		return []*item{it}
	}
	if len(q.items) >= q.limit {
		out = q.halve()
		if it.order().compare(q.beyond) >= 0 {
			return append(out, it)
		}
	}
	heap.Push(q, it)
	return out
}

// halve leaves out the half that is due last.
func (q *queue) halve() []*item {
	slices.SortFunc(q.items, func(a, b *item) int { return a.order().compare(b.order()) }) // a sorted slice is a heap
	half := len(q.items) / 2
	out := slices.Clone(q.items[half:])
	q.beyond = out[0].order()
	clear(q.items[half:])
	q.items = q.items[:half]
	for i, it := range q.items {
		it.at = i
	}
	for _, it := range out {
		it.at = -1
	}
	return out
}

// remove takes an item out, if it is in.
func (q *queue) remove(it *item) {
	if it.at >= 0 {
		heap.Remove(q, it.at)
	}
}

// due takes the first item out if it is due at now; nil if none is.
func (q *queue) due(now int64) *item {
	if len(q.items) == 0 || q.items[0].due > now {
		return nil
	}
	return heap.Pop(q).(*item)
}

// starved says that what was left out may come before long.
func (q *queue) starved() bool { return q.beyond != unlimited && len(q.items) <= q.limit/4 }
