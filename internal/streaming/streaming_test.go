package streaming

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// ask is a request of the tests: it is carried out when its gate opens, if it has one.
type ask struct {
	name  string
	keys  []string
	bytes int
	err   error // of carrying it out
	bad   error // of reading it
}

// bench is a pipeline and what has come of it. All goroutines are in one synctest bubble:
// after synctest.Wait nothing more happens by itself.
type bench struct {
	*Pipeline[ask, string, string]
	t        *testing.T
	gates    map[string]chan struct{}
	draining chan struct{}
	begun    []string
	done     []string // carried out
	gone     []string // of these, when the stream had ended
	read     []string
	answers  []string
	deaf     map[string]chan struct{} // answers that are read when it is closed
	mu       chan struct{}            // holds one
}

func newBench(t *testing.T, held ...string) *bench {
	b := &bench{t: t, gates: map[string]chan struct{}{}, draining: make(chan struct{}), mu: make(chan struct{}, 1)}
	for _, name := range held {
		b.gates[name] = make(chan struct{})
	}
	b.Pipeline = &Pipeline[ask, string, string]{Window: 100, Bytes: 1000, All: NewRoom(1000), Draining: b.draining,
		Keys: func(a *ask) []string { return a.keys }, Still: func(context.Context) error { return nil }, Do: b.do}
	return b
}

func (b *bench) note(to *[]string, name string) {
	b.mu <- struct{}{}
	*to = append(*to, name)
	<-b.mu
}

func (b *bench) do(ctx context.Context, a ask) (string, error) {
	b.note(&b.begun, a.name)
	if gate := b.gates[a.name]; gate != nil {
		<-gate
	}
	if ctx.Err() != nil {
		b.note(&b.gone, a.name)
	}
	b.note(&b.done, a.name)
	return "answer " + a.name, a.err
}

// exchange is one whose reading can be stopped.
type exchange struct {
	http.ResponseWriter
	stopped  chan struct{}
	writeBy  time.Time
	writeSet bool
}

func (e *exchange) SetReadDeadline(time.Time) error {
	select {
	case <-e.stopped:
	default:
		close(e.stopped)
	}
	return nil
}

func (e *exchange) SetWriteDeadline(t time.Time) error {
	e.writeBy, e.writeSet = t, true
	return nil
}

func newExchange() (*exchange, *Exchange) {
	e := &exchange{ResponseWriter: httptest.NewRecorder(), stopped: make(chan struct{})}
	return e, &Exchange{rc: http.NewResponseController(e)}
}

// serve serves a stream of requests, which stays open behind them if more is true, and
// returns how it ended.
func (b *bench) serve(ctx context.Context, more bool, asks ...ask) <-chan error {
	e, x := newExchange()
	left := asks
	receive := func() (q Request[ask], err error) {
		switch {
		case len(left) > 0:
			a := left[0]
			left = left[1:]
			b.note(&b.read, a.name)
			return Request[ask]{Value: a, Bytes: a.bytes, Err: a.bad}, nil
		case more:
			<-e.stopped
			return q, errors.New("stopped")
		}
		return q, io.EOF
	}
	ended := make(chan error, 1)
	go func() {
		ended <- b.Serve(ctx, x, receive, func(a string) error {
			if wait := b.deaf[a]; wait != nil {
				<-wait
			}
			b.note(&b.answers, a)
			return nil
		})
	}()
	synctest.Wait()
	return ended
}

func (b *bench) open(name string) {
	close(b.gates[name])
	synctest.Wait()
}

// is checks a list in its order.
func (b *bench) is(what string, found []string, want ...string) {
	b.t.Helper()
	if !slices.Equal(found, want) {
		b.t.Errorf("%s: found %v, want %v", what, found, want)
	}
}

// are checks a list whose order is for goroutines to make.
func (b *bench) are(what string, found []string, want ...string) {
	b.t.Helper()
	b.is(what, slices.Sorted(slices.Values(found)), want...)
}

// whole checks that no stream holds anything of the room any more.
func (b *bench) whole() {
	b.t.Helper()
	if !b.All.bytes.TryAcquire(b.All.most) {
		b.t.Error("something of the room was not given back")
	}
}

func wants(t *testing.T, ended <-chan error, want error) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, want) {
			t.Errorf("it ended with %v, want %v", err, want)
		}
	default:
		t.Errorf("it has not ended, want %v", want)
	}
}

func TestPipelineOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "1", "2")
		ended := b.serve(t.Context(), false, ask{name: "1", keys: []string{"a", "b"}}, ask{name: "2", keys: []string{"c"}}, ask{name: "3", keys: []string{"b", "d"}}, ask{name: "4", keys: []string{"d"}},
			ask{name: "5", keys: []string{"e", "e"}}, ask{name: "6"}, ask{name: "7"})
		b.are("begun while one and two are held", b.begun, "1", "2", "5", "6", "7")
		b.is("answers meanwhile", b.answers)
		b.open("2")
		b.is("answers while the first is held", b.answers)
		b.open("1")
		b.is("begun behind what touches their keys", b.begun[5:], "3", "4")
		b.is("answers", b.answers, "answer 1", "answer 2", "answer 3", "answer 4", "answer 5", "answer 6", "answer 7")
		wants(t, ended, nil)
		b.whole()
	})
}

func TestPipelineWindow(t *testing.T) {
	asks := []ask{{name: "1", bytes: 4}, {name: "2", bytes: 4}, {name: "3", bytes: 4}, {name: "4", bytes: 40}, {name: "5", bytes: 1}}
	held := []string{"1", "2", "3", "4", "5"}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, held...)
		b.Window = 2
		ended := b.serve(t.Context(), false, asks...)
		b.is("read into a window of two", b.read, "1", "2")
		b.open("2")
		b.is("read before the first is answered", b.read, "1", "2")
		b.open("1")
		b.is("read behind two answers", b.read, "1", "2", "3", "4")
		for _, name := range held[2:] {
			b.open(name)
		}
		wants(t, ended, nil)
		b.whole()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, held...)
		b.Bytes = 10
		ended := b.serve(t.Context(), false, asks...)
		b.is("read into ten bytes", b.read, "1", "2", "3")
		b.are("begun within them", b.begun, "1", "2")
		b.open("1")
		b.are("begun behind the first", b.begun, "1", "2", "3")
		b.open("2")
		b.are("begun beside one of four", b.begun, "1", "2", "3")
		b.open("3")
		b.is("begun alone", b.begun[3:], "4")
		b.open("4")
		b.open("5")
		wants(t, ended, nil)
		b.whole()
	})
}

func TestPipelineRoomOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "1", "2", "3", "4")
		b.All = NewRoom(10)
		one := b.serve(t.Context(), false, ask{name: "1", bytes: 6}, ask{name: "2", bytes: 4})
		b.are("begun in all the room", b.begun, "1", "2")
		two := b.serve(t.Context(), false, ask{name: "3", bytes: 100}, ask{name: "4", bytes: 1})
		b.is("read by who has to wait", b.read[2:], "3")
		b.are("begun without room", b.begun, "1", "2")
		b.open("1")
		b.are("begun without room for it all", b.begun, "1", "2")
		b.open("2")
		b.is("begun with all the room", b.begun[2:], "3")
		wants(t, one, nil)
		b.open("3")
		b.open("4")
		wants(t, two, nil)
		b.whole()
	})
}

// Whoever does not read its answers holds nobody else's room.
func TestPipelineDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.All = NewRoom(10)
		deaf := make(chan struct{})
		b.deaf = map[string]chan struct{}{"answer 1": deaf}
		one := b.serve(t.Context(), false, ask{name: "1", bytes: 10})
		two := b.serve(t.Context(), false, ask{name: "2", bytes: 10})
		b.is("answers beside one that is not read", b.answers, "answer 2")
		wants(t, two, nil)
		close(deaf)
		synctest.Wait()
		wants(t, one, nil)
		b.whole()
	})
}

// A request that panics is one that failed, of unknown outcome.
func TestPipelinePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Do = func(context.Context, ask) (string, error) { panic("what was sent") }
		err := <-b.serve(t.Context(), true, ask{name: "1", bytes: 1})
		if e, ok := errors.AsType[*eventstore.Error](err); err == nil || ok || strings.Contains(err.Error(), "what was sent") {
			t.Errorf("it ended with %v (%v)", err, e)
		}
		b.whole()
	})
}

var errAsk = errors.New("it failed")

func TestPipelineFirstErrorEndsIt(t *testing.T) {
	for name, failing := range map[string]ask{"carried out": {name: "2", keys: []string{"b"}, bytes: 1, err: errAsk}, "not read": {name: "2", keys: []string{"b"}, bytes: 1, bad: errAsk}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "1")
				b.Window = 3
				ended := b.serve(t.Context(), true, ask{name: "1", keys: []string{"a"}, bytes: 1}, failing, ask{name: "3", keys: []string{"a", "b"}, bytes: 1}, ask{name: "4", bytes: 1})
				b.is("answers before the first", b.answers)
				b.open("1")
				b.is("answers", b.answers, "answer 1")
				wants(t, ended, errAsk)
				if slices.Contains(b.begun, "3") || slices.Contains(b.begun, "4") {
					t.Errorf("begun behind the error: %v", b.begun)
				}
				b.whole()
			})
		})
	}
}

// What was begun is carried out whatever ends the stream, and what was not is not.
func TestPipelineCutShort(t *testing.T) {
	for name, end := range map[string]func(*bench, context.CancelFunc){
		"draining": func(b *bench, _ context.CancelFunc) { close(b.draining) },
		"context":  func(_ *bench, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "1")
				b.Window = 2
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := b.serve(ctx, true, ask{name: "1", bytes: 1}, ask{name: "2", bytes: 1}, ask{name: "3", bytes: 1})
				end(b, cancel)
				synctest.Wait()
				b.open("1")
				wants(t, ended, ErrCutShort)
				b.are("carried out", b.done, "1", "2")
				if told := slices.Contains(b.gone, "1"); told != (ctx.Err() != nil) {
					t.Errorf("whoever carries out is told that the stream has ended: %v", told)
				}
				b.is("answers", b.answers, "answer 1", "answer 2")
				b.whole()
			})
		})
	}
}

// Whoever may no longer is not carried out.
func TestPipelineStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Still = func(context.Context) error { return errAsk }
		wants(t, b.serve(t.Context(), true, ask{name: "1"}), errAsk)
		b.is("carried out", b.done)
		b.whole()
	})
}

func TestSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, x := newExchange()
		errSlow := errors.New("slow")
		s := &Sender{Op: "follow", Exchange: x, Slow: errSlow, SlowAfter: time.Second, StuckAfter: time.Minute}
		if err := s.Put(func() error { time.Sleep(time.Second); return nil }); err != nil || !s.Last().Equal(time.Now()) {
			t.Errorf("in time: %v, %v", err, s.Last())
		}
		err := s.Put(func() error { time.Sleep(time.Second + 1); return nil })
		if f, ok := errors.AsType[*eventstore.Error](err); !ok || f.Kind != errSlow || f.Op != "follow" || e.writeSet {
			t.Errorf("a little late: %v, reset %v", err, e.writeSet)
		}
		began := time.Now()
		_ = s.Put(func() error { time.Sleep(time.Hour); return nil })
		synctest.Wait()
		if !e.writeSet || e.writeBy.Sub(began) != time.Second+time.Minute {
			t.Errorf("stuck: reset %v after %v", e.writeSet, e.writeBy.Sub(began))
		}
		x.end()
		if !e.writeBy.IsZero() {
			t.Error("the next exchange has this one's deadline")
		}
		e.writeSet = false
		if x.WriteBy(time.Now()); e.writeSet {
			t.Error("a deadline behind the end")
		}
		var none *Exchange
		none.StopReading()
		none.Unbounded()
	})
}

func TestHandler(t *testing.T) {
	var found *Exchange
	Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { found = Of(r.Context()) })).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if found == nil || !found.ended || Of(t.Context()) != nil {
		t.Errorf("%+v", found)
	}
}
