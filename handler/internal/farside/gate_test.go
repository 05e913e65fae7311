// The bound holds, whoever comes when; closing waits for those inside.

package farside

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

var call = &handler.Request{Op: handler.Decide, Stream: "loan-a"}

func TestGateBounds(t *testing.T) {
	g := NewGate(2, 3)
	for range 5 {
		if err := g.Enter(call); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Enter(call); !errors.Is(err, eventstore.ErrOverloaded) || !strings.Contains(err.Error(), "at most 5") {
		t.Errorf("the sixth: %v", err)
	}
	one, err := g.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two, err := g.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := g.Turn(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third turn of two: %v", err)
	}
	one()
	if _, err := g.Turn(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a turn for who is too late: %v", err)
	}
	three, err := g.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two()
	three()
	g.Leave()
	if err := g.Enter(call); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	if g.Inside() != 5 {
		t.Errorf("%d inside", g.Inside())
	}
}

func TestGateNobodyWaits(t *testing.T) {
	g := NewGate(1, -1)
	if err := g.Enter(call); err != nil {
		t.Fatal(err)
	}
	if err := g.Enter(call); !errors.Is(err, eventstore.ErrOverloaded) {
		t.Error(err)
	}
}

func TestGateCloses(t *testing.T) {
	g := NewGate(0, 0)
	var running, most, served atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		if err := g.Enter(call); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer g.Leave()
			done, err := g.Turn(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			for n := running.Add(1); ; {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(100 * time.Microsecond)
			running.Add(-1)
			served.Add(1)
		})
	}
	soon, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_ = g.Close(soon)
	if err := g.Enter(call); !errors.Is(err, eventstore.ErrOverloaded) {
		t.Errorf("entered a closed gate: %v", err)
	}
	if err := g.Close(t.Context()); err != nil || served.Load() != 200 {
		t.Errorf("closed before all had left: %v, %d", err, served.Load())
	}
	if most.Load() > DefaultRunning {
		t.Errorf("%d ran at once", most.Load())
	}
	wg.Wait()
}

func TestContain(t *testing.T) {
	var log bytes.Buffer
	h := Contain(handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) {
		panic(strings.Repeat("x", 10_000))
	}), slog.New(slog.NewTextHandler(&log, nil)))
	reply, err := h.Handle(t.Context(), call)
	if reply != nil || !errors.Is(err, handler.ErrFailed) || len(err.Error()) > 1000 {
		t.Errorf("%v, %.100v", reply, err)
	}
	if strings.Contains(err.Error(), "goroutine") || !strings.Contains(log.String(), "gate_test.go") {
		t.Error("the stack is for the log alone")
	}
	quiet := Contain(handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) { panic(nil) }), nil)
	if _, err := quiet.Handle(t.Context(), call); !errors.Is(err, handler.ErrFailed) {
		t.Error(err)
	}
}
