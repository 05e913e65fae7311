// What the tests of this package share: a store in memory, a JetStream server in a
// directory of its own that can be stopped and started again, and what must be in the
// stream in the end.

package natssink_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/natssink"
)

// The nats-server starts goroutines of its process once and keeps them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"))
}

// jet is a server with JetStream that keeps its port and directory, behind a proxy.
type jet struct {
	t       *testing.T
	options server.Options
	server  *server.Server
	proxy   *cutproxy.Proxy
}

func startJet(t *testing.T) *jet {
	t.Helper()
	j := &jet{t: t, options: server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true,
		StoreDir: t.TempDir(), MaxPayload: 64 << 10, SyncAlways: true}}
	j.start()
	j.options.Port = j.server.Addr().(*net.TCPAddr).Port
	t.Cleanup(func() { j.stop() })
	p, err := cutproxy.New(fmt.Sprintf("127.0.0.1:%d", j.options.Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	j.proxy = p
	return j
}

func (j *jet) start() {
	j.t.Helper()
	o := j.options
	s, err := server.NewServer(&o)
	if err != nil {
		j.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		j.t.Fatal("the NATS server does not start")
	}
	j.server = s
}

func (j *jet) stop() {
	j.server.Shutdown()
	j.server.WaitForShutdown()
}

// connect connects to a port: the server's own or the proxy's.
func (j *jet) connect(port int) jetstream.JetStream {
	j.t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond),
		nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		j.t.Fatal(err)
	}
	return js
}

func (j *jet) direct() jetstream.JetStream  { return j.connect(j.options.Port) }
func (j *jet) proxied() jetstream.JetStream { return j.connect(j.proxy.Port()) }

// create makes the stream EVENTS, or another.
func (j *jet) create(js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
	j.t.Helper()
	c := jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}, Duplicates: 2 * time.Minute}
	if change != nil {
		change(&c)
	}
	if _, err := js.CreateOrUpdateStream(j.t.Context(), c); err != nil {
		j.t.Fatal(err)
	}
}

// stored returns what is in the stream, in order.
func (j *jet) stored(js jetstream.JetStream) []*jetstream.RawStreamMsg {
	j.t.Helper()
	s, err := js.Stream(j.t.Context(), "EVENTS")
	if err != nil {
		j.t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := max(1, s.CachedInfo().State.FirstSeq); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(j.t.Context(), seq)
		if err != nil {
			j.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// check says that the stream has every entry once, as it is, those of a key in order.
func (e *env) check(j *jet, js jetstream.JetStream) {
	e.t.Helper()
	missing := map[string]eventstore.Entry{}
	for _, entry := range e.all() {
		missing[entry.ID.String()] = entry
	}
	n, stored := len(missing), j.stored(js)
	last := map[string]eventstore.Position{}
	for _, m := range stored {
		entry, ok := missing[m.Header.Get(natssink.HeaderID)]
		if !ok {
			e.t.Fatalf("message %d is there twice, or of no entry: %v", m.Sequence, m.Header)
		}
		delete(missing, entry.ID.String())
		if string(m.Data) != string(entry.Data) || m.Header.Get(natssink.HeaderStream) != url.PathEscape(string(entry.Stream)) {
			e.t.Fatalf("message %d is %q of %v, want %q of %q", m.Sequence, m.Data, m.Header, entry.Data, entry.Stream)
		}
		if key := entry.Stream.Key(); entry.Position <= last[key] {
			e.t.Fatalf("message %d: position %d of key %q behind %d", m.Sequence, entry.Position, key, last[key])
		} else {
			last[key] = entry.Position
		}
	}
	if len(missing) > 0 || n != len(stored) {
		e.t.Fatalf("%d messages of %d entries", len(stored), n)
	}
}

// env is a store with categories account and other.
type env struct {
	t     *testing.T
	store *eventstore.Store
	marks map[eventstore.Stream]eventstore.Mark
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{t: t, store: eventstore.New(memlog.New(nil), nil), marks: map[eventstore.Stream]eventstore.Mark{}}
	for _, c := range []eventstore.Category{"account", "other"} {
		e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}))
	}
	return e
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) append(s eventstore.Stream, all ...eventstore.Event) {
	e.t.Helper()
	b := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: e.marks[s].Seqno == 0, After: e.marks[s], Events: all}
	done, err := e.store.Append(e.t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}})
	e.ok(err)
	e.marks[s] = done.Receipts[0].Last
}

// fill appends n events, to so many keys in both categories, one by one in turn.
func (e *env) fill(n, keys int) {
	e.t.Helper()
	for i := range n {
		category := []string{"account", "other"}[i/keys%2]
		e.append(eventstore.Stream(fmt.Sprintf("%s-%d", category, i%keys)),
			eventstore.Event{Type: "deposited", Data: fmt.Appendf(nil, `{"Amount":%d}`, i)})
	}
}

func (e *env) all() []eventstore.Entry {
	e.t.Helper()
	var all []eventstore.Entry
	for entry, err := range e.store.Feed(context.Background(), 0, eventstore.Filter{}) {
		e.ok(err)
		all = append(all, entry)
	}
	return all
}

func (e *env) projector(h projector.Handler) *projector.Projector {
	return projector.New(e.store, "p", "account", h, &projector.Options{Categories: []eventstore.Category{"other"}})
}

// catchUp works until nothing is left, through whatever passes by itself.
func (e *env) catchUp(p *projector.Projector) {
	e.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		more, err := p.CatchUp(e.t.Context(), 0)
		if err == nil && !more {
			return
		}
		if time.Since(began) > 30*time.Second {
			e.t.Fatalf("does not catch up: %v", err)
		}
	}
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited in vain")
		}
	}
}

// run starts p.Run and returns a function that stops it and gives its error.
func run(t *testing.T, p *projector.Projector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}
