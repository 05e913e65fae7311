// Trimming behind the owners, beside them: a reader that has taken the entries over
// would.

package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Reclaiming: how often, and for how long.
const (
	reclaimEvery  = time.Second
	reclaimBudget = time.Second
)

// trimmer keeps the logs short. A log is trimmed to retain entries when it has slack
// more, so that a trim is worth its transaction.
type trimmer struct {
	store         *eventstore.Store
	reclaim       func(context.Context, time.Duration) error // nil: nothing to do
	meter         *meter
	logs          []*owner
	retain, slack uint64
	wake          chan struct{}
}

func newTrimmer(c *Config, m *meter, logs []*owner) *trimmer {
	store := c.Aside
	if store == nil {
		store = c.Store
	}
	return &trimmer{store: store, reclaim: c.Reclaim, meter: m, logs: logs, retain: uint64(c.Retain),
		slack: uint64(max(c.Retain/4, c.Batch)), wake: make(chan struct{}, 1)}
}

// look wakes the trimmer if a log has become too long. Owners call it.
func (t *trimmer) look(o *owner) {
	if !t.over(o, t.slack) {
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// over says if a log holds slack entries more than are to be kept.
func (t *trimmer) over(o *owner, slack uint64) bool {
	return o.last.Load() >= o.trimmed.Load()+t.retain+slack
}

// run trims and reclaims until ctx ends.
func (t *trimmer) run(ctx context.Context) {
	var side sync.WaitGroup
	if t.reclaim != nil {
		side.Go(func() {
			for sleep(ctx, reclaimEvery) {
				if err := t.reclaim(ctx, reclaimBudget); err != nil && ctx.Err() == nil {
					t.meter.trimmed(err)
				}
			}
		})
	}
	defer side.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
			t.pass(ctx, t.slack)
		}
	}
}

// pass trims every log that is slack entries too long.
func (t *trimmer) pass(ctx context.Context, slack uint64) {
	for _, o := range t.logs {
		if ctx.Err() == nil && t.over(o, slack) {
			t.trim(ctx, o)
		}
	}
}

// trim notes how far was asked for: what stops a trim, as a hold, would stop the next
// one too, so that waits until there is as much again. One that failed, or that the end
// of the run broke off, has trimmed nothing.
func (t *trimmer) trim(ctx context.Context, o *owner) {
	before, through := o.trimmed.Load(), o.last.Load()-t.retain
	o.trimmed.Store(through)
	got, err := t.store.Trim(ctx, o.stream, eventstore.Seqno(through), false)
	switch {
	case err != nil:
		o.trimmed.Store(before)
		if ctx.Err() != nil {
			return
		}
	case got.StoppedBy != "":
		err = fmt.Errorf("trim %s: stopped by %s", o.stream, got.StoppedBy)
	}
	t.meter.trimmed(err)
}
