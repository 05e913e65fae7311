// Bytes that requests may have in memory, all together.

package server

import (
	"fmt"
	"sync/atomic"

	"connectrpc.com/connect"
)

// budget is what is left for all.
type budget struct {
	most int64
	used atomic.Int64
}

// take says if there was room.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.most {
		return true
	}
	b.used.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.used.Add(-n) }

func (b *budget) full() *connect.Error {
	return overloaded(fmt.Sprintf("room among the %d bytes of all requests", b.most), "none")
}

// account is what one call has taken.
type account struct {
	b    *budget
	held atomic.Int64
}

func (a *account) take(n int64) bool {
	if !a.b.take(n) {
		return false
	}
	a.held.Add(n)
	return true
}

// keep gives back all but n, or takes what is missing to n.
func (a *account) keep(n int64) bool {
	held := a.held.Load()
	if n > held {
		return a.take(n - held)
	}
	a.held.Add(n - held)
	a.b.give(held - n)
	return true
}
