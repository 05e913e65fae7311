// Hints: the hub in a process, Watch at the server, the announcer of a client.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// fakeAnnouncer is one behind a hub.
type fakeAnnouncer struct {
	mu     sync.Mutex
	sent   []eventstore.Announcement
	f      func(eventstore.Announcement)
	many   int // subscriptions so far
	refuse error
}

func (a *fakeAnnouncer) Announce(_ context.Context, hints []eventstore.Announcement) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = append(a.sent, hints...)
	return a.refuse
}

func (a *fakeAnnouncer) Subscribe(_ context.Context, _ []eventstore.Category, f func(eventstore.Announcement)) (func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		return nil, a.refuse
	}
	a.many++
	a.f = f
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.f = nil
	}, nil
}

func hintOf(s eventstore.Stream, n int) eventstore.Announcement {
	return eventstore.Announcement{Category: s.Category(), Slot: s.Slot(), Stream: s, Seqno: eventstore.Seqno(n), Position: eventstore.Position(n)}
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

func (h *heard) got() []eventstore.Announcement {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

func TestHub(t *testing.T) {
	noLeaks(t)
	next := &fakeAnnouncer{}
	h := NewHub(next)
	var all, some heard
	stopAll, err := h.Subscribe(t.Context(), nil, all.hear)
	must(t, err)
	stopSome, err := h.Subscribe(t.Context(), []eventstore.Category{"account", "loan"}, some.hear)
	must(t, err)
	hints := []eventstore.Announcement{hintOf("account-a", 1), hintOf("loan-b", 2), hintOf("other-c", 3)}
	must(t, h.Announce(t.Context(), hints))
	next.f(hintOf("account-far", 7))
	next.f(eventstore.Announcement{})
	want := append(slices.Clone(hints), hintOf("account-far", 7), eventstore.Announcement{})
	until(t, "all hear all", func() bool { return len(all.got()) == 5 })
	until(t, "some hear theirs", func() bool { return len(some.got()) == 4 })
	if got := all.got(); !slices.Equal(next.sent, hints) || !slices.Equal(got, want) && !slices.Contains(got, eventstore.Announcement{}) {
		t.Errorf("%v\n%v", next.sent, got)
	}
	for _, a := range some.got() {
		if a.Category == "other" {
			t.Errorf("heard %v", a)
		}
	}
	stopAll()
	stopSome()
	if next.f != nil || next.many != 1 {
		t.Errorf("%d subscriptions", next.many)
	}
	must(t, h.Announce(t.Context(), hints))
	if len(all.got()) != 5 {
		t.Error("heard after stop")
	}
	next.refuse = errors.New("down")
	if _, err := h.Subscribe(t.Context(), nil, all.hear); !errors.Is(err, next.refuse) || !errors.Is(h.Announce(t.Context(), hints), next.refuse) {
		t.Errorf("%v", err)
	}
	if len(h.listeners) != 0 {
		t.Errorf("%d are left", len(h.listeners))
	}
}

// A subscriber that hangs holds up neither appends nor others, keeps the newest hint of
// each stream, and gets the empty one in place of more than it can keep.
func TestHubSlowSubscriber(t *testing.T) {
	noLeaks(t)
	h := NewHub(nil)
	var slow, fast heard
	gate, entered := make(chan struct{}), make(chan struct{}, 1)
	open := sync.OnceFunc(func() { close(gate) })
	stop, err := h.Subscribe(t.Context(), nil, func(a eventstore.Announcement) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-gate
		slow.hear(a)
	})
	must(t, err)
	defer stop()
	stopFast, err := h.Subscribe(t.Context(), nil, fast.hear)
	must(t, err)
	defer stopFast()
	defer open() // first, whatever waits for it
	announced := make(chan error, 1)
	go func() {
		err := h.Announce(t.Context(), []eventstore.Announcement{hintOf("account-first", 1)})
		<-entered
		for n := range 50 {
			err = errors.Join(err, h.Announce(t.Context(), []eventstore.Announcement{hintOf("account-a", n+1), hintOf("account-b", 50-n)}))
		}
		announced <- err
	}()
	select {
	case err := <-announced:
		must(t, err)
	case <-within(t).Done():
		t.Fatal("whoever appends waits for who is slow")
	}
	until(t, "the fast one hears", func() bool { return slices.Contains(fast.got(), hintOf("account-a", 50)) })
	open()
	want := []eventstore.Announcement{hintOf("account-first", 1), hintOf("account-a", 50), hintOf("account-b", 50)}
	until(t, "the slow one hears the newest", func() bool { return len(slow.got()) >= 3 })
	if got := slow.got(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}

	q := &inbox{}
	for n := range maxInbox + 1 {
		q.put(hintOf(eventstore.Stream(fmt.Sprint("account-", n)), 1))
	}
	q.put(hintOf("account-late", 1))
	if got := q.take(10); !slices.Equal(got, []eventstore.Announcement{{}, hintOf("account-late", 1)}) || len(q.take(10)) != 0 {
		t.Errorf("%v", got)
	}
}

func TestAnnouncer(t *testing.T) {
	var watches atomic.Int32
	e := newStreamEnv(t, nil, StreamOptions{})
	e.stop()
	e.wrap = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == wattlev1.LogServiceWatchProcedure {
				watches.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	}
	e.start("127.0.0.1:0")
	l := e.client(e.address, false)
	l.streams.watching.heartbeat = DefaultHeartbeat // on a busy machine silence would end it
	a := l.Announcer()
	var all [5]heard
	var stops []func()
	for i := range all {
		stop, err := a.Subscribe(t.Context(), []eventstore.Category{"account"}, all[i].hear)
		must(t, err)
		stops = append(stops, stop)
	}
	lost := func(h *heard) int {
		n := 0
		for _, a := range h.got() {
			if a == (eventstore.Announcement{}) {
				n++
			}
		}
		return n
	}
	until(t, "it is connected", func() bool { return lost(&all[0]) > 0 })
	done := e.append("account-a", 3, 0)
	e.append("topic-0", 1, 0)
	want := eventstore.Announcement{Category: "account", Slot: eventstore.Stream("account-a").Slot(), Stream: "account-a", Seqno: 3, Position: done.Token.Position}
	for i := range all {
		until(t, "each hears", func() bool { return slices.Contains(all[i].got(), want) })
		for _, a := range all[i].got() {
			if a.Category == "topic" {
				t.Errorf("heard %v", a)
			}
		}
	}
	if n := watches.Load(); n != 1 {
		t.Errorf("%d streams for %d subscribers", n, len(all))
	}
	before := lost(&all[0])
	e.stop()
	e.start(e.address)
	until(t, "each is told to look", func() bool { return lost(&all[0]) > before && lost(&all[4]) > before })

	var topics heard // more is wanted now
	stop, err := a.Subscribe(t.Context(), []eventstore.Category{"topic"}, topics.hear)
	must(t, err)
	until(t, "the other category is heard", func() bool {
		e.append("topic-0", 1, 0)
		return slices.ContainsFunc(topics.got(), func(a eventstore.Announcement) bool { return a.Stream == "topic-0" })
	})
	stop()
	for _, stop := range stops {
		stop()
	}
	until(t, "the stream is closed", func() bool {
		e.service.streams.mu.Lock()
		defer e.service.streams.mu.Unlock()
		return e.service.streams.open == 0
	})
	_, err = a.Subscribe(t.Context(), []eventstore.Category{"a.b"}, topics.hear)
	wantErr(t, err, eventstore.ErrInvalid)
	must(t, a.Announce(t.Context(), []eventstore.Announcement{hintOf("account-x", 1)}))
}

func TestAnnouncerEndsWithItsLog(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	var all heard
	stop, err := l.Announcer().Subscribe(t.Context(), nil, all.hear)
	must(t, err)
	until(t, "it is connected", func() bool { return len(all.got()) > 0 })
	must(t, l.Close())
	_, err = l.Announcer().Subscribe(t.Context(), nil, all.hear)
	wantErr(t, err, eventstore.ErrClosed)
	stop()
}

func TestWait(t *testing.T) {
	var asked atomic.Value
	e := newStreamEnv(t, nil, StreamOptions{Waiter: func(ctx context.Context, projector string, tok eventstore.Token) error {
		asked.Store(projector)
		if projector == "slow" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}})
	l := e.client(e.address, false)
	done := e.append("account-a", 1, 0)
	must(t, l.Wait(t.Context(), "", done.Token))
	must(t, l.Wait(t.Context(), "", eventstore.Token{}))
	must(t, l.Wait(t.Context(), "balances", done.Token))
	if asked.Load() != "balances" {
		t.Errorf("asked for %v", asked.Load())
	}
	foreign := done.Token
	foreign.Incarnation = eventstore.NewUUID()
	wantErr(t, l.Wait(t.Context(), "", foreign), eventstore.ErrDiverged)
	beyond := done.Token
	beyond.Position += 5
	wantErr(t, l.Wait(t.Context(), "", beyond), eventstore.ErrDiverged)
	_, err := l.streams.service.Wait(within(t), &wattlev1.WaitRequest{Projector: "slow", Token: wire.FromToken(done.Token), Timeout: durationpb.New(300 * time.Millisecond)})
	if late := wantErr(t, lateWait(err), context.DeadlineExceeded); late.Wanted == "" || late.Found == "" || connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := l.Wait(ctx, "slow", done.Token); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	e.service.streams.o.Waiter = nil
	wantErr(t, l.Wait(t.Context(), "balances", done.Token), ErrNoSuchProjector)
}

// horizonLog has an append in flight that holds the horizon down.
type horizonLog struct {
	eventstore.Log
	at atomic.Uint64 // 0: nothing holds it
}

func (l *horizonLog) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	p, err := l.Log.ReadFeed(ctx, after, f, limit)
	at := eventstore.Position(l.at.Load())
	if err != nil || at == 0 || p.Horizon < at {
		return p, err
	}
	p.Horizon = at - 1
	keep := slices.IndexFunc(p.Entries, func(e eventstore.Entry) bool { return e.Position >= at })
	if keep >= 0 {
		p.Entries, p.End, p.Through = p.Entries[:keep], true, eventstore.PositionMark{}
		if keep > 0 {
			p.Through = p.Entries[keep-1].PositionMark()
		}
	}
	return p, err
}

// Both wait for what an append in flight hides, and see it as soon as it is there.
func TestHorizon(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	log := &horizonLog{Log: e.store.Log()}
	first := e.append("account-a", 2, 0)
	log.at.Store(uint64(first.Token.Position) + 1)
	e.stop()
	e.store = eventstore.New(log, &eventstore.Options{Announcer: e.hub})
	e.start("127.0.0.1:0")
	l := e.client(e.address, false)
	done := e.append("account-a", 2, 0)
	waited := make(chan error, 1)
	go func() { waited <- l.Wait(within(t), "", done.Token) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	late := l.Wait(ctx, "", done.Token)
	if !errors.Is(late, context.DeadlineExceeded) {
		t.Errorf("%v", late)
	}
	got, _ := feedN(t, l, eventstore.PositionMark{}, eventstore.Filter{}, 2)
	if len(got) != 2 {
		t.Errorf("%d entries below the horizon", len(got))
	}
	go func() {
		sleep(within(t), 100*time.Millisecond)
		log.at.Store(0)
	}()
	got, _ = feedN(t, l, eventstore.PositionMark{}, eventstore.Filter{}, 4)
	inOrder(t, "account-a", got, 1, 4)
	must(t, <-waited)
}
