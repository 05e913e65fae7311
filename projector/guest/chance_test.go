// Exactness: whatever crashes, is fenced, rebuilt, switched, cut into calls or answers
// late, documents are the fold of the entries, and commands are those that it calls for.

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// chance throws dice for many goroutines.
type chance struct {
	mu     sync.Mutex
	r      *rand.Rand
	healed atomic.Bool
}

func (c *chance) in(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.healed.Load() && c.r.IntN(n) == 0
}

// faulty are documents whose steps fail now and then: before, between work and commit,
// and after the commit, with the answer lost.
type faulty struct {
	*guest.MemoryDocuments
	*chance
}

func (f *faulty) Step(ctx context.Context, s projector.Step, do func(context.Context, guest.Tx) error) error {
	outage := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}
	if f.in(15) {
		return outage
	}
	err := f.MemoryDocuments.Step(ctx, s, func(ctx context.Context, tx guest.Tx) error {
		if err := do(ctx, tx); err != nil {
			return err
		}
		switch {
		case f.in(15):
			return outage
		case f.in(30):
			panic("crash before the commit")
		}
		return nil
	})
	if err == nil && f.in(15) {
		return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "test"}
	}
	return err
}

// flaky is a handler that fails, answers late, or twice, and sometimes cannot be reached.
type flaky struct {
	handler.Handler
	*chance
	away atomic.Bool
}

var errAway = &handler.Error{Kind: handler.ErrFailed, Op: "test", Wanted: "somebody there"}

func (f *flaky) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	if f.away.Load() {
		return nil, errAway
	}
	if r.Op != handler.Describe {
		switch {
		case f.in(12):
			return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op}
		case f.in(40):
			return nil, &handler.Error{Kind: eventstore.ErrOverloaded, Op: r.Op}
		case f.in(20):
			time.Sleep(300 * time.Millisecond)
		case f.in(20): // an answer that is lost
			if _, err := f.Handler.Handle(ctx, r); err != nil {
				return nil, err
			}
			return nil, context.DeadlineExceeded
		}
	}
	return f.Handler.Handle(ctx, r)
}

func TestByChance(t *testing.T) {
	first := rand.Uint64()
	for i := range 15 {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { byChance(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func byChance(t *testing.T, r *rand.Rand) {
	e := newEnv(t, nil)
	c := &chance{r: rand.New(rand.NewPCG(r.Uint64(), 1))}
	docs := &faulty{&guest.MemoryDocuments{}, c}
	remote := &flaky{Handler: guest.New(accounts), chance: c}
	if r.IntN(2) == 0 {
		remote.Handler = overBytes(remote.Handler)
	}
	issued := &commands{fail: func() error {
		if c.in(20) {
			return errors.New("not issued")
		}
		return nil
	}}
	limits := handler.Limits{Batch: 1 + r.IntN(20), RequestBytes: 4000 + r.IntN(20_000)}
	retries := r.IntN(3) - 1
	callers := func(ctx context.Context, _ int) (*handler.Caller, error) {
		return handler.NewCaller(ctx, remote, &handler.Options{Retries: retries, Limits: limits})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all []*projector.Versioned
	var running sync.WaitGroup
	for range 2 {
		v, err := guest.NewVersioned(t.Context(), e.store, "p", docs, callers, &guest.Options{Issue: issued.issue, Projector: projector.Options{
			Lanes: 1 + r.IntN(4), LeaseTTL: 3 * time.Second, PageSize: 1 + r.IntN(40), Tries: 50}})
		e.ok(err)
		all = append(all, v)
		running.Go(func() {
			if err := v.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	defer running.Wait()
	defer cancel()
	stormy(t, e, r, docs, remote, all)
	c.healed.Store(true)
	remote.away.Store(false)
	token := deposit(e, r, 10)
	within, done := context.WithTimeout(t.Context(), time.Hour)
	defer done()
	live, err := all[0].Reader().Wait(within, token)
	e.ok(err)
	want, wanted := fold(t, "p", e.all())
	same(t, docs, "p", live, want)
	issued.check(t, wanted)
	versions, err := docs.Keeps().(projector.Control).Versions(t.Context(), "p")
	e.ok(err)
	for _, v := range versions {
		if len(v.Parked) > 0 {
			t.Errorf("parked in version %d: %v", v.Key.Version, v.Parked)
		}
	}
}

// stormy appends, rebuilds, switches, pauses and catches up beside the workers.
func stormy(t *testing.T, e *env, r *rand.Rand, docs *faulty, remote *flaky, all []*projector.Versioned) {
	admin := projector.NewAdmin(e.store, docs.Keeps().(projector.Control))
	for range 25 {
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		var err error
		switch r.IntN(9) {
		case 0:
			_, err = admin.Rebuild(t.Context(), "p", false)
		case 1:
			err = admin.Switch(t.Context(), "p", 1+r.IntN(3), &projector.SwitchOptions{Force: true})
		case 2:
			_, err = admin.Rollback(t.Context(), "p", nil)
		case 3:
			_, _ = all[r.IntN(2)].CatchUp(t.Context(), time.Second) // fenced, or an outage
		case 4:
			remote.away.Store(!remote.away.Load())
		default:
			deposit(e, r, r.IntN(30))
		}
		if err != nil && !errors.Is(err, projector.ErrNotRegistered) && !errors.Is(err, eventstore.ErrInvalid) {
			t.Fatal(err)
		}
	}
}

// deposit appends some events to a few streams.
func deposit(e *env, r *rand.Rand, n int) (token eventstore.Token) {
	for range n + 1 {
		var values []Event
		for range 1 + r.IntN(3) {
			if r.IntN(6) == 0 {
				values = append(values, Closed{fmt.Sprint("why ", r.IntN(100))})
			} else {
				values = append(values, Deposited{r.IntN(100)})
			}
		}
		token = e.append(eventstore.Stream(fmt.Sprint("account-", r.IntN(12))), values...)
	}
	return token
}
