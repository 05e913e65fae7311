// A storm in simulated time: schedulers that crash, freeze and lose answers, while
// timers are set, moved and cancelled. Everything follows from the seed but the order
// in which goroutines run at one moment.

package timer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector/timer"
)

var (
	stormSeed  = flag.Uint64("storm.seed", 0, "run the storm of this seed alone")
	stormSeeds = flag.Int("storm.seeds", 30, "how many storms to run")
)

const (
	stormPoll = 250 * time.Millisecond
	stormTime = 2 * time.Minute
	stormRows = 12 // timers
)

func TestStorm(t *testing.T) {
	var total storm
	for seed := uint64(1); seed <= uint64(*stormSeeds); seed++ {
		if *stormSeed != 0 {
			seed = *stormSeed
		}
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { total.add(weather(t, seed)) })
		})
		if !ok || *stormSeed != 0 {
			return
		}
	}
	t.Logf("%d generations, %d fired, %d cancelled; %d crashes, %d answers lost, %d times frozen, %d came too late",
		total.set, total.fired, total.cancelled, total.crashes, total.lost, total.frozen, total.late)
	for name, n := range map[string]int{"fired": total.fired, "cancelled": total.cancelled, "crashes": total.crashes, "lost": total.lost,
		"frozen": total.frozen, "too late": total.late} {
		if n == 0 && *stormSeeds >= 12 {
			t.Errorf("no %s in any storm", name)
		}
	}
}

// storm is one, and what happened in it.
type storm struct {
	mu                                                 sync.Mutex
	set, fired, cancelled, crashes, lost, frozen, late int
}

func (s *storm) add(o *storm) {
	s.set, s.fired, s.cancelled, s.crashes = s.set+o.set, s.fired+o.fired, s.cancelled+o.cancelled, s.crashes+o.crashes
	s.lost, s.frozen, s.late = s.lost+o.lost, s.frozen+o.frozen, s.late+o.late
}

func (s *storm) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// weather is one storm over one log.
func weather(t *testing.T, seed uint64) *storm {
	s := &storm{}
	log := memlog.New(nil)
	o := &timer.Options{PollInterval: stormPoll, Keep: -1, MaxPending: 16}
	clean := eventstore.New(log, nil)
	if _, err := timer.New(t.Context(), clean, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stormTime)
	defer cancel()
	var running sync.WaitGroup
	for i := range uint64(2) {
		running.Go(func() { s.sick(ctx, t, log, o, rand.New(rand.NewPCG(seed, i))) })
	}
	healthy, err := timer.NewScheduler(t.Context(), clean, o)
	if err != nil {
		t.Fatal(err)
	}
	live, stop := context.WithCancel(context.Background())
	defer stop()
	running.Go(func() { _ = healthy.Run(live) })
	var changing sync.WaitGroup
	for i := range uint64(2) {
		changing.Go(func() { s.change(ctx, t, log, o, rand.New(rand.NewPCG(seed, 10+i))) })
	}
	changing.Wait()
	time.Sleep(time.Minute) // all that was set has come due
	stop()
	running.Wait()
	s.set, s.fired = rules{late: stormPoll, done: true}.check(t, history(t, clean, "timer"))
	return s
}

// sick runs one scheduler after another, each of which ends badly.
func (s *storm) sick(ctx context.Context, t *testing.T, log *memlog.Log, o *timer.Options, rng *rand.Rand) {
	var mu sync.Mutex
	dice := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	for ctx.Err() == nil {
		b := &bent{Log: log}
		b.bend(func(ctx context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			switch dice(6) {
			case 0: // frozen before it is sent; whoever waited has gone, the network has not
				s.count(&s.frozen)
				time.Sleep(time.Duration(dice(40_000)) * time.Millisecond)
				return b.Log.Append(context.WithoutCancel(ctx), a)
			case 1:
				s.count(&s.lost)
				_, _ = do()
				return eventstore.Appended{}, lostAnswer(a)
			case 2:
				s.count(&s.lost)
				return eventstore.Appended{}, lostAnswer(a)
			}
			return do()
		})
		scheduler, err := timer.NewScheduler(ctx, eventstore.New(b, nil), o)
		if err != nil {
			return
		}
		life, crash := context.WithTimeout(ctx, time.Duration(1+dice(20_000))*time.Millisecond)
		if err := scheduler.Run(life); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Error("Run ended with", err)
		}
		crash()
		s.count(&s.crashes)
	}
}

// change sets, moves and cancels timers at random, and checks what it is told.
func (s *storm) change(ctx context.Context, t *testing.T, log *memlog.Log, o *timer.Options, rng *rand.Rand) {
	b := &bent{Log: log}
	b.bend(func(_ context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		if rng.IntN(8) > 0 {
			return do()
		}
		if rng.IntN(2) == 0 {
			_, _ = do()
		}
		return eventstore.Appended{}, lostAnswer(a)
	})
	timers, err := timer.New(ctx, eventstore.New(b, nil), o)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		name := fmt.Sprint(rng.IntN(stormRows))
		due := time.Now().Add(time.Duration(rng.IntN(20_000)-2_000) * time.Millisecond)
		var err error
		switch rng.IntN(4) {
		case 0, 1:
			_, err = timers.Set(ctx, name, due, []byte(fmt.Sprint(due.UnixNano())), timer.ID(eventstore.NewUUID()))
		case 2:
			_, err = timers.Reschedule(ctx, name, due)
		case 3:
			var done timer.Timer
			if done, err = timers.Cancel(ctx, name); err == nil {
				s.count(&s.cancelled)
				s.isOver(t, log, done)
			}
		}
		switch {
		case errors.Is(err, timer.ErrFired):
			s.count(&s.late)
		case err == nil, errors.Is(err, timer.ErrCancelled), errors.Is(err, timer.ErrNoTimer), ctx.Err() != nil:
		default:
			t.Error(err)
		}
		time.Sleep(time.Duration(rng.IntN(3_000)) * time.Millisecond)
	}
}

// isOver demands that a generation that was said to be cancelled stands so in the log.
func (s *storm) isOver(t *testing.T, log *memlog.Log, done timer.Timer) {
	stream, _ := eventstore.NewStream("timer", done.Name)
	p, err := log.ReadFrom(context.Background(), stream, done.Mark.Seqno-1, 1)
	if err != nil || len(p.Entries) == 0 || p.Entries[0].Type != timer.CancelledType || p.Entries[0].Mark() != done.Mark {
		t.Errorf("timer %s was said to be cancelled by entry %v; found %v, %v", done.Name, done.Mark, p.Entries, err)
	}
}
