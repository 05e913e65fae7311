// Announcements over a real, embedded NATS server that comes and goes.

package natsannounce_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/natsannounce"
	"github.com/wattle-es/wattle/projector"
)

// The nats-server starts goroutines of its process once and keeps them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"))
}

// natsServer remembers its port, to be started there again.
type natsServer struct {
	*server.Server
	port int
}

// start starts a server on loopback; port -1 takes a free one.
func start(t testing.TB, port int) natsServer {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { shutdown(natsServer{Server: s}) })
	return natsServer{s, s.Addr().(*net.TCPAddr).Port}
}

func shutdown(s natsServer) {
	s.Shutdown()
	s.WaitForShutdown()
}

func connect(t testing.TB, s natsServer, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append([]nats.Option{nats.ReconnectWait(5 * time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond),
		nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}, options...)
	nc, err := nats.Connect(s.ClientURL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// heard collects hints.
type heard struct {
	mu  sync.Mutex
	all []eventstore.Announcement
}

func (h *heard) hear(a eventstore.Announcement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, a)
}

func (h *heard) get() []eventstore.Announcement {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]eventstore.Announcement(nil), h.all...)
}

func (h *heard) until(t testing.TB, ok func([]eventstore.Announcement) bool) []eventstore.Announcement {
	t.Helper()
	until(t, func() bool { return ok(h.get()) })
	return h.get()
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited in vain")
		}
	}
}

func hint(stream eventstore.Stream, n int) eventstore.Announcement {
	return eventstore.Announcement{Category: stream.Category(), Slot: stream.Slot(), Stream: stream,
		Seqno: eventstore.Seqno(n), Position: eventstore.Position(10 * n)}
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestHintsArriveAsTheyAre(t *testing.T) {
	s := start(t, -1)
	from, to := natsannounce.New(connect(t, s), nil), natsannounce.New(connect(t, s), nil)
	other := natsannounce.New(connect(t, s), &natsannounce.Options{Prefix: "other.store"})
	var all, accounts, foreign heard
	for _, sub := range []struct {
		a          *natsannounce.Announcer
		h          *heard
		categories []eventstore.Category
	}{{to, &all, nil}, {to, &accounts, []eventstore.Category{"account", "ledger"}}, {other, &foreign, nil}} {
		stop, err := sub.a.Subscribe(t.Context(), sub.categories, sub.h.hear)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	odd := hint(eventstore.Stream("loan-"+strings.Repeat("\"\\é", 100)), 7)
	odd.Traceparent = traceparent
	high := hint("account-a", 1)
	high.Seqno, high.Position = eventstore.MaxNumber, eventstore.MaxNumber
	want := []eventstore.Announcement{odd, high, hint("ledger-b", 3)}
	if err := from.Announce(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got := all.until(t, func(a []eventstore.Announcement) bool { return len(a) >= 3 })
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	got = accounts.until(t, func(a []eventstore.Announcement) bool { return len(a) >= 2 })
	if fmt.Sprint(got) != fmt.Sprint(want[1:]) {
		t.Errorf("by category %v", got)
	}
	if got := foreign.get(); len(got) != 0 {
		t.Errorf("another prefix heard %v", got)
	}
}

func TestSubjectAndHeader(t *testing.T) {
	s := start(t, -1)
	nc := connect(t, s)
	sub, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	h := hint("account-alice", 5)
	h.Traceparent = traceparent
	if err := natsannounce.New(nc, nil).Announce(t.Context(), []eventstore.Announcement{h}); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("wattle.account.%d", h.Slot); m.Subject != want {
		t.Errorf("subject %q, want %q", m.Subject, want)
	}
	if m.Header.Get("traceparent") != traceparent {
		t.Errorf("header %v", m.Header)
	}
	want := fmt.Sprintf(`{"category":"account","slot":%d,"stream":"account-alice","seqno":5,"position":50,"traceparent":%q}`, h.Slot, traceparent)
	if string(m.Data) != want {
		t.Errorf("payload %s", m.Data)
	}
}

// Whatever others publish below the prefix, only hints get through.
func TestHostileMessagesAreIgnored(t *testing.T) {
	s := start(t, -1)
	nc := connect(t, s)
	var h heard
	stop, err := natsannounce.New(connect(t, s), nil).Subscribe(t.Context(), nil, h.hear)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	slot := eventstore.Stream("account-a").Slot()
	subject := fmt.Sprintf("wattle.account.%d", slot)
	good := fmt.Sprintf(`{"category":"account","slot":%d,"stream":"account-a","seqno":1,"position":1}`, slot)
	for _, m := range []struct{ subject, data string }{
		{subject, ""}, {subject, "null"}, {subject, "[]"}, {subject, "{"}, {subject, "\xff"}, {subject, good + good},
		{subject, strings.Replace(good, `"seqno":1`, `"seqno":-1`, 1)},
		{subject, strings.Replace(good, `"seqno":1`, `"seqno":0`, 1)},
		{subject, strings.Replace(good, `"seqno":1`, `"seqno":9223372036854775808`, 1)},
		{subject, strings.Replace(good, `"position":1`, `"position":18446744073709551615`, 1)},
		{subject, strings.Replace(good, `"position":1`, `"position":1e99`, 1)},
		{subject, strings.Replace(good, "account-a", "account", 1)},
		{subject, strings.Replace(good, "account-a", `account-\u0000`, 1)},
		{subject, strings.Replace(good, "account-a", "account-b", 1)}, // another slot
		{subject, strings.Replace(good, `"account"`, `"ledger"`, 1)},
		{"wattle.ledger.1", good}, {"wattle.account.x", good},
		{subject, strings.Replace(good, `"seqno"`, `"x":"`+strings.Repeat("x", natsannounce.MaxMessageBytes)+`","seqno"`, 1)},
		{subject, strings.Repeat("[", 5000)},
	} {
		if err := nc.Publish(m.subject, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	bad := nats.NewMsg(subject) // a bad trace is dropped, the hint is not
	bad.Data = []byte(strings.Replace(good, `"seqno":1`, `"seqno":2,"traceparent":"x"`, 1))
	bad.Header.Set("traceparent", "00-zz")
	if err := nc.PublishMsg(bad); err != nil {
		t.Fatal(err)
	}
	got := h.until(t, func(a []eventstore.Announcement) bool { return len(a) > 0 })
	if len(got) != 1 || got[0].Seqno != 2 || got[0].Traceparent != "" {
		t.Errorf("heard %v", got)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	nc := connect(t, start(t, -1))
	ignore := func(eventstore.Announcement) {}
	for _, prefix := range []string{".", "a..b", "a.*", ">", "a b", "a\n", "\xff", strings.Repeat("x", 129)} {
		a := natsannounce.New(nc, &natsannounce.Options{Prefix: prefix})
		if err := a.Announce(t.Context(), nil); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		if _, err := a.Subscribe(t.Context(), nil, ignore); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	if err := natsannounce.New(nil, nil).Announce(t.Context(), nil); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
	a := natsannounce.New(nc, nil)
	if _, err := a.Subscribe(t.Context(), []eventstore.Category{"*"}, ignore); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("a category that would widen the subject: %v", err)
	}
	nc.Close()
	if _, err := a.Subscribe(t.Context(), nil, ignore); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Error(err)
	}
}

// An outage is said once, costs nothing, and nothing announced during it comes
// late; the connection that follows says to look.
func TestOutage(t *testing.T) {
	s := start(t, -1)
	// Its connection comes back behind the subscriber's, so that nothing it may have
	// kept is lost unheard.
	a := natsannounce.New(connect(t, s, nats.ReconnectWait(500*time.Millisecond)), nil)
	nc := connect(t, s)
	var h heard
	stop, err := natsannounce.New(nc, nil).Subscribe(t.Context(), nil, h.hear)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	shutdown(s)
	until(t, func() bool { return !nc.IsConnected() })
	said := 0
	for n := range 1000 {
		if err := a.Announce(t.Context(), []eventstore.Announcement{hint(eventstore.Stream(fmt.Sprintf("account-%d", n)), 1)}); err != nil {
			if said++; !errors.Is(err, eventstore.ErrUnavailable) {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Microsecond)
	}
	if said > 1 {
		t.Errorf("said %d times", said)
	}
	again := start(t, s.port)
	h.until(t, func(a []eventstore.Announcement) bool {
		return len(a) > 0 && a[len(a)-1] == eventstore.Announcement{}
	})
	until(t, func() bool {
		_ = a.Announce(t.Context(), []eventstore.Announcement{hint("account-late", 2)})
		all := h.get()
		return all[len(all)-1].Seqno == 2
	})
	for _, got := range h.get() {
		if got.Seqno == 1 {
			t.Errorf("heard %v, announced during the outage", got)
		}
	}
	shutdown(again)
}

// A server that takes nothing off its socket holds up no append, and memory
// stays bounded.
func TestHungServerBlocksNobody(t *testing.T) {
	s := start(t, -1)
	var conn hungConn
	nc := connect(t, s, nats.SetCustomDialer(&conn), nats.NoReconnect())
	a := natsannounce.New(nc, nil)
	conn.hang()
	release := sync.OnceFunc(conn.release)
	defer time.AfterFunc(10*time.Second, release).Stop() // who is held up is not for ever
	began := time.Now()
	overloaded := 0
	for n := range 20_000 {
		err := a.Announce(t.Context(), []eventstore.Announcement{hint(eventstore.Stream(fmt.Sprintf("account-%d", n)), 1)})
		if errors.Is(err, eventstore.ErrOverloaded) {
			overloaded++
		}
	}
	if took := time.Since(began); took > 5*time.Second || overloaded != 1 {
		t.Errorf("took %v, said %d times that it is overloaded", took, overloaded)
	}
	release()
}

// hungConn is a connection whose writes can be made to hang.
type hungConn struct {
	net.Conn
	mu   sync.Mutex
	gate chan struct{}
}

func (c *hungConn) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	c.Conn = conn
	return c, err
}

func (c *hungConn) hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

func (c *hungConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.gate)
}

func (c *hungConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	gate := c.gate
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return c.Conn.Write(b)
}

// A subscriber that blocks loses hints and nothing else; others are not held up.
func TestSlowSubscriber(t *testing.T) {
	s := start(t, -1)
	a := natsannounce.New(connect(t, s), nil)
	block, first := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stopSlow, err := natsannounce.New(connect(t, s), nil).Subscribe(t.Context(), nil, func(eventstore.Announcement) {
		once.Do(func() { close(first) })
		<-block
	})
	if err != nil {
		t.Fatal(err)
	}
	var h heard
	stop, err := natsannounce.New(connect(t, s), nil).Subscribe(t.Context(), nil, h.hear)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for n := 1; n <= 5000; n++ {
		if err := a.Announce(t.Context(), []eventstore.Announcement{hint("account-a", n)}); err != nil {
			t.Fatal(err)
		}
	}
	h.until(t, func(all []eventstore.Announcement) bool { return len(all) > 0 && all[len(all)-1].Seqno == 5000 })
	<-first
	close(block)
	stopSlow()
	stopSlow() // may be called again
}

// N3 of the cases: appends go on while the server is stopped and started again;
// the projection ends the same.
func TestN3ServerStopsAndStarts(t *testing.T) {
	s := start(t, -1)
	log := memlog.New(nil)
	store := eventstore.New(log, &eventstore.Options{Announcer: natsannounce.New(connect(t, s), nil)})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var model []eventstore.Position
	reader := eventstore.New(log, &eventstore.Options{Announcer: natsannounce.New(connect(t, s), nil)})
	p := projector.New(reader, "p", "account", projector.Func(func(_ context.Context, batch []eventstore.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range batch {
			model = append(model, e.Position)
		}
		return nil
	}), &projector.Options{PollInterval: time.Hour}) // hints alone, unless one is lost for good
	run, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(run) }()

	var after eventstore.Mark
	var token eventstore.Token
	for n := 1; n <= 100; n++ {
		switch n {
		case 40:
			shutdown(s)
		case 70:
			s = start(t, s.port)
		}
		got, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{{Stream: "account-a", Epoch: 1, Holder: eventstore.UUID{1},
			Claim: n == 1, After: after, Events: []eventstore.Event{{Type: "x"}}}}})
		if err != nil {
			t.Fatal(err)
		}
		after, token = got.Receipts[0].Last, got.Token
	}
	// The hint that follows the reconnection, not the poll, brings the projector
	// here; asking the status instead of Wait so as not to wake it.
	until(t, func() bool { return p.Status().Position >= token.Position })
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for i, pos := range model {
		if pos != eventstore.Position(i+1) {
			t.Fatalf("handled %v", model)
		}
	}
	if len(model) != 100 {
		t.Errorf("handled %d", len(model))
	}
}
