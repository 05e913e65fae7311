//go:build !wasm

// Many callers, few instances; modules that change under load; the end.

package wasm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func TestManyCallers(t *testing.T) {
	m := openGo(t, wasm.Options{Instances: 2, RecycleCalls: 40})
	var group sync.WaitGroup
	for caller := range 8 {
		group.Go(func() {
			for i := range 50 {
				request := fmt.Sprintf("%d of %d", i, caller)
				if i%10 == 9 { // some do harm
					if _, err := m.Call(t.Context(), wasm.OpDecide, []byte("n")); !errors.Is(err, wasm.ErrTrap) {
						t.Errorf("wanted a trap, found %v", err)
					}
				}
				reply, err := m.Call(t.Context(), wasm.OpDecide, []byte("e"+request))
				if err != nil || string(reply) != request {
					t.Errorf("%s: found %q %v", request, reply, err)
				}
			}
		})
	}
	group.Wait()
	if n := m.Idle(); n > 2 || m.InFlight() != 0 {
		t.Errorf("wanted at most 2 instances and no call, found %d and %d", n, m.InFlight())
	}
}

// spinning is a guest that runs until it is stopped when the request is '!'.
func spinning() *guest { return echo().decide(onBang(endless...)...) }

// spin starts calls that run until stop, which returns their errors.
func spin(t *testing.T, m *wasm.Module, calls int) (stop func() []error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	errs := make(chan error, calls)
	before := m.InFlight()
	for range calls {
		go func() {
			_, err := m.Call(ctx, wasm.OpDecide, []byte(bang))
			errs <- err
		}()
	}
	until(t, "calls that run", func() bool { return m.InFlight() == before+calls })
	return func() (all []error) {
		cancel()
		for range calls {
			all = append(all, <-errs)
		}
		return all
	}
}

func TestWaitingForAnInstance(t *testing.T) {
	m := open(t, spinning().bytes(), wasm.Options{Instances: 2})
	stop := spin(t, m, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	e := fails(t, m, ctx, "hello", wasm.ErrOverloaded)
	if !errors.Is(e, context.DeadlineExceeded) || !e.Temporary() || e.MemoryLimit != 0 {
		t.Errorf("wanted an overload, worth another try, found %+v", e)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if e := fails(t, m, ctx, "hello", wasm.ErrOverloaded); !errors.Is(e, context.Canceled) {
		t.Errorf("wanted the cancelling told, found %v", e)
	}
	for _, err := range stop() {
		isError(t, err, wasm.ErrCanceled)
	}
	answers(t, m, wasm.OpDecide, "hello", "hello")
}

// numbered is a guest that answers with its number, after as many turns of a loop as the
// request says.
func numbered(n byte) []byte {
	turns := code(i32Const(arena), 0x28, 2, 0, opGlobalSet, 0) // i32.load
	loop := code(opLoop, void, opGlobalGet, 0, i32Const(1), 0x6b, 0x22, 0, opGlobalSet, 0, opGet, 0, 0x0d, 0, opEnd)
	g := echo()
	g.globals, g.data = 1, map[uint32]string{8: string([]byte{n})}
	return g.decide(code(turns, loop, result(8, 1))...).bytes()
}

func turns(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

// Calls that run while the module is changed end well, on the old one.
func TestSwapWithCallsInFlight(t *testing.T) {
	for n := 10_000_000; ; n *= 4 {
		m := open(t, numbered(1), wasm.Options{Instances: 3})
		first := m.Hash()
		replies := make(chan string, 2)
		for range 2 {
			go func() {
				reply, err := m.Call(t.Context(), wasm.OpDecide, turns(n))
				replies <- fmt.Sprint(reply, err)
			}()
		}
		until(t, "calls that run", func() bool { return m.InFlight() == 2 || len(replies) > 0 })
		if err := m.Swap(t.Context(), numbered(2)); err != nil {
			t.Fatal(err)
		}
		answers(t, m, wasm.OpDecide, string(turns(1)), "\x02")
		ran := m.InFlight() == 2
		versions := m.Versions()
		for range 2 {
			if reply := <-replies; reply != "[1] <nil>" {
				t.Fatalf("wanted the old module's answer, found %s", reply)
			}
		}
		if m.Hash() == first {
			t.Error("wanted the hash of the new module")
		}
		if !ran && n < 1<<30/4 { // they were too fast to see anything
			continue
		}
		if !ran || versions != 2 {
			t.Errorf("wanted two calls on the old module after the change, found %v, of %d versions", ran, versions)
		}
		until(t, "the old module let go", func() bool { return m.Versions() == 1 })
		return
	}
}

func TestSwapAtRest(t *testing.T) {
	m := open(t, numbered(1), wasm.Options{Instances: 1})
	for n := byte(1); n < 4; n++ {
		answers(t, m, wasm.OpDecide, string(turns(1)), string([]byte{n}))
		if err := m.Swap(t.Context(), numbered(n+1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSwapUnderLoad(t *testing.T) {
	m := open(t, numbered(1), wasm.Options{Instances: 2})
	var newest atomic.Int64
	newest.Store(1)
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for calls := 0; ; calls++ {
				select {
				case <-done:
					return
				default:
				}
				from := newest.Load()
				reply, err := m.Call(t.Context(), wasm.OpDecide, turns(1000))
				if to := newest.Load() + 1; err != nil || len(reply) != 1 || int64(reply[0]) < from || int64(reply[0]) > to {
					t.Errorf("wanted an answer of a module from %d to %d, found %v %v", from, to, reply, err)
					return
				}
			}
		})
	}
	for n := byte(2); n < 12; n++ {
		if err := m.Swap(t.Context(), numbered(n)); err != nil {
			t.Error(err)
		}
		newest.Store(int64(n))
	}
	close(done)
	group.Wait()
	answers(t, m, wasm.OpDecide, string(turns(1)), "\x0b")
	if n := m.Versions(); n != 1 {
		t.Errorf("wanted one version left, found %d", n)
	}
}

// A module that does not load or start changes nothing.
func TestSwapRefused(t *testing.T) {
	m := open(t, numbered(1), wasm.Options{})
	hash := m.Hash()
	isError(t, m.Swap(t.Context(), []byte("#!/bin/sh")), wasm.ErrNotAModule)
	isError(t, m.Swap(t.Context(), echo().without("es1_describe").bytes()), wasm.ErrExport)
	isError(t, m.Swap(t.Context(), echo().with("_initialize", sigVoid, opUnreachable).bytes()), wasm.ErrTrap)
	answers(t, m, wasm.OpDecide, string(turns(1)), "\x01")
	if m.Hash() != hash || m.Versions() != 1 {
		t.Errorf("wanted nothing changed, found %s and %d versions", m.Hash(), m.Versions())
	}
}

func TestClose(t *testing.T) {
	m := open(t, spinning().bytes(), wasm.Options{Instances: 1})
	stop := spin(t, m, 1)
	waiter := make(chan error)
	go func() {
		_, err := m.Call(t.Context(), wasm.OpDecide, []byte("hello"))
		waiter <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if e := isError(t, m.Close(ctx), wasm.ErrDeadline); !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("wanted to hear that a call runs, found %v", e)
	}
	isError(t, <-waiter, wasm.ErrClosed)
	fails(t, m, t.Context(), "hello", wasm.ErrClosed)
	isError(t, m.Swap(t.Context(), echo().bytes()), wasm.ErrClosed)
	isError(t, m.CheckDeterminism(t.Context(), []wasm.Request{{Op: "describe"}}), wasm.ErrClosed)
	if n := m.Versions(); n != 1 {
		t.Errorf("wanted the module kept for the call that runs, found %d versions", n)
	}
	isError(t, stop()[0], wasm.ErrCanceled)
	for range 2 {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := m.Versions(); n != 0 {
		t.Errorf("wanted everything let go, found %d versions", n)
	}
}

// A reply stays what it was, whatever the instance does next.
func TestReplyIsACopy(t *testing.T) {
	m := open(t, echo().bytes(), wasm.Options{Instances: 1})
	first, err := m.Call(t.Context(), wasm.OpDecide, []byte("first"))
	if err != nil {
		t.Fatal(err)
	}
	answers(t, m, wasm.OpDecide, "other", "other")
	if string(first) != "first" {
		t.Errorf("the reply became %q", first)
	}
	copy(first, "MINE!")
	answers(t, m, wasm.OpDescribe, "", "{}")
}

// A guest in a loop is stopped when its time, or the caller's, is over. The loop ends by
// itself in the end, so that a host that does not stop it is found out.
func TestStopped(t *testing.T) {
	const long = 400_000_000
	m := open(t, numbered(1), wasm.Options{Instances: 1, Timeout: 50 * time.Millisecond})
	_, err := m.Call(t.Context(), wasm.OpDecide, turns(long))
	if e := isError(t, err, wasm.ErrDeadline); e.Found != "" || e.TimeLimit != 50*time.Millisecond || e.TimeUsed < e.TimeLimit || errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("wanted it stopped by the limit of the call, found %v", e)
	}
	m = open(t, numbered(1), wasm.Options{Instances: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = m.Call(ctx, wasm.OpDecide, turns(long))
	if e := isError(t, err, wasm.ErrDeadline); e.Found != "" || e.TimeLimit > 50*time.Millisecond || !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("wanted it stopped by the caller's deadline, found %v", e)
	}
	answers(t, m, wasm.OpDecide, string(turns(1)), "\x01")
}

// An instance that does not start fails its call alone.
func TestInstanceThatDoesNotStart(t *testing.T) {
	slow := echo() // to start, but not to answer
	slow.globals = 1
	slow.with("_initialize", sigVoid, code(i32Const(3_000_000), opGlobalSet, 0, opLoop, void, opGlobalGet, 0, i32Const(1), 0x6b, opGlobalSet, 0, opGlobalGet, 0, 0x0d, 0, opEnd)...)
	m := open(t, slow.decide(onBang(opUnreachable)...).bytes(), wasm.Options{Instances: 1})
	for range 3 {
		fails(t, m, t.Context(), bang, wasm.ErrTrap)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := m.Call(ctx, wasm.OpDecide, []byte("hello"))
		cancel()
		if e := isError(t, err, wasm.ErrDeadline); e.Op != "start" {
			t.Errorf("wanted no time to start, found %v", e)
		}
	}
	answers(t, m, wasm.OpDecide, "hello", "hello")
}
