// Schedulers that take turns: one fires, and another one when that is gone.

package timer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector/timer"
)

func TestTurns(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(stop func() error, freeze func()) // what becomes of the first holder
		late  time.Duration
	}{
		"stopped": {func(stop func() error, _ func()) { _ = stop() }, 4*time.Second + time.Second},
		"frozen":  {func(_ func() error, freeze func()) { freeze() }, 12*time.Second + 4*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := memlog.New(nil)
				o := &timer.Options{PollInterval: time.Second, LeaseTTL: 12 * time.Second, Keep: -1}
				timers, err := timer.New(t.Context(), eventstore.New(log, nil), o)
				if err != nil {
					t.Fatal(err)
				}
				var sent [2]atomic.Int64
				var stops [2]func() error
				thaw := make(chan struct{})
				var frozen atomic.Bool
				for i := range sent {
					b := &bent{Log: log}
					b.bend(func(_ context.Context, _ eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
						sent[i].Add(1)
						if i == 0 {
							time.Sleep(1500 * time.Millisecond) // so the other sees what is due before it is fired
						}
						return do()
					})
					b.read = func() error {
						if i == 0 && frozen.Load() {
							<-thaw
						}
						return nil
					}
					s, err := timer.NewScheduler(t.Context(), eventstore.New(b, nil), o)
					if err != nil {
						t.Fatal(err)
					}
					stops[i] = run(t, s)
					time.Sleep(100 * time.Millisecond) // the first is the first
				}
				for i := range 60 {
					if _, err := timers.Set(t.Context(), fmt.Sprint(i), time.Now().Add(time.Duration(i)*time.Second), nil); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(20*time.Second + 500*time.Millisecond)
				if a, b := sent[0].Load(), sent[1].Load(); a < 10 || b != 0 {
					t.Fatalf("the holder has sent %d, the other %d", a, b)
				}
				c.leave(stops[0], func() { frozen.Store(true) })
				first := sent[0].Load()
				time.Sleep(60 * time.Second)
				if sent[0].Load() != first || sent[1].Load() == 0 {
					t.Fatalf("the first has sent %d more, the other %d", sent[0].Load()-first, sent[1].Load())
				}
				rules{late: c.late, done: true}.check(t, history(t, eventstore.New(log, nil), "timer"))
				close(thaw)
				_, _ = stops[0](), stops[1]()
			})
		})
	}
}
