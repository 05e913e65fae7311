// What the tests share: brokers on one log behind real servers, which can be killed and
// frozen, publishers that note what was acknowledged, and the rules that hold over it.

package remotetopic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/topic"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	testTTL  = time.Second
	testBeat = 200 * time.Millisecond // heartbeats; three of them missing is death
	testTry  = 500 * time.Millisecond // one try of a publication
	testWait = 40 * time.Second       // for what must come at last
)

// noLeaks fails the test if a goroutine is left. Call it first.
func noLeaks(t testing.TB) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within is a context for what must come at last.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// until waits for what must become true.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx := within(t)
	for !so() {
		if !sleep(ctx, 5*time.Millisecond) {
			t.Fatal("never: " + what)
		}
	}
}

// wantErr fails the test unless err is an *eventstore.Error of a kind.
func wantErr(t testing.TB, err, kind error) *eventstore.Error {
	t.Helper()
	e, ours := errors.AsType[*eventstore.Error](err)
	if !ours || !errors.Is(err, kind) {
		t.Fatalf("%v, want %v", err, kind)
	}
	return e
}

// wholeLog is a Log with all that brokers need of it.
type wholeLog interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Streams
	eventstore.Leases
}

// gateLog is one process's way to a log: it can be frozen or cut off.
type gateLog struct {
	wholeLog
	mu     sync.Mutex
	frozen chan struct{} // closed when it thaws; nil: it runs
	fail   error
}

func (g *gateLog) pass(ctx context.Context) error {
	g.mu.Lock()
	frozen := g.frozen
	g.mu.Unlock()
	if frozen != nil {
		<-frozen // also of a context that has ended: a frozen process sees nothing
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		return g.fail
	}
	return ctx.Err()
}

func (g *gateLog) freeze() (thaw func()) {
	frozen := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
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
	if err := g.pass(ctx); err != nil {
		return eventstore.Appended{}, err
	}
	return g.wholeLog.Append(ctx, a)
}

func (g *gateLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	if err := g.pass(ctx); err != nil {
		return eventstore.Page{}, err
	}
	return g.wholeLog.ReadFrom(ctx, s, after, limit)
}

func (g *gateLog) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if err := g.pass(ctx); err != nil {
		return eventstore.FeedPage{}, err
	}
	return g.wholeLog.ReadFeed(ctx, after, f, limit)
}

func (g *gateLog) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	if err := g.pass(ctx); err != nil {
		return eventstore.Head{}, err
	}
	return g.wholeLog.Head(ctx, s)
}

func (g *gateLog) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	if err := g.pass(ctx); err != nil {
		return eventstore.Head{}, err
	}
	return g.wholeLog.Fence(ctx, s, holder, at)
}

func (g *gateLog) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.wholeLog.UpdateLeases(ctx, u)
}

func (g *gateLog) Close() error { return nil } // the log is the test's

// env is a log with servers on it.
type env struct {
	t     testing.TB
	log   func() wholeLog // a way to the log for one process
	store *eventstore.Store
	nodes []*node
}

// newEnv is one in memory.
func newEnv(t testing.TB) *env {
	t.Helper()
	noLeaks(t)
	log := memlog.New(nil)
	e := &env{t: t, log: func() wholeLog { return log }, store: eventstore.New(log, nil)}
	t.Cleanup(func() { e.store.Close() })
	return e
}

// node is a server with a broker.
type node struct {
	e       *env
	gate    *gateLog
	broker  *topic.Broker
	service *Service
	server  *http.Server
	address string // host:port where it listens
	url     string // that it tells
	calls   *forwards

	stopRun func()
	stop    func()
}

// forwards counts the publications that came from other servers, and all.
type forwards struct {
	mu   sync.Mutex
	from map[bool]int
}

func (f *forwards) count(forwarded bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.from[forwarded]
}

func (f *forwards) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wattlev1.TopicServicePublishProcedure {
			f.mu.Lock()
			f.from[r.Header.Get(forwardedHeader) != ""]++
			f.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// node starts one. With alone it does not forward.
func (e *env) node(o ServiceOptions, alone bool) *node {
	e.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(e.t, err)
	return e.nodeAt(l, "http://"+l.Addr().String(), o, alone)
}

func (e *env) nodeAt(l net.Listener, url string, o ServiceOptions, alone bool) *node {
	e.t.Helper()
	n := &node{e: e, gate: &gateLog{wholeLog: e.log()}, address: l.Addr().String(), url: url, calls: &forwards{from: map[bool]int{}}}
	store := eventstore.New(n.gate, nil)
	b, err := topic.NewBroker(e.t.Context(), store, &topic.Options{Address: url, LeaseTTL: testTTL, PollInterval: 20 * time.Millisecond})
	ok(e.t, err)
	n.broker = b
	if !alone && o.Forward == nil {
		o.Forward = func(address string) (Peer, error) { return NewPeer(address, &Options{Transport: h2(e.t)}) }
	}
	if o.ForwardTimeout == 0 {
		o.ForwardTimeout = testTry
	}
	n.service = NewService(b, &o)
	n.service.minHeartbeat = testBeat / 4
	mux := http.NewServeMux()
	n.service.Mount(mux)
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	n.server = &http.Server{Handler: n.calls.middleware(mux), Protocols: &p}
	served, ran := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		_ = n.server.Serve(l)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ran)
		_ = b.Run(ctx)
	}()
	n.stopRun = sync.OnceFunc(func() { cancel(); <-ran })
	n.stop = sync.OnceFunc(func() {
		n.service.Drain()
		n.server.Close()
		<-served
		n.stopRun()
		ok(e.t, n.service.Close())
	})
	e.t.Cleanup(n.stop)
	e.nodes = append(e.nodes, n)
	return n
}

var errKilled = errors.New("the process is dead")

// kill ends a server as kill -9 would: its connections are closed, and its broker does
// nothing more, not even give up its leases.
func (n *node) kill() {
	n.gate.failWith(errKilled)
	n.server.Close()
	n.stop()
}

// h2 is a transport of its own that speaks HTTP/2.
func h2(t testing.TB) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func h1(t testing.TB) *http.Transport {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// client opens a client of servers.
func (e *env) client(o *Options, urls ...string) *Client {
	e.t.Helper()
	if o == nil {
		o = &Options{}
	}
	q := *o
	if q.Transport == nil {
		q.Transport = h2(e.t)
	}
	if q.TryTimeout == 0 {
		q.TryTimeout = testTry
	}
	if q.Heartbeat == 0 {
		q.Heartbeat = testBeat
	}
	q.Lazy = true
	c, err := Open(e.t.Context(), urls, &q)
	ok(e.t, err)
	c.minHeartbeat = 0
	e.t.Cleanup(func() { c.Close() })
	return c
}

// topic creates one and waits until its partitions are shared among the running servers.
func (e *env) topic(name eventstore.Category, partitions, owners int) {
	e.t.Helper()
	b := e.nodes[0].broker
	ok(e.t, b.Create(within(e.t), topic.Spec{Name: name, Partitions: partitions}))
	until(e.t, "the partitions are shared", func() bool { return len(e.owners(b, name)) == owners })
}

// owners are the partitions of each owner; nil while one has none.
func (e *env) owners(b topic.Service, name eventstore.Category) map[string][]int {
	d, err := b.Describe(within(e.t), name)
	ok(e.t, err)
	by := map[string][]int{}
	for _, p := range d.Partitions {
		if p.Owner == "" {
			return nil
		}
		by[p.Owner] = append(by[p.Owner], p.Number)
	}
	return by
}

// keyOf is a key of a partition, another one for each i.
func keyOf(partition, partitions, i int) string {
	for n := 0; ; n++ {
		key := fmt.Sprintf("key-%d-%d", i, n)
		if int(eventstore.Stream("topic-"+key).Slot())%partitions == partition {
			return key
		}
	}
}

func event(key string, n int) eventstore.Event {
	return eventstore.Event{Type: "placed", Data: fmt.Appendf(nil, "%s#%d", key, n)}
}

// publication is the n-th of a key, under a new ID.
func publication(name eventstore.Category, key string, n int) topic.Publication {
	return topic.Publication{Topic: name, Key: key, ID: eventstore.NewUUID(), Events: []eventstore.Event{event(key, n)}}
}

// acks are what was acknowledged: offsets by key, in order.
type acks struct {
	mu sync.Mutex
	by map[string][]topic.Published
}

func (a *acks) note(key string, p topic.Published) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = map[string][]topic.Published{}
	}
	a.by[key] = append(a.by[key], p)
}

func (a *acks) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, all := range a.by {
		n += len(all)
	}
	return n
}

// verify holds what is in the topic against what was acknowledged: every message once,
// where the ack says, and those of a key in order.
func (e *env) verify(name eventstore.Category, partitions int, a *acks) {
	e.t.Helper()
	have := map[string]int{}
	for p := range partitions {
		s := eventstore.Stream(fmt.Sprintf("%s-%d", name, p))
		for x, err := range e.store.Read(within(e.t), s, 0) {
			ok(e.t, err)
			key := x.Metadata[topic.MetaKey]
			have[key]++
			n := have[key]
			if string(x.Data) != fmt.Sprintf("%s#%d", key, n) {
				e.t.Fatalf("%s %v is %q, want the message %d of its key", s, x.Seqno, x.Data, n)
			}
			if n <= len(a.by[key]) && (a.by[key][n-1].First != x.Seqno || a.by[key][n-1].Partition != p) {
				e.t.Fatalf("%s %v is %q; the ack said %+v", s, x.Seqno, x.Data, a.by[key][n-1])
			}
		}
	}
	for key, all := range a.by {
		if have[key] != len(all) {
			e.t.Fatalf("%d messages of %s, want the %d that were acknowledged", have[key], key, len(all))
		}
	}
}
