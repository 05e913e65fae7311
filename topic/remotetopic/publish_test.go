// Publishing through any server, while servers die and freeze.

package remotetopic

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/topic"
)

func TestPublishAnywhere(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	var a acks
	for i, url := range []string{one.url, two.url} {
		c := e.client(nil, url)
		for p := range 4 {
			key := keyOf(p, 4, i)
			for n := 1; n <= 3; n++ {
				q := publication("orders", key, n)
				got, err := c.Publish(within(t), q)
				ok(t, err)
				if got.Replays || got.Partition != p || got.First != got.Last {
					t.Fatalf("%+v", got)
				}
				a.note(key, got)
				again, err := c.Publish(within(t), q)
				if ok(t, err); !again.Replays || again.First != got.First || again.Partition != p {
					t.Fatalf("%+v, and then %+v", got, again)
				}
			}
		}
	}
	e.verify("orders", 4, &a)
	for _, n := range e.nodes {
		if direct, forwarded := n.calls.count(false), n.calls.count(true); direct != 24 || forwarded != 12 {
			t.Errorf("%d calls and %d forwarded ones, want 24 and 12", direct, forwarded)
		}
	}
}

// load has publishers publish until stop is closed, and returns when they have ended.
func load(t *testing.T, e *env, clients []*Client, stop <-chan struct{}, a *acks) {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, c := range clients {
		wg.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				for p := range 4 {
					key := fmt.Sprintf("publisher-%d-%d", i, p)
					got, err := c.Publish(within(t), publication("orders", key, n))
					if err != nil {
						t.Errorf("publisher %d: %v", i, err)
						return
					}
					a.note(key, got)
				}
			}
		})
	}
}

// underLoad has four publishers, through either server, publish while something happens
// to the first one, when enough is published, and until they go on.
func underLoad(t *testing.T, e *env, enough int, happens func(one *node)) {
	t.Helper()
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	clients := []*Client{e.client(nil, one.url, two.url), e.client(nil, two.url, one.url), e.client(nil, one.url, two.url), e.client(nil, two.url)}
	var a acks
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		load(t, e, clients, stop, &a)
	}()
	until(t, "they publish", func() bool { return a.count() > enough })
	happens(one)
	began, before := time.Now(), a.count()
	until(t, "the other server has all", func() bool { by := e.owners(two.broker, "orders"); return len(by) == 1 && len(by[two.url]) == 4 })
	until(t, "they go on", func() bool { return a.count() > before+2*enough })
	t.Logf("it took %v until they had gone on; %d published", time.Since(began).Round(time.Millisecond), a.count())
	close(stop)
	<-ended
	e.verify("orders", 4, &a)
}

func TestServerKilledUnderLoad(t *testing.T) {
	e := newEnv(t)
	underLoad(t, e, 200, func(one *node) { one.kill() })
}

func TestServerFrozenUnderLoad(t *testing.T) {
	e := newEnv(t)
	var thaw func()
	underLoad(t, e, 200, func(one *node) {
		thaw = one.gate.freeze()
		t.Cleanup(thaw)
	})
	thaw()
}

// A publication goes over one hop: the server that was not the owner in the end says who is.
func TestForwardedOnce(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	p, err := NewPeer(one.url, &Options{Transport: h2(t)})
	ok(t, err)
	defer p.Close()
	others := e.owners(one.broker, "orders")[two.url]
	_, err = p.Publish(within(t), publication("orders", keyOf(others[0], 4, 0), 1))
	wantErr(t, err, topic.ErrNotOwner)
	if owner, _ := topic.Owner(err); owner != two.url {
		t.Errorf("the owner is %q, want %q", owner, two.url)
	}
	if n := two.calls.count(true); n != 0 {
		t.Errorf("it was forwarded %d times", n)
	}
}

// A server that does not forward says who the owner is; a client that may goes there, and
// remembers it.
func TestDirect(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, true), e.node(ServiceOptions{}, true)
	e.topic("orders", 4, 2)
	c := e.client(&Options{Direct: func(address string) bool { return address == two.url }}, one.url)
	theirs := e.owners(one.broker, "orders")[two.url]
	key := keyOf(theirs[0], 4, 0)
	var a acks
	for n := 1; n <= 5; n++ {
		got, err := c.Publish(within(t), publication("orders", key, n))
		ok(t, err)
		a.note(key, got)
	}
	e.verify("orders", 4, &a)
	if n, m := one.calls.count(false), two.calls.count(false); n != 1 || m != 5 {
		t.Errorf("%d calls at the one, %d at the owner, want 1 and 5", n, m)
	}
	// It dies; the way over the other one is still there.
	two.kill()
	got, err := c.Publish(within(t), publication("orders", key, 6))
	ok(t, err)
	a.note(key, got)
	e.verify("orders", 4, &a)
}

// With an owner that is forwarded to told in the answer, the next goes straight.
func TestDirectAfterForward(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	c := e.client(&Options{Direct: func(string) bool { return true }}, one.url)
	key := keyOf(e.owners(one.broker, "orders")[two.url][0], 4, 0)
	for n := 1; n <= 3; n++ {
		_, err := c.Publish(within(t), publication("orders", key, n))
		ok(t, err)
	}
	if n, m, f := one.calls.count(false), two.calls.count(false), two.calls.count(true); n != 1 || m != 2 || f != 1 {
		t.Errorf("%d calls at the one, %d at the owner and %d forwarded, want 1, 2 and 1", n, m, f)
	}
}

// The owner is dead, and nobody else is there yet: the server tries until the owner's
// leases have run out and it has the partitions itself.
func TestForwardToDeadOwner(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	key := keyOf(e.owners(one.broker, "orders")[two.url][0], 4, 0)
	two.kill()
	c := e.client(&Options{TryTimeout: testWait}, one.url) // one call of the client
	got, err := c.Publish(within(t), publication("orders", key, 1))
	ok(t, err)
	if n := one.calls.count(false); n != 1 || got.First != 1 {
		t.Errorf("%d calls, %+v", n, got)
	}
}

func TestAdmin(t *testing.T) {
	e := newEnv(t)
	n := e.node(ServiceOptions{Visible: func(_ context.Context, name eventstore.Category) bool { return name != "secret" }}, false)
	c := e.client(nil, n.url)
	spec := topic.Spec{Name: "orders", Partitions: 3, DedupWindow: time.Minute, Retention: topic.Retention{MaxBytes: 1 << 30, MaxAge: time.Hour, Consumed: true}}
	ok(t, c.Create(within(t), spec))
	ok(t, c.Create(within(t), spec))
	ok(t, c.Create(within(t), topic.Spec{Name: "secret"}))
	other := spec
	other.Partitions = 4
	wantErr(t, c.Create(within(t), other), eventstore.ErrInvalid)
	wantErr(t, c.Create(within(t), topic.Spec{Name: "orders", Partitions: -1}), eventstore.ErrInvalid)
	all, err := c.List(within(t))
	if ok(t, err); len(all) != 1 || all[0] != spec {
		t.Errorf("%+v", all)
	}
	d, err := c.Describe(within(t), "orders")
	if ok(t, err); d.Spec != spec || len(d.Partitions) != 3 {
		t.Errorf("%+v", d)
	}
	_, err = c.Describe(within(t), "nothing")
	wantErr(t, err, topic.ErrNoSuchTopic)
	_, err = c.Publish(within(t), publication("nothing", "k", 1))
	wantErr(t, err, topic.ErrNoSuchTopic)
	ok(t, c.Delete(within(t), "orders"))
	wantErr(t, c.Delete(within(t), "orders"), topic.ErrNoSuchTopic)
	ok(t, c.Close())
	wantErr(t, c.Create(within(t), spec), eventstore.ErrClosed)
	_, err = c.Publish(within(t), publication("orders", "k", 1))
	wantErr(t, err, eventstore.ErrClosed)
}

// Two servers, each with its own pool, on one PostgreSQL.
func TestServerKilledOnPostgres(t *testing.T) {
	_, schema := pgtest.Schema(t)
	noLeaks(t)
	open := func() *pglog.Log {
		pool := pgtest.Pool(t)
		l, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
		ok(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	e := &env{t: t, log: func() wholeLog { return open() }, store: eventstore.New(open(), nil)}
	underLoad(t, e, 30, func(one *node) { one.kill() })
}

// A server that has no room is asked again after a pause, also if another one is not there.
func TestOverloadedIsNotPressed(t *testing.T) {
	var calls atomic.Int64
	full := serve(t, &fakeTopics{publish: func(context.Context, topic.Publication) (topic.Published, error) {
		calls.Add(1)
		return topic.Published{}, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "publish"}
	}}, ServiceOptions{})
	dead := serve(t, &fakeTopics{}, ServiceOptions{})
	dead.Close()
	c := clientOf(t, nil, dead.URL, full.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Publish(ctx, publication("orders", "k", 1))
	if n := calls.Load(); err == nil || n == 0 || n > 20 { // pauses from 20 ms on, each twice the one before
		t.Errorf("asked %d times within a second, %v", n, err)
	}
}

// Without Direct the client goes straight to the servers that it was given, and to no other.
func TestDirectToThoseGiven(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	key := keyOf(e.owners(one.broker, "orders")[two.url][0], 4, 0)
	for i, c := range []*Client{e.client(nil, one.url, two.url+"/"), e.client(nil, one.url)} {
		before := []int{one.calls.count(false), two.calls.count(false), two.calls.count(true)}
		for n := 1; n <= 3; n++ {
			_, err := c.Publish(within(t), publication("orders", key, n))
			ok(t, err)
		}
		got := []int{one.calls.count(false) - before[0], two.calls.count(false) - before[1], two.calls.count(true) - before[2]}
		if want := [][]int{{1, 2, 1}, {3, 0, 3}}[i]; !slices.Equal(got, want) {
			t.Errorf("%d: %v calls at the one, at the owner and forwarded, want %v", i, got, want)
		}
	}
}

// refusing is a transport that never gets through; it says when it is asked.
type refusing chan struct{}

func (r refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	select {
	case r <- struct{}{}:
	default:
	}
	<-q.Context().Done()
	return nil, q.Context().Err()
}

// A publication that is under way when the client is closed ends: with ErrUnknown if it may
// have been sent, else with ErrClosed, never with the end of a context that goes on.
func TestCloseEndsPublications(t *testing.T) {
	noLeaks(t)
	began := make(refusing, 1)
	c := clientOf(t, &Options{Transport: began, TryTimeout: testWait}, "http://test")
	ended := make(chan error)
	go func() {
		_, err := c.Publish(within(t), publication("orders", "k", 1))
		ended <- err
	}()
	<-began
	ok(t, c.Close())
	wantErr(t, <-ended, eventstore.ErrUnknown)
	c = clientOf(t, &Options{Transport: began}, "http://test")
	c.stop(closedError("consume", "")) // as Close does behind the call's first look
	_, err := c.Publish(within(t), publication("orders", "k", 1))
	wantErr(t, err, eventstore.ErrClosed)
}
