// Package farside is what the far sides of carriers have in common: a bound on the calls
// that are inside at once, and panics that stay the matter of one call.
package farside

import (
	"context"
	"fmt"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// Defaults of a Gate.
const (
	DefaultRunning = 64
	DefaultWaiting = 256
)

// Gate bounds how many calls run and how many wait for their turn. Its methods may be
// called from several goroutines at once.
type Gate struct {
	turns chan struct{} // holds one for each call that runs

	mu     sync.Mutex
	most   int // that may be inside, running or waiting
	inside int
	closed bool
	empty  chan struct{} // closed when the gate is and nobody is inside
}

// NewGate returns a gate. running ≤ 0 is DefaultRunning; waiting 0 is DefaultWaiting,
// and negative: nobody waits.
func NewGate(running, waiting int) *Gate {
	if running <= 0 {
		running = DefaultRunning
	}
	if waiting == 0 {
		waiting = DefaultWaiting
	}
	return &Gate{turns: make(chan struct{}, running), most: running + max(waiting, 0), empty: make(chan struct{})}
}

// Enter lets one call in, or says at once that it must not: ErrOverloaded. Who was let in
// leaves.
func (g *Gate) Enter(r *handler.Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &handler.Error{Kind: eventstore.ErrOverloaded, Op: r.Op, Stream: r.Stream, Hint: "nothing was done; try again"}
	switch {
	case g.closed:
		e.Wanted, e.Found = "a service that takes calls", "one that stops"
		return e
	case g.inside >= g.most:
		e.Wanted, e.Found = fmt.Sprintf("at most %d calls at once", g.most), "more"
		return e
	}
	g.inside++
	return nil
}

// Leave is called once by each who was let in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.tell()
}

func (g *Gate) tell() {
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// Turn waits until one who was let in may run, and returns what ends that. The error is
// ctx's.
func (g *Gate) Turn(ctx context.Context) (done func(), err error) {
	if err := ctx.Err(); err != nil { // who is too late anyhow runs no more
		return nil, err
	}
	select {
	case g.turns <- struct{}{}:
		return func() { <-g.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Inside says how many calls run or wait.
func (g *Gate) Inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// Close lets nobody in any more and waits until all have left. The error is ctx's. It may
// be called again.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.tell()
	}
	g.mu.Unlock()
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
