// Health: what makes a projector not ready, and that it is never ready while behind.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// checked is a projector of two lanes whose handler and surroundings a case bends.
type checked struct {
	*env
	h     *picky
	a     *workerProcess
	admin *projector.Admin
	o     projector.HealthOptions

	hangs, fails atomic.Bool // the handler does
}

// bentControl is a control that cannot be reached when the test says so.
type bentControl struct {
	projector.Control
	down, readOnly *bool
}

func (c bentControl) Versions(ctx context.Context, name string) ([]projector.Version, error) {
	if *c.down {
		return nil, errOutage
	}
	return c.Control.Versions(ctx, name)
}

func (c bentControl) Update(ctx context.Context, name string, f func([]projector.Version) ([]projector.Version, error)) error {
	if *c.readOnly {
		return &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: "test"}
	}
	return c.Control.Update(ctx, name, f)
}

func newChecked(t *testing.T) *checked {
	c := &checked{env: newEnv(t, nil)}
	c.h = newPicky(func(e eventstore.Entry) error {
		if e.Type == "renamed" {
			return errBad
		}
		return nil
	})
	c.h.before = c.before
	c.a = c.start(c.h, projector.Options{Lanes: 2, LeaseTTL: ttl})
	c.admin = projector.NewAdmin(c.store, c.h)
	c.ok(c.a.p.Wait(within(t), c.spread(40, 10)))
	eventually(t, ttl+5*time.Second, "all lanes", func() bool { return fmt.Sprint(lanes(c.a)) == "[2]" })
	return c
}

// before is the handler's: it hangs, or fails, from the moment the test says so.
func (c *checked) before(ctx context.Context, s projector.Step) error {
	switch {
	case len(s.Batch) == 0:
	case c.hangs.Load():
		<-ctx.Done()
	case c.fails.Load():
		return errOutage
	}
	return nil
}

// poison parks a key.
func (c *checked) poison() {
	c.append("account-3", Renamed{"x"})
	eventually(c.t, time.Minute, "a parked key", func() bool { return c.a.p.Status().Parked == 1 })
}

var healthCases = []struct {
	name   string
	do     func(c *checked)
	red    string // what a reason says; empty: it is ready
	kind   error  // of the error; nil: none
	local  bool   // only the worker's process knows
	remote bool   // that one cannot be asked
}{
	{name: "caught up", do: func(*checked) {}},
	{name: "a stuck handler", do: func(c *checked) { c.hangs.Store(true); c.spread(20, 10); time.Sleep(3 * time.Second) }, red: "entries (3.0 s) behind"},
	{name: "a stuck handler, within what is tolerated", do: func(c *checked) {
		c.hangs.Store(true)
		c.spread(20, 10)
		time.Sleep(3 * time.Second)
		c.o.MaxLag = 4 * time.Second
	}},
	{name: "a stuck handler, beyond what is tolerated", do: func(c *checked) {
		c.hangs.Store(true)
		c.spread(20, 10)
		time.Sleep(5 * time.Second)
		c.o.MaxLag = 4 * time.Second
	}, red: "entries (5.0 s) behind"},
	{name: "more behind than is counted", do: func(c *checked) {
		c.hangs.Store(true)
		c.spread(20, 10)
		c.o.Entries = 5
		time.Sleep(time.Second)
	}, red: "at least"},
	{name: "a parked key", do: func(c *checked) { c.poison() }, red: "1 keys parked, at most 0"},
	{name: "a parked key that is tolerated", do: func(c *checked) { c.poison(); c.o.MaxParked = 1 }},
	{name: "paused", do: func(c *checked) { c.ok(c.admin.Pause(c.t.Context(), "p", 0)) }, red: "paused"},
	{name: "no worker", do: func(c *checked) { _ = c.a.stop() }, red: "no worker has lane 1"},
	{name: "no worker wanted", do: func(c *checked) { _ = c.a.stop(); c.o.NoWorkers = true }},
	{name: "a worker that was killed", remote: true, do: func(c *checked) { c.a.kill(); time.Sleep(ttl) }, red: "no worker has lane 0"},
	{name: "a lease, and nobody who claims", do: func(c *checked) {
		_ = c.a.stop()
		_, _, err := c.store.AcquireLease(c.t.Context(), "projector/p/1/lane/0001", eventstore.NewUUID(), time.Minute)
		c.ok(err)
	}, red: "lane 1 is leased by a worker that has not claimed it"},
	{name: "feed down", do: func(c *checked) { c.log.set(func(l *bentLog) { l.down = errOutage }) }, red: "cannot be looked at", kind: eventstore.ErrUnavailable},
	{name: "not registered", do: func(c *checked) {
		_ = c.a.stop()
		c.ok(c.admin.Drop(c.t.Context(), "p", 1))
	}, red: "not registered", kind: projector.ErrNotRegistered},
	{name: "a store that lost its end", do: func(c *checked) {
		c.log.set(func(l *bentLog) {
			l.readFeed = func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
				p.Drawn, p.Horizon = 1, 1
				return p, err
			}
		})
	}, red: "lost its end"},
	{name: "another store", do: func(c *checked) {
		c.log.set(func(l *bentLog) {
			l.readFeed = func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
				p.Incarnation = eventstore.UUID{9}
				return p, err
			}
		})
	}, red: "store incarnation"},
	{name: "an append under way", do: func(c *checked) {
		c.log.set(func(l *bentLog) {
			l.readFeed = func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
				p.Drawn += 5 // committed behind it: nobody can see yet what there is
				return p, err
			}
		})
	}, red: "hold the feed"},
	{name: "an error that this process knows of", local: true, do: func(c *checked) {
		c.fails.Store(true)
		c.spread(1, 1)
		time.Sleep(time.Second)
		c.o.MaxLag = time.Hour
	}, red: "last error"},
}

func TestHealth(t *testing.T) {
	for _, d := range healthCases {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChecked(t)
				d.do(c)
				if !d.remote {
					h, err := c.a.p.Health(t.Context(), &c.o)
					wantHealth(t, h, err, d.red, d.kind)
				}
				h, err := c.admin.Health(t.Context(), "p", 1, &c.o)
				if d.local {
					d.red = ""
				}
				wantHealth(t, h, err, d.red, d.kind)
			})
		})
	}
}

func wantHealth(t *testing.T, h projector.Health, err error, red string, kind error) {
	t.Helper()
	if !errors.Is(err, kind) || kind == nil && err != nil {
		t.Errorf("error %v, want %v", err, kind)
	}
	if red == "" != h.Ready || h.Ready != (len(h.Reasons) == 0) {
		t.Errorf("ready %v for %q, want %q", h.Ready, h.Reasons, red)
	}
	if red != "" && !slices.ContainsFunc(h.Reasons, func(why string) bool { return strings.Contains(why, red) }) {
		t.Errorf("reasons %q, want %q", h.Reasons, red)
	}
}

// What is to be known of lanes is there, and is what it is.
func TestHealthOfLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		c.poison()
		c.hangs.Store(true)
		began := time.Now()
		before := len(c.all("account"))
		time.Sleep(time.Second)
		c.spread(30, 10)
		time.Sleep(2 * time.Second)
		h, err := c.admin.Health(t.Context(), "p", 0, nil)
		c.ok(err)
		all := c.all("account")
		want := map[int]int{}
		for _, e := range all[before:] {
			want[projector.LaneOf(e.Stream.Slot(), 2)]++
		}
		versions, err := c.h.Versions(t.Context(), "p")
		c.ok(err)
		for i, l := range h.Lanes {
			kept := versions[0].Lanes[i]
			if l.Lane != i || !l.Checkpoint.Same(kept) || l.Behind != want[i] || l.More || l.Lag != 2*time.Second || !l.Claimed || l.Owner != kept.Holder || l.Left <= 0 || l.Left > ttl {
				t.Errorf("lane %d: %+v, want %d entries of %v behind %v", i, l, want[i], time.Since(began)-time.Second, kept)
			}
		}
		if h.Lanes[0].Parked+h.Lanes[1].Parked != 1 || h.Parked != 1 || h.Behind != 30 || h.Lag != 2*time.Second || h.Head != all[len(all)-1].Position || h.Key.Version != 1 {
			t.Errorf("%+v", h)
		}
		if want := min(h.Lanes[0].Checkpoint.Position, h.Lanes[1].Checkpoint.Position); h.Position != want {
			t.Errorf("position %d, want %d", h.Position, want)
		}
	})
}

// A control that cannot be read, or written, is never ready.
func TestHealthOfAControlThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecked(t)
		down, readOnly := false, false
		admin := projector.NewAdmin(c.store, bentControl{c.h, &down, &readOnly})
		h, err := admin.Health(t.Context(), "p", 0, &projector.HealthOptions{ProveWrites: true})
		wantHealth(t, h, err, "", nil)
		readOnly = true
		h, err = admin.Health(t.Context(), "p", 0, &projector.HealthOptions{ProveWrites: true})
		wantHealth(t, h, err, "cannot be looked at", eventstore.ErrReadOnly)
		down = true
		h, err = admin.Health(t.Context(), "p", 0, nil)
		wantHealth(t, h, err, "cannot be looked at", eventstore.ErrUnavailable)
		c.a.dead.mu.Lock()
		c.a.dead.cut = true
		c.a.dead.mu.Unlock()
		h, err = projector.NewAdmin(eventstore.New(c.a.dead, nil), c.h).Health(t.Context(), "p", 0, nil)
		wantHealth(t, h, err, "cannot be looked at", eventstore.ErrUnavailable)
	})
}

// One page of the feed is read for all lanes, however many there are.
func TestHealthReadsOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{Lanes: 50, LeaseTTL: ttl})
		e.ok(a.p.Wait(within(t), e.spread(100, 50)))
		_ = a.stop()
		e.spread(100, 50)
		var before, after int
		e.log.set(func(l *bentLog) { before = l.reads })
		h, err := projector.NewAdmin(e.store, l).Health(t.Context(), "p", 0, nil)
		e.ok(err)
		e.log.set(func(l *bentLog) { after = l.reads })
		if h.Behind != 100 || h.More || after-before != 1 {
			t.Errorf("%d behind, found by %d reads", h.Behind, after-before)
		}
	})
}

// A shadow is ready when it has come to where the live version is, not further.
func TestHealthOfAShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		one, two := newLedger(), &worker{}
		two.ledger = one
		a := e.start(one, projector.Options{Lanes: 2, LeaseTTL: ttl})
		e.ok(a.p.Wait(within(t), e.spread(100, 10)))
		var stuck atomic.Bool
		two.before = func(ctx context.Context, s projector.Step) error {
			if stuck.Load() && len(s.Batch) > 0 {
				<-ctx.Done()
			}
			return nil
		}
		e.start(two, projector.Options{Version: 2, Lanes: 2, LeaseTTL: ttl})
		admin := projector.NewAdmin(e.store, one)
		ready := func(version int) (bool, []string) {
			h, err := admin.Health(t.Context(), "p", version, nil)
			e.ok(ignore(err, projector.ErrNotRegistered))
			return h.Ready, h.Reasons
		}
		eventually(t, 30*time.Second, "the shadow", func() bool { is, _ := ready(2); return is })
		// The live version stops; what it has not handled is nothing to its shadow.
		_ = a.stop()
		e.spread(20, 10)
		time.Sleep(5 * time.Second)
		if is, why := ready(2); !is {
			t.Errorf("the shadow is behind no more than the live version: %q", why)
		}
		if is, _ := ready(1); is {
			t.Error("the live version is ready without workers")
		}
		stuck.Store(true)
		b := e.start(one, projector.Options{Lanes: 2, LeaseTTL: ttl})
		token := e.spread(20, 10)
		e.ok(b.p.Wait(within(t), token))
		time.Sleep(10 * time.Second)
		if is, why := ready(2); is || !strings.Contains(fmt.Sprint(why), "behind") {
			t.Errorf("ready %v though the live version has gone on: %q", is, why)
		}
	})
}

// Whenever it says ready, all that was appended before the look began is handled.
func TestHealthIsNeverReadyWhileBehind(t *testing.T) {
	first := rand.Uint64()
	ready := 0
	for i := range 15 {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ready += neverReadyWhileBehind(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
	if ready == 0 {
		t.Error("never ready at all: nothing was tested")
	}
}

func neverReadyWhileBehind(t *testing.T, r *rand.Rand) (ready int) {
	e, l := newEnv(t, nil), newLedger()
	o := projector.Options{Lanes: 1 + r.IntN(6), LeaseTTL: ttl, PageSize: 1 + r.IntN(20)}
	slow := rand.New(rand.NewPCG(r.Uint64(), 8))
	w := &worker{ledger: l, before: func(context.Context, projector.Step) error {
		l.mu.Lock()
		n := slow.IntN(20)
		l.mu.Unlock()
		if n == 0 {
			return errOutage
		}
		time.Sleep(time.Duration(n*n) * time.Millisecond)
		return nil
	}}
	workers := []*workerProcess{e.start(w, o)}
	admin := projector.NewAdmin(e.store, l)
	for range 150 {
		switch r.IntN(12) {
		case 0:
			workers = append(workers, e.start(w, o))
		case 1:
			if i := r.IntN(len(workers)); len(workers) > 1 {
				workers[i].kill()
				workers = slices.Delete(workers, i, i+1)
			}
		case 2:
			e.ok(ignore(admin.Pause(t.Context(), "p", 0), projector.ErrNotRegistered))
		case 3, 4:
			e.ok(ignore(admin.Resume(t.Context(), "p", 0), projector.ErrNotRegistered))
		case 5, 6:
			e.spread(1+r.IntN(40), 12)
		case 7:
			time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
		default:
			time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
		}
		before := e.all("account")
		h, err := admin.Health(t.Context(), "p", 0, &projector.HealthOptions{Entries: 1 + r.IntN(60)})
		e.ok(ignore(err, projector.ErrNotRegistered))
		if !h.Ready {
			continue
		}
		ready++
		l.mu.Lock()
		for _, entry := range before {
			if l.handled[entry.Position] != 1 {
				t.Errorf("ready, and entry %d of %s at position %d is not handled", entry.Seqno, entry.Stream, entry.Position)
			}
		}
		l.mu.Unlock()
	}
	return ready
}

// Over several backends each is judged, and the worst of them counts.
func TestHealthOfSeveralBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouted(t, nil)
		var c projector.MemoryCheckpoints
		gate := make(chan struct{})
		h := projector.Sink(&c, func(ctx context.Context, key projector.Key, _ []eventstore.Entry) error {
			if key.Projector == "p/blue" {
				select {
				case <-gate:
				case <-ctx.Done():
				}
			}
			return nil
		})
		p := r.over(h, projector.Options{LeaseTTL: ttl, Lanes: 2})
		run(t, p)
		r.ok(p.Wait(within(t), r.deposit("account-1", 3)))
		token := r.append("order-1", Deposited{1})
		time.Sleep(2 * time.Second)
		for _, look := range []func() (projector.Health, error){
			func() (projector.Health, error) { return p.Health(t.Context(), nil) },
			func() (projector.Health, error) {
				return projector.NewAdmin(r.store, &c).Health(t.Context(), "p", 0, nil)
			},
		} {
			got, err := look()
			wantHealth(t, got, err, "p/blue: lane", nil)
			if len(got.Parts) != 2 || !got.Parts[0].Ready || got.Parts[1].Ready || got.Behind != 1 || got.Lag != 2*time.Second || got.Parts[1].Behind != 1 {
				t.Errorf("%+v", got)
			}
		}
		close(gate)
		r.ok(p.Wait(within(t), token))
		got, err := p.Health(t.Context(), nil)
		wantHealth(t, got, err, "", nil)
		r.down(r.blue, errOutage)
		got, err = p.Health(t.Context(), nil)
		wantHealth(t, got, err, "cannot be looked at", eventstore.ErrUnavailable)
	})
}

// Where nobody else can know, this process says if it works.
func TestHealthWithoutControl(t *testing.T) {
	handlers := map[string]func() projector.Handler{
		"without control": func() projector.Handler { return &database{} },
		"in memory": func() projector.Handler {
			return projector.Memory(events, func(context.Context, projector.Event[Event]) error { return nil })
		},
	}
	for name, h := range handlers {
		for _, one := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", one stream ", one), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, o := newEnv(t, nil), &projector.Options{Version: 2}
					if one {
						o.Stream = "account-1"
					}
					e.deposit("account-1", 7)
					p := projector.New(e.store, "p", "account", h(), o)
					got, err := p.Health(t.Context(), nil)
					if one || name == "without control" {
						e.ok(ignore(err, projector.ErrNotRegistered))
					}
					if got.Ready {
						t.Error("ready before it has run")
					}
					stop := run(t, p)
					token := e.deposit("account-1", 5)
					e.ok(p.Wait(within(t), token))
					got, err = p.Health(t.Context(), nil)
					wantHealth(t, got, err, "", nil)
					if one && (got.Seqno != 12 || got.HeadSeqno != 12) || !one && got.Position != token.Position {
						t.Errorf("%+v", got)
					}
					_ = stop()
					e.deposit("account-1", 4)
					got, err = p.Health(t.Context(), &projector.HealthOptions{Entries: 3})
					wantHealth(t, got, err, "at least 3 entries", nil)
					wantHealth(t, got, err, "no worker has lane 0", nil)
					got, err = p.Health(t.Context(), &projector.HealthOptions{NoWorkers: true})
					wantHealth(t, got, err, "4 entries", nil)
				})
			})
		}
	}
}

// A mistake in the configuration is never ready.
func TestHealthOfAMistake(t *testing.T) {
	e := newEnv(t, nil)
	h, err := projector.New(e.store, "", "account", newLedger(), nil).Health(t.Context(), nil)
	wantHealth(t, h, err, "cannot be looked at", eventstore.ErrInvalid)
	h, err = projector.NewAdmin(e.store, newLedger()).Health(t.Context(), "", 0, nil)
	wantHealth(t, h, err, "cannot be looked at", eventstore.ErrInvalid)
}
