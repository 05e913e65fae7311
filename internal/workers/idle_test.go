// What workers cost that have nothing to do.

package workers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// tally counts the statements that a pool sends, by what they are for.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *tally) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.note(d.SQL)
	return ctx
}

func (c *tally) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tally) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		c.note(q.SQL)
	}
	return ctx
}

func (c *tally) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *tally) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// kinds tell statements apart by what is in them; the first that fits counts.
var kinds = []struct{ kind, part string }{
	{"leases", ".leases"}, {"leases", `"leases"`},
	{"parked", `."parked"`}, {"versions", `."projectors"`}, {"checkpoints", `."checkpoints"`},
	{"holds", "holds"}, {"trimmed", "trimmed_position"}, {"horizon", "pg_sequence_last_value"}, {"feed", "entries"},
	{"begin", "begin"}, {"commit", "commit"}, {"rollback", "rollback"}, {"recovery", "pg_is_in_recovery()"},
}

func (c *tally) note(sql string) {
	kind := strings.Join(strings.Fields(sql), " ")
	for _, k := range kinds {
		if strings.Contains(strings.ToLower(sql), k.part) {
			kind = k.kind
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[kind]++
}

func (c *tally) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.count
	c.count = map[string]int{}
	return took
}

// Two workers that share 1,000 lanes with nothing to do send one update of all leases and
// one look at the version for each beat, and one read of the feed for all lanes together
// each poll. Nothing else, whatever the number of lanes.
func TestIdleLanesCostNothing(t *testing.T) {
	const (
		lanes = 1000
		poll  = time.Second
		lease = 6 * time.Second
		beat  = lease / 3
	)
	pgtest.DSN(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	x := newProjection(t)
	w := &writer{store: x.store, marks: map[eventstore.Stream]eventstore.Mark{}}
	tallies, all := []*tally{}, []*projector.Projector{}
	for range 2 {
		c := &tally{count: map[string]int{}}
		one := connect(t, x.schema, hooks{pool: func(p *pgxpool.Config) { p.ConnConfig.Tracer = c }})
		p := one.projector(projector.Options{Lanes: lanes, LeaseTTL: lease, PollInterval: poll})
		tallies, all = append(tallies, c), append(all, p)
		run(t, p)
	}
	began := time.Now()
	quiet(t, tallies, all)
	t.Logf("%d lanes shared and quiet after %v", lanes, time.Since(began).Round(time.Second))

	for _, c := range tallies {
		c.take()
	}
	began = time.Now()
	time.Sleep(5 * beat)
	took := time.Since(began)
	beats, polls := int(took/beat)+1, int(took/poll)+1
	for i, c := range tallies {
		got := c.take()
		t.Logf("worker %d in %v: %v", i, took.Round(time.Millisecond), got)
		most := map[string]int{"leases": beats, "versions": beats, "checkpoints": beats, "parked": beats, "feed": polls, "trimmed": polls, "horizon": 2 * polls,
			"begin": beats + polls, "commit": beats + polls, "recovery": beats + polls}
		for _, kind := range slices.Sorted(maps.Keys(got)) {
			if got[kind] > most[kind] {
				t.Errorf("worker %d sent %d statements of kind %q in %v, want at most %d (%d beats, %d polls)", i, got[kind], kind, took, most[kind], beats, polls)
			}
		}
		if got["leases"] < beats-2 || got["feed"] < polls/2 {
			t.Errorf("worker %d does not work: %v", i, got)
		}
	}
	token, err := w.append(t.Context(), "account-k0", "account-k1", "ledger-k2")
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), poll+slack)
	defer cancel()
	ok(t, all[0].Wait(ctx, token))
}

// quiet waits until the workers have shared the lanes and kept what they passed over.
func quiet(t *testing.T, tallies []*tally, all []*projector.Projector) {
	t.Helper()
	still := 0
	for end := time.Now().Add(3 * time.Minute); still < 3; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("not quiet: %d and %d lanes", len(all[0].Status().Lanes), len(all[1].Status().Lanes))
		}
		still++
		for i, p := range all {
			s := p.Status()
			if c := tallies[i].take(); 2*len(s.Lanes) != 1000 || !s.CaughtUp || c["commit"] > 4 {
				still = 0
			}
		}
	}
}

// run runs a projector until the test ends, or stop is called.
func run(t testing.TB, p *projector.Projector) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
