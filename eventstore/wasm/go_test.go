//go:build !wasm

// A guest in Go, in good and bad moods. Whatever it does, the next call is answered.

package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func TestGoGuestAnswers(t *testing.T) {
	m := openGo(t, wasm.Options{Instances: 1})
	answers(t, m, wasm.OpDescribe, "", `{"name":"moods"}`)
	for _, op := range []string{wasm.OpDecide, wasm.OpEvolve, wasm.OpKeys, wasm.OpProject} {
		answers(t, m, op, "o", op)
	}
	for _, n := range []int{1, 1000, 1 << 20} {
		request := "e" + strings.Repeat("z", n-1)
		if n == 1 {
			request = "ez"
		}
		answers(t, m, wasm.OpDecide, request, request[1:])
	}
	// A reply is the caller's: the next call does not change it.
	first, err := m.Call(t.Context(), wasm.OpDecide, []byte("eone"))
	if err != nil {
		t.Fatal(err)
	}
	answers(t, m, wasm.OpDecide, "etwo", "two")
	if string(first) != "one" {
		t.Errorf("the first reply became %q", first)
	}
}

// A guest finds the same world wherever it runs, and there is little of it.
func TestGoGuestWorld(t *testing.T) {
	t.Setenv("SECRET", "of the host")
	m := openGo(t, wasm.Options{})
	var first []byte
	for range 3 {
		world, err := m.CallFresh(t.Context(), wasm.OpDecide, []byte("w"))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = world
		}
		if !bytes.Equal(world, first) {
			t.Errorf("wanted the world of the first, %q, found %q", first, world)
		}
	}
	if want := " env 0 args 0 file true dial true"; !strings.HasPrefix(string(first), "2022 ") || !strings.HasSuffix(string(first), want) {
		t.Errorf("wanted 2022 and%s, found %s", want, first)
	}
}

func TestGoGuestFaults(t *testing.T) {
	m := openGo(t, wasm.Options{Instances: 1, Name: "moods"})
	for _, c := range []struct {
		mood   string
		kind   error
		stderr string
	}{
		{"h", wasm.ErrMemory, "out of memory"},
		{"n", wasm.ErrTrap, "nil pointer dereference"},
		{"pthis", wasm.ErrTrap, "lost: this"},
		{"d", wasm.ErrTrap, "all goroutines are asleep"},
		{"x\x00", wasm.ErrTrap, ""},
		{"x\x03", wasm.ErrTrap, ""},
		{"x\xff", wasm.ErrTrap, ""}, // the exit code by which the runtime says that a caller cancelled
		{"q", wasm.ErrBadReply, ""},
		{"r", wasm.ErrMemory, "out of memory"}, // its stack is in memory
		{"", wasm.ErrTrap, "slice bounds out of range"},
	} {
		e := fails(t, m, t.Context(), c.mood, c.kind)
		if !strings.Contains(e.Stderr, c.stderr) {
			t.Errorf("%q: wanted %q on stderr, found %q", c.mood, c.stderr, e.Stderr)
		}
		if stack := strings.Contains(e.Stack, "(i32) i32\n") || strings.HasSuffix(e.Stack, "(i32) i64"); stack != (c.kind != wasm.ErrBadReply && c.mood[:min(1, len(c.mood))] != "x") {
			t.Errorf("%q: wanted the stack of a trap, found %q", c.mood, e.Stack)
		}
		if e.MemoryUsed < 1<<20 || e.MemoryUsed > e.MemoryLimit || e.MemoryLimit != 32<<20 || e.TimeUsed <= 0 || e.TimeLimit != time.Minute || e.Name != "moods" {
			t.Errorf("%q: the figures are wrong: %+v", c.mood, e)
		}
		if e.BadReply() != (c.kind == wasm.ErrBadReply) || e.Temporary() == e.BadReply() {
			t.Errorf("%q: wanted a bad reply final and all else temporary, found %v %v", c.mood, e.BadReply(), e.Temporary())
		}
		if errors.Is(e, context.Canceled) || errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("%q: wanted nothing of a context, found %v", c.mood, e)
		}
		// A fresh instance, which was never called before.
		answers(t, m, wasm.OpDecide, "c", "1")
	}
}

func TestGoGuestFloodsStderr(t *testing.T) {
	m := openGo(t, wasm.Options{MaxStderrBytes: 3000})
	e := fails(t, m, t.Context(), "f", wasm.ErrTrap)
	if len(e.Stderr) < 3000 || len(e.Stderr) > 3010 || !strings.HasPrefix(e.Stderr, "first words\n") || !strings.Contains(e.Stderr, "last words") {
		t.Errorf("wanted both ends of stderr in 3000 bytes, found %d: %.100q … %q", len(e.Stderr), e.Stderr, e.Stderr[max(0, len(e.Stderr)-100):])
	}
	if text := e.Error(); len(text) > 1000 || strings.Contains(text, "\n") {
		t.Errorf("wanted one short line, found %d bytes: %q", len(text), text)
	}
	// What one call said is not told of the next.
	if e := fails(t, m, t.Context(), "q", wasm.ErrBadReply); e.Stderr != "" {
		t.Errorf("wanted nothing on stderr, found %q", e.Stderr)
	}
}

func TestGoGuestOutOfTime(t *testing.T) {
	m := openGo(t, wasm.Options{Timeout: 100 * time.Millisecond, ProjectTimeout: 300 * time.Millisecond})
	began := time.Now()
	e := fails(t, m, t.Context(), "l", wasm.ErrDeadline)
	if took := time.Since(began); took < 100*time.Millisecond || took > 20*time.Second {
		t.Errorf("wanted the call ended after 100 ms, found %v", took)
	}
	if e.TimeLimit != 100*time.Millisecond || e.TimeUsed < e.TimeLimit || !e.Temporary() {
		t.Errorf("wanted the limit of 100 ms and more used, found %+v", e)
	}
	if errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("the caller's context did not end, but the error says so: %v", e)
	}
	if _, err := m.Call(t.Context(), wasm.OpProject, []byte("l")); isError(t, err, wasm.ErrDeadline).TimeLimit != 300*time.Millisecond {
		t.Errorf("wanted a limit of 300 ms for project, found %v", err)
	}
	answersSoon(t, m, "ehere", "here")
}

// answersSoon is answers for a Module with little time: a busy machine may need some tries.
func answersSoon(t testing.TB, m *wasm.Module, request, want string) {
	t.Helper()
	until(t, "an answer", func() bool {
		reply, err := m.Call(t.Context(), wasm.OpDecide, []byte(request))
		if err != nil && !errors.Is(err, wasm.ErrDeadline) {
			t.Fatal(err)
		}
		return string(reply) == want
	})
}

func TestCallersContext(t *testing.T) {
	m := openGo(t, wasm.Options{Instances: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	e := fails(t, m, ctx, "l", wasm.ErrDeadline)
	if !errors.Is(e, context.DeadlineExceeded) || e.TimeLimit > 50*time.Millisecond {
		t.Errorf("wanted the caller's deadline to be told, found %+v", e)
	}
	if e := fails(t, m, ctx, "e1", wasm.ErrDeadline); !errors.Is(e, context.DeadlineExceeded) || e.MemoryLimit != 0 {
		t.Errorf("wanted no call with a context that has ended, found %+v", e)
	}

	ctx, cancel = context.WithCancel(t.Context())
	stop := time.AfterFunc(50*time.Millisecond, cancel)
	defer stop.Stop()
	e = fails(t, m, ctx, "l", wasm.ErrCanceled)
	if !errors.Is(e, context.Canceled) || e.Temporary() || e.BadReply() {
		t.Errorf("wanted the caller's cancelling told, found %+v", e)
	}
	fails(t, m, ctx, "e1", wasm.ErrCanceled)
	answers(t, m, wasm.OpDecide, "c", "1")
}

// Whoever is trusted has no deadline, but nothing else is given up.
func TestTrusted(t *testing.T) {
	m := openGo(t, wasm.Options{Trusted: true, Timeout: time.Nanosecond, Instances: 1})
	answers(t, m, wasm.OpDecide, "eno time", "no time")
	if e := fails(t, m, t.Context(), "n", wasm.ErrTrap); e.TimeLimit != 0 || !strings.Contains(e.Error(), "of no limit") {
		t.Errorf("wanted no limit of time, found %v", e)
	}
	answers(t, m, wasm.OpDecide, "c", "1")
	fails(t, m, t.Context(), "h", wasm.ErrMemory)
	answers(t, m, wasm.OpDecide, "c", "1")
}

// The weight that every guest in Go has.
func TestGuestSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "least.wasm")
	if err := buildGuest("./testdata/least", path); err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i, err := wasm.Inspect(module)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d gzipped", i.Bytes, i.GzipBytes)
	if i.GzipBytes > 1_000_000 || i.GzipBytes < 1000 {
		t.Errorf("wanted a guest with nothing in it to weigh at most 1.0 MB gzipped, found %d bytes", i.GzipBytes)
	}
	if err := i.Check(); err != nil {
		t.Error(err)
	}
	if len(i.Ops()) != 5 || i.Functions < 500 || i.Memories[0].Min < 10 || len(i.Imports) < 5 {
		t.Errorf("wanted a guest in Go, found %+v", i)
	}
}

func TestCallUsage(t *testing.T) {
	m := openGo(t, wasm.Options{Instances: 1, MemoryPages: 200})
	for _, request := range []string{"ehello", "n"} {
		reply, used, err := m.CallUsage(t.Context(), wasm.OpDecide, []byte(request))
		if (request == "n") != (err != nil) || err == nil && string(reply) != "hello" {
			t.Fatalf("%s: found %q %v", request, reply, err)
		}
		if used.MemoryUsed < 1<<20 || used.MemoryUsed > used.MemoryLimit || used.MemoryLimit != 200*wasm.PageBytes || used.TimeUsed <= 0 || used.TimeLimit != time.Minute {
			t.Errorf("%s: the figures are wrong: %+v", request, used)
		}
		if want := " of 12.5 MiB, time "; !strings.Contains(used.String(), want) {
			t.Errorf("wanted %q, found %q", want, used)
		}
	}
}
