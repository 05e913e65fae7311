// An Executor as caller and as service: each command once, whatever becomes of the replies.

package connectcarrier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/internal/carriertest"
)

// Twice under one ID: one decision, one event, the second time as what it is. The first
// reply is lost behind the append, as when the server dies then.
func TestTwiceIsOnce(t *testing.T) {
	for _, w := range plainWays() {
		store := carriertest.Store(t)
		var decided atomic.Int64
		var lost atomic.Bool
		path, served := connectcarrier.NewHandler(carriertest.Executing(t, store, &decided), nil)
		s := host(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.ServeHTTP(w, r)
			if decided.Load() == 1 && lost.CompareAndSwap(false, true) {
				panic(http.ErrAbortHandler)
			}
		}))
		c := w.caller(t, s, nil)
		one, err := c.Call(t.Context(), carriertest.Execute(5, "one"))
		if err != nil || one.Mark.Seqno != 1 || string(one.Events[0].Data) != `{"N":5}` {
			t.Fatalf("%v: %+v, %v", w, one, err)
		}
		two, err := c.Call(t.Context(), carriertest.Execute(5, "one"))
		if err != nil || !two.Replayed || two.Mark != one.Mark {
			t.Errorf("%v: %+v, %v", w, two, err)
		}
		if decided.Load() != 1 || carriertest.Length(t, store) != 1 || !lost.Load() {
			t.Errorf("%v: decided %d times, %d entries", w, decided.Load(), carriertest.Length(t, store))
		}
		_, err = c.Call(t.Context(), carriertest.Execute(carriertest.MostSum, "two"))
		if refused, ok := errors.AsType[*handler.Rejected](err); !ok || refused.Code != "too-big" {
			t.Errorf("%v: %v", w, err)
		}
		stale := carriertest.Execute(1, "three")
		stale.After = eventstore.Mark{Seqno: 9}
		if _, err := c.Call(t.Context(), stale); !errors.Is(err, eventstore.ErrAlreadyWritten) {
			t.Errorf("%v: %v", w, err)
		}
	}
}

// Requests that arrive twice, as a proxy may send them, at once, with the first reply used:
// each command once.
func TestDuplicated(t *testing.T) {
	store := carriertest.Store(t)
	path, served := connectcarrier.NewHandler(carriertest.Executing(t, store, nil), nil)
	s := host(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		var wg sync.WaitGroup
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		wg.Go(func() { served.ServeHTTP(nowhere{}, again) })
		r.Body = io.NopCloser(bytes.NewReader(body))
		served.ServeHTTP(w, r)
		wg.Wait()
	}))
	var wg sync.WaitGroup
	const commands = 20
	for range 2 {
		c := way{}.caller(t, s, &handler.Options{Timeout: 20 * time.Second})
		wg.Go(func() {
			for n := range commands {
				if _, err := c.Call(t.Context(), carriertest.Execute(1, fmt.Sprint(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := carriertest.Length(t, store); n != commands {
		t.Errorf("%d entries, want %d", n, commands)
	}
}

// nowhere is where a reply goes that nobody reads.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}

// An Executor whose Decider is behind Connect: it appends; a decider that dies costs a try.
func TestExecutorAsCaller(t *testing.T) {
	for _, w := range plainWays() {
		store := carriertest.Store(t)
		var asked atomic.Int64
		h := carriertest.Decider(t)
		s := serve(t, on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if asked.Add(1) <= 2 {
				panic(http.ErrAbortHandler)
			}
			return h.Handle(ctx, r)
		}), nil)
		x, err := guest.NewExecutor(t.Context(), store, w.caller(t, s, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			result, err := x.Execute(t.Context(), "a", guest.Command{Command: *carriertest.Addition(n)}, aggregate.CommandKey(fmt.Sprint(n)))
			if err != nil || result.Mark.Seqno != eventstore.Seqno(n+1) {
				t.Fatalf("%v: %+v, %v", w, result, err)
			}
		}
		if _, err := x.Execute(t.Context(), "a", guest.Command{Command: *carriertest.Addition(carriertest.MostSum)}); err == nil || err.Error() != "too-big: the sum would be 1010" {
			t.Errorf("%v: %v", w, err)
		}
		if n := carriertest.Length(t, store); n != 5 {
			t.Errorf("%v: %d entries", w, n)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	h := carriertest.Decider(b)
	s := serve(b, h, nil)
	b.Run("native", func(b *testing.B) { carriertest.Benchmark(b, h) })
	for _, w := range ways() {
		if w.gzip || w.json && (w.protocol != connectcarrier.Connect || w.http2) {
			continue
		}
		b.Run(w.String(), func(b *testing.B) { carriertest.Benchmark(b, w.client(b, s, connectcarrier.ClientOptions{})) })
	}
	echo := host(b, "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		_, _ = io.Copy(w, r.Body)
	}))
	data := handler.AppendRequest(nil, carriertest.OneKiB())
	for _, http2 := range []bool{false, true} {
		client := httpClient(b, http2)
		b.Run(map[bool]string{false: "bare HTTP/1.1", true: "bare HTTP/2"}[http2], func(b *testing.B) {
			carriertest.Measure(b, func() error { // what net/http takes itself
				resp, err := client.Post(echo.url, "application/proto", bytes.NewReader(data))
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				return err
			})
		})
	}
}
