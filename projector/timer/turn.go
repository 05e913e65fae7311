// Taking turns: a lease that keeps the schedulers from all doing the same work.

package timer

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// turn is the lease of one scheduler. It is advice: who wrongly believes that it is his
// turn does work for nothing.
type turn struct {
	s     *Scheduler
	lease eventstore.Lease
	until time.Time // it is this scheduler's turn before that; zero: it is not
	next  time.Time // when to ask again
}

// mine says if it is this scheduler's turn, and sees to it that it stays so, or
// becomes so when nobody else's is.
func (t *turn) mine(ctx context.Context) bool {
	ttl := t.s.o.LeaseTTL
	if ttl == 0 {
		return true
	}
	now := time.Now()
	if now.Before(t.next) {
		return now.Before(t.until)
	}
	t.next = now.Add(ttl / leaseRenewals)
	lease, granted, err := t.ask(ctx, now)
	switch {
	case err == nil && granted:
		t.lease, t.until = lease, now.Add(ttl)
	case err == nil, errors.Is(err, eventstore.ErrLeaseLost):
		t.until = time.Time{}
	case ctx.Err() == nil:
		t.s.logger.WarnContext(ctx, "turn of firing timers not settled", "category", t.s.o.Category, "error", err)
	}
	return now.Before(t.until)
}

func (t *turn) ask(ctx context.Context, now time.Time) (lease eventstore.Lease, granted bool, err error) {
	if now.Before(t.until) {
		lease, err = t.s.store.RenewLease(ctx, t.lease, t.s.o.LeaseTTL)
		return lease, err == nil, err
	}
	return t.s.store.AcquireLease(ctx, "timer/"+string(t.s.o.Category), t.s.holder, t.s.o.LeaseTTL)
}

// end gives the turn to whoever is next, also when ctx has ended.
func (t *turn) end(ctx context.Context) {
	if !time.Now().Before(t.until) {
		return
	}
	t.until, t.next = time.Time{}, time.Time{}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventstore.DefaultAnnounceTimeout)
	defer cancel()
	if err := t.s.store.ReleaseLease(ctx, t.lease); err != nil {
		t.s.logger.WarnContext(ctx, "turn of firing timers not given back; the next one waits until it runs out", "category", t.s.o.Category, "error", err)
	}
}
