// Producing: answers in the order of the requests, requests on one stream in theirs, and
// what becomes of the rest at the first error, at a cut and at the server's end.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/internal/wire"
)

// gateLog holds appends to streams up until they are let through.
type gateLog struct {
	*memlog.Log

	mu    sync.Mutex
	gates map[eventstore.Stream]chan struct{}
	begun []eventstore.Stream // first streams of the appends, as they came
}

func newGateLog(held ...eventstore.Stream) *gateLog {
	l := &gateLog{Log: memlog.New(nil), gates: map[eventstore.Stream]chan struct{}{}}
	for _, s := range held {
		l.gates[s] = make(chan struct{})
	}
	return l
}

func (l *gateLog) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	s := a.Batches[0].Stream
	l.mu.Lock()
	l.begun = append(l.begun, s)
	gate := l.gates[s]
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return l.Log.Append(ctx, a)
}

func (l *gateLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.begun)
}

// chain makes n appends to a stream, one behind the other; but for the first their marks
// have no ID.
func (e *streamEnv) chain(s eventstore.Stream, n int) []eventstore.Append {
	all := make([]eventstore.Append, n)
	for i := range all {
		b := e.batch(s, 1, 0)
		b.Claim, b.After = i == 0, eventstore.Mark{Seqno: eventstore.Seqno(i)}
		b.Events[0].Data = fmt.Appendf(nil, "%s#%d", s, i+1)
		all[i] = eventstore.Append{Batches: []eventstore.Batch{b}}
	}
	return all
}

type waiting = func(context.Context) (eventstore.Appended, error)

func TestProducePipelines(t *testing.T) {
	for name, open := range map[string]func(testing.TB) eventstore.Log{"memory": func(testing.TB) eventstore.Log { return memlog.New(nil) }, "file": fileLog} {
		t.Run(name, func(t *testing.T) {
			const n = 150
			e := newStreamEnv(t, open(t), StreamOptions{ProduceWindow: 16})
			p := e.client(e.address, false).Produce(within(t))
			var wg sync.WaitGroup
			defer wg.Wait()
			for _, s := range []eventstore.Stream{"account-a", "account-b", "topic-0"} {
				wg.Go(func() {
					var waits []waiting
					for _, a := range e.chain(s, n) {
						waits = append(waits, p.Append(t.Context(), a))
						for i := range a.Batches[0].Events { // the payload stays the caller's
							clear(a.Batches[0].Events[i].Data)
						}
					}
					for i, wait := range waits {
						done, err := wait(within(t))
						if err != nil || int(done.Receipts[0].Last.Seqno) != i+1 {
							t.Errorf("%s %d: %+v %v", s, i+1, done, err)
						}
					}
				})
			}
			wg.Wait()
			must(t, p.Close())
			for _, s := range []eventstore.Stream{"account-a", "account-b", "topic-0"} {
				inOrder(t, s, followN(t, e.client(e.address, false), s, eventstore.Mark{}, n), 1, n)
			}
		})
	}
}

// A request that is held up does not hold up those on other streams, but their answers.
func TestProduceAnswersInOrder(t *testing.T) {
	log := newGateLog("account-held")
	e := newStreamEnv(t, log, StreamOptions{})
	l := e.client(e.address, false)
	conn, err := l.streams.service.Produce(within(t))
	must(t, err)
	streams := []eventstore.Stream{"account-a", "account-held", "account-b", "account-c", "account-held", "account-d"}
	held := e.chain("account-held", 2)
	for i, s := range streams {
		a := e.chain(s, 1)[0]
		if s == "account-held" {
			a = held[i/4]
		}
		m := wire.FromAppend(a)
		must(t, conn.Send(&wattlev1.ProduceRequest{Batches: m.GetBatches()}))
	}
	must(t, conn.CloseRequest())
	until(t, "all others are written", func() bool {
		h, err := e.store.Head(t.Context(), "account-d")
		return err == nil && h.Last.Seqno == 1
	})
	type got struct {
		m   *wattlev1.ProduceResponse
		err error
	}
	answers := make(chan got)
	go func() {
		for range streams {
			m, err := conn.Receive()
			answers <- got{m, err}
		}
	}()
	for i, s := range streams {
		if i == 1 {
			select {
			case a := <-answers:
				t.Fatalf("answered out of order: %v", a.m)
			case <-time.After(50 * time.Millisecond):
			}
			if log.count() != 5 { // the second on the held stream waits for the first
				t.Errorf("%d begun", log.count())
			}
			close(log.gates["account-held"])
		}
		a := <-answers
		must(t, a.err)
		if r := a.m.GetReceipts(); len(r) != 1 || r[0].GetStream() != string(s) {
			t.Fatalf("answer %d is of %v, want %s", i, r, s)
		}
	}
	if _, err := conn.Receive(); err == nil {
		t.Error("an answer too many")
	}
	conn.CloseResponse()
}

// The first error is the answer to the append that was refused. Nothing behind it is begun.
func TestProduceFirstErrorEndsIt(t *testing.T) {
	log := newGateLog("account-a")
	e := newStreamEnv(t, log, StreamOptions{})
	l := e.client(e.address, false)
	p := l.Produce(within(t))
	chain := e.chain("account-a", 4)
	chain[1].Guards = []eventstore.Guard{{Stream: "account-g", At: eventstore.Mark{Seqno: 9}}}
	var waits []waiting
	for _, a := range chain {
		waits = append(waits, p.Append(t.Context(), a))
	}
	until(t, "the first is begun", func() bool { return log.count() == 1 })
	close(log.gates["account-a"])
	if _, err := waits[0](within(t)); err != nil {
		t.Error(err)
	}
	_, err := waits[1](within(t))
	wantErr(t, err, eventstore.ErrGuard)
	for _, wait := range waits[2:] {
		_, err := wait(within(t))
		if e, ok := errors.AsType[*eventstore.Error](err); !ok || e.Kind != eventstore.ErrUnknown && e.Kind != eventstore.ErrUnavailable {
			t.Errorf("%v", err)
		}
	}
	wantErr(t, p.Close(), eventstore.ErrGuard)
	if n := log.count(); n != 2 {
		t.Errorf("%d appends were begun", n)
	}
	_, err = p.Append(t.Context(), chain[0])(t.Context())
	wantErr(t, err, eventstore.ErrClosed)
}

// What was begun beside the one that is refused is carried out, and proved when it is sent
// again; what comes before it is answered.
func TestProduceErrorBesideOthers(t *testing.T) {
	log := newGateLog("account-a", "account-c")
	e := newStreamEnv(t, log, StreamOptions{})
	p := e.client(e.address, false).Produce(within(t))
	a, bad, c := e.chain("account-a", 1)[0], e.chain("account-b", 2)[1], e.chain("account-c", 1)[0]
	waitA, waitBad, waitC := p.Append(t.Context(), a), p.Append(t.Context(), bad), p.Append(t.Context(), c)
	until(t, "what waits is begun", func() bool { return log.count() >= 2 })
	close(log.gates["account-a"])
	close(log.gates["account-c"])
	if _, err := waitA(within(t)); err != nil {
		t.Error(err)
	}
	_, err := waitBad(within(t))
	e.t.Log(err)
	if _, ok := errors.AsType[*eventstore.Error](err); !ok || errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, err := waitC(within(t)); err == nil {
		t.Error("an answer behind the error")
	}
	again, err := e.store.Append(t.Context(), c)
	must(t, err)
	t.Log("replays:", again.Receipts[0].Replays)
	_ = p.Close()
}

// Cut anywhere: what was acked is there, what was not is proved or written by sending it
// again, and nothing is there twice.
func TestProduceCut(t *testing.T) {
	const n = 20
	e := newStreamEnv(t, nil, StreamOptions{})
	p, err := cutproxy.New(e.address)
	must(t, err)
	t.Cleanup(p.Close)
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	address := fmt.Sprintf("127.0.0.1:%d", p.Port())
	round, unknown := 0, 0
	produce := func(f cutproxy.Fault) {
		t.Helper()
		round++
		s := eventstore.Stream(fmt.Sprint("account-", round))
		p.Arm(f)
		l := e.client(address, false)
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		pr := l.Produce(ctx)
		chain := e.chain(s, n)
		var waits []waiting
		for _, a := range chain {
			waits = append(waits, pr.Append(ctx, a))
		}
		if f.Mode == cutproxy.BlackHole {
			go func() {
				sleep(ctx, 300*time.Millisecond)
				p.Release()
			}()
		}
		acked, unsent := 0, map[int]bool{}
		for i, wait := range waits {
			done, err := wait(within(t))
			switch {
			case err == nil && acked != i:
				t.Fatalf("%v: append %d acked behind one that was not", f, i)
			case err == nil:
				if acked++; int(done.Receipts[0].Last.Seqno) != i+1 {
					t.Fatalf("%v: %+v", f, done)
				}
			case errors.Is(err, eventstore.ErrUnknown):
				unknown++
			case errors.Is(err, eventstore.ErrClosed), errors.Is(err, eventstore.ErrUnavailable):
				unsent[i] = true
			default:
				t.Fatalf("%v: %v", f, err)
			}
		}
		_ = pr.Close()
		for i, a := range chain {
			done, err := e.store.Append(t.Context(), a)
			if err != nil || i < acked && !done.Receipts[0].Replays || unsent[i] && done.Receipts[0].Replays {
				t.Fatalf("%v: append %d of %d acked, sent again: %+v %v", f, i, acked, done, err)
			}
		}
		page, err := e.store.ReadFrom(t.Context(), s, 0, 0)
		must(t, err)
		inOrder(t, s, page.Entries, 1, n)
		l.Close()
		p.Disarm()
		p.Break()
	}
	produce(cutproxy.Fault{After: 1 << 40})
	whole := [2]int64{p.Passed(cutproxy.ToServer), p.Passed(cutproxy.ToClient)}
	for _, mode := range []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole} {
		for _, d := range cutproxy.Directions {
			for range 6 {
				produce(cutproxy.Fault{Direction: d, After: 1 + rnd.Int64N(whole[d]-1), Mode: mode})
			}
		}
	}
	t.Logf("%d cuts, %d appends of unknown outcome", round-1, unknown)
}

// The server reads no further than its window, and the client sends no further than its.
func TestProduceWindow(t *testing.T) {
	var held []eventstore.Stream
	for i := range 100 {
		held = append(held, eventstore.Stream(fmt.Sprint("account-", i)))
	}
	log := newGateLog(held...)
	e := newStreamEnv(t, log, StreamOptions{ProduceWindow: 5})
	p := e.client(e.address, false).Produce(within(t))
	var waits []waiting
	for i := range produceWaiting {
		waits = append(waits, p.Append(t.Context(), e.chain(held[i], 1)[0]))
	}
	until(t, "the window is full", func() bool { return log.count() == 5 })
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Append(short, e.chain(held[99], 1)[0])(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than the client keeps: %v", err)
	}
	if n := log.count(); n != 5 {
		t.Errorf("%d under way", n)
	}
	for _, s := range held {
		close(log.gates[s])
	}
	for _, wait := range waits {
		if _, err := wait(within(t)); err != nil {
			t.Error(err)
		}
	}
	must(t, p.Close())
}

// A server that drains answers what it has begun, and says that it ends.
func TestProduceDrain(t *testing.T) {
	log := newGateLog("account-a")
	e := newStreamEnv(t, log, StreamOptions{})
	p := e.client(e.address, false).Produce(within(t))
	wait := p.Append(t.Context(), e.chain("account-a", 1)[0])
	until(t, "it is begun", func() bool { return log.count() == 1 })
	e.service.streams.drain()
	close(log.gates["account-a"])
	if _, err := wait(within(t)); err != nil {
		t.Error(err)
	}
	until(t, "the producer ends", func() bool {
		_, err := p.Append(t.Context(), e.chain("account-b", 1)[0])(within(t))
		return errors.Is(err, eventstore.ErrClosed)
	})
	if n := log.count(); n != 1 {
		t.Errorf("%d begun", n)
	}
	wantErr(t, p.Close(), ErrGoingAway)
	_, err := e.client(e.address, false).Produce(within(t)).Append(t.Context(), e.chain("account-b", 1)[0])(within(t))
	if !errors.Is(err, ErrGoingAway) {
		t.Error(err)
	}
}

// Its context ends it, whatever the server does meanwhile: what is unanswered is unknown.
func TestProduceContext(t *testing.T) {
	log := newGateLog("account-a")
	e := newStreamEnv(t, log, StreamOptions{})
	defer close(log.gates["account-a"])
	ctx, cancel := context.WithCancel(t.Context())
	p := e.client(e.address, false).Produce(ctx)
	wait := p.Append(t.Context(), e.chain("account-a", 1)[0])
	until(t, "it is begun", func() bool { return log.count() == 1 })
	cancel()
	_, err := wait(within(t))
	wantErr(t, err, eventstore.ErrUnknown)
	if err := p.Close(); err == nil {
		t.Error("it ended without an error")
	}
}

// A policy that changes ends it; what was begun is answered still.
func TestProduceStill(t *testing.T) {
	log := newGateLog("account-a")
	var mu sync.Mutex
	var denied error
	e := newStreamEnv(t, log, StreamOptions{Still: func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return denied
	}})
	p := e.client(e.address, false).Produce(within(t))
	first := p.Append(t.Context(), e.chain("account-a", 1)[0])
	until(t, "it is begun", func() bool { return log.count() == 1 })
	mu.Lock()
	denied = &eventstore.Error{Kind: ErrDenied, Op: "append"}
	mu.Unlock()
	second := p.Append(t.Context(), e.chain("account-b", 1)[0])
	close(log.gates["account-a"])
	if _, err := first(within(t)); err != nil {
		t.Error(err)
	}
	_, err := second(within(t))
	wantErr(t, err, ErrDenied)
	_ = p.Close()
	if n := log.count(); n != 1 {
		t.Errorf("%d begun", n)
	}
}

func TestProduceRefusals(t *testing.T) {
	e := newStreamEnv(t, nil, StreamOptions{})
	a := e.chain("account-a", 1)[0]
	a.Batches[0].ID = eventstore.UUID{}
	p := e.client(e.address, false).Produce(within(t))
	_, err := p.Append(t.Context(), a)(t.Context())
	wantErr(t, err, eventstore.ErrInvalid)
	_, err = p.Append(t.Context(), eventstore.Append{})(t.Context())
	wantErr(t, err, eventstore.ErrInvalid)
	must(t, p.Close())

	p = e.client(e.address, true).Produce(within(t))
	_, err = p.Append(t.Context(), e.chain("account-a", 1)[0])(within(t))
	if err == nil || !strings.Contains(err.Error(), "HTTP/2") {
		t.Errorf("over HTTP/1.1: %v", err)
	}
	_ = p.Close()

	e.stop()
	p = e.clientOver(&http.Transport{}, e.address, false).Produce(within(t))
	_, err = p.Append(t.Context(), e.chain("account-a", 1)[0])(within(t))
	if _, ok := errors.AsType[*eventstore.Error](err); !ok {
		t.Errorf("without a server: %v", err)
	}
	_ = p.Close()
}
