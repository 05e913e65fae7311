// Announcements over a NATS server that comes and goes: they change latency, and nothing
// else.

package workers

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/natsannounce"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// slack is for a machine that others use.
const slack = 5 * time.Second

// post is a NATS server that can be stopped, and started again on its port with nothing
// of what it knew.
type post struct {
	t    *testing.T
	port int
	s    *server.Server
}

func newPost(t *testing.T) *post {
	p := &post{t: t, port: -1}
	p.start()
	t.Cleanup(p.stop)
	return p
}

func (p *post) start() {
	p.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: p.port, NoLog: true, NoSigs: true, StoreDir: p.t.TempDir()})
	ok(p.t, err)
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		p.t.Fatal("the NATS server does not start")
	}
	p.s, p.port = s, s.Addr().(*net.TCPAddr).Port
}

func (p *post) stop() {
	p.s.Shutdown()
	p.s.WaitForShutdown()
}

// announcer is one with a connection of its own.
func (p *post) announcer() eventstore.Announcer {
	p.t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", p.port), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond),
		nats.MaxReconnects(-1), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	ok(p.t, err)
	p.t.Cleanup(nc.Close)
	return natsannounce.New(nc, nil)
}

// counted is a log that notes when its feed is read, and an announcer that notes when it
// says that hints may have been lost.
type counted struct {
	*pglog.Log
	eventstore.Announcer

	mu    sync.Mutex
	reads []time.Time
	lost  []time.Time
}

func (c *counted) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	c.mu.Lock()
	c.reads = append(c.reads, time.Now())
	c.mu.Unlock()
	return c.Log.ReadFeed(ctx, after, f, limit)
}

func (c *counted) Subscribe(ctx context.Context, categories []eventstore.Category, f func(eventstore.Announcement)) (func(), error) {
	return c.Announcer.Subscribe(ctx, categories, func(a eventstore.Announcement) {
		if a == (eventstore.Announcement{}) {
			c.mu.Lock()
			c.lost = append(c.lost, time.Now())
			c.mu.Unlock()
		}
		f(a)
	})
}

// since counts the reads since a moment.
func (c *counted) since(moment time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.reads {
		if at.After(moment) {
			n++
		}
	}
	return n
}

// office is a projection whose store announces, and workers that listen.
type office struct {
	*testing.T
	x       *projection // which appends
	w       *writer
	post    *post
	workers []*projector.Projector
	heard   []*counted
}

func newOffice(t *testing.T, workers int, o projector.Options) *office {
	pgtest.DSN(t)
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, ignore, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.init.0.func1"))
	})
	f := &office{T: t, post: newPost(t)}
	f.x = newProjection(t)
	f.x = connect(t, f.x.schema, hooks{store: &eventstore.Options{Announcer: f.post.announcer()}})
	f.w = &writer{store: f.x.store, marks: map[eventstore.Stream]eventstore.Mark{}}
	for range workers {
		c := &counted{Announcer: f.post.announcer()}
		x := connect(t, f.x.schema, hooks{store: &eventstore.Options{Announcer: c}, log: func(l *pglog.Log) eventstore.Log { c.Log = l; return c }})
		f.workers, f.heard = append(f.workers, x.projector(o)), append(f.heard, c)
	}
	for _, p := range f.workers {
		run(t, p)
	}
	f.shared(o.Lanes)
	return f
}

// shared waits until the workers have shared the lanes.
func (f *office) shared(lanes int) {
	f.Helper()
	for end := time.Now().Add(2 * proceeds); ; time.Sleep(20 * time.Millisecond) {
		all, least := 0, lanes
		for _, p := range f.workers {
			n := len(p.Status().Lanes)
			all, least = all+n, min(least, n)
		}
		if all == lanes && least >= lanes/len(f.workers) {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("%d of %d lanes are worked on, %d at least by one worker", all, lanes, least)
		}
	}
}

// passes appends to all lanes and returns how long it takes until that is handled. It is
// seen in the database, so that nobody is woken by who waits.
func (f *office) passes(what string, most time.Duration) {
	f.Helper()
	var streams []eventstore.Stream
	for _, key := range keys()[:16] {
		streams = append(streams, eventstore.Stream("account-"+key))
	}
	began := time.Now()
	_, err := f.w.append(f.Context(), streams...)
	ok(f, err)
	f.handled(what, began, most)
}

// handled waits until all that was appended is handled.
func (f *office) handled(what string, began time.Time, most time.Duration) {
	f.Helper()
	for n := 0; n < f.w.n; time.Sleep(2 * time.Millisecond) {
		ok(f, f.x.pool.QueryRow(f.Context(), "SELECT count(*) FROM "+f.x.table()).Scan(&n))
		if time.Since(began) > most {
			f.Fatalf("%s: %v later %d of %d entries are handled", what, most, n, f.w.n)
		}
	}
	f.Logf("%s: handled %v later", what, time.Since(began).Round(time.Millisecond))
}

// idles fails if workers with nothing to do look more often than the poll has them.
func (f *office) idles(what string, poll time.Duration) {
	f.Helper()
	time.Sleep(2 * time.Second) // what was hinted at, or may have been lost, is looked for
	began := time.Now()
	time.Sleep(12 * poll)
	for i, c := range f.heard {
		took := time.Since(began)
		if n, most := c.since(began), int(took/poll)+1; n > most || n < 2 {
			f.Errorf("%s: worker %d read the feed %d times in %v, want at most %d and some", what, i, n, took, most)
		}
	}
}

// The server is there, away for a while, back with nothing of what it knew, away and back
// again: what is appended is handled within the poll, the model is the same, and nobody
// asks the database more often than the poll when there is nothing to do.
func TestNatsComesAndGoes(t *testing.T) {
	const poll = 200 * time.Millisecond
	f := newOffice(t, 2, projector.Options{Lanes: 16, PollInterval: poll})
	f.passes("with NATS", poll+slack)
	f.idles("with NATS", poll)
	for range 2 {
		f.post.stop()
		for range 5 {
			f.passes("without NATS", poll+slack)
		}
		f.idles("without NATS", poll)
		f.post.start()
		for range 5 {
			f.passes("with NATS again", poll+slack)
		}
	}
	f.idles("with NATS again", poll)
	f.x.exact(t)
}

// With a poll so long that it does not count, what is appended while NATS is away is seen
// when it is back: who was reconnected looks. And not all at once, which would be a herd.
func TestNatsIsBack(t *testing.T) {
	const workers = 12
	f := newOffice(t, workers, projector.Options{Lanes: workers, PollInterval: time.Hour})
	f.passes("by hints alone", slack)
	f.post.stop()
	for _, key := range keys()[:16] {
		_, err := f.w.append(t.Context(), eventstore.Stream("ledger-"+key))
		ok(t, err)
	}
	time.Sleep(500 * time.Millisecond)
	down := time.Now()
	f.post.start()
	f.handled("appended while NATS was away", time.Now(), time.Second+slack)
	f.x.exact(t)

	// How long after it was told so each has looked.
	var least, most time.Duration = time.Hour, 0
	for i, c := range f.heard {
		late := f.looked(i, c, down)
		least, most = min(least, late), max(most, late)
	}
	t.Logf("%d workers looked %v to %v after they were told", workers, least, most)
	if most-least < 200*time.Millisecond {
		t.Errorf("%d workers looked within %v of one another: a herd", workers, most-least)
	}
	f.passes("by hints alone again", slack)
	f.x.exact(t)
}

// looked is how long after it was told that hints may have been lost a worker looked. One
// whose lanes got nothing may do so after everything is handled, but within the same bound.
func (f *office) looked(i int, c *counted, down time.Time) time.Duration {
	f.Helper()
	for end := time.Now().Add(time.Second + slack); ; time.Sleep(5 * time.Millisecond) {
		if late, ok := c.lookedAfterLoss(down); ok {
			return late
		}
		if time.Now().After(end) {
			f.Fatalf("worker %d was not told that hints may have been lost, or did not look", i)
		}
	}
}

// lookedAfterLoss is how long after it was told, since a moment, that hints may have been
// lost the feed was read.
func (c *counted) lookedAfterLoss(moment time.Time) (late time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, told := range c.lost {
		for _, read := range c.reads {
			if told.After(moment) && read.After(told) {
				return read.Sub(told), true
			}
		}
	}
	return 0, false
}
