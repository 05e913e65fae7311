// Partitions move: brokers come, are killed, are frozen and thaw, answers are lost, and
// everything acknowledged is there exactly once, in order.

package topic_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/topic"
)

// onMemlog opens a store, as the two below; the function it returns opens it once more, as
// another process would, where that can be.
func onMemlog(*testing.T) func() eventstore.Log {
	log := memlog.New(nil)
	return func() eventstore.Log { return log }
}

func onFilelog(t *testing.T) func() eventstore.Log {
	log, err := filelog.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return func() eventstore.Log { return log }
}

func onPglog(t *testing.T) func() eventstore.Log {
	_, schema := pgtest.Schema(t)
	return func() eventstore.Log {
		log, err := pglog.Open(t.Context(), pgtest.Pool(t), &pglog.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		return log
	}
}

// onEach runs a test on each backend; on memlog on a clock that is moved, on the others,
// which mostly wait, side by side.
func onEach(t *testing.T, f func(t *testing.T, open func() eventstore.Log)) {
	t.Run("memlog", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, onMemlog(t)) })
	})
	t.Run("kept", func(t *testing.T) {
		pgtest.DSN(t) // starts the server, whose goroutines stay
		ignore := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
		t.Run("filelog", func(t *testing.T) { t.Parallel(); f(t, onFilelog(t)) })
		t.Run("pglog", func(t *testing.T) { t.Parallel(); f(t, onPglog(t)) })
	})
}

// acks are what publishers were told.
type acks struct {
	mu  sync.Mutex
	by  map[string][]topic.Published // by key: the n-th publication's
	bad []string
}

// flood has publishers publish until ctx ends or each has published most, every one a
// key of its own, one after the other, each retried until it is there.
func (e *env) flood(ctx context.Context, a *acks, keys, most int, all ...topic.Service) *sync.WaitGroup {
	var wg sync.WaitGroup
	for k := range keys {
		key := fmt.Sprintf("key%d", k)
		wg.Go(func() {
			for n := range most {
				p := publication("orders", key, n, time.Now())
				got, err := persist(ctx, p, k, all)
				if ctx.Err() != nil {
					return
				}
				a.mu.Lock()
				if err != nil {
					a.bad = append(a.bad, fmt.Sprintf("%s/%d: %v", key, n, err))
					a.mu.Unlock()
					return
				}
				a.by[key] = append(a.by[key], got)
				a.mu.Unlock()
			}
		})
	}
	return &wg
}

// persist publishes the same at one broker after the other, each for a moment, until the
// outcome is known. Told who the owner is it could ask that one: it does not, so that
// all refusals are seen.
func persist(ctx context.Context, p topic.Publication, from int, all []topic.Service) (got topic.Published, err error) {
	for i := from; ctx.Err() == nil; i++ {
		got, err = func() (topic.Published, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return all[i%len(all)].Publish(ctx, p)
		}()
		if err == nil || !retriable(err) && !isDeadline(err) {
			return got, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return got, err
}

func isDeadline(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// check compares what is in the log with what publishers were told.
func (e *env) check(a *acks, partitions int) (entries int) {
	e.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, bad := range a.bad {
		e.t.Error(bad)
	}
	seen, last := map[eventstore.UUID]bool{}, map[string]int{}
	at := map[string]string{}
	for n, log := range e.all("orders", partitions) {
		for _, entry := range log {
			entries++
			key, i := entry.Metadata[topic.MetaKey], 0
			if _, err := fmt.Sscanf(string(entry.Data), `{"n":%d}`, &i); err != nil {
				e.t.Fatal(err)
			}
			if seen[entry.ID] {
				e.t.Errorf("%s/%d stands there twice", key, i)
			}
			seen[entry.ID] = true
			if want := last[key]; i != want {
				e.t.Errorf("%s: %d comes where %d is due", key, i, want)
			}
			last[key] = i + 1
			at[fmt.Sprintf("%s/%d", key, i)] = fmt.Sprintf("%d/%d", n, entry.Seqno)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.by)) {
		for i, got := range a.by[key] {
			if is := at[fmt.Sprintf("%s/%d", key, i)]; is != fmt.Sprintf("%d/%d", got.Partition, got.First) {
				e.t.Errorf("%s/%d was acknowledged at %d/%d and stands at %q", key, i, got.Partition, got.First, is)
			}
		}
	}
	return entries
}

func TestPartitionsMove(t *testing.T) {
	onEach(t, func(t *testing.T, open func() eventstore.Log) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(seed, 0))
		chance := func() int { mu.Lock(); defer mu.Unlock(); return random.IntN(12) }
		e := newEnv(t, open())
		logs := []*bent{bend(open()), bend(open()), bend(open())}
		var all []topic.Service
		var nodes []*node
		for i, log := range logs {
			n := e.brokerOn(log, &topic.Options{LeaseTTL: time.Second, Address: fmt.Sprintf("https://broker%d", i)})
			nodes = append(nodes, n)
			all = append(all, n)
			log.lose(chance)
		}
		e.ok(nodes[0].Create(t.Context(), topic.Spec{Name: "orders", Partitions: 6}))
		e.owners("orders", 15*time.Second, 2, 2, 2)

		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		a := &acks{by: map[string][]topic.Published{}}
		wg := e.flood(ctx, a, 4, 1_000_000, all...)
		e.more(a, 10)
		logs[1].freeze()
		e.owners("orders", 15*time.Second, 0, 3, 3)
		e.more(a, 10)
		logs[1].thaw()
		e.owners("orders", 15*time.Second, 2, 2, 2)
		e.more(a, 10)
		logs[2].kill()
		e.owners("orders", 15*time.Second, 0, 3, 3)
		e.more(a, 10)
		nodes[0].stop()
		e.owners("orders", 15*time.Second, 6)
		e.more(a, 10)
		stop()
		wg.Wait()
		t.Logf("%d messages", e.check(a, 6))
	})
}

// more waits until every publisher has had so many more acknowledged.
func (e *env) more(a *acks, n int) {
	e.t.Helper()
	count := func() map[string]int {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.bad) > 0 {
			e.t.Fatal(a.bad)
		}
		c := map[string]int{}
		for k, got := range a.by {
			c[k] = len(got)
		}
		return c
	}
	start := count()
	e.eventually(30*time.Second, "publishers go on", func() bool {
		now := count()
		for _, key := range []string{"key0", "key1", "key2", "key3"} {
			if now[key] < start[key]+n {
				return false
			}
		}
		return true
	})
}

// owners waits until the partitions of a topic are shared so, fewest first, 0 left out.
func (e *env) owners(name eventstore.Category, within time.Duration, want ...int) {
	e.t.Helper()
	want = slices.DeleteFunc(want, func(n int) bool { return n == 0 })
	e.eventually(within, fmt.Sprintf("shares %v", want), func() bool {
		all, err := e.store.UpdateLeases(context.Background(), eventstore.LeaseUpdate{Holder: eventstore.NewUUID(), Prefix: "topic/partition/" + string(name) + "/"})
		e.ok(err)
		by := map[eventstore.UUID]int{}
		for _, l := range all {
			if l.Left > 0 {
				by[l.Holder]++
			}
		}
		return sameCounts(by, want)
	})
}

func sameCounts(by map[eventstore.UUID]int, want []int) bool {
	return slices.Equal(slices.Sorted(maps.Values(by)), want)
}

func (e *env) eventually(within time.Duration, what string, is func() bool) {
	e.t.Helper()
	for began := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > within {
			e.t.Fatalf("not within %v: %s", within, what)
		}
	}
}
