// Diagnosis of a Route: findings with their backend, and what one that fails leaves out.

package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// patient is a memlog that can be verified and examined, and finds what it is told to.
type patient struct {
	*memlog.Log
	found  []eventstore.Finding
	failed error
	steps  []eventstore.Progress
}

func (p *patient) Verify(_ context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		for _, s := range p.steps {
			progress(s)
		}
		for _, f := range p.found {
			if !yield(f, nil) {
				return
			}
		}
		if p.failed != nil {
			yield(eventstore.Finding{}, p.failed)
		}
	}
}

func (p *patient) Examine(context.Context) ([]eventstore.Finding, error) { return p.found, p.failed }

func (p *patient) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if p.failed != nil {
		return eventstore.FeedPage{}, p.failed
	}
	return p.Log.ReadFeed(ctx, after, f, limit)
}

var boom = &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}

func TestRouteVerify(t *testing.T) {
	gap := eventstore.Finding{Check: "gap", Severity: eventstore.SeverityFault, Category: "c", Found: "one"}
	one := &patient{Log: memlog.New(nil), found: []eventstore.Finding{gap}, failed: boom, steps: []eventstore.Progress{{Streams: 1, Entries: 5, Total: 10}, {Streams: 2, Entries: 10, Total: 10}}}
	two := &patient{Log: memlog.New(nil), found: []eventstore.Finding{gap, gap}, steps: []eventstore.Progress{{Streams: 3, Entries: 7, Total: 7}}}
	store := eventstore.New(route(t, &eventstore.RouteOptions{Default: "one"}, eventstore.Backend{Name: "one", Log: one},
		eventstore.Backend{Name: "plain", Log: memlog.New(nil)}, eventstore.Backend{Name: "two", Log: two}), nil)
	var seen []string
	var last eventstore.Progress
	var failed error
	for f, err := range store.Verify(t.Context(), func(p eventstore.Progress) { last = p }) {
		if failed = err; err == nil {
			seen = append(seen, f.Severity.String()+" "+f.Where())
		}
	}
	if got, want := strings.Join(seen, ", "), "fault one: c, fault two: c, fault two: c, note plain: store"; got != want {
		t.Errorf("findings %q, wanted %q", got, want)
	}
	if !errors.Is(failed, boom) || !strings.Contains(failed.Error(), "backend one") {
		t.Errorf("error %v, wanted that of one, last", failed)
	}
	if want := (eventstore.Progress{Streams: 5, Entries: 17, Total: 17}); last != want {
		t.Errorf("progress %+v, wanted %+v", last, want)
	}
	for range store.Verify(t.Context(), nil) {
		break // a caller that has heard enough
	}
	none := eventstore.New(route(t, nil, eventstore.Backend{Name: "plain", Log: memlog.New(nil)}), nil)
	for _, err := range none.Verify(t.Context(), nil) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("verified what cannot be: %v", err)
		}
	}
}

func TestRouteExamine(t *testing.T) {
	fine := &patient{Log: memlog.New(nil), found: []eventstore.Finding{{Check: "server", Found: "17"}}}
	copied := &patient{Log: fine.Log}
	down := &patient{Log: memlog.New(nil), failed: boom}
	r := eventstore.New(route(t, &eventstore.RouteOptions{Table: map[eventstore.Category]string{"a": "fine", "b": "down"}},
		eventstore.Backend{Name: "fine", Log: fine}, eventstore.Backend{Name: "down", Log: down}, eventstore.Backend{Name: "copy", Log: copied}), nil)
	for _, c := range []eventstore.Category{"a", "b", "left"} {
		if err := fine.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range all {
		got = append(got, fmt.Sprintf("%v %s %s", f.Severity, f.Check, f.Where()))
	}
	want := []string{"ok server fine: store", "ok route-backend fine: store", "warning route-category fine: b", "fault route-backend down: store",
		"fault route-backend copy: store", "warning route-category copy: a"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("findings %q, wanted %q", got, want)
	}
	if f := all[2]; !strings.Contains(f.Found, "b, bound to backend down, and 1 more") || f.Hint == "" {
		t.Errorf("finding %+v", f)
	}
}
