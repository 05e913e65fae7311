// The link is cut at the bytes of a batch's transaction.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// P5 of the cases, to the byte: the link is cut between the handler's first SQL and the
// answer to COMMIT, at every 14th byte with the ways to cut in turn (in a soak at every
// byte in every way), and heals. The model is the fold of what the checkpoint covers.
func TestP5CutAtEveryByte(t *testing.T) {
	e := newEnv(t)
	c, err := pgxpool.ParseConfig(pgtest.DSN(t))
	e.ok(err)
	proxy, err := cutproxy.New(fmt.Sprintf("%s:%d", c.ConnConfig.Host, c.ConnConfig.Port))
	e.ok(err)
	c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks, c.MaxConns = "127.0.0.1", uint16(proxy.Port()), nil, 2
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	e.ok(err)
	t.Cleanup(pool.Close)
	t.Cleanup(proxy.Close)

	modes := []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole}
	every, lanes := int64(14), [][]cutproxy.Mode{modes}
	if os.Getenv("WATTLE_SOAK") != "" {
		every, lanes = 1, [][]cutproxy.Mode{modes[:1], modes[1:2], modes[2:]}
	} else if testing.Short() {
		every = 35
	}
	handled, cuts, failed := 0, 0, 0
	for _, way := range cutproxy.Directions {
		for _, modes := range lanes {
			for i, struck := int64(0), true; struck; i++ {
				if i > 1<<14 {
					t.Fatal("the dialogue has no end")
				}
				f := cutproxy.Fault{Direction: way, After: i * every, Mode: modes[i%int64(len(modes))]}
				e.deposit(2)
				handled += 2
				err := e.cutBatch(pool, proxy, f)
				if struck = proxy.Disarm(); struck {
					cuts++
				}
				if err != nil {
					failed++
				}
				if !struck && err != nil {
					t.Fatalf("%v, not struck: %v", f, err)
				}
				proxy.Release()
				pool.Reset() // a connection broken behind the answer would fail the next one before its cut
				if more, err := projector.New(e.store, "p", "account", e.handler(e.pool)).CatchUp(within(t), 0); more || err != nil {
					t.Fatalf("%v, healed: more %v, %v", f, more, err)
				}
				e.check(handled)
			}
		}
	}
	t.Logf("%d cuts, %d of them an error", cuts, failed)
	if failed < cuts/2 || cuts < 6 {
		t.Errorf("%d cuts, %d errors: they do not meet the dialogue", cuts, failed)
	}
}

// cutBatch catches up with a fault that is armed before the first SQL of the handler. A
// black hole is ended by the caller's context.
func (e *env) cutBatch(pool *pgxpool.Pool, proxy *cutproxy.Proxy, f cutproxy.Fault) error {
	ctx, cancel := context.WithCancel(within(e.t))
	defer cancel()
	var arm sync.Once
	h := pgcheckpoint.Handler(pool, events, func(hctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		arm.Do(func() {
			fired := proxy.Arm(f)
			if f.Mode == cutproxy.BlackHole {
				go func() {
					select {
					case <-fired:
						time.AfterFunc(3*time.Millisecond, cancel)
					case <-ctx.Done():
					}
				}()
			}
		})
		return e.insert(hctx, tx, ev)
	}, e.options())
	_, err := projector.New(e.store, "p", "account", h).CatchUp(ctx, 0)
	if err != nil && !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrUnknown) && !errors.Is(err, context.Canceled) {
		e.t.Errorf("%v: %v, want ErrUnavailable, ErrUnknown or the context's error", f, err)
	}
	return err
}
