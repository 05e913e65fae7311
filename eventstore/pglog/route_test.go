// PostgreSQL and memory side by side behind a Route.

package pglog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// besideMemory is a Route whose default is PostgreSQL, with the category aside in memory.
type besideMemory struct {
	*eventstore.Route
	pg  *store
	mem *memlog.Log
}

func mix(t testing.TB, pg *store, mem *memlog.Log) *besideMemory {
	t.Helper()
	r, err := eventstore.NewRoute([]eventstore.Backend{{Name: "memory", Log: mem}, {Name: "postgres", Log: pg}},
		&eventstore.RouteOptions{Default: "postgres", Table: map[eventstore.Category]string{"aside": "memory"}})
	if err != nil {
		t.Fatal(err)
	}
	return &besideMemory{r, pg, mem}
}

// ReadFeed gives the suite the feed of everything from the backend that holds all the
// suite creates; a Route refuses it.
func (m *besideMemory) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if len(f.Categories) == 0 {
		return m.pg.ReadFeed(ctx, after, f, limit)
	}
	return m.Route.ReadFeed(ctx, after, f, limit)
}

var routeHarness = logtest.Harness{
	Open: func(t testing.TB) eventstore.Log { return mix(t, harness.Open(t).(*store), memlog.New(nil)) },
	Reopen: func(t testing.TB, log eventstore.Log) eventstore.Log {
		m := log.(*besideMemory)
		return mix(t, harness.Reopen(t, m.pg).(*store), m.mem)
	},
	LongTx: func(ctx context.Context, log eventstore.Log, a eventstore.Append, meanwhile func(), commit bool) error {
		return harness.LongTx(ctx, log.(*besideMemory).pg, a, meanwhile, commit)
	},
}

func TestRouteSuite(t *testing.T) {
	t.Run("Run", func(t *testing.T) { logtest.Run(t, routeHarness) })
	t.Run("Probe", func(t *testing.T) {
		logtest.Probe(t, routeHarness, logtest.ProbeOptions{Duration: 500 * time.Millisecond})
	})
}

// TestRouteMix: what lies in one backend goes together, what lies in two is refused and
// leaves both as they were.
func TestRouteMix(t *testing.T) {
	pg := harness.Open(t).(*store)
	m := mix(t, pg, memlog.New(nil))
	s := eventstore.New(m.Route, nil)
	create(t, s, "account")
	create(t, s, "item")
	create(t, s, "aside")
	two := eventstore.Append{Batches: []eventstore.Batch{batch("account-a", 2), batch("item-a", 1)}, Guards: []eventstore.Guard{{Stream: "item-b"}}}
	inPG := must(t, s, two)
	inMemory := must(t, s, one(batch("aside-a", 3)))
	if inPG.Token.Incarnation == inMemory.Token.Incarnation {
		t.Error("both backends are one store")
	}
	for name, a := range map[string]eventstore.Append{
		"batches": {Batches: []eventstore.Batch{batch("account-x", 1), batch("aside-x", 1)}},
		"reverse": {Batches: []eventstore.Batch{batch("aside-x", 1), batch("account-x", 1)}},
		"guard":   {Batches: []eventstore.Batch{batch("account-x", 1)}, Guards: []eventstore.Guard{{Stream: "aside-x"}}},
	} {
		if _, err := s.Append(t.Context(), a); !errors.Is(err, eventstore.ErrCrossBackend) {
			t.Errorf("%s: %v, wanted ErrCrossBackend", name, err)
		}
	}
	for _, stream := range []eventstore.Stream{"account-x", "aside-x"} {
		if h, err := s.Head(t.Context(), stream); err != nil || h.Last.Seqno != 0 {
			t.Errorf("%s is at %+v, %v after refusals", stream, h, err)
		}
	}
	if _, err := s.ReadFeed(t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{"account", "aside"}}, 0); !errors.Is(err, eventstore.ErrCrossBackend) {
		t.Errorf("feed over both: %v", err)
	}
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	for _, f := range found {
		if of[f.Backend]++; f.Check == "route-category" && f.Severity != eventstore.SeverityOK {
			t.Errorf("finding %+v", f)
		}
	}
	if of["memory"] != 2 || of["postgres"] < 5 {
		t.Errorf("findings of %v, wanted those of the server and two of each", of)
	}
	notes := 0
	for f, err := range s.Verify(t.Context(), nil) {
		if err != nil || f.Backend != "memory" || f.Severity != eventstore.SeverityNote {
			t.Errorf("%+v, %v", f, err)
		}
		notes++
	}
	if notes != 1 {
		t.Errorf("%d findings of a clean store, wanted the note that memory cannot be verified", notes)
	}
	// As another process has it, whose memory is its own.
	again := eventstore.New(mix(t, harness.Reopen(t, pg).(*store), memlog.New(nil)).Route, nil)
	if h, err := again.Head(t.Context(), "account-a"); err != nil || h.Last.Seqno != 2 {
		t.Errorf("account-a of another process is at %+v, %v", h, err)
	}
}
