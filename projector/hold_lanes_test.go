// The hold of a version with several lanes: it is that of the lowest one.

package projector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// CatchUp with a lane that fails, in calls some time apart and in one that takes long:
// what that lane has not come to is not trimmed, and it goes on when it can.
func TestCatchUpHoldsForTheLowestLane(t *testing.T) {
	for name, of := range map[string]struct {
		calls int
		slow  time.Duration // a batch
	}{"calls apart": {2, 0}, "one long call": {1, 4 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l := newEnv(t, nil), newLedger()
				late := projector.LaneOf(stream(7).Slot(), 4)
				down := true
				w := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
					if len(s.Batch) == 0 {
						return nil
					}
					if down && s.Key.Lane == late {
						return errOutage
					}
					time.Sleep(of.slow)
					return nil
				}}
				p := projector.New(e.store, "p", "account", w, &projector.Options{Lanes: 4})
				e.spread(100, 20)
				for range of.calls {
					if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrUnavailable) {
						t.Fatal(err)
					}
					time.Sleep(6 * time.Second)
				}
				for i := range 20 {
					_, err := e.store.Trim(t.Context(), stream(i), 5, false)
					e.ok(err)
				}
				down = false
				_, err := p.CatchUp(t.Context(), 0)
				e.ok(err)
				l.exact(t, e.all("account"))
			})
		})
	}
}

// A call that takes long moves the hold when all lanes have moved.
func TestCatchUpMovesTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		w := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
			if len(s.Batch) > 0 {
				time.Sleep(4 * time.Second)
			}
			return nil
		}}
		p := projector.New(e.store, "p", "account", w, &projector.Options{Lanes: 4})
		token := e.spread(100, 20)
		_, err := p.CatchUp(t.Context(), 0)
		e.ok(err)
		holds, err := e.store.ListHolds(t.Context())
		e.ok(err)
		if len(holds) != 1 || holds[0].Position != token.Position {
			t.Errorf("holds %+v, want one at %d", holds, token.Position)
		}
	})
}
