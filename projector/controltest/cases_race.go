// Cases: steps and Updates at the same time.

package controltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// aMoment is how long a case looks for what must not happen.
const aMoment = 50 * time.Millisecond

var raceCases = []testCase{
	{"while Update decides", "nothing changes what Update was given until it has ended; a step that came meanwhile meets what it has made of it", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 4))
		claimed := e.step(e.key(1, 1))
		claimed.Park = []projector.Parked{parked("a")}
		going, never := projector.Step{Key: e.key(1, 3), To: checkpoint(1)}, projector.Step{Key: e.key(1, 5), To: checkpoint(1)}
		done := make(chan error, 3)
		begun := false
		e.edit(func(v *projector.Version) {
			if !begun { // it may be called again
				begun = true
				for _, s := range []projector.Step{claimed, going, never} {
					go func() { done <- e.c.Save(e.ctx, s) }()
				}
			}
			time.Sleep(aMoment)
			v.Lanes = v.Lanes[:2]
			v.Fence(eventstore.UUID{})
		})
		for range 3 {
			e.is(<-done, eventstore.ErrFenced)
		}
		want := version(e.name, 1, projector.Live, 2)
		want.Fence(eventstore.UUID{})
		e.same(e.versions(e.name), []projector.Version{want})
		if kept, err := e.c.Load(e.ctx, e.key(1, 3)); err != nil || !kept.Same(projector.Checkpoint{}) {
			e.Errorf("the lane that is gone: %v, %v", kept, err)
		}
	}},
	{"two Updates", "one Update waits for the other, and its function is given what that has made", func(e *env) {
		e.register(version(e.name, 1, projector.Live, 1))
		const n = 12
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				e.edit(func(v *projector.Version) {
					if len(v.Quiet) == 0 {
						v.Quiet = []uint64{0}
					}
					v.Quiet[0]++
				})
			})
		}
		wg.Wait()
		if q := e.lane(1, 0).Quiet; len(q) != 1 || q[0] != n {
			e.Errorf("%d changes left %v", n, q)
		}
	}},
	{"steps and Updates", "of steps and Updates at the same time none is lost", func(e *env) { e.compete(3, 4, 15) }},
	{"others", "an Update does not hold up the steps of another projector", func(e *env) {
		o := *e
		o.name += "2"
		o.register(version(o.name, 1, projector.Live, 1))
		e.register(version(e.name, 1, projector.Live, 1))
		if _, ok := e.c.(*projector.MemoryCheckpoints); ok {
			return // it has one lock for all
		}
		s := o.step(o.key(1, 0))
		e.edit(func(*projector.Version) {
			if kept, err := o.c.Load(o.ctx, s.Key); err == nil && kept.Same(s.From) { // it may be called again
				o.ok(o.c.Save(o.ctx, s))
			}
		})
	}},
}

// compete has workers of each lane and changers at work at once. Each step moves its
// lane by one and parks a key of its own; each change counts in Quiet and fences, some
// with the lanes in another number, the sum of their positions kept in lane 0.
func (e *env) compete(lanes, changers, each int) {
	if soak() {
		each *= 10
	}
	e.register(projector.Version{Key: e.key(1, 0), Lanes: make([]projector.Checkpoint, lanes), Quiet: []uint64{0}})
	var steps atomic.Int64
	var workers, changing sync.WaitGroup
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	for worker := range lanes + 1 { // one too many, so that they also meet each other
		workers.Go(func() { e.work(ctx, worker, worker%lanes, 10*each, &steps) })
	}
	for changer := range changers {
		changing.Go(func() {
			for n := range each {
				for steps.Load() < int64(n) && ctx.Err() == nil {
					time.Sleep(time.Millisecond) // or the steps would all be refused
				}
				e.edit(func(v *projector.Version) {
					v.Quiet[0]++
					if changer == 0 {
						v.Lanes = merged(v.Lanes, 1+n%lanes)
					}
					v.Fence(eventstore.UUID{})
				})
			}
		})
	}
	changing.Wait()
	stop()
	workers.Wait()
	v := e.versions(e.name)[0]
	sum := merged(v.Lanes, 1)[0].Position
	if n := steps.Load(); int64(sum) != n || len(v.Parked) != int(n) || v.Quiet[0] != uint64(changers*each) || n == 0 {
		e.Errorf("%d steps and %d changes left positions of %d, %d parked keys and %v", n, changers*each, sum, len(v.Parked), v.Quiet)
	}
}

// work does steps of a lane until ctx ends, or so many.
func (e *env) work(ctx context.Context, worker, lane, most int, steps *atomic.Int64) {
	for n := 0; n < most && ctx.Err() == nil; {
		switch err := e.advance(lane, fmt.Sprintf("%d-%d", worker, n)); {
		case err == nil:
			n++
			steps.Add(1)
		case !errors.Is(err, eventstore.ErrFenced) && !errors.Is(err, eventstore.ErrOverloaded): // lost to others over and over
			e.Errorf("step: %v", err)
			return
		}
	}
}

// advance does one step of a lane, as a worker that claims it first.
func (e *env) advance(lane int, key string) error {
	from, err := e.c.Load(e.ctx, e.key(1, lane))
	if err != nil {
		return err
	}
	to := from
	to.Epoch, to.Holder = from.Epoch+1, eventstore.UUID{1}
	to.Position++
	return e.c.Save(e.ctx, projector.Step{Key: e.key(1, lane), From: from, To: to, Park: []projector.Parked{parked(key)}})
}

// merged has the sum of all positions in lane 0, and a higher epoch than before in all.
func merged(old []projector.Checkpoint, lanes int) []projector.Checkpoint {
	next := make([]projector.Checkpoint, lanes)
	var top eventstore.Epoch
	for _, c := range old {
		next[0].Position += c.Position
		top = max(top, c.Epoch)
	}
	for i := range next {
		next[i].Epoch = top + 1
	}
	return next
}
