// The host of a guest under test. It keeps what no guest of these may do: to trap, to run
// out of memory or time, or to answer with no reply.

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// compiled keeps what was compiled, for the next test.
var compiled string

func TestMain(m *testing.M) {
	var err error
	if compiled, err = os.MkdirTemp("", "wattle-guests-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(compiled)
	os.Exit(code)
}

type host struct {
	*wasm.Module
	mu     sync.Mutex
	faults error
}

// newHost opens a module. Time is no matter: these tests run beside others.
func newHost(t testing.TB, module []byte, o wasm.Options) *host {
	t.Helper()
	o.Timeout, o.StartTimeout, o.CacheDir = time.Minute, time.Minute, compiled
	m, err := wasm.Open(t.Context(), module, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	if imports := m.Info().Imports; len(imports) > 0 {
		t.Fatalf("wanted no imports, found %v", imports)
	}
	return &host{Module: m}
}

// Call calls the module.
func (h *host) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	reply, err := h.Module.Call(ctx, op, request)
	for _, fault := range []error{wasm.ErrTrap, wasm.ErrBadReply, wasm.ErrMemory, wasm.ErrDeadline} {
		if errors.Is(err, fault) {
			h.mu.Lock()
			h.faults = errors.Join(h.faults, fmt.Errorf("%s %.2000q: %w", op, request, err))
			h.mu.Unlock()
		}
	}
	return reply, err
}
