// What the tests of consuming share: a store whose calls can be stopped, processes on it,
// members that note what they get, and the rules that hold over what they noted.

package topic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

const testTTL = 3 * time.Second

// wholeLog is a Log with all that consuming needs of it.
type wholeLog interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Streams
	eventstore.Leases
}

// gateLog is one process's way to a log: it can be frozen, made to fail, and counts.
type gateLog struct {
	wholeLog
	calls atomic.Int64
	reads atomic.Int64

	mu     sync.Mutex
	frozen chan struct{} // closed when it thaws; nil: it runs
	fail   error
	before func(call string, s eventstore.Stream)
}

func (g *gateLog) pass(ctx context.Context, call string, s eventstore.Stream) error {
	g.calls.Add(1)
	g.mu.Lock()
	frozen, fail, before := g.frozen, g.fail, g.before
	g.mu.Unlock()
	if before != nil {
		before(call, s)
	}
	if frozen != nil {
		<-frozen
	}
	if fail != nil {
		return fail
	}
	return ctx.Err()
}

func (g *gateLog) freeze() (thaw func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	frozen := make(chan struct{})
	g.frozen = frozen
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.frozen = nil
		g.mu.Unlock()
		close(frozen)
	})
}

func (g *gateLog) failWith(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

func (g *gateLog) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := g.pass(ctx, "append", a.Batches[0].Stream); err != nil {
		return eventstore.Appended{}, err
	}
	return g.wholeLog.Append(ctx, a)
}

func (g *gateLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	g.reads.Add(1)
	if err := g.pass(ctx, "read", s); err != nil {
		return eventstore.Page{}, err
	}
	return g.wholeLog.ReadFrom(ctx, s, after, limit)
}

func (g *gateLog) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	g.reads.Add(1)
	if err := g.pass(ctx, "head", s); err != nil {
		return eventstore.Head{}, err
	}
	return g.wholeLog.Head(ctx, s)
}

func (g *gateLog) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	if err := g.pass(ctx, "fence", s); err != nil {
		return eventstore.Head{}, err
	}
	return g.wholeLog.Fence(ctx, s, holder, at)
}

func (g *gateLog) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	if err := g.pass(ctx, "leases", ""); err != nil {
		return nil, err
	}
	return g.wholeLog.UpdateLeases(ctx, u)
}

// env is a store with the partitions of topics, written to by the test itself.
type env struct {
	t     testing.TB
	log   wholeLog
	store *eventstore.Store
	known map[eventstore.Category]known

	mu    sync.Mutex
	procs []*proc
	heads map[eventstore.Stream]eventstore.Mark
}

func newEnv(t testing.TB, log wholeLog) *env {
	return &env{t: t, log: log, store: eventstore.New(log, nil), known: map[eventstore.Category]known{}, heads: map[eventstore.Stream]eventstore.Mark{}}
}

func memEnv(t testing.TB, partitions int) *env {
	e := newEnv(t, memlog.New(nil))
	e.topic("t", partitions)
	return e
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) topic(name eventstore.Category, partitions int) {
	e.t.Helper()
	ctx := context.Background()
	e.ok(e.store.CreateCategory(ctx, eventstore.CategorySpec{Name: name, Layout: eventstore.Dedicated, TrimFreely: true}))
	for p := range partitions {
		e.ok(e.store.CreateStreams(ctx, streamOf(name, p)))
		delete(e.heads, streamOf(name, p))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[name] = known{spec: Spec{Name: name, Partitions: partitions}, id: eventstore.NewUUID()}
}

func (e *env) lookup(_ context.Context, op string, name eventstore.Category) (known, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k, ok := e.known[name]
	if !ok {
		return k, &eventstore.Error{Kind: ErrNoSuchTopic, Op: op, Category: name}
	}
	return k, nil
}

// proc is a process: consumers of its own, on its own way to the log.
type proc struct {
	e    *env
	gate *gateLog
	c    *consumers
	b    *Broker // for its watches only
}

func (e *env) proc() *proc {
	p := &proc{e: e, gate: &gateLog{wholeLog: e.log}}
	p.b = &Broker{store: eventstore.New(p.gate, nil)}
	o := consumeOptions{ttl: testTTL, poll: eventstore.DefaultPollInterval, heartbeat: DefaultHeartbeat, logger: p.b.store.Logger()}
	p.c = newConsumers(p.b.store, e.lookup, p.b.watch, o)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.procs = append(e.procs, p)
	return p
}

// publish appends n messages to a partition and tells the processes of it, if they are to know.
func (e *env) publish(topic eventstore.Category, p, n int, told bool) eventstore.Seqno {
	e.t.Helper()
	s := streamOf(topic, p)
	e.mu.Lock()
	defer e.mu.Unlock()
	b := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, After: e.heads[s], Claim: e.heads[s].Seqno == 0}
	for i := range n {
		at := e.heads[s].Seqno + eventstore.Seqno(i) + 1
		b.Events = append(b.Events, eventstore.Event{Type: "said", Data: fmt.Appendf(nil, "%d/%d", p, at), Metadata: eventstore.Metadata{MetaKey: fmt.Sprint("k", p)}})
	}
	done, err := e.store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{b}})
	e.ok(err)
	e.heads[s] = done.Receipts[0].Last
	if told {
		for _, pr := range e.procs {
			pr.b.watches.grew(place{topic, p})
		}
	}
	return e.heads[s].Seqno
}

func (e *env) head(topic eventstore.Category, p int) eventstore.Seqno {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heads[streamOf(topic, p)].Seqno
}

// got is one message that a member was given.
type got struct {
	partition int
	offset    eventstore.Seqno
	who       eventstore.UUID
}

// ledger notes what the members of one consumer are given and have committed, and what
// breaks a rule at once.
type ledger struct {
	mu     sync.Mutex
	all    []got
	acked  map[int]eventstore.Seqno // through which a Commit was answered
	wrong  []string
	repeat bool                             // a message may come again until it is committed
	twice  bool                             // a member may be there twice for a moment: what it has committed may come to it
	is     func(m Message, again bool) bool // the message that should be there
	by     map[int]eventstore.UUID          // whose Commit that was
	seen   map[int]eventstore.Seqno
	story  []string // what happened, for who reads of a failure
}

func newLedger(repeat bool) *ledger {
	is := func(m Message, again bool) bool {
		return string(m.Data) == fmt.Sprintf("%d/%d", m.Partition, m.Offset) && m.Key == fmt.Sprint("k", m.Partition) && m.Metadata == nil
	}
	return &ledger{is: is, repeat: repeat, by: map[int]eventstore.UUID{}, acked: map[int]eventstore.Seqno{}, seen: map[int]eventstore.Seqno{}}
}

func (l *ledger) note(who eventstore.UUID, d Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := len(d.Messages); {
	case d.Assignment != nil:
		l.say("%x has %v", who[12:], d.Assignment)
	case n > 0:
		l.say("%x given %d/%d to %d", who[12:], d.Partition, d.Messages[0].Offset, d.Messages[n-1].Offset)
	}
	for _, m := range d.Messages {
		p := m.Partition
		switch seen := l.seen[p]; {
		case m.Offset <= l.acked[p] && !(l.twice && who == l.by[p]):
			l.wrong = append(l.wrong, fmt.Sprintf("%d/%d delivered again, committed through %d", p, m.Offset, l.acked[p]))
		case m.Offset <= seen && !l.repeat:
			l.wrong = append(l.wrong, fmt.Sprintf("%d/%d delivered again, seen through %d", p, m.Offset, seen))
		case m.Offset > seen+1:
			l.wrong = append(l.wrong, fmt.Sprintf("%d/%d delivered, seen through %d", p, m.Offset, seen))
		case m.Partition != d.Partition || !l.is(m, m.Offset <= seen):
			l.wrong = append(l.wrong, fmt.Sprintf("%d/%d: %+v", p, m.Offset, m))
		}
		l.seen[p] = max(l.seen[p], m.Offset)
		l.all = append(l.all, got{p, m.Offset, who})
	}
}

// say adds to the story. The lock is held.
func (l *ledger) say(format string, args ...any) {
	l.story = append(l.story, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (l *ledger) ack(who eventstore.UUID, p int, through eventstore.Seqno) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say("%x committed %d/%d", who[12:], p, through)
	if through > l.acked[p] {
		l.acked[p], l.by[p] = through, who
	}
}

// reached says if everything published has been delivered and committed.
func (l *ledger) reached(e *env, topic eventstore.Category, partitions int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range partitions {
		if l.acked[p] != e.head(topic, p) {
			return false
		}
	}
	return true
}

// given says if everything published has been delivered.
func (l *ledger) given(e *env, topic eventstore.Category, partitions int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range partitions {
		if l.seen[p] != e.head(topic, p) {
			return false
		}
	}
	return true
}

func (l *ledger) check(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 || t.Failed() {
		t.Log(strings.Join(l.story, "\n"))
	}
	for i, w := range l.wrong {
		if t.Error(w); i == 10 {
			return
		}
	}
}

// collect consumes until stop says so or something fails.
func collect(ctx context.Context, c *consumers, q Consumption, stop func(Delivery) bool) (err error) {
	for d, err := range c.consume(ctx, q) {
		if err != nil {
			return err
		}
		if stop(d) {
			return nil
		}
	}
	return errors.New("the sequence ended by itself")
}
