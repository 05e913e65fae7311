// A guest that fails, in every way it can, while a command is executed: each way is told
// apart, nothing is appended, and the next command finds everything as it was.

package carriers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/internal/guests"
)

// moody decides as the loan process does until it is in a mood: then a guest gets that.
type moody struct {
	guest *wasm.Module
	loan  handler.Handler
	mood  string
	calls int
}

func (m *moody) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	if op == wasm.OpDecide && m.mood != "" {
		m.calls++
		return m.guest.Call(ctx, op, []byte(m.mood))
	}
	return handler.Serve(ctx, m.loan, op, request), nil
}

func TestGuestsThatFail(t *testing.T) {
	binary, cache, err := guests.Build("../..", "./eventstore/wasm/testdata/guest", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Open(t.Context(), binary, &wasm.Options{CacheDir: cache, Timeout: time.Minute, StartTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	h := &moody{guest: m, loan: process(t)}
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	caller, err := handler.NewCaller(t.Context(), handler.Over(h, "moods"), &handler.Options{Timeout: time.Minute, Retries: 1})
	if err != nil {
		t.Fatal(err)
	}
	exec, err := guest.NewExecutor(t.Context(), store, caller, nil)
	if err != nil {
		t.Fatal(err)
	}
	command, err := wiretest.Command(loan.Submit{Order: loan.Order{At: time.Unix(0, 0)}, Amount: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i, fault := range []struct {
		mood  string
		kinds []error
		calls int
		limit time.Duration // of the command
	}{
		{"l", []error{handler.ErrFailed, context.DeadlineExceeded}, 1, time.Second}, // without end, while the command's time runs
		{"n", []error{handler.ErrFailed, wasm.ErrTrap}, 2, time.Minute},
		{"h", []error{handler.ErrFailed, wasm.ErrMemory}, 2, time.Minute},
		{"d", []error{handler.ErrFailed, wasm.ErrTrap}, 2, time.Minute}, // all its goroutines asleep
		{"q", []error{handler.ErrBadReply, wasm.ErrBadReply}, 1, time.Minute},
		{"e{}", []error{handler.ErrBadReply}, 1, time.Minute},
		{`e{"v":1,"events":[{"type":"loan.submitted","data":{}}]}`, []error{handler.ErrBadReply}, 1, time.Minute}, // of no request
	} {
		stream := eventstore.Stream(fmt.Sprint("application-", i))
		ctx, cancel := context.WithTimeout(t.Context(), fault.limit)
		h.mood, h.calls = fault.mood, 0
		_, err := exec.Execute(ctx, stream.Key(), guest.Command{Command: command})
		cancel()
		for _, kind := range fault.kinds {
			if !errors.Is(err, kind) {
				t.Errorf("mood %s: %v, want %v", fault.mood, err, kind)
			}
		}
		if h.calls != fault.calls {
			t.Errorf("mood %s: %d calls, want %d", fault.mood, h.calls, fault.calls)
		}
		if head, err := store.Head(t.Context(), stream); err != nil || head != (eventstore.Head{}) {
			t.Errorf("mood %s: the stream has %+v, %v", fault.mood, head, err)
		}
		h.mood = ""
		if _, err := exec.Execute(t.Context(), stream.Key(), guest.Command{Command: command}); err != nil {
			t.Errorf("after mood %s: %v", fault.mood, err)
		}
		if _, err := m.Call(t.Context(), wasm.OpDecide, []byte("efine")); err != nil {
			t.Errorf("after mood %s the guest: %v", fault.mood, err)
		}
	}
}
