// Cases: categories, and the end of a log.

package logtest

import (
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

var categoryCases = []testCase{
	{name: "create", rule: "creating is idempotent for the same spec; another spec is refused and changes nothing", run: createCategory},
	{name: "list", rule: "all categories are listed by name, as they were created", alone: true, run: listCategories},
	{name: "delete", rule: "a deleted category is gone with its streams, entries, snapshots and holds; made anew it starts afresh", run: deleteCategory},
	{name: "unknown", rule: "every operation on a category that does not exist says so, names it, and creates nothing", run: unknownCategory},
	{name: "racing", rule: "a category created by many at once exists once", run: racingCategory},
	{name: "closed", rule: "after Close every method answers ErrClosed", alone: true, run: closedLog},
}

func createCategory(e *env) {
	spec := eventstore.CategorySpec{Name: e.category, TrimFreely: true}
	w := e.filled(e.stream("a"), 1)
	for range 2 {
		if err := e.store.CreateCategory(e.ctx, spec); err != nil {
			e.Errorf("CreateCategory again = %v, want nil", err)
		}
	}
	for _, other := range []eventstore.CategorySpec{{Name: e.category}, {Name: e.category, TrimFreely: true, Layout: eventstore.Dedicated}} {
		err := e.store.CreateCategory(e.ctx, other)
		wantKind(e, err, eventstore.ErrInvalid)
	}
	w.append(1)
	e.trim(w.stream, 2) // freely, as the first spec says
}

func listCategories(e *env) {
	want := []eventstore.CategorySpec{{Name: e.category, TrimFreely: true}}
	for _, name := range []eventstore.Category{"zebra", "Zebra", "ant", "ärger", "_x", "ants", "1"} {
		spec := eventstore.CategorySpec{Name: name, TrimFreely: len(name)%2 == 0}
		if err := e.store.CreateCategory(e.ctx, spec); err != nil {
			e.Fatalf("CreateCategory(%q) = %v, want nil", name, err)
		}
		want = append(want, spec)
	}
	slices.SortFunc(want, func(a, b eventstore.CategorySpec) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for _, store := range []*eventstore.Store{e.store, e.another()} {
		if got, err := store.ListCategories(e.ctx); err != nil || !slices.Equal(got, want) {
			e.Errorf("ListCategories = %+v, %v, want %+v", got, err, want)
		}
	}
}

func deleteCategory(e *env) {
	c := e.newCategory("deleted", true)
	s := streamIn(c, "a")
	w := e.filled(s, 10)
	kept := e.filled(e.stream("kept"), 2)
	e.saveAt(s, w.last, "state")
	e.hold(eventstore.Hold{Name: "hold", Stream: s, Seqno: 8})
	if inFeed(e.log) {
		e.hold(eventstore.Hold{Name: "hold", Category: c, Position: e.read(s, 8)[0].Position})
	}
	e.wantTrim(s, 9, 7, `"hold"`)
	if err := e.store.DeleteCategory(e.ctx, c); err != nil {
		e.Fatalf("DeleteCategory = %v, want nil", err)
	}
	e.history.Forget(c)
	wantKind(e, e.store.DeleteCategory(e.ctx, c), eventstore.ErrNoSuchCategory)
	_, err := e.store.Head(e.ctx, s)
	wantKind(e, err, eventstore.ErrNoSuchCategory)
	holds, err := e.store.ListHolds(e.ctx)
	if err != nil || slices.ContainsFunc(holds, func(h eventstore.Hold) bool { return h.Category == c }) {
		e.Errorf("ListHolds after the category was deleted = %+v, %v, want none of it", holds, err)
	}
	// Made anew, with another spec, nothing of it is left.
	if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c}); err != nil {
		e.Fatalf("CreateCategory = %v, want nil", err)
	}
	wantLoaded(e, e.load(s, fingerprint, 10), eventstore.Head{}, 0, nil, true)
	if inFeed(e.log) {
		if got := e.feed(0, eventstore.Filter{Categories: []eventstore.Category{c}}, 10); len(got) != 0 {
			e.Errorf("the feed of a category made anew delivers %v, want nothing", got)
		}
	}
	again := e.filled(s, 3)
	wantLoaded(e, e.load(s, fingerprint, 10), e.head(s), 0, span(1, 3), true)
	e.wantTrim(again.stream, 2, 0, "snapshot")
	kept.append(1)
}

func unknownCategory(e *env) {
	c := eventstore.Category("nosuch" + string(e.category))
	s := streamIn(c, "a")
	for name, call := range everyCall(e, c, s) {
		if name == "ListCategories" || name == "ListHolds" || name == "CreateCategory" || name == "ReleaseHold" ||
			name == "AcquireLease" || name == "RenewLease" || name == "ReleaseLease" {
			continue // these need no category
		}
		err := call()
		if got := wantKind(e, err, eventstore.ErrNoSuchCategory); got.Category != c {
			e.Errorf("%s: %v is of category %q, want %q", name, err, got.Category, c)
		}
	}
	all, err := e.store.ListCategories(e.ctx)
	if err != nil || slices.ContainsFunc(all, func(spec eventstore.CategorySpec) bool { return spec.Name == c }) {
		e.Errorf("ListCategories = %+v, %v, want it without %s", all, err, c)
	}
}

// everyCall is one valid call of every operation on a category and a stream.
func everyCall(e *env, c eventstore.Category, s eventstore.Stream) map[string]func() error {
	id := eventstore.NewUUID()
	batch := eventstore.Batch{Stream: s, Epoch: 1, Holder: id, Claim: true, Events: events(1)}
	fine := e.writer(e.stream("fine")).batch(events(1)...)
	at := eventstore.Mark{Seqno: 1, ID: id}
	lease := eventstore.Lease{Name: "lease", Holder: id, Epoch: 1}
	filter := eventstore.Filter{Categories: []eventstore.Category{c}}
	guard := eventstore.Append{Batches: []eventstore.Batch{fine}, Guards: []eventstore.Guard{{Stream: s}}}
	st, ctx := e.store, e.ctx
	return map[string]func() error{
		"Append":           func() error { _, err := st.Append(ctx, appendOf(batch)); return err },
		"Append, guard":    func() error { _, err := st.Append(ctx, guard); return err },
		"ReadFrom":         func() error { _, err := st.ReadFrom(ctx, s, 0, 1); return err },
		"ReadBackwardPage": func() error { _, err := st.ReadBackwardPage(ctx, s, 0, 1); return err },
		"ReadFeed":         func() error { _, err := st.ReadFeed(ctx, 0, filter, 1); return err },
		"Fence":            func() error { _, err := st.Fence(ctx, s, id); return err },
		"FenceAt":          func() error { _, err := st.FenceAt(ctx, s, 3, id); return err },
		"Head":             func() error { _, err := st.Head(ctx, s); return err },
		"Trim":             func() error { _, err := st.Trim(ctx, s, 1, false); return err },
		"Trim, dry":        func() error { _, err := st.Trim(ctx, s, 1, true); return err },
		"Load":             func() error { _, err := st.Load(ctx, s, ""); return err },
		"Load, snapshot":   func() error { _, err := st.Load(ctx, s, fingerprint); return err },
		"SaveSnapshot": func() error {
			return st.SaveSnapshot(ctx, eventstore.Snapshot{Stream: s, At: at, Fingerprint: fingerprint})
		},
		"SetHold, stream":   func() error { return st.SetHold(ctx, eventstore.Hold{Name: "h", Stream: s, Seqno: 1}) },
		"SetHold, category": func() error { return st.SetHold(ctx, eventstore.Hold{Name: "h", Category: c, Position: 1}) },
		"DeleteCategory":    func() error { return st.DeleteCategory(ctx, c) },
		"ReleaseHold":       func() error { return st.ReleaseHold(ctx, "h", c, s) },
		"ListHolds":         func() error { _, err := st.ListHolds(ctx); return err },
		"ListCategories":    func() error { _, err := st.ListCategories(ctx); return err },
		"CreateStreams":     func() error { return st.CreateStreams(ctx, s) },
		"DropStream":        func() error { return st.DropStream(ctx, s) },
		"CreateCategory":    func() error { return st.CreateCategory(ctx, eventstore.CategorySpec{Name: c}) },
		"AcquireLease":      func() error { _, _, err := st.AcquireLease(ctx, "lease", id, 0); return err },
		"RenewLease":        func() error { _, err := st.RenewLease(ctx, lease, 0); return err },
		"ReleaseLease":      func() error { return st.ReleaseLease(ctx, lease) },
	}
}

func racingCategory(e *env) {
	c := freshCategory("racing")
	together(8, func(int) {
		if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c}); err != nil {
			e.Errorf("CreateCategory = %v, want nil", err)
		}
	})
	e.filled(streamIn(c, "a"), 1)
}

func closedLog(e *env) {
	w := e.filled(e.stream("a"), 1)
	calls := everyCall(e, e.category, w.stream)
	e.closed = true
	if err := e.store.Close(); err != nil {
		e.Fatalf("Close = %v, want nil", err)
	}
	for name, call := range calls {
		err := call()
		if _, ok := errors.AsType[*eventstore.Error](err); !ok || !errors.Is(err, eventstore.ErrClosed) {
			e.Errorf("%s after Close = %T %v, want an *eventstore.Error of ErrClosed", name, err, err)
		}
	}
	if err := e.store.Close(); err != nil && !errors.Is(err, eventstore.ErrClosed) {
		e.Errorf("Close again = %v, want nil or ErrClosed", err)
	}
}
