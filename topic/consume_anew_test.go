// A topic that is deleted and created again while somebody consumes it.

package topic

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// One that is slow to learn that its topic is gone does not keep those of the new one, which
// may have fewer partitions or more, from what is published there.
func TestConsumeATopicCreatedAnew(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			e := memEnv(t, 4)
			e.publish("t", 0, 1, false)
			p, busy := e.proc(), make(chan struct{})
			slow := p.join("", newLedger(false), func(r *run, _ *Consumption) {
				r.body = func(d Delivery) {
					if len(d.Messages) > 0 {
						<-busy // the other partitions were looked at before
					}
				}
			})
			time.Sleep(time.Minute)
			e.ok(e.store.DeleteCategory(t.Context(), "t"))
			e.topic("t", partitions)
			l := newLedger(false)
			r := p.join("", l, nil)
			time.Sleep(10 * eventstore.DefaultPollInterval)
			e.publish("t", partitions-1, 1, false)
			eventually(t, 2*eventstore.DefaultPollInterval, "what is published to the new one", func() bool { return l.given(e, "t", partitions) })
			close(busy)
			slow.kill()
			r.kill()
			l.check(t)
		})
	}
}
