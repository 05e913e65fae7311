// The whole way: events set timers, timers fire, what fired becomes commands; every
// process on it crashes at every step.

package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/timer"
)

// An order is placed, and paid or not; one that is not paid within an hour expires.
type (
	order  struct{ placed, paid, expired int }
	step   string // command and event: "placed", "paid", "expired"
	orders = aggregate.Executor[order, step, happened]
)

type happened struct{ Step step }

var (
	steps     = schema.New[happened](schema.Wire[happened]("happened", 1))
	orderType = aggregate.Type[order, step, happened]{Category: "order", Schema: steps, Decider: aggregate.Decider[order, step, happened]{
		Initial: func() order { return order{} },
		Decide: func(o order, s step) ([]happened, error) {
			if s == "expired" && o.paid > 0 {
				return nil, errPaid
			}
			return []happened{{s}}, nil
		},
		Evolve: func(o order, h happened) order {
			switch h.Step {
			case "placed":
				o.placed++
			case "paid":
				o.paid++
			case "expired":
				o.expired++
			}
			return o
		},
	}}
	errPaid = errors.New("paid meanwhile")
	errCut  = errors.New("crash")
)

// pipeline are the processes around the orders, each of which is new in every round.
type pipeline struct {
	*env
	orders *orders
	kept   *projector.MemoryCheckpoints
	cut    func() error // at each step: a crash
}

// Load and Save are the checkpoints', with crashes before and after.
func (p *pipeline) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	return p.kept.Load(ctx, key)
}

func (p *pipeline) Save(ctx context.Context, s projector.Step) error {
	return p.around(func() error { return p.kept.Save(ctx, s) })
}

func (p *pipeline) around(f func() error) error {
	if err := p.cut(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return p.cut()
}

// deadlines sets and cancels the timers of orders.
func (p *pipeline) deadlines() *projector.Projector {
	return projector.NewReactor(p.store, "deadlines", "order", p, projector.ReactorOptions[happened, step]{
		Events: steps,
		React:  func(e projector.Event[happened]) ([]step, error) { return []step{e.Value.Step}, nil },
		Issue: func(ctx context.Context, c projector.Command[step]) error {
			return p.around(func() (err error) {
				name := c.Entry.Stream.Key()
				switch c.Value {
				case "placed":
					_, err = p.timers.Set(ctx, name, c.Entry.Time.Add(time.Hour), nil, timer.ID(c.ID), timer.CausedBy(c.Entry))
				case "paid":
					if _, err = p.timers.Cancel(ctx, name, timer.ID(c.ID)); errors.Is(err, timer.ErrFired) {
						err = nil // too late: the order itself says what comes of it
					}
				}
				return err
			})
		},
		Projector: projector.Options{PageSize: 5},
	})
}

// expiries lets orders expire whose timer has fired.
func (p *pipeline) expiries() *projector.Projector {
	return projector.NewReactor(p.store, "expiries", "timer", p, projector.ReactorOptions[timer.Timer, step]{
		Events: timer.Events{},
		React:  func(projector.Event[timer.Timer]) ([]step, error) { return []step{"expired"}, nil },
		Issue: func(ctx context.Context, c projector.Command[step]) error {
			return p.around(func() error {
				_, err := p.orders.Execute(ctx, c.Entry.Stream.Key(), c.Value, aggregate.CommandID(c.ID), aggregate.CausedBy(c.Entry))
				if errors.Is(err, errPaid) {
					return nil
				}
				return err
			})
		},
		Projector: projector.Options{Types: []string{timer.FiredType}, AcceptTrimmed: true, PageSize: 5},
	})
}

func TestProcess(t *testing.T) {
	const count, rounds = 20, 60
	crashes, expired, paid := 0, 0, 0
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := &pipeline{env: newEnv(t, timer.Options{Keep: -1}), kept: &projector.MemoryCheckpoints{}, cut: func() error { return nil }}
		var err error
		p.orders, err = aggregate.NewExecutor(t.Context(), p.store, orderType, nil)
		p.ok(err)
		p.log.bend(func(_ context.Context, a eventstore.Append, do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			if !fires(a) || p.cut() == nil {
				return do()
			}
			if len(a.Batches[0].Stream)%2 == 0 {
				_, _ = do()
			}
			return eventstore.Appended{}, lostAnswer(a)
		})
		placed := 0
		var dice sync.Mutex
		for round := range rounds {
			p.cut = func() error {
				dice.Lock() // firings go on side by side
				defer dice.Unlock()
				if round >= rounds-10 || rng.IntN(6) > 0 {
					return nil
				}
				crashes++
				return errCut
			}
			if placed < count && rng.IntN(2) == 0 {
				_, err := p.orders.Execute(t.Context(), fmt.Sprint(placed), "placed")
				p.ok(err)
				placed++
			}
			if placed > 0 && rng.IntN(3) == 0 {
				if name := fmt.Sprint(rng.IntN(placed)); p.is(name).paid == 0 {
					_, err := p.orders.Execute(t.Context(), name, "paid")
					p.ok(err)
				}
			}
			for _, work := range []func(context.Context, time.Duration) (bool, error){p.deadlines().CatchUp, p.scheduler().CatchUp, p.expiries().CatchUp} {
				if _, err := work(t.Context(), 0); err != nil && !errors.Is(err, errCut) && !errors.Is(err, eventstore.ErrUnknown) {
					t.Fatalf("seed %d, round %d: %v", seed, round, err)
				}
			}
			p.clock.pass(time.Duration(rng.IntN(10)) * time.Minute)
			if round == rounds-10 {
				p.clock.pass(2 * time.Hour)
			}
		}
		set, _ := rules{done: true}.check(t, history(t, p.store, "timer"))
		if set != placed {
			t.Fatalf("seed %d: %d timers set for %d orders", seed, set, placed)
		}
		for i := range placed {
			o := p.is(fmt.Sprint(i))
			state := p.state(fmt.Sprint(i))
			if o.placed != 1 || o.expired > 1 || o.paid == 0 && o.expired != 1 || o.expired == 1 && state != timer.Fired {
				t.Fatalf("seed %d: order %d is %+v, its timer %v", seed, i, o, state)
			}
			expired, paid = expired+o.expired, paid+o.paid
		}
	}
	if crashes == 0 || expired == 0 || paid == 0 {
		t.Errorf("%d crashes, %d expired, %d paid", crashes, expired, paid)
	}
	t.Logf("%d crashes, %d expired, %d paid", crashes, expired, paid)
}

func (p *pipeline) is(name string) order {
	p.t.Helper()
	o, _, err := p.orders.Load(p.t.Context(), name)
	p.ok(err)
	return o
}
