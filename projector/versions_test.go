// Versions: built in the shadow, switched at once, rolled back; readers follow and no
// effect is had twice or by nobody.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// effects are those of all versions of a sink together.
type effects struct {
	mu  sync.Mutex
	had map[eventstore.Position]int
}

func (f *effects) sink(c projector.Checkpoints) projector.Handler {
	return projector.Sink(c, func(_ context.Context, _ projector.Key, batch []eventstore.Entry) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range batch {
			f.had[e.Position]++
		}
		return nil
	})
}

func (f *effects) once(t testing.TB, want []eventstore.Entry) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range want {
		if f.had[e.Position] != 1 {
			t.Errorf("position %d had %d effects", e.Position, f.had[e.Position])
		}
	}
	if len(f.had) != len(want) {
		t.Errorf("%d effects of %d entries", len(f.had), len(want))
	}
}

func TestShadowStaysBehindAndQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		var c projector.MemoryCheckpoints
		f := &effects{had: map[eventstore.Position]int{}}
		one := e.start(f.sink(&c), projector.Options{Lanes: 2})
		e.ok(one.p.Wait(within(t), e.spread(100, 10)))
		two := e.start(f.sink(&c), projector.Options{Version: 2, Lanes: 3})
		time.Sleep(10 * time.Second)
		f.once(t, e.all("account"))
		_ = one.stop()
		token := e.spread(100, 10)
		e.start(f.sink(&c), projector.Options{Version: 3}) // its first page reaches beyond the live one
		time.Sleep(time.Minute)
		for _, v := range versions(t, &c) {
			if v.Key.Version > 1 && (v.Role != projector.Shadow || v.Lanes[0].Position >= token.Position) {
				t.Errorf("shadow %+v", v)
			}
		}
		admin := projector.NewAdmin(e.store, &c)
		e.ok(admin.Switch(t.Context(), "p", 2, nil))
		e.ok(two.p.Wait(within(t), token))
		f.once(t, e.all("account"))
	})
}

func versions(t testing.TB, c projector.Control) []projector.Version {
	t.Helper()
	all, err := c.Versions(context.Background(), "p")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever is switched, rolled back, reset to other lanes or killed, and whenever: each
// entry has its effect once. (With a sink that is at least once; nothing dies between an
// effect and its checkpoint here.)
func TestSwitchingIsExact(t *testing.T) {
	first := rand.Uint64()
	for i := range 20 {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { switchByChance(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func switchByChance(t *testing.T, r *rand.Rand) {
	e, h := newEnv(t, nil), newLoud()
	admin := projector.NewAdmin(e.store, h)
	ctx, cancel := context.WithCancel(t.Context())
	var all []*projector.Versioned
	var running sync.WaitGroup
	for range 2 {
		v := projector.NewVersioned(e.store, "p", "account", h, func(int) (projector.Handler, error) { return h, nil },
			&projector.Options{Lanes: 1 + r.IntN(4), LeaseTTL: ttl, PageSize: 1 + r.IntN(30)})
		all = append(all, v)
		running.Go(func() {
			if err := v.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	defer running.Wait()
	defer cancel()
	e.spread(30, 10)
	for range 25 {
		time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		var err error
		switch r.IntN(6) {
		case 0:
			_, err = admin.Rebuild(t.Context(), "p", false)
		case 1:
			err = admin.Switch(t.Context(), "p", 1+r.IntN(4), &projector.SwitchOptions{Force: true})
		case 2:
			_, err = admin.Rollback(t.Context(), "p", nil)
		case 3:
			if len(versions(t, h)) > 1 { // the last one that is dropped takes with it what was had
				err = admin.Drop(t.Context(), "p", 1+r.IntN(4))
			}
		default:
			e.spread(r.IntN(50), 10)
		}
		e.ok(ignore(ignore(err, projector.ErrNotRegistered), eventstore.ErrInvalid))
	}
	token := e.spread(10, 10)
	live, err := all[0].Reader().Wait(within(t), token)
	e.ok(err)
	if v, err := all[1].Reader().Live(t.Context()); v != live || err != nil {
		t.Errorf("live %d and %d, %v", v, live, err)
	}
	h.once(t, e.all("account"))
}

// A version that takes over from one that was still quiet itself is quiet as far.
func TestQuietIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, h := newEnv(t, nil), newLoud()
		e.spread(100, 10)
		admin := projector.NewAdmin(e.store, h)
		_, err := projector.New(e.store, "p", "account", h, &projector.Options{Lanes: 3}).CatchUp(t.Context(), 0)
		e.ok(err)
		for range 2 { // neither the second nor the third has handled anything when it becomes live
			next, err := admin.Rebuild(t.Context(), "p", false)
			e.ok(err)
			e.ok(admin.Switch(t.Context(), "p", next, &projector.SwitchOptions{Force: true}))
		}
		e.spread(20, 10)
		_, err = projector.New(e.store, "p", "account", h, &projector.Options{Version: 3}).CatchUp(t.Context(), 0)
		e.ok(err)
		h.once(t, e.all("account"))
	})
}

// A version whose worker runs on while it becomes the shadow of one that is behind it
// handles nothing quietly that the live one has not had: else, live again, it would have
// left out the effects.
func TestShadowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, h := newEnv(t, nil), newLoud()
		admin := projector.NewAdmin(e.store, h)
		w := e.start(h, projector.Options{LeaseTTL: ttl})
		e.ok(w.p.Wait(within(t), e.spread(20, 10)))
		next, err := admin.Rebuild(t.Context(), "p", false)
		e.ok(err)
		for range 20 { // between any two looks of the worker at what versions there are
			e.spread(5, 5)
			e.ok(admin.Switch(t.Context(), "p", next, &projector.SwitchOptions{Force: true}))
			time.Sleep(750 * time.Millisecond)
			_, err = admin.Rollback(t.Context(), "p", nil)
			e.ok(err)
			time.Sleep(350 * time.Millisecond)
		}
		e.ok(w.p.Wait(within(t), e.spread(5, 5)))
		h.once(t, e.all("account"))
	})
}

// loud is a read model for each version, and effects that commit with it, of which each
// entry is to have one, whichever version has it.
type loud struct {
	projector.MemoryCheckpoints
	effects
}

func newLoud() *loud { return &loud{effects: effects{had: map[eventstore.Position]int{}}} }

func (h *loud) Handle(ctx context.Context, s projector.Step) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.Save(ctx, s); err != nil {
		return err
	}
	for _, e := range s.Batch {
		if !projector.Quiet(ctx, e) {
			h.had[e.Position]++
		}
	}
	return nil
}

func TestReaderFollowsTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, one := newEnv(t, nil), newLedger()
		a := e.start(one, projector.Options{})
		e.ok(a.p.Wait(within(t), e.spread(20, 5)))
		_ = a.stop()
		token := e.spread(20, 5)
		r := projector.NewReader(e.store, "p", one)
		type answer struct {
			version int
			err     error
		}
		answers := make(chan answer, 1)
		go func() {
			v, err := r.Wait(within(t), token)
			answers <- answer{v, err}
		}()
		time.Sleep(time.Second)
		one.wiped()
		e.start(one, projector.Options{Version: 2})
		time.Sleep(time.Second)
		e.ok(projector.NewAdmin(e.store, one).Switch(t.Context(), "p", 2, &projector.SwitchOptions{Force: true}))
		if got := <-answers; got.version != 2 || got.err != nil {
			t.Errorf("%+v, want version 2", got)
		}
	})
}

func TestSwitchRefusesWhatIsNotBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{})
		e.ok(a.p.Wait(within(t), e.spread(200, 5)))
		admin := projector.NewAdmin(e.store, l)
		v, err := admin.Rebuild(t.Context(), "p", false)
		e.ok(err)
		for _, o := range []*projector.SwitchOptions{nil, {MaxBehind: 10}} {
			if err := admin.Switch(t.Context(), "p", v, o); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("switched to nothing: %v", err)
			}
		}
		differ := errors.New("they differ")
		compare := func(_ context.Context, live, next int) error {
			if live != 1 || next != 2 {
				t.Errorf("compares %d and %d", live, next)
			}
			return differ
		}
		if err := admin.Switch(t.Context(), "p", v, &projector.SwitchOptions{Compare: compare}); !errors.Is(err, differ) {
			t.Errorf("switched although they differ: %v", err)
		}
		if err := admin.Drop(t.Context(), "p", 1); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("dropped the live one: %v", err)
		}
		e.ok(admin.Drop(t.Context(), "p", v))
		if all := versions(t, l); len(all) != 1 || all[0].Role != projector.Live {
			t.Errorf("versions %+v", all)
		}
		if holds, _ := e.store.ListHolds(t.Context()); len(holds) != 1 {
			t.Errorf("holds %+v", holds)
		}
	})
}

// So many versions of all projectors are built at once, and no more.
func TestRebuildsAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{})
		e.ok(a.p.Wait(within(t), e.spread(500, 5)))
		slow := &worker{ledger: newLedger(), before: func(context.Context, projector.Step) error {
			time.Sleep(5 * time.Second)
			return nil
		}}
		slow.ledger = l
		l.wiped()
		o := projector.Options{LeaseTTL: ttl, PageSize: 10, MaxRebuilds: 1}
		o.Version = 2
		b := e.start(slow, o)
		time.Sleep(time.Second)
		o.Version = 3
		c := e.start(slow, o)
		time.Sleep(30 * time.Second)
		if n := fmt.Sprint(lanes(b, c)); n != "[1 0]" {
			t.Errorf("lanes %s, want one rebuild", n)
		}
		b.kill()
		eventually(t, ttl+5*time.Second, "the next one begins", func() bool { return fmt.Sprint(lanes(c)) == "[1]" })
	})
}

func TestPauseResumeReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		a := e.start(l, projector.Options{Lanes: 4})
		e.ok(a.p.Wait(within(t), e.spread(100, 20)))
		admin := projector.NewAdmin(e.store, l)
		e.ok(admin.Pause(t.Context(), "p", 0))
		token := e.spread(100, 20)
		time.Sleep(time.Minute)
		if n := l.count(); n != 100 {
			t.Errorf("%d handled while paused", n)
		}
		if !versions(t, l)[0].Paused() {
			t.Error("not paused")
		}
		e.ok(admin.Resume(t.Context(), "p", 1))
		e.ok(a.p.Wait(within(t), token))
		l.exact(t, e.all("account"))
		l.wiped()
		e.ok(admin.Reset(t.Context(), "p", 1, false))
		e.ok(a.p.Wait(within(t), token))
		l.exact(t, e.all("account"))
		// What was trimmed cannot be handled again.
		time.Sleep(10 * time.Second)
		if r, err := e.store.Trim(t.Context(), "account-0", 5, false); err != nil || r.Trimmed == 0 {
			t.Fatal(r, err)
		}
		if err := admin.Reset(t.Context(), "p", 1, false); !errors.Is(err, eventstore.ErrTrimmed) {
			t.Error(err)
		}
		if err := admin.Pause(t.Context(), "q", 0); !errors.Is(err, projector.ErrNotRegistered) {
			t.Error(err)
		}
	})
}
