// Following over HTTP/2 and HTTP/1.1: from a place, live, and from places that are none.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// protocols runs a test over HTTP/2 and HTTP/1.1.
func protocols(t *testing.T, f func(t *testing.T, h1 bool)) {
	for _, h1 := range []bool{false, true} {
		t.Run([]string{"HTTP/2", "HTTP/1.1"}[map[bool]int{true: 1}[h1]], func(t *testing.T) { f(t, h1) })
	}
}

func TestFollowLive(t *testing.T) {
	logs := map[string]func(testing.TB) eventstore.Log{"memory": func(testing.TB) eventstore.Log { return memlog.New(nil) }, "file": fileLog}
	for name, open := range logs {
		for _, s := range []eventstore.Stream{"account-a", "topic-0"} {
			t.Run(name+"/"+string(s), func(t *testing.T) {
				protocols(t, func(t *testing.T, h1 bool) {
					e := newStreamEnv(t, open(t), StreamOptions{})
					e.append(s, 30, 0)
					var wg sync.WaitGroup
					defer wg.Wait()
					wg.Go(func() {
						for range 30 {
							e.append(s, 2, 100)
						}
					})
					inOrder(t, s, followN(t, e.client(e.address, h1), s, eventstore.Mark{}, 90), 1, 90)
				})
			})
		}
	}
}

// A stream is followed from behind a mark, and before it exists.
func TestFollowFromPlace(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	e.append("account-a", 10, 0)
	all := followN(t, l, "account-a", eventstore.Mark{}, 10)
	inOrder(t, "account-a", followN(t, l, "account-a", all[3].Mark(), 6), 5, 6)
	inOrder(t, "account-a", followN(t, l, "account-a", eventstore.Mark{Seqno: 7}, 3), 8, 3)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { e.append("account-new", 3, 0) })
	inOrder(t, "account-new", followN(t, l, "account-new", eventstore.Mark{}, 3), 1, 3)
}

// firstError is what a follower ends with.
func firstError(t *testing.T, l *Log, s eventstore.Stream, after eventstore.Mark) error {
	t.Helper()
	for e, err := range l.Follow(within(t), s, after) {
		if err != nil {
			return err
		}
		t.Fatalf("got %v, want an error", e.Mark())
	}
	return errors.New("the sequence ended without an error")
}

func TestFollowFromWrongPlace(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	e.append("account-a", 10, 0)
	all := followN(t, l, "account-a", eventstore.Mark{}, 10)
	id := eventstore.NewUUID()
	for name, m := range map[string]eventstore.Mark{"another entry": {Seqno: 4, ID: id}, "another last entry": {Seqno: 10, ID: id}, "beyond the end": {Seqno: 11, ID: id}, "far beyond": {Seqno: 90}} {
		if err := wantErr(t, firstError(t, l, "account-a", m), eventstore.ErrDiverged); err.Head == nil || err.Head.Last != all[9].Mark() || err.Hint == "" {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if _, err := e.store.Trim(t.Context(), "account-a", 5, false); err != nil {
		t.Fatal(err)
	}
	if err := wantErr(t, firstError(t, l, "account-a", all[3].Mark()), eventstore.ErrTrimmed); err.First != 6 {
		t.Errorf("first is %v", err.First)
	}
	inOrder(t, "account-a", followN(t, l, "account-a", all[4].Mark(), 5), 6, 5)
	if _, err := e.store.Trim(t.Context(), "account-a", 10, false); err != nil {
		t.Fatal(err)
	}
	wantErr(t, firstError(t, l, "account-a", eventstore.Mark{Seqno: 10, ID: id}), eventstore.ErrDiverged)
	wantErr(t, firstError(t, l, "nothing-a", eventstore.Mark{}), eventstore.ErrNoSuchCategory)
	wantErr(t, firstError(t, l, "topic-9", eventstore.Mark{}), eventstore.ErrNoSuchStream)
	wantErr(t, firstError(t, l, "account", eventstore.Mark{}), eventstore.ErrInvalid)
	l.Close()
	wantErr(t, firstError(t, l, "account-a", eventstore.Mark{}), eventstore.ErrClosed)
}

// A follower that has caught up notices that its stream was begun anew.
func TestFollowStreamBegunAnew(t *testing.T) {
	for s, poll := range map[eventstore.Stream]time.Duration{
		"account-a": time.Hour, // only the hint tells
		"topic-0":   0,         // a dedicated log has no positions, by which its hint would
	} {
		e := newStreamEnv(t, nil, StreamOptions{PollInterval: poll})
		l := e.client(e.address, false)
		e.append(s, 5, 0)
		n := 0
		var last error
		for _, err := range l.Follow(within(t), s, eventstore.Mark{}) {
			if last = err; err != nil {
				break
			}
			if n++; n < 5 {
				continue
			}
			if s == "topic-0" {
				must(t, e.store.DropStream(t.Context(), s))
				must(t, e.store.CreateStreams(t.Context(), s))
			} else {
				must(t, e.store.DeleteCategory(t.Context(), "account"))
				must(t, e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}))
			}
			e.heads[s] = eventstore.Head{}
			e.append(s, 3, 0)
		}
		wantErr(t, last, eventstore.ErrDiverged)
	}
}

// feedN follows the feed until there are n entries, and returns how far that was.
func feedN(t testing.TB, l *Log, after eventstore.PositionMark, f eventstore.Filter, n int) ([]eventstore.Entry, eventstore.PositionMark) {
	t.Helper()
	var all []eventstore.Entry
	for p, err := range l.FollowFeed(within(t), after, f) {
		if err != nil {
			t.Fatalf("after %d of %d entries: %v", len(all), n, err)
		}
		if all = append(all, p.Entries...); len(all) >= n {
			return all, p.Through
		}
	}
	return all, eventstore.PositionMark{}
}

// A follower of the feed gets what the feed holds at the end, whoever appended meanwhile.
func TestFollowFeedSkipsNothing(t *testing.T) {
	for name, open := range map[string]func(testing.TB) eventstore.Log{"memory": func(testing.TB) eventstore.Log { return memlog.New(nil) }, "file": fileLog} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, h1 bool) {
				const writers, each = 8, 40
				e := newStreamEnv(t, open(t), StreamOptions{MessageBytes: 2000})
				var wg sync.WaitGroup
				defer wg.Wait()
				for w := range writers {
					wg.Go(func() {
						s := eventstore.Stream(fmt.Sprint("account-", w))
						for range each {
							e.append(s, 1+w%3, 50*w)
						}
					})
				}
				n := 0
				for w := range writers {
					n += each * (1 + w%3)
				}
				got, _ := feedN(t, e.client(e.address, h1), eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"account"}}, n)
				wg.Wait()
				sameEntries(t, got, e.feedOf(eventstore.Filter{}))
			})
		})
	}
}

// Going on from any Through is as if nothing had been between.
func TestFollowFeedFromEveryThrough(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	for i := range 30 {
		e.append(eventstore.Stream(fmt.Sprint("account-", i%5)), 1+i%3, 10)
	}
	l := e.client(e.address, false)
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for name, f := range map[string]eventstore.Filter{
		"all":   {},
		"types": {Categories: []eventstore.Category{"account"}, Types: []string{"odd"}},
		"slots": {Categories: []eventstore.Category{"account"}, Slots: []eventstore.Slot{eventstore.Stream("account-1").Slot()}},
	} {
		t.Run(name, func(t *testing.T) {
			e.service.streams.o.MessageBytes = 40
			want := e.feedOf(f)
			var got []eventstore.Entry
			var at eventstore.PositionMark
			for len(got) < len(want) {
				pieces := 1 + rnd.IntN(3)
				for p, err := range l.FollowFeed(within(t), at, f) {
					must(t, err)
					got, at = append(got, p.Entries...), p.Through
					if pieces--; pieces == 0 || len(got) >= len(want) {
						break
					}
				}
			}
			sameEntries(t, got, want)
		})
	}
}

// What does not match is passed, and the caller told so.
func TestFollowFeedPassesOver(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	done := e.append("account-a", 700, 0)
	var at eventstore.PositionMark
	more := false
	l := e.client(e.address, false)
	l.streams.heartbeat = 2 * testWait // how far it was read is told before
	for p, err := range l.FollowFeed(within(t), eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"account"}, Types: []string{"none"}}) {
		must(t, err)
		if len(p.Entries) > 0 {
			t.Fatal("got what does not match")
		}
		if at = p.Through; at.Position < done.Token.Position {
			continue
		}
		if !more {
			more, done = true, e.append("account-a", 3, 0)
			continue
		}
		break
	}
	if at != (eventstore.PositionMark{Position: done.Token.Position, ID: done.Receipts[0].Last.ID}) {
		t.Errorf("through %v", at)
	}
}

func feedError(t *testing.T, l *Log, after eventstore.PositionMark, f eventstore.Filter) error {
	t.Helper()
	for p, err := range l.FollowFeed(within(t), after, f) {
		if err != nil {
			return err
		}
		t.Fatalf("got %+v, want an error", p)
	}
	return errors.New("the sequence ended without an error")
}

func TestFollowFeedFromWrongPlace(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	e.append("account-a", 10, 0)
	f := eventstore.Filter{Categories: []eventstore.Category{"account"}}
	all := e.feedOf(f)
	id := eventstore.NewUUID()
	for _, m := range []eventstore.PositionMark{{Position: all[3].Position, ID: id}, {Position: all[9].Position, ID: id}, {Position: all[9].Position + 1, ID: id}, {Position: all[9].Position + 5}} {
		wantErr(t, feedError(t, l, m, f), eventstore.ErrDiverged)
	}
	if _, err := e.store.Trim(t.Context(), "account-a", 5, false); err != nil {
		t.Fatal(err)
	}
	if err := wantErr(t, feedError(t, l, all[3].PositionMark(), f), eventstore.ErrTrimmed); err.FirstPosition != all[4].Position {
		t.Errorf("first is %v", err.FirstPosition)
	}
	got, _ := feedN(t, l, all[4].PositionMark(), f, 5)
	sameEntries(t, got, all[5:])
	got, _ = feedN(t, l, eventstore.PositionMark{}, eventstore.Filter{AcceptTrimmed: true}, 5)
	sameEntries(t, got, all[5:])
	wantErr(t, feedError(t, l, eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"topic"}}), eventstore.ErrInvalid)
	wantErr(t, feedError(t, l, eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"nothing"}}), eventstore.ErrNoSuchCategory)
}

// What was appended without an announcement is found all the same, of streams of both
// layouts and of the feed.
func TestFollowFindsWhatWasNotAnnounced(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	quiet := eventstore.New(e.store.Log(), nil)
	for _, s := range []eventstore.Stream{"account-a", "topic-0"} {
		e.append(s, 1, 0)
		n := 0
		for x, err := range l.Follow(within(t), s, eventstore.Mark{}) {
			must(t, err)
			if n++; int(x.Seqno) != n || n == 4 {
				break
			}
			e.appendTo(quiet, s, 1, 0)
		}
		if n != 4 {
			t.Errorf("%s: %d entries", s, n)
		}
	}
	n := 0
	for p, err := range l.FollowFeed(within(t), eventstore.PositionMark{}, eventstore.Filter{}) {
		must(t, err)
		if n += len(p.Entries); n >= 8 {
			break
		}
		if n >= 4 {
			e.appendTo(quiet, "account-b", 1, 0)
		}
	}
}

// So it is where more streams are followed than are asked for their heads, and where more
// was appended than one look reads.
func TestFollowManyFindsWhatWasNotAnnounced(t *testing.T) {
	const many = pollHeads + 10
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	l.streams.heartbeat = DefaultHeartbeat
	quiet := eventstore.New(e.store.Log(), nil)
	var caughtUp, wg sync.WaitGroup
	var second atomic.Int32
	defer wg.Wait()
	for i := range many {
		s := eventstore.Stream(fmt.Sprint("account-", i))
		e.append(s, 1, 0)
		caughtUp.Add(1)
		wg.Go(func() {
			n := 0
			for x, err := range l.Follow(within(t), s, eventstore.Mark{}) {
				if n++; err != nil || int(x.Seqno) != n {
					t.Errorf("%s: entry %d is %v, %v", s, n, x.Mark(), err)
				}
				if n == 1 {
					caughtUp.Done()
				}
				if n == 2 {
					second.Add(1)
				}
				if err != nil || n == 3 {
					return
				}
			}
		})
	}
	caughtUp.Wait()
	sleep(within(t), 2*eventstore.DefaultPollInterval)
	for i := range many {
		e.appendTo(quiet, eventstore.Stream(fmt.Sprint("account-", i)), 1, 0)
	}
	until(t, "all have the second", func() bool { return second.Load() == many })
	e.appendTo(quiet, "account-other", pollPages*eventstore.DefaultPageEntries+1, 0)
	for i := range many {
		e.appendTo(quiet, eventstore.Stream(fmt.Sprint("account-", i)), 1, 0)
	}
}

// The loop is left without a trace: by the caller, and by his context.
func TestFollowIsLeft(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	l := e.client(e.address, false)
	e.append("account-a", 1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs []error
	for _, err := range l.Follow(ctx, "account-a", eventstore.Mark{}) {
		errs = append(errs, err)
		cancel()
	}
	if !slices.Equal(errs, []error{nil, context.Canceled}) {
		t.Errorf("%v", errs)
	}
	followN(t, l, "account-a", eventstore.Mark{}, 1)
	until(t, "the server has no streams", func() bool {
		e.service.streams.mu.Lock()
		defer e.service.streams.mu.Unlock()
		return e.service.streams.open == 0
	})
}

// In every form that a client may speak it is the same.
func TestFollowForms(t *testing.T) {
	for name, o := range map[string]Options{"Connect JSON": {JSON: true}, "gRPC": {Protocol: GRPC}, "gRPC-Web": {Protocol: GRPCWeb}, "gRPC gzip": {Protocol: GRPC, Gzip: true}} {
		t.Run(name, func(t *testing.T) {
			e := newStreamEnv(t, nil, StreamOptions{})
			e.append("account-a", 5, 3000)
			o.Lazy, o.Heartbeat = true, DefaultHeartbeat
			l, err := Open(t.Context(), "http://"+e.address, &o)
			must(t, err)
			t.Cleanup(func() { l.Close() })
			inOrder(t, "account-a", followN(t, l, "account-a", eventstore.Mark{}, 5), 1, 5)
			got, at := feedN(t, l, eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"account"}}, 5)
			inOrder(t, "account-a", got, 1, 5)
			wantErr(t, feedError(t, l, eventstore.PositionMark{Position: at.Position, ID: eventstore.NewUUID()}, eventstore.Filter{}), eventstore.ErrDiverged)
			produceForms(t, e, l)
			var all heard
			stop, err := l.Announcer().Subscribe(t.Context(), nil, all.hear)
			must(t, err)
			until(t, "it is connected", func() bool { return len(all.got()) > 0 })
			e.append("account-a", 1, 0)
			until(t, "it hears", func() bool {
				return slices.ContainsFunc(all.got(), func(a eventstore.Announcement) bool { return a.Seqno == 6 })
			})
			stop()
			must(t, l.Wait(within(t), "", eventstore.Token{}))
		})
	}
}

func produceForms(t *testing.T, e *streamEnv, l *Log) {
	t.Helper()
	p := l.Produce(within(t))
	var waits []waiting
	for _, a := range e.chain("account-b", 5) {
		waits = append(waits, p.Append(t.Context(), a))
	}
	for _, wait := range waits {
		_, err := wait(within(t))
		must(t, err)
	}
	_, err := p.Append(t.Context(), e.chain("account-b", 2)[1])(within(t))
	if e, ok := errors.AsType[*eventstore.Error](err); !ok || errors.Is(err, eventstore.ErrUnknown) || e.Head == nil {
		t.Errorf("%v", err)
	}
	if p.Close() == nil {
		t.Error("no error")
	}
}

// A feed and hints of no category by name leave out what the caller may not know of.
func TestFollowVisible(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{MessageBytes: 100})
	must(t, e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "secret"}))
	e.visible = func(_ context.Context, c eventstore.Category) bool { return c != "secret" }
	e.stop()
	e.start("127.0.0.1:0")
	l := e.client(e.address, false)
	var all heard
	stop, err := l.Announcer().Subscribe(t.Context(), nil, all.hear)
	must(t, err)
	defer stop()
	until(t, "it is connected", func() bool { return len(all.got()) > 0 })
	for range 10 {
		e.append("account-a", 1, 60)
		e.append("secret-a", 1, 60)
	}
	e.append("account-a", 1, 60)
	got, _ := feedN(t, l, eventstore.PositionMark{}, eventstore.Filter{}, 11)
	inOrder(t, "account-a", got, 1, 11)
	until(t, "it hears", func() bool {
		return slices.ContainsFunc(all.got(), func(a eventstore.Announcement) bool { return a.Seqno == 11 })
	})
	for _, a := range all.got() {
		if a.Category == "secret" {
			t.Errorf("heard %v", a)
		}
	}
}
