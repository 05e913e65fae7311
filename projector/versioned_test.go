// Versioned: one version that this process cannot build takes nothing from the others.

package projector_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/projector"
)

// A worker of the release before does not know the version that is being rebuilt: it goes
// on with those it knows, and takes the new one up as soon as it can.
func TestVersionThatCannotBeMade(t *testing.T) {
	for name, fails := range map[string]func() (projector.Handler, error){
		"unknown": func() (projector.Handler, error) { return nil, errors.New("no such version") },
		"panics":  func() (projector.Handler, error) { panic("no such version") },
		"nil":     func() (projector.Handler, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, h := newEnv(t, nil), newLoud()
				var knows atomic.Bool
				v := projector.NewVersioned(e.store, "p", "account", h, func(version int) (projector.Handler, error) {
					if version > 1 && !knows.Load() {
						return fails()
					}
					return h, nil
				}, &projector.Options{LeaseTTL: ttl})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- v.Run(ctx) }()
				_, err := v.Reader().Wait(within(t), e.spread(10, 5))
				for errors.Is(err, projector.ErrNotRegistered) {
					time.Sleep(time.Second)
					_, err = v.Reader().Wait(within(t), e.spread(10, 5))
				}
				e.ok(err)
				admin := projector.NewAdmin(e.store, h)
				next, err := admin.Rebuild(t.Context(), "p", false)
				e.ok(err)
				time.Sleep(time.Minute)
				if _, err := v.Reader().Wait(within(t), e.spread(10, 5)); err != nil {
					t.Errorf("the live version: %v", err)
				}
				if _, err := v.CatchUp(t.Context(), 0); err == nil {
					t.Error("CatchUp says nothing of the version that it cannot build")
				}
				knows.Store(true)
				time.Sleep(20 * time.Second)
				e.ok(admin.Switch(t.Context(), "p", next, &projector.SwitchOptions{MaxBehind: 1}))
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run ended: %v", err)
				}
				h.once(t, e.all("account"))
			})
		})
	}
}
