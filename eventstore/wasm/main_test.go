//go:build !wasm

// What all tests share: a guest in Go, built and compiled once, and how a Module is
// looked at.

package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// envCompile has the test program compile the guest in the directory it names, and end.
const envCompile = "WATTLE_TEST_COMPILE"

var shared string // directory: guest.wasm, and cache with what was compiled of it

func TestMain(m *testing.M) {
	if dir := os.Getenv(envCompile); dir != "" {
		if err := compileGuest(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if shared, err = os.MkdirTemp("", "wattle-wasm-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(shared)
		os.Exit(code)
	}))
}

// goGuest is the guest with moods, built on first use, and compiled: the second Open of it
// takes a tenth of a second. The race detector would make the compiler ten times slower
// and find nothing in it, so it runs in a process without.
var goGuest = sync.OnceValues(func() ([]byte, error) {
	path := filepath.Join(shared, "guest.wasm")
	if err := buildGuest("./testdata/guest", path); err != nil {
		return nil, err
	}
	if !raced {
		if err := compileGuest(shared); err != nil {
			return nil, err
		}
	} else {
		c := exec.Command("go", "test", "-count=1", "-run", "^$", ".")
		c.Env = append(os.Environ(), envCompile+"="+shared)
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
	}
	return os.ReadFile(path)
})

func buildGuest(pkg, path string) error {
	c := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", path, pkg)
	c.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for wasip1: %w: %s", err, out)
	}
	return nil
}

func compileGuest(dir string) error {
	module, err := os.ReadFile(filepath.Join(dir, "guest.wasm"))
	if err != nil {
		return err
	}
	for _, trusted := range []bool{false, true} {
		if err := wasm.Precompile(context.Background(), module, filepath.Join(dir, "cache"), &wasm.Options{Trusted: trusted}); err != nil {
			return err
		}
	}
	return nil
}

// openGo opens the guest with moods; time is no matter if the options do not say so.
func openGo(t testing.TB, o wasm.Options) *wasm.Module {
	t.Helper()
	module, err := goGuest()
	if err != nil {
		t.Fatal(err)
	}
	o.CacheDir = filepath.Join(shared, "cache")
	return open(t, module, o)
}

// open opens a module and closes it with the test.
func open(t testing.TB, module []byte, o wasm.Options) *wasm.Module {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.ProjectTimeout == 0 {
		o.ProjectTimeout = time.Minute
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	m, err := wasm.Open(t.Context(), module, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

// fails calls and wants an error of a kind, with the facts that every error of a call has;
// afterwards the guest must answer as ever.
func fails(t testing.TB, m *wasm.Module, ctx context.Context, request string, kind error) *wasm.Error {
	t.Helper()
	reply, err := m.Call(ctx, wasm.OpDecide, []byte(request))
	e := isError(t, err, kind)
	if reply != nil {
		t.Errorf("wanted no reply with the error, found %q", reply)
	}
	if e.Op != wasm.OpDecide && e.Op != "start" || e.Module != m.Hash() || len(e.Module) != 64 {
		t.Errorf("wanted operation and hash, found %+v", e)
	}
	return e
}

func isError(t testing.TB, err, kind error) *wasm.Error {
	t.Helper()
	e, ok := errors.AsType[*wasm.Error](err)
	if !ok || !errors.Is(err, kind) || e.Kind != kind {
		t.Fatalf("wanted %v, found %v", kind, err)
	}
	return e
}

// answers wants a reply.
func answers(t testing.TB, m *wasm.Module, op, request, want string) {
	t.Helper()
	asked := []byte(request)
	reply, err := m.Call(t.Context(), op, asked)
	if err != nil {
		t.Fatalf("%s %q: %v", op, request, err)
	}
	if string(reply) != want {
		t.Fatalf("%s %q: wanted %q, found %q", op, request, want, reply)
	}
	if !bytes.Equal(asked, []byte(request)) {
		t.Fatalf("the request was changed to %q", asked)
	}
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
