// Followers go on whatever ends their stream, behind the last entry: cuts at a byte, ends
// that look orderly, servers that come and go, silence.

package remotelog

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/cutproxy"
)

// cutEvery is the step from one cut to the next, in bytes: of the whole dialogue, which is
// some 10,000.
const cutEvery = 1301

func TestFollowCut(t *testing.T) {
	const n = 40
	protocols(t, func(t *testing.T, h1 bool) {
		e := newStreamEnv(t, nil, StreamOptions{MessageBytes: 300})
		p, err := cutproxy.New(e.address)
		must(t, err)
		t.Cleanup(p.Close)
		e.append("account-a", n/2, 100)
		follow := func() {
			t.Helper()
			e.heads["account-b"] = eventstore.Head{}
			l := e.client(fmt.Sprintf("127.0.0.1:%d", p.Port()), h1)
			inOrder(t, "account-a", followN(t, l, "account-a", eventstore.Mark{}, n/2), 1, n/2)
			feed, _ := feedN(t, l, eventstore.PositionMark{}, eventstore.Filter{}, n/2)
			inOrder(t, "account-a", feed, 1, n/2)
			l.Close()
			p.Break()
		}
		p.Arm(cutproxy.Fault{After: 1 << 40})
		follow()
		cuts, struck := 0, 0
		for _, mode := range []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole} {
			for _, d := range cutproxy.Directions {
				p.Arm(cutproxy.Fault{After: 1 << 40})
				follow()
				step := int64(cutEvery)
				if d == cutproxy.ToServer {
					step = 193
				}
				if mode == cutproxy.BlackHole {
					step *= 3 // each takes three heartbeats
				}
				for at := step / 2; at < p.Passed(d); at += step {
					whole := p.Passed(d)
					p.Arm(cutproxy.Fault{Direction: d, After: at, Mode: mode})
					follow()
					if p.Disarm() {
						struck++
					}
					cuts++
					p.Arm(cutproxy.Fault{After: 1 << 40})
					if at+step >= whole {
						break
					}
					follow()
				}
			}
		}
		t.Logf("%d cuts, %d of them struck", cuts, struck)
		if struck < cuts*3/4 {
			t.Error("most cuts missed the dialogue")
		}
	})
}

// The server's process ends and another one begins on the same port, again and again.
func TestFollowServerRestarts(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	const followers, restarts, each = 4, 4, 10
	const total = restarts * each * 2
	var got [2 * followers]atomic.Int32
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range followers {
		l := e.client(e.address, false)
		wg.Go(func() { // one that follows the stream
			for x, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
				if n := got[i].Add(1); err != nil || int32(x.Seqno) != n {
					t.Errorf("entry %d is %v, %v", n, x.Mark(), err)
				}
				if err != nil || x.Seqno == total {
					return
				}
			}
		})
		wg.Go(func() { // and one that follows the feed
			n := &got[followers+i]
			for p, err := range l.FollowFeed(within(t), eventstore.PositionMark{}, eventstore.Filter{}) {
				for _, x := range p.Entries {
					if n := n.Add(1); int32(x.Seqno) != n {
						t.Errorf("entry %d of the feed is %v", n, x.Mark())
					}
				}
				if err != nil || n.Load() >= total {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for r := range restarts {
		e.append("account-a", each, 0)
		for i := range got {
			until(t, "all have come as far", func() bool { return int(got[i].Load()) == (2*r+1)*each })
		}
		e.stop()
		e.append("account-a", each, 0)
		e.start(e.address)
	}
}

// ending is a service whose message streams end in order after each message.
type ending struct {
	wattlev1.LogServiceHandler
	err  error
	many atomic.Int32
}

var errEnough = fmt.Errorf("enough")

func (s *ending) Follow(ctx context.Context, m *wattlev1.FollowRequest, out *connect.ServerStream[wattlev1.FollowResponse]) error {
	s.many.Add(1)
	service := s.LogServiceHandler.(*Service)
	c, err := toFollowCall(m)
	if err != nil {
		return err
	}
	sent := false
	err = service.streams.follow(ctx, c, func(entries []eventstore.Entry, end bool) error {
		if sent {
			return errEnough
		}
		sent = len(entries) > 0
		return out.Send(toFollowResponse(entries, end))
	})
	if err == errEnough {
		return s.err
	}
	return AsConnect(err)
}

// P8 of the cases: a stream that ends with OK is one that was cut.
func TestFollowResumesAfterOrderlyEnds(t *testing.T) {
	for name, end := range map[string]error{"OK": nil, "canceled": connect.NewError(connect.CodeCanceled, nil), "unavailable": connect.NewError(connect.CodeUnavailable, nil),
		"unknown": connect.NewError(connect.CodeUnknown, nil), "slow": AsConnect(&eventstore.Error{Kind: ErrSlowConsumer}), "going away": AsConnect(goingAway("follow"))} {
		t.Run(name, func(t *testing.T) {
			e := newStreamEnv(t, nil, StreamOptions{MessageBytes: 10})
			s := &ending{LogServiceHandler: e.service, err: end}
			e.stop()
			e.wrap = func(http.Handler) http.Handler {
				mux := http.NewServeMux()
				mux.Handle(wattlev1.NewLogServiceHandler(s))
				return streamable(mux)
			}
			e.start("127.0.0.1:0")
			s.LogServiceHandler = e.service
			e.append("account-a", 5, 10)
			inOrder(t, "account-a", followN(t, e.client(e.address, false), "account-a", eventstore.Mark{}, 5), 1, 5)
			if n := s.many.Load(); n < 5 {
				t.Errorf("%d streams for 5 messages", n)
			}
		})
	}
}

// GOAWAY of HTTP/2: the server shuts down in order, its streams told to go elsewhere.
func TestFollowGoesElsewhereAtShutdown(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	e.append("account-a", 5, 0)
	l := e.client(e.address, false)
	seen := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		n := 0
		for x, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
			if n++; err != nil || int(x.Seqno) != n {
				t.Errorf("entry %d: %v %v", n, x.Mark(), err)
				return
			}
			if n == 5 {
				close(seen)
			}
			if n == 8 {
				return
			}
		}
	})
	<-seen
	e.service.streams.drain()
	if err := e.server.Shutdown(within(t)); err != nil {
		t.Fatal(err)
	}
	<-e.served
	e.append("account-a", 3, 0)
	e.start(e.address)
}

// A connection that went dead while nothing was appended is noticed by its heartbeats.
func TestFollowNoticesSilence(t *testing.T) {
	protocols(t, func(t *testing.T, h1 bool) {
		e := newStreamEnv(t, nil, StreamOptions{})
		p, err := cutproxy.New(e.address)
		must(t, err)
		t.Cleanup(p.Close)
		l := e.client(fmt.Sprintf("127.0.0.1:%d", p.Port()), h1)
		e.append("account-a", 1, 0)
		n := 0
		began := time.Now()
		for x, err := range l.Follow(within(t), "account-a", eventstore.Mark{}) {
			must(t, err)
			if n++; int(x.Seqno) != n {
				t.Fatalf("entry %v", x.Mark())
			}
			if n == 2 {
				break
			}
			time.Sleep(5 * testBeat) // a caller that takes his time is not silence of the server
			if !p.Disarm() {
				p.Arm(cutproxy.Fault{Direction: cutproxy.ToClient, Mode: cutproxy.BlackHole, After: 1})
			}
			e.append("account-a", 1, 0)
		}
		t.Logf("heard again after %v", time.Since(began))
	})
}

// Heartbeats keep an idle stream: it is the same one after many of them.
func TestFollowIdleStreamStays(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	var calls atomic.Int32
	e.stop()
	e.wrap = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			h.ServeHTTP(w, r)
		})
	}
	e.start("127.0.0.1:0")
	l := e.client(e.address, false)
	const beat = 700 * time.Millisecond
	l.streams.heartbeat = beat
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		sleep(within(t), 6*beat) // silence is noticed after three
		e.append("account-a", 1, 0)
	})
	followN(t, l, "account-a", eventstore.Mark{}, 1)
	if n := calls.Load(); n != 1 {
		t.Errorf("%d streams", n)
	}
}
