// Consumers on real stores: brokers, publishers, members that come, go and are frozen.

package topic

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// onBackends runs a test on each kind of store that outlives its process; the one in memory
// has the tests with time of their own.
func onBackends(t *testing.T, f func(t *testing.T, log wholeLog)) {
	t.Run("filelog", func(t *testing.T) {
		t.Parallel()
		f(t, openFiles(t, t.TempDir()))
	})
	t.Run("pglog", func(t *testing.T) {
		t.Parallel()
		pool, schema := pgtest.Schema(t)
		if err := migrations.Up(t.Context(), pool, schema); err != nil {
			t.Fatal(err)
		}
		log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		f(t, log)
	})
}

func openFiles(t *testing.T, dir string) *filelog.Log {
	t.Helper()
	log, err := filelog.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// node is a process with a broker that runs.
func (e *env) node(ttl time.Duration) *proc {
	e.t.Helper()
	p := &proc{e: e, gate: &gateLog{wholeLog: e.log}}
	b, err := NewBroker(context.Background(), eventstore.New(p.gate, nil), &Options{LeaseTTL: ttl})
	e.ok(err)
	p.b, p.c = b, b.consumers
	done := make(chan error, 1)
	go func() { done <- b.Run(context.Background()) }()
	e.t.Cleanup(func() {
		if err := errors.Join(b.Close(), <-done); err != nil {
			e.t.Error(err)
		}
	})
	return p
}

// publisher publishes n publications of a key, in order, each until it is there.
func (e *env) publisher(key string, n int, nodes ...*proc) error {
	rng := rand.New(rand.NewSource(int64(len(key) + n)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	at := 0
	for range n {
		pub := Publication{Topic: "t", Key: key, ID: eventstore.NewUUID()}
		for range 1 + rng.Intn(3) {
			at++
			pub.Events = append(pub.Events, eventstore.Event{Type: "said", Data: fmt.Appendf(nil, "%s/%d", key, at)})
		}
		if err := e.settle(ctx, pub, nodes); err != nil {
			return fmt.Errorf("%s/%d: %w", key, at, err)
		}
	}
	return nil
}

func (e *env) settle(ctx context.Context, pub Publication, nodes []*proc) error {
	for i := 0; ; i++ {
		// A node that is frozen answers nobody: its client gives up and asks another one.
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		got, err := nodes[i%len(nodes)].b.Publish(short, pub)
		cancel()
		if err == nil {
			e.mu.Lock()
			s := streamOf("t", got.Partition)
			e.heads[s] = eventstore.Mark{Seqno: max(e.heads[s].Seqno, got.Last)}
			e.mu.Unlock()
			return nil
		}
		if errors.Is(err, eventstore.ErrInvalid) || !pause(ctx, 10*time.Millisecond) {
			return err
		}
	}
}

// While brokers and members are frozen, killed, leave and come, each message comes to some
// member, in order, and none again to another one that was committed.
func TestConsumersOnBackends(t *testing.T) {
	onBackends(t, func(t *testing.T, log wholeLog) {
		const ttl = 1500 * time.Millisecond
		e := newEnv(t, log)
		a, b := e.node(ttl), e.node(ttl)
		e.ok(a.b.Create(t.Context(), Spec{Name: "t", Partitions: 4}))
		l := newLedger(true)
		keys := map[string]int{} // guarded by l.mu
		l.is = func(m Message, again bool) bool {
			key, at, _ := strings.Cut(string(m.Data), "/")
			if !again {
				keys[key]++
			}
			return m.Key == key && (again || at == fmt.Sprint(keys[key])) && m.Metadata[MetaKey] == "" && m.Metadata[MetaPart] == ""
		}
		var wg sync.WaitGroup
		for n := range 6 {
			wg.Go(func() {
				if err := e.publisher(fmt.Sprint("key", n), 120, a, b); err != nil {
					t.Error(err)
				}
			})
		}
		ma := a.join("c", l, func(r *run, _ *Consumption) { r.body = func(Delivery) { r.frozen() } })
		mb := b.join("c", l, nil)
		eventually(t, ttl+10*time.Second, "half each", func() bool { return shares(ma, mb) == "[2 2]" })
		mc := b.join("c", l, nil)
		eventually(t, ttl+10*time.Second, "by three", func() bool { return shares(ma, mb, mc) == "[1 1 2]" })
		thaw := a.gate.freeze()
		defer thaw()
		eventually(t, ttl+10*time.Second, "by the two that are left", func() bool { return shares(mb, mc) == "[2 2]" })
		thaw()
		eventually(t, ttl+10*time.Second, "by three again", func() bool { return shares(ma, mb, mc) == "[1 1 2]" })
		mb.kill()
		eventually(t, ttl+10*time.Second, "by two", func() bool { return shares(ma, mc) == "[2 2]" })
		wg.Wait()
		eventually(t, ttl+10*time.Second, "all", func() bool { return l.reached(e, "t", 4) })
		ma.kill()
		mc.kill()
		l.check(t)
		d, err := b.b.Describe(t.Context(), "t")
		e.ok(err)
		if len(d.Consumers) != 1 || d.Consumers[0].Name != "c" {
			t.Fatalf("described as %+v", d.Consumers)
		}
		for p, at := range d.Consumers[0].Positions {
			if at.Lag != 0 || at.Offset != d.Partitions[p].Head.Last.Seqno {
				t.Errorf("partition %d: %+v, head %v", p, at, d.Partitions[p].Head.Last)
			}
		}
	})
}

// What is published through the broker comes at once, whatever the poll interval, and a
// topic that is deleted takes its consumers along: one of the same name begins anew.
func TestConsumersOfABroker(t *testing.T) {
	onBackends(t, func(t *testing.T, log wholeLog) {
		e := newEnv(t, log)
		store := eventstore.New(log, nil)
		b, err := NewBroker(t.Context(), store, &Options{PollInterval: time.Hour, Heartbeat: 100 * time.Millisecond})
		e.ok(err)
		done := make(chan error, 1)
		go func() { done <- b.Run(context.Background()) }()
		defer func() { e.ok(errors.Join(b.Close(), <-done)) }()
		nodes := []*proc{{b: b}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			e.ok(b.Create(ctx, Spec{Name: "t", Partitions: 2}))
			clear(e.heads)
			n := 0
			ended := make(chan error, 1)
			for d, err := range b.Consume(ctx, Consumption{Topic: "t", Consumer: "c", Member: eventstore.UUID{7}, Start: New}) {
				e.ok(err)
				if len(d.Assignment) == 2 {
					go func() { ended <- e.publisher("k", 20, nodes...) }()
				}
				for _, m := range d.Messages {
					if n++; string(m.Data) != fmt.Sprint("k/", n) {
						t.Errorf("%d. message: %q", n, m.Data)
					}
					if lost, err := b.Commit(ctx, Commit{Topic: "t", Consumer: "c", Member: eventstore.UUID{7}, Places: []Place{{m.Partition, m.Offset}}}); err != nil || len(lost) > 0 {
						t.Errorf("lost %v, %v", lost, err)
					}
				}
				if len(ended) > 0 && n == int(e.head("t", 0)+e.head("t", 1)) {
					e.ok(<-ended)
					break
				}
			}
			e.ok(b.Delete(ctx, "t"))
			for _, err := range b.Consume(ctx, Consumption{Topic: "t", Consumer: "c"}) {
				if !errors.Is(err, ErrNoSuchTopic) {
					t.Errorf("deleted: %v", err)
				}
			}
		}
	})
}

// Positions outlive the process: another one goes on behind them.
func TestPositionsAcrossRestart(t *testing.T) {
	dir := t.TempDir()
	l := newLedger(false)
	heads := map[eventstore.Stream]eventstore.Mark{}
	var k known
	for round := range 4 {
		log := openFiles(t, dir)
		e := newEnv(t, log)
		if e.heads = heads; round == 0 {
			e.topic("t", 3)
			k = e.known["t"]
		}
		e.known["t"] = k
		for p := range 3 {
			e.publish("t", p, 10*(p+1), false)
		}
		r := e.proc().join("c", l, nil)
		eventually(t, 30*time.Second, "all", func() bool { return l.reached(e, "t", 3) })
		r.stop.Store(true)
		e.publish("t", 0, 1, true)
		r.ends()
		l.check(t)
		e.ok(log.Close())
	}
}
