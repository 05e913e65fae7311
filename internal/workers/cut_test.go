// The link between a worker and PostgreSQL is cut at the bytes of what it does with lanes,
// and heals.

package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// healed is how long a link stays cut.
const healed = 50 * time.Millisecond

// cutting is a worker whose link is cut at one of the things it does.
type cutting struct {
	*testing.T
	x, far *projection // past the proxy, through it
	also   *projection // version 2, past the proxy, if there is one
	w      *writer
	p      *projector.Projector // of far
	admin  *projector.Admin     // past the proxy
	proxy  *cutproxy.Proxy
	op     string
	bad    atomic.Bool // key k0 cannot be handled

	mu      sync.Mutex
	fault   *cutproxy.Fault // for the next op; nil: none
	busy    chan struct{}   // closed when what is cut has ended; nil: nothing is
	outcome chan outcomeOf
}

type outcomeOf struct {
	struck bool
	err    error
}

// alone is in the context of what is cut: nothing else goes over the link meanwhile.
type alone struct{}

// at does something, with the fault that waits for it.
func (c *cutting) at(ctx context.Context, op string, do func(ctx context.Context) error) error {
	c.mu.Lock()
	f := c.fault
	if op != c.op || f == nil {
		c.mu.Unlock()
		return do(ctx)
	}
	done := make(chan struct{})
	c.fault, c.busy = nil, done
	c.mu.Unlock()
	fired := c.proxy.Arm(*f)
	go func() {
		select {
		case <-fired:
			time.Sleep(healed)
			c.proxy.Release()
		case <-done:
		}
	}()
	err := do(context.WithValue(ctx, alone{}, true))
	struck := c.proxy.Disarm()
	c.mu.Lock()
	c.busy = nil
	c.mu.Unlock()
	close(done)
	c.outcome <- outcomeOf{struck, err}
	return err
}

// yield has everything else wait for what is cut. Who waits has a connection already, so
// there must be one more of them than a worker uses.
func (c *cutting) yield(ctx context.Context, _ *pgx.Conn) (bool, error) {
	c.mu.Lock()
	busy := c.busy
	c.mu.Unlock()
	if busy != nil && ctx.Value(alone{}) == nil {
		select {
		case <-busy:
		case <-ctx.Done():
		}
	}
	return true, nil
}

// beating is a log whose heartbeats are cut.
type beating struct {
	*pglog.Log
	c *cutting
}

func (b beating) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) (all []eventstore.Lease, err error) {
	err = b.c.at(ctx, "heartbeat", func(ctx context.Context) error {
		all, err = b.Log.UpdateLeases(ctx, u)
		return err
	})
	return all, err
}

func (c *cutting) step(ctx context.Context, s projector.Step, do func(context.Context) error) error {
	op := "other"
	switch {
	case len(s.Park) > 0:
		op = "park"
	case len(s.Batch) > 0:
		op = "step"
	case s.To.Holder != s.From.Holder:
		op = "claim"
	}
	return c.at(ctx, op, do)
}

func (c *cutting) fails(e projector.Event[event]) error {
	if c.bad.Load() && e.Stream.Key() == "k0" {
		return errors.New("this cannot be handled")
	}
	return nil
}

// hooks of what goes through the proxy.
func (c *cutting) hooks(version int) hooks {
	return hooks{version: version, step: c.step, fails: c.fails, log: func(l *pglog.Log) eventstore.Log { return beating{l, c} },
		pool: func(p *pgxpool.Config) {
			p.ConnConfig.Host, p.ConnConfig.Port, p.ConnConfig.Fallbacks, p.MaxConns = "127.0.0.1", uint16(c.proxy.Port()), nil, 10
			p.PrepareConn = c.yield
			p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // so that every dialogue is the same
		}}
}

// options have beats short, so that a heartbeat need not be waited for.
func (c *cutting) options() projector.Options {
	return projector.Options{Lanes: 4, LeaseTTL: time.Second, PollInterval: 50 * time.Millisecond, Tries: 1}
}

func newCutting(t *testing.T, op string) *cutting {
	c := &cutting{T: t, op: op, outcome: make(chan outcomeOf, 1)}
	c.x = newProjection(t)
	c.w = &writer{store: c.x.store, marks: map[eventstore.Stream]eventstore.Mark{}}
	c.admin = projector.NewAdmin(c.x.store, c.x.effects.(*watched).Control)
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	ok(t, err)
	c.proxy, err = cutproxy.New(fmt.Sprintf("%s:%d", config.ConnConfig.Host, config.ConnConfig.Port))
	ok(t, err)
	t.Cleanup(c.proxy.Close)
	c.far = connect(t, c.x.schema, c.hooks(1))
	c.p = c.far.projector(c.options())
	return c
}

// Cut wherever it may be, in every way: what the worker was at is done wholly or not at
// all, the model is exact, and the worker goes on by itself within TTL + 5 s. At places
// that are far apart, in a soak at every byte, of lanes at every 97th.
func TestLanesCutAtEveryByte(t *testing.T) {
	pgtest.DSN(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	var going sync.WaitGroup
	defer going.Wait()
	for op, o := range map[string]struct {
		every, soaked int64
		once          func(c *cutting, n int)
	}{
		"heartbeat": {149, 1, (*cutting).heartbeat},
		"claim":     {67, 1, (*cutting).claim},
		"step":      {97, 1, (*cutting).entries},
		"park":      {199, 1, (*cutting).park},
		"lanes":     {19937, 97, (*cutting).lanes}, // some 70 KB a way, and workers have to leave first
		"switch":    {997, 1, (*cutting).change},
	} {
		going.Go(func() { // side by side: they wait more than they work
			t.Run(op, func(t *testing.T) {
				c := newCutting(t, op)
				run(t, c.p)
				c.passes("start")
				every := o.every
				if soak() {
					every = o.soaked
				} else if testing.Short() {
					every *= 3
				}
				c.everywhere(every, func(n int) { o.once(c, n) })
			})
		})
	}
}

// everywhere does something with the link cut at every so many bytes of it.
func (c *cutting) everywhere(every int64, once func(n int)) {
	modes := []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole}
	rounds := [][]cutproxy.Mode{modes}
	if soak() {
		rounds = [][]cutproxy.Mode{modes[:1], modes[1:2], modes[2:]}
	}
	began, n, cuts, failed := time.Now(), 0, 0, 0
	for _, way := range cutproxy.Directions {
		for _, modes := range rounds {
			for i, struck := int64(0), true; struck; i++ {
				if n++; i > 1<<15 {
					c.Fatal("the dialogue has no end")
				}
				f := cutproxy.Fault{Direction: way, After: i * every, Mode: modes[i%int64(len(modes))]}
				c.mu.Lock()
				c.fault = &f
				c.mu.Unlock()
				once(n)
				o := c.wait(f)
				if struck = o.struck; struck {
					cuts++
				}
				if o.err != nil {
					failed++
				}
				if o.err != nil && (!struck || !outage(o.err)) && !late(c.op, o.err) {
					c.Fatalf("%v, struck %v: %v", f, struck, o.err)
				}
				c.after(n)
				c.passes(f.String())
				if n%10 == 0 || !struck {
					c.x.exact(c)
				}
				if c.Failed() {
					c.Fatalf("%v", f)
				}
				if !struck {
					c.Logf("the dialogue ends before byte %d %v", f.After, way)
				}
			}
		}
	}
	c.Logf("%d cuts, %d of them an error, in %v", cuts, failed, time.Since(began).Round(time.Second))
	if failed < cuts/4 || cuts < 4 { // several lanes are claimed at once: a cut may meet another one than is waited for
		c.Errorf("%d cuts, %d errors: they do not meet the dialogue", cuts, failed)
	}
}

// wait waits until what was to be cut has ended.
func (c *cutting) wait(f cutproxy.Fault) outcomeOf {
	c.Helper()
	select {
	case o := <-c.outcome:
		return o
	case <-time.After(proceeds):
		c.Fatalf("%v: no %s within %v", f, c.op, proceeds)
		return outcomeOf{}
	}
}

// passes appends to all lanes and waits until that is handled.
func (c *cutting) passes(what string) {
	c.Helper()
	token, err := c.w.append(c.Context(), "account-"+eventstore.Stream(keys()[0]), "account-"+eventstore.Stream(keys()[5]),
		"ledger-"+eventstore.Stream(keys()[10]), "ledger-"+eventstore.Stream(keys()[15]))
	ok(c, err)
	c.handled(what, c.x, token)
}

func (c *cutting) handled(what string, x *projection, token eventstore.Token) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), c.options().LeaseTTL+5*time.Second)
	defer cancel()
	if err := x.projector(projector.Options{PollInterval: 20 * time.Millisecond}).Wait(ctx, token); err != nil {
		c.Fatalf("%s: it does not go on: %v", what, err)
	}
}

func (c *cutting) heartbeat(int) {}

func (c *cutting) entries(int) {
	_, err := c.w.append(c.Context(), "account-"+eventstore.Stream(keys()[5]))
	ok(c, err)
}

// claim has the worker claim its lanes again.
func (c *cutting) claim(int) {
	ok(c, c.admin.Pause(c.Context(), name, 1))
	ok(c, c.admin.Resume(c.Context(), name, 1))
}

// park has an entry that cannot be handled, with one behind it.
func (c *cutting) park(int) {
	c.bad.Store(true)
	for range 2 {
		_, err := c.w.append(c.Context(), "account-k0", "account-k1")
		ok(c, err)
	}
}

func (c *cutting) lanes(n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*proceeds)
	defer cancel()
	_ = c.at(ctx, "lanes", func(ctx context.Context) error { return c.far.projector(c.options()).SetLanes(ctx, 4+n%2*2) })
}

// late says if a change of lanes took longer than its short lease, on a busy machine.
func late(op string, err error) bool { return op == "lanes" && errors.Is(err, eventstore.ErrLeaseLost) }

func (c *cutting) change(n int) {
	if n == 1 {
		c.second()
	}
	ctx, cancel := context.WithTimeout(context.Background(), proceeds)
	defer cancel()
	admin := projector.NewAdmin(c.far.store, c.far.effects.(*watched).Control)
	_ = c.at(ctx, "switch", func(ctx context.Context) error {
		return admin.Switch(ctx, name, 1+n%2, &projector.SwitchOptions{MaxBehind: projector.DefaultMaxBehind})
	})
}

// second builds version 2.
func (c *cutting) second() {
	c.Helper()
	two, err := open(c.Context(), pgtest.DSN(c), c.x.schema, hooks{version: 2})
	ok(c, err)
	c.Cleanup(two.close)
	model(c.T, two)
	run(c, two.projector(c.options()))
	c.also = two
	c.passes("second version")
}

// after sees to what is left to do when the link has healed.
func (c *cutting) after(n int) {
	c.Helper()
	switch c.op {
	case "park":
		c.mend()
	case "lanes":
		ctx, cancel := context.WithTimeout(context.Background(), 2*proceeds)
		defer cancel()
		err := error(eventstore.ErrLeaseLost)
		for late(c.op, err) {
			err = c.far.projector(c.options()).SetLanes(ctx, 4+n%2*2)
		}
		ok(c, err)
	case "switch":
		all, err := c.admin.Versions(c.Context(), name)
		ok(c, err)
		if len(all) != 2 || all[0].Role == all[1].Role {
			c.Fatalf("versions %+v", all)
		}
		ok(c, c.admin.Switch(c.Context(), name, 1+n%2, &projector.SwitchOptions{MaxBehind: projector.DefaultMaxBehind}))
		c.also.exact(c)
	}
}

// mend waits until the key is parked, and has it handled.
func (c *cutting) mend() {
	c.Helper()
	for end := time.Now().Add(proceeds); ; time.Sleep(5 * time.Millisecond) {
		all, err := c.admin.Versions(c.Context(), name)
		ok(c, err)
		if len(all[0].Parked) == 1 {
			break
		}
		if time.Now().After(end) {
			c.Fatalf("key not parked: %+v", all)
		}
	}
	c.bad.Store(false)
	_, err := c.admin.Retry(c.Context(), name, 1, "k0")
	ok(c, err)
	for end := time.Now().Add(proceeds); ; time.Sleep(5 * time.Millisecond) {
		all, err := c.admin.Versions(c.Context(), name)
		ok(c, err)
		if len(all[0].Parked) == 0 {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("key stays parked: %+v", all)
		}
	}
}
