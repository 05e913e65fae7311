// Health where entries were trimmed before the projector came to them.

package projector_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// A version whose hold is gone, and what it has not handled with it, is not ready, though
// there is nothing left that it could handle. Unless it may go on without.
func TestHealthOfWhatWasTrimmed(t *testing.T) {
	for name, o := range map[string]projector.Options{"categories": {}, "one stream": {Stream: "account-a"}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nil)
			var c projector.MemoryCheckpoints
			h := projector.Sink(&c, func(context.Context, projector.Key, []eventstore.Entry) error { return nil })
			category := eventstore.Category("account")
			if o.Stream != "" {
				category = ""
			}
			p := projector.New(e.store, "p", category, h, &o)
			e.deposit("account-a", 5)
			_, err := p.CatchUp(t.Context(), 0)
			e.ok(err)
			admin := projector.NewAdmin(e.store, &c)
			health := func(accept bool) projector.Health {
				t.Helper()
				h, err := admin.Health(t.Context(), "p", 1, &projector.HealthOptions{NoWorkers: true, AcceptTrimmed: accept})
				e.ok(err)
				return h
			}
			trim := func(through eventstore.Seqno) {
				t.Helper()
				_, err := e.store.Trim(t.Context(), "account-a", through, false)
				e.ok(err)
			}
			trim(5)
			if h := health(false); !h.Ready {
				t.Errorf("not ready though only what it had handled is gone: %v", h.Reasons)
			}
			e.ok(p.Unregister(t.Context()))
			e.deposit("account-a", 5)
			trim(10)
			for range 2 {
				if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrTrimmed) {
					t.Fatal(err)
				}
				if h := health(false); h.Ready || len(h.Reasons) != 1 || !strings.Contains(h.Reasons[0], "through 10 were trimmed before it came to them") {
					t.Errorf("ready %v, %q", h.Ready, h.Reasons)
				}
				if h := health(true); !h.Ready {
					t.Errorf("%q", h.Reasons)
				}
			}
			o.AcceptTrimmed = true
			h2, err := projector.New(e.store, "p", category, h, &o).Health(t.Context(), &projector.HealthOptions{NoWorkers: true})
			if err != nil || !h2.Ready {
				t.Errorf("one that accepts it: %v, %q", err, h2.Reasons)
			}
			o.AcceptTrimmed = false
		})
	}
}

// trimming trims behind the worker once a look at the version has begun.
type trimming struct {
	*ledger
	meanwhile func()
}

func (c *trimming) Versions(ctx context.Context, name string) ([]projector.Version, error) {
	all, err := c.ledger.Versions(ctx, name)
	if f := c.meanwhile; f != nil {
		c.meanwhile = nil
		f()
	}
	return all, err
}

// What is trimmed behind a worker that has handled it since is not missed.
func TestHealthWhileItIsTrimmed(t *testing.T) {
	e, l := newEnv(t, nil), newLedger()
	p := projector.New(e.store, "p", "account", l)
	up := func() {
		_, err := p.CatchUp(t.Context(), 0)
		e.ok(err)
	}
	e.deposit("account-a", 5)
	up()
	e.deposit("account-a", 5)
	c := &trimming{ledger: l, meanwhile: func() {
		up()
		e.ok(p.Unregister(t.Context()))
		_, err := e.store.Trim(t.Context(), "account-a", 10, false)
		e.ok(err)
	}}
	h, err := projector.NewAdmin(e.store, c).Health(t.Context(), "p", 1, &projector.HealthOptions{NoWorkers: true})
	if err != nil || !h.Ready {
		t.Errorf("%v, %q", err, h.Reasons)
	}
}
