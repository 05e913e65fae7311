// Route: what goes where, and every refusal.

package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// counted is a memlog that counts calls that reach it, and can fail to close.
type counted struct {
	*memlog.Log
	mu     sync.Mutex
	calls  int // appends, feeds, creations of streams
	closed int
	broken error
}

func newCounted() *counted { return &counted{Log: memlog.New(nil)} }

func (c *counted) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
}

func (c *counted) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	c.count()
	return c.Log.Append(ctx, a)
}

func (c *counted) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	c.count()
	return c.Log.ReadFeed(ctx, after, f, limit)
}

func (c *counted) CreateStreams(ctx context.Context, s []eventstore.Stream) error {
	c.count()
	return c.Log.CreateStreams(ctx, s)
}

func (c *counted) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	_ = c.Log.Close()
	return c.broken
}

// routed is a store over two backends: red holds account, item and machine, blue box,
// order and robot; machine and robot are dedicated.
type routed struct {
	t         *testing.T
	red, blue *counted
	route     *eventstore.Route
	*eventstore.Store
}

func newRouted(t *testing.T) *routed {
	t.Helper()
	r := &routed{t: t, red: newCounted(), blue: newCounted()}
	r.route = route(t, &eventstore.RouteOptions{Leases: "blue", Table: map[eventstore.Category]string{
		"account": "red", "item": "red", "machine": "red", "box": "blue", "order": "blue", "robot": "blue"}},
		eventstore.Backend{Name: "red", Log: r.red}, eventstore.Backend{Name: "blue", Log: r.blue})
	r.Store = eventstore.New(r.route, nil)
	for _, c := range []eventstore.Category{"account", "item", "order", "box"} {
		r.ok(r.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}))
	}
	for _, c := range []eventstore.Category{"machine", "robot"} {
		r.ok(r.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true, Layout: eventstore.Dedicated}))
	}
	return r
}

func (r *routed) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func first(s eventstore.Stream) eventstore.Batch {
	return eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: []eventstore.Event{{Type: "t", Data: []byte(s)}}}
}

func appendOf(guards []eventstore.Guard, streams ...eventstore.Stream) eventstore.Append {
	a := eventstore.Append{Guards: guards}
	for _, s := range streams {
		a.Batches = append(a.Batches, first(s))
	}
	return a
}

// has says what a backend itself holds of a stream.
func has(t *testing.T, log eventstore.Log, s eventstore.Stream) eventstore.Seqno {
	t.Helper()
	h, err := log.Head(t.Context(), s)
	if errors.Is(err, eventstore.ErrNoSuchCategory) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.Last.Seqno
}

func wantRefusal(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Kind != kind || e.Op == "" || e.Hint == "" || e.Wanted == "" || e.Found == "" {
		t.Errorf("error %#v, wanted %v with all its facts", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: wanted it to say %q", err, w)
		}
	}
}

func TestRouteSendsEachCategoryToItsBackend(t *testing.T) {
	r := newRouted(t)
	ctx := t.Context()
	done, err := r.Append(ctx, appendOf([]eventstore.Guard{{Stream: "account-none"}}, "account-a", "item-a"))
	r.ok(err) // two categories and a guard of one backend
	blue, err := r.Append(ctx, appendOf(nil, "order-a"))
	r.ok(err)
	r.ok(r.CreateStreams(ctx, "machine-a"))
	_, err = r.Append(ctx, appendOf(nil, "machine-a"))
	r.ok(err)
	for s, in := range map[eventstore.Stream]*counted{"account-a": r.red, "item-a": r.red, "order-a": r.blue, "machine-a": r.red} {
		for _, log := range []*counted{r.red, r.blue} {
			want := eventstore.Seqno(0)
			if log == in {
				want = 1
			}
			if got := has(t, log, s); got != want {
				t.Errorf("a backend has %d entries of %s, wanted %d", got, s, want)
			}
		}
	}
	for i, want := range []eventstore.UUID{done.Token.Incarnation, blue.Token.Incarnation} {
		if id, err := r.Backends()[i].Incarnation(ctx); err != nil || id != want || id.IsZero() {
			t.Errorf("backend %d is %v, %v, the token says %v", i, id, err, want)
		}
	}
	if done.Token.Incarnation == blue.Token.Incarnation {
		t.Error("the tokens of two backends are of one incarnation")
	}
	p, err := r.ReadFeed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{"item", "account"}}, 0)
	if err != nil || len(p.Entries) != 2 || p.Incarnation != done.Token.Incarnation {
		t.Errorf("the feed of red is %+v, %v", p, err)
	}
}

// The table goes before the default, which keeps the leases if nothing else is said.
func TestRouteTableBeforeDefault(t *testing.T) {
	one, two := newCounted(), newCounted()
	r := eventstore.New(route(t, &eventstore.RouteOptions{Default: "two", Table: map[eventstore.Category]string{"here": "one"}},
		eventstore.Backend{Name: "one", Log: one}, eventstore.Backend{Name: "two", Log: two}), nil)
	for _, c := range []eventstore.Category{"here", "elsewhere"} {
		if err := r.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Append(t.Context(), appendOf(nil, eventstore.Stream(c+"-a"))); err != nil {
			t.Fatal(err)
		}
	}
	if has(t, one, "here-a") != 1 || has(t, two, "elsewhere-a") != 1 || has(t, one, "elsewhere-a")+has(t, two, "here-a") != 0 {
		t.Error("entries lie where the table does not say")
	}
	if _, granted, err := r.AcquireLease(t.Context(), "l", eventstore.UUID{1}, 0); !granted || err != nil {
		t.Fatal(err)
	}
	if _, granted, err := two.AcquireLease(t.Context(), "l", eventstore.UUID{2}, eventstore.DefaultLeaseTTL); granted || err != nil {
		t.Errorf("the default does not keep the leases: %v", err)
	}
}

func TestRouteListsWhatAllBackendsHold(t *testing.T) {
	r := newRouted(t)
	ctx := t.Context()
	all, err := r.ListCategories(ctx)
	r.ok(err)
	var names []eventstore.Category
	for _, spec := range all {
		names = append(names, spec.Name)
	}
	if want := []eventstore.Category{"account", "box", "item", "machine", "order", "robot"}; !slices.Equal(names, want) {
		t.Errorf("categories %v, wanted %v", names, want)
	}
	for _, h := range []eventstore.Hold{{Name: "b", Category: "account"}, {Name: "a", Category: "order"}, {Name: "b", Stream: "order-a"}, {Name: "a", Category: "item"}} {
		r.ok(r.SetHold(ctx, h))
	}
	holds, err := r.ListHolds(ctx)
	r.ok(err)
	got := ""
	for _, h := range holds {
		got += h.Name + " " + string(h.Category+" ") + string(h.Stream) + ","
	}
	if want := "a item ,a order ,b account ,b order order-a,"; got != want {
		t.Errorf("holds %q, wanted %q", got, want)
	}
	r.ok(r.ReleaseHold(ctx, "b", "", "order-a"))
	r.ok(r.ReleaseHold(ctx, "b", "nowhere", "")) // there is none
	if left, err := r.blue.ListHolds(ctx); err != nil || len(left) != 1 {
		t.Errorf("blue has holds %v, %v, wanted one", left, err)
	}
	// Leases lie where they are said to, whatever their names.
	lease, granted, err := r.AcquireLease(ctx, "account", eventstore.UUID{1}, 0)
	if err != nil || !granted {
		t.Fatal(lease, granted, err)
	}
	_, err = r.RenewLease(ctx, lease, 0)
	r.ok(err)
	if _, granted, err := r.blue.AcquireLease(ctx, "account", eventstore.UUID{2}, eventstore.DefaultLeaseTTL); granted || err != nil {
		t.Errorf("blue does not keep the leases: %v", err)
	}
	r.ok(r.ReleaseLease(ctx, lease))
	if _, granted, err := r.blue.AcquireLease(ctx, "account", eventstore.UUID{2}, eventstore.DefaultLeaseTTL); !granted || err != nil {
		t.Errorf("released, wanted it granted: %v", err)
	}
}

func TestRouteRefusesWhatCrossesBackends(t *testing.T) {
	r := newRouted(t)
	ctx := t.Context()
	r.ok(r.CreateStreams(ctx, "machine-a", "machine-b"))
	before := []int{r.red.calls, r.blue.calls}
	append1 := func(g []eventstore.Guard, s ...eventstore.Stream) func() error {
		return func() error { _, err := r.Append(ctx, appendOf(g, s...)); return err }
	}
	feed := func(c ...eventstore.Category) func() error {
		return func() error {
			_, err := r.ReadFeed(ctx, 0, eventstore.Filter{Categories: c, AcceptTrimmed: true}, 0)
			return err
		}
	}
	for name, c := range map[string]struct {
		call func() error
		kind error
		says []string
	}{
		"batches": {append1(nil, "account-a", "order-a", "item-a"), eventstore.ErrCrossBackend,
			[]string{"append account-a:", "account-a, item-a in backend red; order-a in backend blue", "nothing was written"}},
		"batches, the other way": {append1(nil, "order-a", "account-a"), eventstore.ErrCrossBackend, []string{"order-a in backend blue; account-a in backend red"}},
		"batches, two elsewhere": {append1(nil, "account-a", "order-a", "order-b"), eventstore.ErrCrossBackend, []string{"order-a, order-b in backend blue"}},
		"batches, dedicated":     {append1(nil, "machine-a", "order-a"), eventstore.ErrCrossBackend, []string{"machine-a in backend red; order-a in backend blue"}},
		"many batches": {append1(nil, "account-1", "account-2", "account-3", "account-4", "account-5", "account-6", "account-7", "order-a"), eventstore.ErrCrossBackend,
			[]string{"account-5 and 2 more in backend red; order-a"}},
		"guard": {append1([]eventstore.Guard{{Stream: "account-b"}, {Stream: "order-a"}}, "account-a"), eventstore.ErrCrossBackend,
			[]string{"account-a, guard account-b in backend red; guard order-a in backend blue"}},
		"batch of no backend behind one that crosses": {append1(nil, "account-a", "order-a", "nowhere-a"), eventstore.ErrNoSuchCategory, []string{"append nowhere-a:", "red, blue"}},
		"guard of no backend":                         {append1([]eventstore.Guard{{Stream: "nowhere-a"}}, "account-a"), eventstore.ErrNoSuchCategory, []string{"append nowhere-a:"}},
		"feed":                                        {feed("item", "order", "account"), eventstore.ErrCrossBackend, []string{"item, account in backend red; order in backend blue", "name categories of one backend"}},
		"feed of everything":                          {feed(), eventstore.ErrCrossBackend, []string{"all categories", "red, blue", "name categories of one backend"}},
		"feed of no backend":                          {feed("order", "nowhere"), eventstore.ErrNoSuchCategory, []string{"nowhere", "table"}},
		"streams":                                     {func() error { return r.CreateStreams(ctx, "machine-c", "robot-a") }, eventstore.ErrCrossBackend, []string{"machine-c in backend red; robot-a in backend blue"}},
		"category of no backend":                      {func() error { return r.CreateCategory(ctx, eventstore.CategorySpec{Name: "nowhere"}) }, eventstore.ErrInvalid, []string{"create category nowhere:", "red, blue", "table"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, c.call(), c.kind, c.says...)
		})
	}
	if after := []int{r.red.calls, r.blue.calls}; !slices.Equal(before, after) {
		t.Errorf("refused calls reached the backends: %v, %v before", after, before)
	}
	for _, s := range []eventstore.Stream{"account-a", "order-a", "item-a", "account-1"} {
		if n := has(t, r.red, s) + has(t, r.blue, s); n != 0 {
			t.Errorf("a refused append wrote to %s", s)
		}
	}
	if h, err := r.red.Head(ctx, "machine-c"); !errors.Is(err, eventstore.ErrNoSuchStream) {
		t.Errorf("a refused creation made machine-c: %v, %v", h, err)
	}
}

// Every call on a category of no backend says so, and what to do.
func TestRouteKnowsNoOtherCategory(t *testing.T) {
	r := newRouted(t)
	ctx, id := t.Context(), eventstore.UUID{1}
	const s = eventstore.Stream("nowhere-a")
	for name, call := range map[string]func() error{
		"ReadFrom":         func() error { _, err := r.ReadFrom(ctx, s, 0, 1); return err },
		"ReadBackwardPage": func() error { _, err := r.ReadBackwardPage(ctx, s, 0, 1); return err },
		"Fence":            func() error { _, err := r.Fence(ctx, s, id); return err },
		"Head":             func() error { _, err := r.Head(ctx, s); return err },
		"Trim":             func() error { _, err := r.Trim(ctx, s, 1, false); return err },
		"Load":             func() error { _, err := r.Load(ctx, s, ""); return err },
		"Snapshot":         func() error { _, _, err := r.Snapshot(ctx, s); return err },
		"ListTrimmed":      func() error { _, err := r.ListTrimmed(ctx, "nowhere", nil, "", 0); return err },
		"SaveSnapshot": func() error {
			return r.SaveSnapshot(ctx, eventstore.Snapshot{Stream: s, At: eventstore.Mark{Seqno: 1, ID: id}, Fingerprint: "f"})
		},
		"SetHold":        func() error { return r.SetHold(ctx, eventstore.Hold{Name: "h", Stream: s}) },
		"DeleteCategory": func() error { return r.DeleteCategory(ctx, "nowhere") },
		"CreateStreams":  func() error { return r.CreateStreams(ctx, s) },
		"DropStream":     func() error { return r.DropStream(ctx, s) },
		"Split":          func() error { _, err := r.Split("account", "nowhere"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, call(), eventstore.ErrNoSuchCategory, "nowhere", "red, blue", "default backend")
		})
	}
}

// A table that was changed does not begin a category's history anew elsewhere.
func TestRouteLeavesNoCategoryBehind(t *testing.T) {
	r := newRouted(t)
	ctx := t.Context()
	moved, err := eventstore.NewRoute(r.Backends(), &eventstore.RouteOptions{Default: "red"})
	r.ok(err)
	err = moved.CreateCategory(ctx, eventstore.CategorySpec{Name: "order"})
	wantRefusal(t, err, eventstore.ErrInvalid, "create category order:", "in backend red", "backend blue")
	if there, err := r.red.ListCategories(ctx); err != nil || len(there) != 3 {
		t.Errorf("red holds %v, %v, wanted what it held", there, err)
	}
	r.ok(moved.CreateCategory(ctx, eventstore.CategorySpec{Name: "account", TrimFreely: true})) // is there
	all, err := moved.ListCategories(ctx)
	r.ok(err)
	if slices.ContainsFunc(all, func(s eventstore.CategorySpec) bool { return s.Name == "order" }) {
		t.Errorf("%v: order is listed, which cannot be read", all)
	}
	// A new category is not made while a backend cannot say that it has it.
	r.ok(r.blue.Log.Close())
	if err := moved.CreateCategory(ctx, eventstore.CategorySpec{Name: "new"}); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("made beside a backend that cannot be asked: %v", err)
	}
	r.ok(moved.CreateCategory(ctx, eventstore.CategorySpec{Name: "account", TrimFreely: true}))
}

func TestRouteClosesEachBackendOnce(t *testing.T) {
	r := newRouted(t)
	r.red.broken = errors.New("boom")
	if err := r.Close(); !errors.Is(err, r.red.broken) || !strings.Contains(err.Error(), "backend red") {
		t.Errorf("Close = %v, wanted the error of red", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close again = %v", err)
	}
	if r.red.closed != 1 || r.blue.closed != 1 {
		t.Errorf("closed %d and %d times, wanted once each", r.red.closed, r.blue.closed)
	}
	for name, err := range map[string]error{
		"append": second(r.Append(t.Context(), appendOf(nil, "account-a", "order-a"))), "feed": second(r.ReadFeed(t.Context(), 0, eventstore.Filter{}, 1)),
		"head": second(r.Head(t.Context(), "nowhere-a")), "holds": second(r.ListHolds(t.Context())),
		"lease": second(r.RenewLease(t.Context(), eventstore.Lease{Name: "l", Holder: eventstore.UUID{1}}, 0)),
		"hold":  r.ReleaseHold(t.Context(), "h", "nowhere", ""),
	} {
		if !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("%s after Close = %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestNewRouteRefuses(t *testing.T) {
	log := newCounted()
	a, b := eventstore.Backend{Name: "a", Log: log}, eventstore.Backend{Name: "b", Log: newCounted()}
	table := func(c eventstore.Category, to string) *eventstore.RouteOptions {
		return &eventstore.RouteOptions{Table: map[eventstore.Category]string{c: to}}
	}
	for name, c := range map[string]struct {
		backends []eventstore.Backend
		o        *eventstore.RouteOptions
		says     string
	}{
		"nothing":           {nil, nil, "at least one backend"},
		"no rule":           {[]eventstore.Backend{a, b}, nil, "a table or a default backend"},
		"two of one name":   {[]eventstore.Backend{a, {Name: "a", Log: newCounted()}}, table("c", "a"), "every name once"},
		"one log twice":     {[]eventstore.Backend{a, {Name: "b", Log: log}}, table("c", "a"), "every log once"},
		"no log":            {[]eventstore.Backend{{Name: "a"}}, nil, "a log"},
		"no name":           {[]eventstore.Backend{{Log: log}}, nil, "backend"},
		"long name":         {[]eventstore.Backend{{Name: strings.Repeat("x", eventstore.MaxBackendBytes+1), Log: log}}, nil, "at most 64 bytes"},
		"name with a slash": {[]eventstore.Backend{{Name: "a/b", Log: log}}, nil, "'/'"},
		"route in a route":  {[]eventstore.Backend{{Name: "a", Log: route(t, nil, eventstore.Backend{Name: "x", Log: memlog.New(nil)})}}, nil, "a route"},
		"table to nowhere":  {[]eventstore.Backend{a, b}, table("c", "x"), "one of a, b"},
		"odd category":      {[]eventstore.Backend{a, b}, table("c-d", "a"), "category"},
		"default nowhere":   {[]eventstore.Backend{a, b}, &eventstore.RouteOptions{Default: "x"}, "default backend"},
		"leases nowhere":    {[]eventstore.Backend{a, b}, &eventstore.RouteOptions{Default: "a", Leases: "x"}, "backend of leases"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := eventstore.NewRoute(c.backends, c.o)
			e, ok := errors.AsType[*eventstore.Error](err)
			if !ok || e.Kind != eventstore.ErrInvalid || e.Op != "route" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("NewRoute = %v, wanted ErrInvalid with %q", err, c.says)
			}
		})
	}
	if log.closed != 0 {
		t.Error("a refused route closed a backend")
	}
}

func TestSplit(t *testing.T) {
	r := newRouted(t)
	shares, err := r.Split("order", "account", "robot", "item")
	r.ok(err)
	got := ""
	for _, s := range shares {
		got += fmt.Sprint(s.Backend.Name, s.Categories, " ")
	}
	if want := "blue[order robot] red[account item] "; got != want {
		t.Errorf("shares %q, wanted %q", got, want)
	}
	alone := eventstore.New(r.red.Log, nil)
	if b := alone.Backends(); len(b) != 1 || b[0].Name != "" || b[0].Log != eventstore.Log(r.red.Log) {
		t.Errorf("backends of one log: %v", b)
	}
	if shares, err := alone.Split("x", "y"); err != nil || len(shares) != 1 || len(shares[0].Categories) != 2 {
		t.Errorf("shares of one log: %v, %v", shares, err)
	}
}
