// The status of workers that have nothing to read.

package projector_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// A shadow that has come to where the live version is reads nothing, nor does a worker
// without a lane. The one stays caught up, and neither goes on telling of a failure that
// is over.
func TestStatusOfWhoReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		var c projector.MemoryCheckpoints
		h := (&effects{had: map[eventstore.Position]int{}}).sink(&c)
		live := e.start(h, projector.Options{LeaseTTL: ttl})
		e.ok(live.p.Wait(within(t), e.spread(20, 20)))
		spare := e.start(h, projector.Options{LeaseTTL: ttl})
		shadow := e.start(h, projector.Options{Version: 2, LeaseTTL: ttl})
		time.Sleep(10 * time.Minute)
		if n := fmt.Sprint(lanes(live, spare, shadow)); n != "[1 0 1]" {
			t.Fatal(n)
		}
		check := func(when string) {
			t.Helper()
			if s := shadow.p.Status(); !s.CaughtUp || s.LastError != nil || s.Lag != 0 {
				t.Errorf("%s: shadow %+v", when, s)
			}
			if s := spare.p.Status(); s.LastError != nil {
				t.Errorf("%s: spare %+v", when, s)
			}
		}
		check("idle")
		cut := func(is bool) {
			for _, w := range []*workerProcess{spare, shadow} {
				w.dead.mu.Lock()
				w.dead.cut = is
				w.dead.mu.Unlock()
			}
		}
		cut(true)
		time.Sleep(1500 * time.Millisecond)
		for _, w := range []*workerProcess{spare, shadow} {
			if s := w.p.Status(); s.LastError == nil {
				t.Errorf("no error while it cannot see to its lanes: %+v", s)
			}
		}
		cut(false)
		time.Sleep(10 * time.Second)
		check("healed")
	})
}

// A failure to read is over when the lane it was for is another's.
func TestStatusOfWhoHadToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{LeaseTTL: ttl})
		e.ok(a.p.Wait(within(t), e.spread(20, 20)))
		e.log.set(func(l *bentLog) { l.down = errOutage })
		time.Sleep(10 * time.Second)
		if a.p.Status().LastError == nil {
			t.Error("no error while it cannot read")
		}
		e.ok(projector.NewAdmin(e.store, l).Pause(t.Context(), "p", 1))
		time.Sleep(10 * time.Second)
		e.log.set(func(l *bentLog) { l.down = nil })
		if s := a.p.Status(); s.LastError != nil {
			t.Errorf("%+v", s)
		}
	})
}
