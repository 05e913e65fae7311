// What the tests of message streams need: a store, servers that come and go on one port,
// clients, and a writer.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

const (
	testBeat = 200 * time.Millisecond // heartbeats of tests; three of them missing is death
	testWait = 30 * time.Second       // for what must come at last
)

// streamEnv is a store and its server.
type streamEnv struct {
	t     testing.TB
	hub   *Hub
	store *eventstore.Store
	o     StreamOptions
	wrap  func(http.Handler) http.Handler // nil: none

	visible func(context.Context, eventstore.Category) bool

	service *Service
	server  *http.Server
	address string
	served  chan struct{}

	mu     sync.Mutex
	heads  map[eventstore.Stream]eventstore.Head
	holder eventstore.UUID
}

// noLeaks fails the test if a goroutine is left. Call it first.
func noLeaks(t testing.TB) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// newStreamEnv serves a store over a log; nil: one in memory. It has a shared category
// "account" and a dedicated one "topic" with the stream topic-0.
func newStreamEnv(t testing.TB, log eventstore.Log, o StreamOptions) *streamEnv {
	t.Helper()
	noLeaks(t)
	if log == nil {
		log = memlog.New(nil)
	}
	e := &streamEnv{t: t, hub: NewHub(nil), o: o, heads: map[eventstore.Stream]eventstore.Head{}, holder: eventstore.NewUUID()}
	e.store = eventstore.New(log, &eventstore.Options{Announcer: e.hub})
	t.Cleanup(func() { e.store.Close() })
	must(t, e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}))
	must(t, e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "topic", Layout: eventstore.Dedicated, TrimFreely: true}))
	must(t, e.store.CreateStreams(t.Context(), "topic-0"))
	e.start("127.0.0.1:0")
	t.Cleanup(func() { e.stop() })
	return e
}

func fileLog(t testing.TB) eventstore.Log {
	t.Helper()
	l, err := filelog.Open(t.TempDir(), nil)
	must(t, err)
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start serves on an address.
func (e *streamEnv) start(address string) {
	e.t.Helper()
	l, err := net.Listen("tcp", address)
	must(e.t, err)
	e.address = l.Addr().String()
	e.service = NewService(e.store, &ServiceOptions{Hub: e.hub, Streams: e.o, Visible: e.visible})
	e.service.streams.minHeartbeat = testBeat / 4
	mux := http.NewServeMux()
	e.service.Mount(mux)
	h := http.Handler(mux)
	if e.wrap != nil {
		h = e.wrap(h)
	}
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	e.server = &http.Server{Handler: h, Protocols: &p}
	server, served := e.server, make(chan struct{})
	e.served = served
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
}

// stop ends the server as if its process ended.
func (e *streamEnv) stop() {
	e.server.Close()
	<-e.served
	e.service.streams.poll.wait()
}

// client returns a client of a server; HTTP/1.1 with h1, else HTTP/2.
func (e *streamEnv) client(address string, h1 bool) *Log {
	e.t.Helper()
	return e.clientOver(&http.Transport{}, address, h1)
}

func (e *streamEnv) clientOver(transport *http.Transport, address string, h1 bool) *Log {
	e.t.Helper()
	var p http.Protocols
	p.SetHTTP1(h1)
	p.SetUnencryptedHTTP2(!h1)
	transport.Protocols = &p
	l, err := Open(e.t.Context(), "http://"+address, &Options{Transport: transport, Lazy: true,
		Options: []connect.ClientOption{connect.WithAcceptCompression("gzip", nil, nil)}}) // with it the tests take three times as long
	must(e.t, err)
	l.streams.heartbeat, l.streams.watching.heartbeat = testBeat, testBeat
	e.t.Cleanup(func() {
		l.Close()
		transport.CloseIdleConnections()
	})
	return l
}

// batch makes the next batch of a stream; its events have the data "stream#seqno".
func (e *streamEnv) batch(s eventstore.Stream, n, size int) eventstore.Batch {
	h := e.heads[s]
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: 1, Holder: e.holder, Claim: h.Epoch == 0, After: h.Last}
	for i := range n {
		data := fmt.Appendf(nil, "%s#%d", s, int(h.Last.Seqno)+i+1)
		b.Events = append(b.Events, eventstore.Event{Type: []string{"even", "odd"}[(int(h.Last.Seqno)+i+1)%2], Data: append(data, make([]byte, max(0, size-len(data)))...)})
	}
	return b
}

// append appends n events to a stream through the server's store.
func (e *streamEnv) append(s eventstore.Stream, n, size int) eventstore.Appended {
	e.t.Helper()
	return e.appendTo(e.store, s, n, size)
}

func (e *streamEnv) appendTo(store *eventstore.Store, s eventstore.Stream, n, size int) eventstore.Appended {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	done, err := store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{e.batch(s, n, size)}})
	if err != nil {
		e.t.Error(err)
		return done
	}
	e.heads[s] = eventstore.Head{Epoch: 1, Last: done.Receipts[0].Last}
	return done
}

// within is a context for what must come at last.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// inOrder fails the test unless the entries are 1…n of a stream.
func inOrder(t testing.TB, s eventstore.Stream, got []eventstore.Entry, from, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d entries, want %d", len(got), n)
	}
	for i, e := range got {
		want := fmt.Sprintf("%s#%d", s, from+i)
		if e.Stream != s || int(e.Seqno) != from+i || len(e.Data) < len(want) || string(e.Data[:len(want)]) != want {
			t.Fatalf("entry %d is %s %v, want %s", i, e.Stream, e.Mark(), want)
		}
	}
}

// followN follows until there are n entries.
func followN(t testing.TB, l *Log, s eventstore.Stream, after eventstore.Mark, n int) []eventstore.Entry {
	t.Helper()
	var all []eventstore.Entry
	for e, err := range l.Follow(within(t), s, after) {
		if err != nil {
			t.Fatalf("after %d of %d entries: %v", len(all), n, err)
		}
		if all = append(all, e); len(all) == n {
			break
		}
	}
	return all
}

// wantErr fails the test unless err is an *eventstore.Error of a kind.
func wantErr(t testing.TB, err, kind error) *eventstore.Error {
	t.Helper()
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || !errors.Is(err, kind) {
		t.Fatalf("%v, want %v", err, kind)
	}
	return e
}

// until waits for what must become true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	for !ok() {
		if !sleep(ctx, 5*time.Millisecond) {
			t.Fatal("never: " + what)
		}
	}
}

// feedOf is all entries of the feed as it is now.
func (e *streamEnv) feedOf(f eventstore.Filter) []eventstore.Entry {
	e.t.Helper()
	var all []eventstore.Entry
	for x, err := range e.store.Feed(e.t.Context(), 0, f) {
		must(e.t, err)
		all = append(all, x)
	}
	return all
}

// sameEntries fails the test unless both are the same entries in the same order.
func sameEntries(t testing.TB, got, want []eventstore.Entry) {
	t.Helper()
	same := slices.EqualFunc(got, want, func(a, b eventstore.Entry) bool {
		return a.PositionMark() == b.PositionMark() && a.Mark() == b.Mark() && a.Stream == b.Stream && string(a.Data) == string(b.Data)
	})
	if !same {
		t.Fatalf("%d entries, want %d, or not the same ones", len(got), len(want))
	}
}
