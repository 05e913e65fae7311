// Consuming through servers that come and go.

package remotetopic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/topic"
)

// seen is what a consumption has yielded: by key the numbers, in order.
type seen struct {
	mu sync.Mutex
	by map[string][]string
	n  int
}

func (s *seen) take(d topic.Delivery) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string][]string{}
	}
	for _, m := range d.Messages {
		s.by[m.Key] = append(s.by[m.Key], string(m.Data))
		s.n++
	}
	return s.n
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// once fails the test unless each message of a key from 1 to n came once, in order.
func (s *seen) once(t testing.TB, keys []string, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if len(s.by[key]) != n {
			t.Fatalf("%d messages of %s, want %d", len(s.by[key]), key, n)
		}
		for i, data := range s.by[key] {
			if data != fmt.Sprintf("%s#%d", key, i+1) {
				t.Fatalf("message %d of %s is %q", i+1, key, data)
			}
		}
	}
}

// fill publishes from…to of each key.
func fill(t testing.TB, c *Client, keys []string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		for _, key := range keys {
			if _, err := c.Publish(within(t), publication("orders", key, n)); err != nil {
				t.Errorf("%s: %v", key, err)
				return
			}
		}
	}
}

var fourKeys = []string{keyOf(0, 4, 0), keyOf(1, 4, 1), keyOf(2, 4, 2), keyOf(3, 4, 3)}

// A consumption goes on at another server behind the last message.
func TestConsumeWhileServersDie(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	pub := e.client(nil, two.url)
	fill(t, pub, fourKeys, 1, 50)
	const n = 150
	var wg sync.WaitGroup
	defer wg.Wait()
	var got seen
	for d, err := range e.client(nil, one.url, two.url).Consume(within(t), topic.Consumption{Topic: "orders"}) {
		ok(t, err)
		before := got.count()
		if after := got.take(d); before < 100 && after >= 100 {
			wg.Go(func() { fill(t, pub, fourKeys, 51, n) })
		} else if before < 300 && after >= 300 {
			one.kill()
		} else if after >= 4*n {
			break
		}
	}
	got.once(t, fourKeys, n)
}

// What is new begins where it began, also when the connection is lost before anything came.
func TestConsumeNewOverLostConnection(t *testing.T) {
	e := newEnv(t)
	n := e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 1)
	proxy, err := cutproxy.New(n.address)
	ok(t, err)
	t.Cleanup(proxy.Close)
	pub := e.client(nil, n.url)
	fill(t, pub, []string{"old"}, 1, 5)
	var got seen
	c := e.client(nil, fmt.Sprintf("http://127.0.0.1:%d", proxy.Port()))
	began := false
	for d, err := range c.Consume(within(t), topic.Consumption{Topic: "orders", Start: topic.New}) {
		ok(t, err)
		if !began {
			if began = true; len(d.Messages) != 0 {
				t.Fatalf("%+v first", d)
			}
			proxy.Break()
			fill(t, pub, fourKeys, 1, 5)
		}
		if got.take(d) >= 4*5 {
			break
		}
	}
	got.once(t, fourKeys, 5)
}

// headsOnly is topics whose consumers are not to be described.
type headsOnly struct{ *fakeTopics }

func (h headsOnly) DescribeWithoutConsumers(context.Context, eventstore.Category) (topic.Description, error) {
	d := topic.Description{Spec: topic.Spec{Name: "orders", Partitions: 1, DedupWindow: time.Minute}, Partitions: []topic.Partition{{}}}
	d.Partitions[0].Head.Last = eventstore.Mark{Seqno: 7, ID: eventstore.NewUUID()}
	return d, nil
}

// Where what is new begins is asked of the heads; the consumers of a topic, which may be
// many, are not looked at for it.
func TestConsumeNewAsksForHeads(t *testing.T) {
	noLeaks(t)
	from := make(chan []topic.Place, 1)
	f := serve(t, headsOnly{&fakeTopics{consume: func(ctx context.Context, c topic.Consumption, yield func(topic.Delivery) bool) error {
		from <- c.Places
		<-ctx.Done()
		return ctx.Err()
	}}}, ServiceOptions{})
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		if got := <-from; len(got) != 1 || got[0].Offset != 7 {
			t.Errorf("from %v", got)
		}
		cancel()
	}()
	for _, err := range clientOf(t, nil, f.URL).Consume(ctx, topic.Consumption{Topic: "orders", Start: topic.New}) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// Members of a consumer, at two servers, of which one is killed: every message comes, and
// of those committed none comes again.
func TestMembersWhileServerDies(t *testing.T) {
	e := newEnv(t)
	one, two := e.node(ServiceOptions{}, false), e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 2)
	pub := e.client(nil, two.url)
	const n = 100
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var mu sync.Mutex
	committed := map[int]eventstore.Seqno{}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, urls := range [][]string{{one.url, two.url}, {two.url, one.url}} {
		c := e.client(nil, urls...)
		wg.Go(func() {
			member := eventstore.NameUUID(fmt.Sprint("member", i))
			for d, err := range c.Consume(ctx, topic.Consumption{Topic: "orders", Consumer: "billing", Member: member}) {
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(d.Messages) == 0 {
					continue
				}
				last := d.Messages[len(d.Messages)-1].Offset
				mu.Lock()
				if first := d.Messages[0].Offset; first > committed[d.Partition]+1 {
					t.Errorf("partition %d: message %v, and nothing is committed behind %v", d.Partition, first, committed[d.Partition])
				}
				mu.Unlock()
				lost, err := c.Commit(ctx, topic.Commit{Topic: "orders", Consumer: "billing", Member: member, Places: []topic.Place{{Partition: d.Partition, Offset: last}}})
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Logf("member %d: commit: %v", i, err) // its server died
					continue
				}
				if len(lost) == 0 {
					mu.Lock()
					committed[d.Partition] = max(committed[d.Partition], last)
					mu.Unlock()
				}
			}
		})
	}
	sum := func() (all eventstore.Seqno) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range committed {
			all += n
		}
		return all
	}
	fill(t, pub, fourKeys, 1, n/2)
	until(t, "half is consumed", func() bool { return sum() == 4*n/2 })
	one.kill()
	fill(t, pub, fourKeys, n/2+1, n)
	until(t, "all is consumed", func() bool { return sum() == 4*n })
	d, err := pub.Describe(within(t), "orders")
	ok(t, err)
	if len(d.Consumers) != 1 || slices.ContainsFunc(d.Consumers[0].Positions, func(p topic.ConsumerPosition) bool { return p.Lag != 0 || p.Offset != n }) {
		t.Errorf("%+v", d.Consumers)
	}
}

// A member whose connection is lost comes again as the same one: it keeps its partitions,
// and nobody else is told anything.
func TestMemberKeepsItsPartitions(t *testing.T) {
	e := newEnv(t)
	n := e.node(ServiceOptions{}, false)
	e.topic("orders", 4, 1)
	proxy, err := cutproxy.New(n.address)
	ok(t, err)
	t.Cleanup(proxy.Close)
	type told struct {
		member int
		places []topic.Place
	}
	assigned := make(chan told, 100)
	ctx, cancel := context.WithCancel(within(t))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	has := map[int][]topic.Place{}
	shared := func() bool { return len(has[0]) == 2 && len(has[1]) == 2 }
	next := func() int {
		t.Helper()
		select {
		case a := <-assigned:
			has[a.member] = a.places
			return a.member
		case <-within(t).Done():
			t.Fatalf("no assignment; they have %v", has)
			return 0
		}
	}
	for i, url := range []string{fmt.Sprintf("http://127.0.0.1:%d", proxy.Port()), n.url} {
		c := e.client(nil, url)
		wg.Go(func() {
			for d, err := range c.Consume(ctx, topic.Consumption{Topic: "orders", Consumer: "billing"}) {
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if d.Assignment != nil {
					assigned <- told{i, d.Assignment}
				}
			}
		})
	}
	for !shared() {
		next()
	}
	before := has[0]
	for range 3 {
		proxy.Break()
		for has[0] = nil; len(has[0]) == 0; {
			if next() == 1 {
				t.Fatalf("the other member was told %v", has[1])
			}
		}
		if !slices.Equal(has[0], before) {
			t.Fatalf("it had %v, and has %v", before, has[0])
		}
	}
}

// A member that breaks off says so: its partitions are released.
func TestMemberLeaves(t *testing.T) {
	noLeaks(t)
	ended := make(chan error, 1)
	f := serve(t, &fakeTopics{consume: func(ctx context.Context, c topic.Consumption, yield func(topic.Delivery) bool) error {
		yield(topic.Delivery{Assignment: []topic.Place{{Partition: 1}}})
		<-ctx.Done() // no sign of life is due for long
		ended <- context.Cause(ctx)
		return ctx.Err()
	}}, ServiceOptions{})
	for _, err := range clientOf(t, nil, f.URL).Consume(within(t), topic.Consumption{Topic: "orders", Consumer: "c", Heartbeat: testWait}) {
		ok(t, err)
		break
	}
	if err := <-ended; !errors.Is(err, topic.ErrLeave) {
		t.Errorf("the context ended with %v: the partitions are kept", err)
	}
}

// One whose context ends does not leave: it may come again.
func TestMemberComesAgain(t *testing.T) {
	noLeaks(t)
	ended := make(chan error, 1)
	f := serve(t, &fakeTopics{consume: func(ctx context.Context, c topic.Consumption, yield func(topic.Delivery) bool) error {
		yield(topic.Delivery{Assignment: []topic.Place{}})
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}}, ServiceOptions{})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	for d, err := range clientOf(t, nil, f.URL).Consume(ctx, topic.Consumption{Topic: "orders", Consumer: "c"}) {
		if cancel(); err == nil && (d.Assignment == nil || len(d.Assignment) != 0) {
			t.Errorf("%+v", d)
		} else if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	select {
	case err := <-ended:
		if errors.Is(err, topic.ErrLeave) {
			t.Error("its partitions are released")
		}
	case <-within(t).Done():
		t.Error("the topics are not told that the call has ended")
	}
}

// What was delivered before a partition was lost is not committed when it was had again.
func TestCommitOfAnOlderAssignment(t *testing.T) {
	noLeaks(t)
	next := make(chan struct{})
	var committed atomic.Int64
	f := serve(t, &fakeTopics{
		consume: func(ctx context.Context, c topic.Consumption, yield func(topic.Delivery) bool) error {
			for _, a := range [][]topic.Place{{{Partition: 0}, {Partition: 1}}, {{Partition: 0}}, {{Partition: 0}, {Partition: 1}}} {
				if !yield(topic.Delivery{Assignment: a}) {
					return nil
				}
				<-next
			}
			<-ctx.Done()
			return ctx.Err()
		},
		commit: func(c topic.Commit) ([]int, error) {
			committed.Add(int64(len(c.Places)))
			return nil, nil
		},
	}, ServiceOptions{})
	c := clientOf(t, nil, f.URL)
	member := eventstore.NewUUID()
	commit := topic.Commit{Topic: "orders", Consumer: "c", Member: member, Places: []topic.Place{{Partition: 0, Offset: 1}, {Partition: 1, Offset: 1}}}
	key := memberKey{"orders", "c", member}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	n := 0
	var first uint64
	for _, err := range c.Consume(ctx, topic.Consumption{Topic: "orders", Consumer: "c", Member: member}) {
		if err != nil {
			break
		}
		if n++; n == 1 {
			first = c.commits.of(key)
		}
		if n < 3 {
			next <- struct{}{}
			continue
		}
		lost, err := c.Commit(within(t), commit)
		if ok(t, err); len(lost) != 0 || committed.Load() != 2 {
			t.Errorf("lost %v, %d committed", lost, committed.Load())
		}
		c.commits.note(key, first) // as a commit that was on its way
		lost, err = c.Commit(within(t), commit)
		if ok(t, err); len(lost) != 1 || lost[0] != 1 || committed.Load() != 3 {
			t.Errorf("lost %v, %d committed", lost, committed.Load())
		}
		c.commits.note(key, 1<<60) // of another server
		lost, err = c.Commit(within(t), commit)
		if ok(t, err); len(lost) != 0 || committed.Load() != 5 {
			t.Errorf("lost %v, %d committed", lost, committed.Load())
		}
		cancel()
		next <- struct{}{}
	}
	if n != 3 {
		t.Errorf("%d assignments", n)
	}
}

// JSON over HTTP/1.1 is served as well, unary and in a stream.
func TestJSONOverHTTP1(t *testing.T) {
	e := newEnv(t)
	n := e.node(ServiceOptions{MessageBytes: 100}, false)
	c := e.client(&Options{Transport: h1(t), JSON: true, Gzip: true}, n.url)
	ok(t, c.Create(within(t), topic.Spec{Name: "orders"}))
	fill(t, c, fourKeys, 1, 20)
	var got seen
	for d, err := range c.Consume(within(t), topic.Consumption{Topic: "orders"}) {
		ok(t, err)
		if got.take(d) == 80 {
			break
		}
	}
	got.once(t, fourKeys, 20)
	member := eventstore.NewUUID()
	for d, err := range c.Consume(within(t), topic.Consumption{Topic: "orders", Consumer: "j", Member: member}) {
		ok(t, err)
		if len(d.Messages) == 0 {
			continue
		}
		lost, err := c.Commit(within(t), topic.Commit{Topic: "orders", Consumer: "j", Member: member, Places: []topic.Place{{Partition: d.Partition, Offset: d.Messages[0].Offset}}})
		if ok(t, err); len(lost) != 0 {
			t.Errorf("lost %v", lost)
		}
		break
	}
	_, err := c.Describe(within(t), "nothing")
	wantErr(t, err, topic.ErrNoSuchTopic)
	// By Connect, gRPC and gRPC-Web, too.
	for name, o := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb()} {
		c := e.client(&Options{Options: []connect.ClientOption{o}}, n.url)
		var got seen
		for d, err := range c.Consume(within(t), topic.Consumption{Topic: "orders"}) {
			ok(t, err)
			if got.take(d) == 80 {
				break
			}
		}
		got.once(t, fourKeys, 20)
		_, err := c.Publish(within(t), publication("nothing", name, 1))
		wantErr(t, err, topic.ErrNoSuchTopic)
	}
}

func TestOpen(t *testing.T) {
	noLeaks(t)
	for _, bad := range []string{"", "localhost:80", "ftp://localhost", "http://user:secret@localhost", "http://localhost?x=1", "http://%zz"} {
		_, err := Open(t.Context(), []string{bad}, nil)
		if wantErr(t, err, eventstore.ErrInvalid); strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is told: %v", err)
		}
	}
	_, err := Open(t.Context(), nil, nil)
	wantErr(t, err, eventstore.ErrInvalid)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	dead := "http://" + l.Addr().String()
	ok(t, l.Close())
	_, err = Open(within(t), []string{dead}, nil)
	wantErr(t, err, eventstore.ErrUnavailable)
	f := serve(t, &fakeTopics{}, ServiceOptions{})
	c, err := Open(within(t), []string{dead, f.URL}, nil)
	ok(t, err)
	ok(t, c.Close())
}
