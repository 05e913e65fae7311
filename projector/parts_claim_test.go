// Several instances over several backends: one works on, whatever the order in which
// they claim.

package projector_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Instances that start at once fence each other in different backends. One of them
// works on, whatever the order.
func TestPartsOneInstanceWorks(t *testing.T) {
	for i := range 30 {
		synctest.Test(t, func(t *testing.T) { startAtOnce(t, i) })
	}
}

func startAtOnce(t *testing.T, round int) {
	r, db := newRouted(t, nil), &tables{}
	rng := rand.New(rand.NewPCG(uint64(round), 0))
	var mu sync.Mutex
	db.failing(func(projector.Key, string) error {
		mu.Lock()
		pause := time.Duration(rng.IntN(5)) * time.Millisecond
		mu.Unlock()
		time.Sleep(pause)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	const n = 3
	ended := make(chan error, n)
	for range n {
		go func() { ended <- r.over(db).Run(ctx) }()
	}
	for range 40 {
		r.deposit("account-a", 1)
		r.deposit("order-a", 1)
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Minute)
	for range n - 1 {
		select {
		case err := <-ended:
			if !errors.Is(err, eventstore.ErrFenced) {
				t.Errorf("round %d: an instance ended with %v", round, err)
			}
		default:
			t.Errorf("round %d: more than one instance works", round)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("round %d: no instance works on, the last ended with %v", round, err)
	default:
	}
	if red, blue := db.handled(keyRed), db.handled(keyBlue); red != 40 || blue != 40 {
		t.Errorf("round %d: handled %d and %d", round, red, blue)
	}
	cancel()
	time.Sleep(time.Second)
	db.check(r)
}

// Fenced in one backend by somebody who comes and goes, it claims again.
func TestPartsClaimAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := newRouted(t, nil), &tables{}
		p := r.over(db)
		stop := run(t, p)
		r.ok(p.Wait(within(t), r.deposit("account-a", 1)))
		r.ok(p.Wait(within(t), r.deposit("order-a", 1)))
		time.Sleep(time.Second)
		thief := r.steal(db, keyBlue)
		r.ok(p.Wait(within(t), r.deposit("order-a", 3)))
		if got := db.checkpoint(keyBlue); got.Epoch != thief.Epoch+1 || got.Holder != db.checkpoint(keyRed).Holder {
			t.Errorf("checkpoint %v, want it claimed again", got)
		}
		// Where the first backend's is another's too it is the end, though nothing new is
		// in that.
		for _, key := range []projector.Key{keyRed, keyBlue} {
			r.steal(db, key)
		}
		r.deposit("order-a", 1)
		time.Sleep(time.Minute)
		if err := stop(); !errors.Is(err, eventstore.ErrFenced) {
			t.Errorf("Run = %v, want ErrFenced", err)
		}
		db.check(r)
	})
}

// steal makes a checkpoint another instance's.
func (r *routed) steal(db *tables, key projector.Key) projector.Checkpoint {
	r.t.Helper()
	kept := db.checkpoint(key)
	thief := kept
	thief.Epoch, thief.Holder = kept.Epoch+1, eventstore.UUID{7}
	r.ok(db.Handle(r.t.Context(), projector.Step{Key: key, From: kept, To: thief}))
	return thief
}

// Fenced before it could claim in the first backend, it is not over: it waits until
// that is up.
func TestPartsClaimLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := newRouted(t, nil), &tables{}
		r.down(r.red, errOutage)
		p := r.over(db)
		stop := run(t, p)
		r.ok(p.Wait(within(t), r.deposit("order-a", 1)))
		r.steal(db, keyBlue)
		r.deposit("order-a", 1)
		time.Sleep(time.Minute)
		if s := p.Status(); !s.Running || s.CaughtUp || !errors.Is(s.Parts[1].LastError, eventstore.ErrFenced) {
			t.Errorf("status %+v", s)
		}
		r.down(r.red, nil)
		r.ok(p.Wait(within(t), r.deposit("order-a", 1)))
		r.ok(p.Wait(within(t), r.deposit("account-a", 1)))
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
		db.check(r)
	})
}
