// The number of lanes is changed while processes work and appends go on, and who changes
// it crashes.

package workers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// Before each change one is begun and crashes, left to chance where: its context ends,
// its link is cut, its process is killed. Afterwards all lanes are worked on within
// TTL + 5 s, and the change can be made.
func TestSetLanesWhileWorkersRun(t *testing.T) {
	f := newFleet(t, rand.Uint64(), 1)
	rounds := 1
	if soak() {
		rounds = 20
	}
	for range 2 {
		f.join(task{Slow: time.Millisecond})
	}
	stop, unwatch := f.appending(), f.watch()
	f.proceeds("start", time.Now())
	crashes := []func(lanes int) (string, error){f.cancelled, f.cut, f.killed}
	f.dice.Shuffle(3, func(i, j int) { crashes[i], crashes[j] = crashes[j], crashes[i] })
	n, broken := 0, 0
	for range rounds {
		for _, lanes := range []int{16, 5, 8, 1} {
			how, err := crashes[n%3](lanes)
			if n++; err != nil {
				broken++
			}
			f.proceeds(fmt.Sprintf("crash (%s) while there are to be %d lanes", how, lanes), time.Now())
			f.x.exact(t)
			ctx, cancel := context.WithTimeout(context.Background(), 2*proceeds)
			began := time.Now()
			err = f.p.SetLanes(ctx, lanes)
			cancel()
			ok(t, err)
			if got, _ := f.x.moment(t); len(got) != lanes {
				t.Fatalf("%d lanes, want %d", len(got), lanes)
			}
			f.proceeds(fmt.Sprintf("%d lanes, made in %v", lanes, time.Since(began).Round(10*time.Millisecond)), time.Now())
			f.x.exact(t)
		}
	}
	stop()
	f.ends()
	unwatch()
	if broken == 0 {
		t.Error("no change was broken off")
	}
}

// cancelled begins a change whose context ends at one of its steps.
func (f *fleet) cancelled(lanes int) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	at := int64(f.dice.IntN(12)) // 0: while it waits for the workers
	if at == 0 {
		time.AfterFunc(time.Duration(f.dice.IntN(500))*time.Millisecond, cancel)
	}
	var steps atomic.Int64
	x := connect(f.T, f.x.schema, hooks{step: func(ctx context.Context, _ projector.Step, do func(context.Context) error) error {
		if steps.Add(1) == at {
			cancel()
		}
		return do(ctx)
	}})
	err := x.projector(projector.Options{Lanes: f.lanes}).SetLanes(ctx, lanes)
	if err != nil && !errors.Is(err, context.Canceled) {
		f.Errorf("a change whose context ended: %v", err)
	}
	return fmt.Sprintf("cancelled at step %d: %v", at, err), err
}

// cut begins a change whose link is cut at some byte, and heals.
func (f *fleet) cut(lanes int) (string, error) {
	config, err := pgxpool.ParseConfig(pgtest.DSN(f))
	ok(f, err)
	proxy, err := cutproxy.New(fmt.Sprintf("%s:%d", config.ConnConfig.Host, config.ConnConfig.Port))
	ok(f, err)
	f.Cleanup(proxy.Close)
	x := connect(f.T, f.x.schema, hooks{pool: func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks = "127.0.0.1", uint16(proxy.Port()), nil
	}})
	fault := cutproxy.Fault{Direction: cutproxy.Directions[f.dice.IntN(2)], After: f.dice.Int64N(15_000),
		Mode: []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole}[f.dice.IntN(3)]}
	fired := proxy.Arm(fault)
	ctx, cancel := context.WithTimeout(context.Background(), 2*proceeds)
	defer cancel()
	go func() {
		select {
		case <-fired:
			time.AfterFunc(50*time.Millisecond, proxy.Release)
		case <-ctx.Done():
		}
	}()
	err = x.projector(projector.Options{Lanes: f.lanes}).SetLanes(ctx, lanes)
	struck := proxy.Disarm()
	if err != nil && !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrUnknown) {
		f.Errorf("%v: %v", fault, err)
	}
	return fmt.Sprintf("%v, struck %v: %v", fault, struck, err), err
}

// killed begins a change in a process that is killed while it is at it.
func (f *fleet) killed(lanes int) (string, error) {
	w := f.join(task{Call: true, Slow: 5 * time.Millisecond})
	f.workers = f.workers[:len(f.workers)-1]
	w.tell("lanes %d", lanes)
	after := time.Duration(f.dice.IntN(1200)) * time.Millisecond
	time.Sleep(after)
	w.kill()
	said := "it did not come to an end"
	for line := range w.lines {
		said = line
	}
	if said == "lanes <nil>" {
		return fmt.Sprintf("killed after %v, too late", after), nil
	}
	return fmt.Sprintf("killed after %v: %s", after, said), errors.New(said)
}
