// The link is cut at the bytes of a step that parks keys, and of a change of versions.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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

// cuttable is something that is done again and again, and what is kept after n times.
type cuttable struct {
	do   func(ctx context.Context, e *env, pool *pgxpool.Pool, n int) error
	kept func(n int) string
}

// Cut wherever it may be, it is done wholly or not at all: what is kept, what is parked
// and recorded, and the read model. No error means done, and every error but ErrUnknown
// that nothing has changed. At every 7th byte, in a soak at each of them, with the ways
// to cut in turn.
func TestControlCutAtEveryByte(t *testing.T) {
	for name, c := range map[string]cuttable{
		"step": {func(ctx context.Context, e *env, pool *pgxpool.Pool, n int) error {
			return e.handler(pool).Handle(ctx, e.parking(n))
		}, func(n int) string { return keptOfSteps(n, n) }},
		"save": {func(ctx context.Context, e *env, pool *pgxpool.Pool, n int) error {
			s := e.parking(n)
			s.Batch = nil
			return e.handler(pool).Handle(ctx, s)
		}, func(n int) string { return keptOfSteps(n, 0) }},
		"update": {changeAll, func(n int) string {
			if n == 0 {
				return "v1 0@0 0@0 skipped 0 rows 0"
			}
			return fmt.Sprintf("v1 0@%d%s k%d skipped 0 rows %d", n, strings.Repeat(" 0@1", 1+n%2), n, n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.register(e.control(), 2)
			e.cutEverywhere(c)
		})
	}
}

// parking is the n-th step of lane 0: it parks, unparks and skips.
func (e *env) parking(n int) projector.Step {
	from, err := e.control().Load(context.Background(), pKey)
	e.ok(err)
	s := stepOf(from, e.entry(), from.Position+1)
	s.Park, s.Unpark, s.Skipped = []projector.Parked{keyOf(fmt.Sprint("k", n))}, []string{fmt.Sprint("k", n-2)}, []projector.Parked{keyOf("s")}
	return s
}

func keptOfSteps(n, rows int) string {
	keys := []string{}
	for i := max(1, n-1); i <= n; i++ {
		keys = append(keys, fmt.Sprintf(" k%d", i))
	}
	slices.Sort(keys)
	return fmt.Sprintf("v1 %d@%d 0@0%s skipped %d rows %d", n, n, strings.Join(keys, ""), n, rows)
}

// changeAll changes lanes, their number too, and parked keys, with the read model.
func changeAll(ctx context.Context, e *env, pool *pgxpool.Pool, n int) error {
	c := pgcheckpoint.NewCheckpoints(pool, e.options())
	return c.UpdateTx(ctx, "p", func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error) {
		_, err := tx.Exec(ctx, "INSERT INTO "+e.table+" (position) VALUES ($1)", n)
		v := &all[0]
		v.Lanes = append(v.Lanes[:1:1], make([]projector.Checkpoint, 1+n%2)...)
		v.Fence(eventstore.UUID{byte(n)})
		v.Parked = []projector.Parked{keyOf(fmt.Sprint("k", n))}
		return all, err
	})
}

func (e *env) cutEverywhere(c cuttable) {
	pool, proxy := e.cutPool()
	modes := []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole}
	every, rounds := int64(7), [][]cutproxy.Mode{modes}
	if os.Getenv("WATTLE_SOAK") != "" {
		every, rounds = 1, [][]cutproxy.Mode{modes[:1], modes[1:2], modes[2:]}
	} else if testing.Short() {
		every = 35
	}
	n, cuts, unknown, landed := 0, 0, 0, 0
	for _, way := range cutproxy.Directions {
		for _, modes := range rounds {
			for i, struck := int64(0), true; struck; i++ {
				if n++; i > 1<<14 {
					e.t.Fatal("the dialogue has no end")
				}
				f := cutproxy.Fault{Direction: way, After: i * every, Mode: modes[i%int64(len(modes))]}
				err := cutOnce(e, pool, proxy, f, func(ctx context.Context) error { return c.do(ctx, e, pool, n) })
				struck = proxy.Disarm()
				proxy.Release()
				pool.Reset()
				kept, before, after := e.settled(), c.kept(n-1), c.kept(n)
				switch {
				case err == nil && kept == after:
				case errors.Is(err, eventstore.ErrUnknown) && kept == after:
					unknown, landed = unknown+1, landed+1
				case errors.Is(err, eventstore.ErrUnknown) && kept == before:
					unknown++
				case err != nil && kept == before:
				default:
					e.t.Fatalf("%v: %v, kept is\n%s\nbefore\n%s\nafter\n%s", f, err, kept, before, after)
				}
				if struck {
					cuts++
				} else if err != nil {
					e.t.Fatalf("%v, not struck: %v", f, err)
				}
				if kept == before {
					e.ok(c.do(within(e.t), e, e.pool, n))
				}
			}
		}
	}
	e.t.Logf("%d cuts, %d with an outcome that is not known, of which %d were done", cuts, unknown, landed)
	if cuts < 6 || every <= 7 && (unknown == 0 || landed == 0) { // COMMIT and its answer are longer than that
		e.t.Errorf("%d cuts, %d unknown, %d done: they do not meet the dialogue", cuts, unknown, landed)
	}
}

// cutPool is a pool through a proxy that cuts.
func (e *env) cutPool() (*pgxpool.Pool, *cutproxy.Proxy) {
	c, err := pgxpool.ParseConfig(pgtest.DSN(e.t))
	e.ok(err)
	proxy, err := cutproxy.New(fmt.Sprintf("%s:%d", c.ConnConfig.Host, c.ConnConfig.Port))
	e.ok(err)
	c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks, c.MaxConns = "127.0.0.1", uint16(proxy.Port()), nil, 2
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // so that every dialogue is the same
	pool := e.poolOf(c)
	e.t.Cleanup(proxy.Close)
	return pool, proxy
}

// cutOnce does something with a fault that is armed when there is a connection. A black
// hole is ended by the caller's context.
func cutOnce(e *env, pool *pgxpool.Pool, proxy *cutproxy.Proxy, f cutproxy.Fault, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(within(e.t))
	defer cancel()
	e.ok(pool.Ping(ctx))
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
	err := do(ctx)
	if err != nil && !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrUnknown) && !errors.Is(err, context.Canceled) {
		e.t.Errorf("%v: %v, want ErrUnavailable, ErrUnknown or the context's error", f, err)
	}
	return err
}

// settled is the state when no transaction is open any more that could change it.
func (e *env) settled() string {
	e.t.Helper()
	e.ok(e.control().Update(within(e.t), "p", func(all []projector.Version) ([]projector.Version, error) { return all, nil }))
	return e.state()
}

// A change of which the answer to COMMIT is lost is ErrUnknown, and done here; one of
// which COMMIT was not sent is not.
func TestUpdateWithALostAnswer(t *testing.T) {
	e := newEnv(t)
	cut := &cutter{}
	c := pgcheckpoint.NewCheckpoints(cut.pool(t, pgx.QueryExecModeExec), e.options())
	e.register(c, 1)
	fence := func(all []projector.Version) ([]projector.Version, error) {
		all[0].Fence(eventstore.UUID{})
		return all, nil
	}
	cut.set(func(_ *cutConn, b []byte) error { return cutIf(isCommit(b)) })
	if err := c.Update(t.Context(), "p", fence); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("COMMIT not sent: %v", err)
	}
	cut.set(func(c *cutConn, b []byte) error {
		if isCommit(b) {
			c.loseAnswer()
		}
		return nil
	})
	e.wantState("v1 0@0 skipped 0 rows 0")
	if err := c.Update(t.Context(), "p", fence); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("answer lost: %v", err)
	}
	cut.set(nil)
	if got, want := e.settled(), "v1 0@1 skipped 0 rows 0"; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}
