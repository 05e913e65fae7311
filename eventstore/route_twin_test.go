// A Route against its backends alone: whatever is asked, the answer is that of the one
// backend it concerns, and the others stay as they are.

package eventstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// twins are a Route over two memlogs, and two that get the same calls without it.
type twins struct {
	t     *testing.T
	rng   *rand.Rand
	route *eventstore.Store
	alone map[string]*eventstore.Store
	of    map[eventstore.Category]string
	kinds map[string]int
}

func TestRouteAnswersAsItsBackends(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	now := func() time.Time { return time.Unix(1000, 0) }
	tw := &twins{t: t, rng: rand.New(rand.NewPCG(seed, 0)), kinds: map[string]int{},
		alone: map[string]*eventstore.Store{"one": eventstore.New(memlog.New(&memlog.Options{Now: now}), nil), "two": eventstore.New(memlog.New(&memlog.Options{Now: now}), nil)},
		of:    map[eventstore.Category]string{"a": "one", "b": "two", "c": "one", "d": "two"}}
	tw.route = eventstore.New(route(t, &eventstore.RouteOptions{Table: tw.of},
		eventstore.Backend{Name: "one", Log: memlog.New(&memlog.Options{Now: now})}, eventstore.Backend{Name: "two", Log: memlog.New(&memlog.Options{Now: now})}), nil)
	for c := range tw.of {
		spec := eventstore.CategorySpec{Name: c, TrimFreely: c != "a"}
		tw.both(c, "create", func(s *eventstore.Store) (any, error) { return nil, s.CreateCategory(t.Context(), spec) })
	}
	for range 5000 {
		if tw.step(); t.Failed() {
			return
		}
	}
	t.Logf("%v", tw.kinds)
	for _, k := range []string{"append", "append refused", "append across", "trim", "feed", "load", "hold"} {
		if tw.kinds[k] < 20 {
			t.Errorf("only %d of %q", tw.kinds[k], k)
		}
	}
}

// both asks the Route and the backend of a category alone, and wants the same answer.
func (tw *twins) both(c eventstore.Category, what string, call func(*eventstore.Store) (any, error)) error {
	tw.t.Helper()
	got, err := call(tw.route)
	want, wantErr := call(tw.alone[tw.of[c]])
	if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		tw.t.Errorf("%s in %s: %+v, %v, alone %+v, %v", what, c, got, err, want, wantErr)
	}
	if tw.kinds[what]++; err != nil {
		tw.kinds[what+" refused"]++
	}
	return err
}

func (tw *twins) stream() eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("%c-%d", 'a'+rune(tw.rng.IntN(4)), tw.rng.IntN(3)))
}

func (tw *twins) step() {
	ctx, s := tw.t.Context(), tw.stream()
	c, n := s.Category(), eventstore.Seqno(tw.rng.IntN(8))
	switch tw.rng.IntN(9) {
	case 0, 1, 2:
		tw.append(ctx)
	case 3:
		tw.both(c, "read", func(st *eventstore.Store) (any, error) { return st.ReadFrom(ctx, s, n, 3) })
		tw.both(c, "backward", func(st *eventstore.Store) (any, error) { return st.ReadBackwardPage(ctx, s, n, 3) })
	case 4:
		f := eventstore.Filter{Categories: []eventstore.Category{c, tw.neighbour(c)}, AcceptTrimmed: n%2 == 0}
		tw.both(c, "feed", func(st *eventstore.Store) (any, error) {
			p, err := st.ReadFeed(ctx, eventstore.Position(n), f, 20)
			p.Incarnation = eventstore.UUID{}
			return p, err
		})
	case 5:
		tw.both(c, "trim", func(st *eventstore.Store) (any, error) { return st.Trim(ctx, s, n, n == 3) })
		tw.both(c, "fence", func(st *eventstore.Store) (any, error) { return st.Fence(ctx, s, eventstore.UUID{byte(n + 1)}) })
	case 6:
		tw.both(c, "load", func(st *eventstore.Store) (any, error) {
			l, err := st.Load(ctx, s, "f")
			return []any{l.Head, l.Snapshot}, err
		})
	case 7:
		tw.both(c, "snapshot", func(st *eventstore.Store) (any, error) {
			h, err := st.Head(ctx, s)
			if err != nil || h.Last.Seqno == 0 {
				return h, err
			}
			return h, st.SaveSnapshot(ctx, eventstore.Snapshot{Stream: s, At: h.Last, Fingerprint: "f", Data: []byte{byte(n)}})
		})
	case 8:
		tw.both(c, "hold", func(st *eventstore.Store) (any, error) {
			return nil, st.SetHold(ctx, eventstore.Hold{Name: fmt.Sprint(n % 2), Stream: s, Seqno: n})
		})
		tw.both(c, "release", func(st *eventstore.Store) (any, error) {
			return nil, st.ReleaseHold(ctx, fmt.Sprint(n%2), "", s)
		})
	}
}

// neighbour is the other category of the same backend.
func (tw *twins) neighbour(c eventstore.Category) eventstore.Category {
	return map[eventstore.Category]eventstore.Category{"a": "c", "b": "d", "c": "a", "d": "b"}[c]
}

// append appends to one to three streams, with a guard now and then. Over one backend
// the answer is that one's; over two it is refused and changes neither.
func (tw *twins) append(ctx context.Context) {
	var a eventstore.Append
	backends, seen := map[string]bool{}, map[eventstore.Stream]bool{}
	for i := range 1 + tw.rng.IntN(3) {
		s := tw.stream()
		if seen[s] {
			continue
		}
		seen[s], backends[tw.of[s.Category()]] = true, true
		h, err := tw.route.Head(ctx, s)
		if err != nil {
			tw.t.Fatal(err)
		}
		if i > 0 && tw.rng.IntN(4) == 0 {
			a.Guards = append(a.Guards, eventstore.Guard{Stream: s, At: h.Last})
			continue
		}
		b := eventstore.Batch{ID: tw.id(), Stream: s, Epoch: h.Epoch + 1, Holder: eventstore.UUID{9}, Claim: true, After: h.Last, Events: []eventstore.Event{{ID: tw.id(), Type: "t"}}}
		if tw.rng.IntN(8) == 0 {
			b.Epoch = max(h.Epoch, 1)
		}
		a.Batches = append(a.Batches, b)
	}
	c := a.Batches[0].Stream.Category()
	if len(backends) == 1 {
		tw.both(c, "append", func(st *eventstore.Store) (any, error) {
			done, err := st.Append(ctx, a)
			done.Token.Incarnation = eventstore.UUID{}
			return done, err
		})
		return
	}
	_, err := tw.route.Append(ctx, a)
	wantRefusal(tw.t, err, eventstore.ErrCrossBackend)
	tw.kinds["append across"]++
	for s := range seen { // both logs alone were asked nothing: the Route's are as they are
		tw.both(s.Category(), "head", func(st *eventstore.Store) (any, error) { return st.Head(ctx, s) })
	}
}

func (tw *twins) id() (id eventstore.UUID) {
	for i := range id {
		id[i] = byte(tw.rng.Uint32())
	}
	return id
}
