// Slow consumers: they are ended and told so, hold nobody up and cost no memory.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// countingLog counts the payload that was read of one stream.
type countingLog struct {
	*memlog.Log
	stream eventstore.Stream
	bytes  atomic.Int64
}

func (l *countingLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	p, err := l.Log.ReadFrom(ctx, s, after, limit)
	if s == l.stream {
		for _, e := range p.Entries {
			l.bytes.Add(int64(len(e.Data)))
		}
	}
	return p, err
}

// rawFollow follows with nothing of ours at the client's side, whose transport takes
// little that was not read.
func rawFollow(e *streamEnv, h1 bool, s eventstore.Stream) *connect.ServerStreamForClient[wattlev1.FollowResponse] {
	e.t.Helper()
	var p http.Protocols
	p.SetHTTP1(h1)
	p.SetUnencryptedHTTP2(!h1)
	transport := &http.Transport{Protocols: &p, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}, DisableCompression: true}
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	r, err := wattlev1.NewLogServiceClient(&http.Client{Transport: transport}, "http://"+e.address, connect.WithAcceptCompression("gzip", nil, nil)).
		Follow(ctx, &wattlev1.FollowRequest{Stream: string(s)})
	must(e.t, err)
	e.t.Cleanup(func() {
		cancel()
		r.Close()
		transport.CloseIdleConnections()
	})
	return r
}

// drainRaw receives what is there and returns how it ended.
func drainRaw(r *connect.ServerStreamForClient[wattlev1.FollowResponse]) (n int, err error) {
	for r.Receive() {
		n += len(r.Msg().GetEntries())
	}
	return n, wire.ToError("follow", r.Err(), kinds...)
}

func TestSlowConsumers(t *testing.T) {
	protocols(t, func(t *testing.T, h1 bool) {
		const fast, n, size, large = 20, 400, 512, 64 << 10
		log := &countingLog{Log: memlog.New(nil), stream: "account-never"}
		e := newStreamEnv(t, log, StreamOptions{MessageBytes: 128 << 10, SlowAfter: 400 * time.Millisecond, StuckAfter: 600 * time.Millisecond})
		for range n / 50 {
			e.append("account-never", 50, large)
		}
		never, slow := rawFollow(e, h1, "account-never"), rawFollow(e, h1, "account-never")
		var wg sync.WaitGroup
		defer wg.Wait()
		var times [fast]time.Duration
		began := time.Now()
		for i := range fast {
			l := e.client(e.address, h1)
			wg.Go(func() {
				inOrder(t, "account-a", followN(t, l, "account-a", eventstore.Mark{}, n), 1, n)
				times[i] = time.Since(began)
			})
		}
		for range n / 10 {
			e.append("account-a", 10, size)
		}
		until(t, "the two that do not read are ended", func() bool {
			e.service.streams.mu.Lock()
			defer e.service.streams.mu.Unlock()
			return e.service.streams.open == 0
		})
		wg.Wait()
		slices.Sort(times[:])
		t.Logf("%d fast ones had %d KiB each after %v to %v", fast, n*size>>10, times[0], times[fast-1])
		if read := log.bytes.Load(); read > n*large {
			t.Errorf("%d bytes were read for two that take none", read)
		} else {
			t.Logf("%d KiB of %d were read for two that take none", read>>10, 2*n*large>>10)
		}
		for _, r := range []*connect.ServerStreamForClient[wattlev1.FollowResponse]{never, slow} {
			if got, err := drainRaw(r); got >= n || err == nil {
				t.Errorf("got %d entries, and then %v", got, err)
			}
		}
	})
}

// One that reads on after too long is told so, and can go on.
func TestSlowConsumerIsTold(t *testing.T) {
	protocols(t, func(t *testing.T, h1 bool) {
		const n, size = 250, 64 << 10
		e := newStreamEnv(t, nil, StreamOptions{MessageBytes: 64 << 10, SlowAfter: 300 * time.Millisecond, StuckAfter: testWait})
		for range n / 50 {
			e.append("account-a", 50, size)
		}
		r := rawFollow(e, h1, "account-a")
		sleep(within(t), time.Second)
		got, err := drainRaw(r)
		slow := wantErr(t, err, ErrSlowConsumer)
		if slow.Found == "" || slow.Hint == "" || got == 0 || got >= n || connect.CodeOf(r.Err()) != connect.CodeResourceExhausted {
			t.Errorf("got %d, %v", got, r.Err())
		}
		t.Log(slow)
	})
}

// A caller that takes too long for a message gets the rest all the same, each entry once.
func TestSlowCallerGetsAll(t *testing.T) {
	const n = 60
	var ended atomic.Int32
	e := newStreamEnv(t, nil, StreamOptions{MessageBytes: 64 << 10, SlowAfter: 200 * time.Millisecond, StuckAfter: testWait})
	e.stop()
	e.wrap = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			ended.Add(1)
		})
	}
	e.start("127.0.0.1:0")
	e.append("account-a", n, 64<<10)
	l := e.clientOver(&http.Transport{HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}, e.address, false)
	got := 0
	for x, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
		must(t, err)
		if got++; int(x.Seqno) != got {
			t.Fatalf("%v is entry %d", x.Mark(), got)
		}
		if got == 5 || got == 20 {
			sleep(within(t), time.Second)
		}
		if got == n {
			break
		}
	}
	until(t, "it was ended twice and resumed", func() bool { return ended.Load() >= 3 })
}

// A stream that may no longer be read ends with why.
func TestFollowStill(t *testing.T) {
	denied := &eventstore.Error{Kind: ErrDenied, Op: "follow", Hint: "rule 7"}
	var no atomic.Bool
	e := newStreamEnv(t, nil, StreamOptions{Still: func(context.Context) error {
		if no.Load() {
			return denied
		}
		return nil
	}})
	e.append("account-a", 1, 0)
	l := e.client(e.address, false)
	n := 0
	for _, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
		if n++; n == 1 {
			must(t, err)
			no.Store(true)
			e.append("account-a", 1, 0)
			continue
		}
		if wantErr(t, err, ErrDenied).Hint != "rule 7" {
			t.Error(err)
		}
	}
	wantErr(t, feedError(t, l, eventstore.PositionMark{}, eventstore.Filter{}), ErrDenied)
}

// A context that ends with a cause gives that to the client, at once.
func TestFollowEndsWithCause(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	e.stop()
	cut := make(chan func())
	e.wrap = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			go func() {
				cut <- func() { cancel(&eventstore.Error{Kind: ErrDenied, Op: "follow", Hint: "rule 7"}) }
			}()
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	e.start("127.0.0.1:0")
	e.append("account-a", 1, 0)
	n := 0
	l := e.client(e.address, false)
	l.streams.heartbeat = DefaultHeartbeat // on a busy machine silence would end it
	for _, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
		if n++; n == 1 {
			must(t, err)
			(<-cut)()
			continue
		}
		wantErr(t, err, ErrDenied)
	}
}

// It is the cause that is told also where the end meets the store.
func TestFollowEndsWithCauseWhileReading(t *testing.T) {
	log := &cutLog{Log: memlog.New(nil)}
	e := newStreamEnv(t, log, StreamOptions{})
	e.append("account-a", 1, 0)
	for name, call := range map[string]func(context.Context) error{
		"follow": func(ctx context.Context) error {
			return e.service.streams.follow(ctx, followCall{stream: "account-a"}, func([]eventstore.Entry, bool) error { return nil })
		},
		"feed": func(ctx context.Context) error {
			return e.service.streams.followFeed(ctx, feedCall{filter: eventstore.Filter{Categories: []eventstore.Category{"account"}}}, func(feedMessage) error { return nil })
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		end := func() { cancel(&eventstore.Error{Kind: ErrDenied, Op: "follow", Hint: "rule 7"}) }
		log.cut.Store(&end) // the poll may read too
		if err := call(ctx); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// cutLog ends a context in the middle of a read.
type cutLog struct {
	*memlog.Log
	cut atomic.Pointer[func()]
}

func (l *cutLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	if end := l.cut.Load(); end != nil {
		(*end)()
	}
	return eventstore.Page{}, ctx.Err()
}

func (l *cutLog) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	if end := l.cut.Load(); end != nil {
		(*end)()
	}
	return eventstore.FeedPage{}, ctx.Err()
}

// Draining ends followers at once and refuses new ones.
func TestDrainEndsStreams(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	r := rawFollow(e, false, "account-a")
	if !r.Receive() {
		t.Fatal(r.Err())
	}
	e.service.streams.drain()
	_, err := drainRaw(r)
	if going := wantErr(t, err, ErrGoingAway); going.Hint == "" {
		t.Error(going)
	}
	_, err = drainRaw(rawFollow(e, false, "account-a"))
	wantErr(t, err, ErrGoingAway)
}

func TestStreamsAreBounded(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{Streams: 2})
	for range 2 {
		if r := rawFollow(e, false, "account-a"); !r.Receive() {
			t.Fatal(r.Err())
		}
	}
	third := rawFollow(e, false, "account-a")
	if third.Receive() {
		t.Fatal("a third stream")
	}
	wantErr(t, wire.ToError("follow", third.Err(), kinds...), eventstore.ErrOverloaded)
}

// What an idle follower costs, and how soon an entry is delivered: figures, not promises.
func TestFollowFigures(t *testing.T) {
	const idle, rounds = 300, 200
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	l.streams.heartbeat = DefaultHeartbeat
	heap := func() (uint64, int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse, runtime.NumGoroutine()
	}
	before, routines := heap()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range idle {
		wg.Go(func() {
			for _, err := range l.Follow(ctx, eventstore.Stream(fmt.Sprint("account-idle", i)), eventstore.Mark{}) {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	until(t, "all follow", func() bool {
		e.service.streams.mu.Lock()
		defer e.service.streams.mu.Unlock()
		return e.service.streams.open == idle
	})
	after, more := heap()
	t.Logf("an idle follower costs %d KiB and %d goroutines, client and server together", (after-before)/idle>>10, (more-routines)/idle)

	acked := make(chan time.Time, 1)
	var took []time.Duration
	go func() { // the first entry begins it
		e.append("account-a", 1, 0)
		acked <- time.Now()
	}()
	for _, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
		must(t, err)
		now := time.Now()
		took = append(took, max(0, now.Sub(<-acked)))
		if len(took) == rounds {
			break
		}
		go func() {
			e.append("account-a", 1, 1000)
			acked <- time.Now()
		}()
	}
	slices.Sort(took)
	t.Logf("ack to delivered beside %d idle followers: p50 %v, p99 %v", idle, took[rounds/2], took[rounds*99/100])
}
