// CatchUpService: bounded calls that may overlap.

package guest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// Calls that overlap, in several processes, lose nothing and do nothing twice.
func TestCatchUpServiceOverlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, docs, issued := newEnv(t, nil), &guest.MemoryDocuments{}, &commands{}
		r := rand.New(rand.NewPCG(4, 2))
		slow := &flaky{Handler: guest.New(accounts), chance: &chance{}}
		slow.healed.Store(true)
		h := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			time.Sleep(time.Duration(len(r.Events)) * time.Millisecond)
			return slow.Handle(ctx, r)
		})
		service := func() *handler.Caller {
			p := guest.NewProjector(e.store, "p", caller(t, h, nil), docs, &guest.Options{Issue: issued.issue, Projector: projector.Options{Lanes: 3, PageSize: 10}})
			return caller(t, overBytes(guest.CatchUpService("p", p, 50*time.Millisecond)), nil)
		}
		deposit(e, r, 60)
		var group sync.WaitGroup
		for range 4 {
			s := service()
			group.Go(func() {
				for range 200 {
					reply, err := s.Call(within(t), &handler.Request{Op: handler.CatchUp, Projector: "p"})
					if err != nil {
						t.Error(err)
						return
					}
					if !reply.More {
						return
					}
				}
				t.Error("never done")
			})
		}
		group.Wait()
		deposit(e, r, 20)
		for more, calls := true, 0; more; calls++ {
			reply, err := service().Call(within(t), &handler.Request{Op: handler.CatchUp, Projector: "p", ProjectorVersion: 1})
			e.ok(err)
			if more = reply.More; calls > 200 {
				t.Fatal("never done")
			}
		}
		want, wanted := fold(t, "p", e.all())
		same(t, docs, "p", 1, want)
		issued.check(t, wanted)
	})
}

func TestCatchUpServiceRefuses(t *testing.T) {
	e := newEnv(t, nil)
	p := guest.NewProjector(e.store, "p", caller(t, guest.New(accounts), nil), &guest.MemoryDocuments{}, nil)
	s := guest.CatchUpService("p", p, time.Second)
	for _, r := range []*handler.Request{{Op: handler.CatchUp}, {Op: handler.CatchUp, Projector: "q"}, {Op: handler.CatchUp, Projector: "p", ProjectorVersion: 2}, {Op: handler.Project, Projector: "p"}} {
		if _, err := s.Handle(t.Context(), r); !errors.Is(err, handler.ErrBadRequest) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// catchUp answers as a projector might.
type catchUp func(ctx context.Context, budget time.Duration) (bool, error)

func (f catchUp) CatchUp(ctx context.Context, budget time.Duration) (bool, error) {
	return f(ctx, budget)
}

func TestCatchUpServiceAnswers(t *testing.T) {
	fenced := &eventstore.Error{Kind: eventstore.ErrFenced, Op: "x"}
	outage := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "x"}
	for name, c := range map[string]struct {
		more bool
		err  error
		want error
	}{
		"done":                     {false, nil, nil},
		"more":                     {true, nil, nil},
		"overtaken":                {true, fenced, nil},
		"overtaken in all lanes":   {true, errors.Join(fenced, errors.Join(fenced, fenced)), nil},
		"overtaken in one lane":    {true, errors.Join(fenced, outage), handler.ErrFailed},
		"outage":                   {true, outage, handler.ErrFailed},
		"fence of somebody else's": {true, projector.NewEntryError([]eventstore.Entry{{}}, fenced), handler.ErrFailed},
	} {
		s := guest.CatchUpService("p", catchUp(func(ctx context.Context, budget time.Duration) (bool, error) {
			if until, ok := ctx.Deadline(); !ok || time.Until(until) > time.Minute || budget != time.Second {
				t.Errorf("%s: until %v, budget %v", name, until, budget)
			}
			return c.more, c.err
		}), time.Second)
		reply, err := s.Handle(t.Context(), &handler.Request{Op: handler.CatchUp, Projector: "p", Deadline: time.Now().Add(time.Minute)})
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && (err != nil || reply.More != c.more) {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
}
