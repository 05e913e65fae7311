// The conformance suite on Routes: over one backend, and where a second one stands beside.

package eventstore_test

import (
	"context"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// overOne is a Route over one log.
var overOne = logtest.Harness{Open: func(t testing.TB) eventstore.Log {
	return route(t, nil, eventstore.Backend{Name: "only", Log: memlog.New(nil)})
}}

// besideAnother is a Route whose default holds whatever the suite creates, beside a
// backend with entries of its own.
var besideAnother = logtest.Harness{Open: func(t testing.TB) eventstore.Log {
	r := route(t, &eventstore.RouteOptions{Default: "all", Table: map[eventstore.Category]string{"aside": "other"}},
		eventstore.Backend{Name: "other", Log: memlog.New(nil)}, eventstore.Backend{Name: "all", Log: memlog.New(nil)})
	s := aside{r, eventstore.New(r, nil)}
	for i := range 20 {
		s.add(t, eventstore.Seqno(i))
	}
	return s
}}

func TestRouteOverOne(t *testing.T) {
	t.Run("Run", func(t *testing.T) { logtest.Run(t, overOne) })
	t.Run("Random", func(t *testing.T) { logtest.Random(t, overOne, nil) })
	t.Run("Probe", func(t *testing.T) { logtest.Probe(t, overOne, logtest.ProbeOptions{}) })
	t.Run("Linear", func(t *testing.T) { logtest.Linear(t, overOne, logtest.LinearOptions{Parallel: 2}) })
	t.Run("Dedicated", func(t *testing.T) { logtest.Run(t, logtest.Dedicated(overOne)) })
}

func TestRouteBesideAnother(t *testing.T) {
	t.Run("Run", func(t *testing.T) { logtest.Run(t, besideAnother) })
	t.Run("Random", func(t *testing.T) {
		logtest.Random(t, besideAnother, func(testing.TB) eventstore.Log { return memlog.New(nil) })
	})
	t.Run("Probe", func(t *testing.T) { logtest.Probe(t, besideAnother, logtest.ProbeOptions{}) })
	t.Run("Linear", func(t *testing.T) { logtest.Linear(t, besideAnother, logtest.LinearOptions{Parallel: 2}) })
	t.Run("Dedicated", func(t *testing.T) { logtest.Run(t, logtest.Dedicated(besideAnother)) })
}

// route is a Route that ends with the test.
func route(t testing.TB, o *eventstore.RouteOptions, backends ...eventstore.Backend) *eventstore.Route {
	t.Helper()
	r, err := eventstore.NewRoute(backends, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// aside is a Route as the suite wants one: it hides the category aside, and a feed of
// everything, which a Route refuses, is that of the backend that holds the suite's.
type aside struct {
	*eventstore.Route
	store *eventstore.Store
}

// add appends to the category aside.
func (a aside) add(t testing.TB, after eventstore.Seqno) {
	t.Helper()
	ctx := context.Background()
	if err := a.Route.CreateCategory(ctx, eventstore.CategorySpec{Name: "aside"}); err != nil {
		t.Fatal(err)
	}
	h, err := a.store.Head(ctx, "aside-a")
	if err != nil || h.Last.Seqno != after {
		t.Fatalf("head %+v, %v, wanted it at %d", h, err, after)
	}
	_, err = a.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{{Stream: "aside-a", Epoch: h.Epoch + 1, Holder: eventstore.NewUUID(),
		Claim: true, After: h.Last, Events: []eventstore.Event{{Type: "t"}}}}})
	if err != nil {
		t.Fatal(err)
	}
}

func (a aside) ListCategories(ctx context.Context) (others []eventstore.CategorySpec, err error) {
	all, err := a.Route.ListCategories(ctx)
	for _, spec := range all {
		if spec.Name != "aside" {
			others = append(others, spec)
		}
	}
	return others, err
}

func (a aside) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if len(f.Categories) == 0 {
		all, err := a.BackendOf("anything")
		if err != nil {
			return eventstore.FeedPage{}, err
		}
		return all.Log.ReadFeed(ctx, after, f, limit)
	}
	return a.Route.ReadFeed(ctx, after, f, limit)
}
