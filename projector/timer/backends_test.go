// The same on disk and in PostgreSQL: what was set fires once, through restarts.

package timer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/internal/vfs"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector/timer"
)

// crashing is a filelog on a disk that loses power at one append: what it looks like
// then is kept, and the log goes on none the wiser.
type crashing struct {
	*filelog.Log
	disk  *vfs.Mem
	mu    sync.Mutex
	left  int // appends until then; 0: it stays on
	image *vfs.Mem
}

func (c *crashing) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	done, err := c.Log.Append(ctx, a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.image = c.disk.Crash(vfs.Choice{Pick: vfs.LoseAll})
	}
	return done, err
}

// A directory that is opened again after it was closed, or after a power cut, under a
// clock of ours. Firings go on side by side, so the cut falls between them.
func TestFilelogReopened(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	disk, clock := vfs.NewMem(), newClock()
	o := &timer.Options{Now: clock.now, Keep: -1}
	const rounds, look = 60, 5 * time.Second
	cuts := 0
	for round := range rounds {
		log, err := filelog.OpenFS(disk, "store", &filelog.Options{Now: clock.now, SegmentBytes: 32 << 10, ReclaimEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		c := &crashing{Log: log, disk: disk}
		if round < rounds-1 && rng.IntN(2) == 0 {
			c.left = 1 + rng.IntN(10)
		}
		store := eventstore.New(c, nil)
		e := &env{t: t, clock: clock, store: store, o: *o}
		e.timers, err = timer.New(t.Context(), store, o)
		e.ok(err)
		s := e.scheduler()
		for range 1 + rng.IntN(4) {
			e.catchUp(s)
			for range rng.IntN(6) {
				name := fmt.Sprint(rng.IntN(15))
				if rng.IntN(3) > 0 {
					e.set(name, time.Duration(rng.IntN(30_000))*time.Millisecond)
				} else if _, err := e.timers.Cancel(t.Context(), name); err != nil && !errors.Is(err, timer.ErrFired) && !errors.Is(err, timer.ErrNoTimer) {
					t.Fatal(err)
				}
			}
			clock.pass(look)
		}
		if round == rounds-1 {
			clock.pass(time.Minute)
			e.catchUp(s)
			set, fired := rules{done: true}.check(t, history(t, store, "timer"))
			if fired == 0 || cuts == 0 {
				t.Errorf("%d fired, %d power cuts", fired, cuts)
			}
			t.Logf("%d set, %d fired, %d starts, %d of them after a power cut", set, fired, rounds, cuts)
		}
		e.ok(store.Close())
		if c.image != nil {
			disk, cuts = c.image, cuts+1
		} else {
			disk = disk.Crash(vfs.Choice{Pick: vfs.LoseAll}) // closed: nothing is left to lose
		}
	}
}

// Two schedulers on PostgreSQL, on its clock and ours; one is stopped on the way.
func TestPostgreSQL(t *testing.T) {
	pool, schema := pgtest.Schema(t)
	if err := migrations.Up(t.Context(), pool, schema); err != nil {
		t.Fatal(err)
	}
	log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	store := eventstore.New(log, nil)
	defer store.Close()
	o := &timer.Options{PollInterval: 20 * time.Millisecond, Keep: time.Hour}
	timers, err := timer.New(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	var stops []func() error
	var schedulers []*timer.Scheduler
	for range 2 {
		s, err := timer.NewScheduler(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		schedulers = append(schedulers, s)
		stops = append(stops, run(t, s))
	}
	const count = 60
	for i := range count {
		name, due := fmt.Sprint(i), time.Now().Add(time.Duration(i*10)*time.Millisecond)
		if _, err := timers.Set(t.Context(), name, due, []byte(name)); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if _, err := timers.Reschedule(t.Context(), name, due.Add(100*time.Millisecond)); err != nil && i > 0 {
				t.Fatal(err)
			}
		}
		if i == count/2 {
			_ = stops[0]()
		}
	}
	// What the one that was stopped had appended without seeing the answer, it has not counted.
	until(t, func() bool {
		_, fired := rules{}.check(t, history(t, store, "timer"))
		return fired == count
	})
	_ = stops[1]()
	if n := schedulers[0].Status().Fired + schedulers[1].Status().Fired; n > count {
		t.Errorf("%d counted as fired, want at most %d", n, count)
	}
	if _, fired := (rules{done: true}).check(t, history(t, store, "timer")); fired < count {
		t.Fatalf("%d fired, want %d", fired, count)
	}
	for name := range history(t, store, "timer") {
		if _, err := timers.Cancel(context.Background(), name); err == nil {
			t.Errorf("timer %s was cancelled after it had fired", name)
		}
	}
}
