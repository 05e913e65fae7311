//go:build !wasm

// Fuzzing what comes from outside: the bytes of modules, and the results of guests.

package wasm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// Whatever the bytes are, Inspect and Open end with an error or with a guest that can be
// called.
func FuzzModule(f *testing.F) {
	g := echo()
	f.Add(g.bytes())
	g.table, g.globals = []byte{0, 1}, 3
	g.imports = []imported{{"env", "abort", sigAbort}, {"wasi_snapshot_preview1", "proc_exit", sig(i32).to()}}
	g.extra = custom("name", append([]byte{0, 4}, text("abc")...))
	f.Add(g.bytes())
	f.Add(counting(count...).with("_initialize", sigVoid, code(i32Const(1), opMemoryGrow, 0, opDrop)...).bytes())
	f.Add(spinning().bytes())
	f.Add(numbered(1))
	f.Add([]byte("\x00asm\x0d\x00\x01\x00"))
	o := &wasm.Options{MaxModuleBytes: 64 << 10, MemoryPages: 32, Timeout: 20 * time.Millisecond, StartTimeout: 20 * time.Millisecond, Instances: 1}
	f.Fuzz(func(t *testing.T, module []byte) {
		i, inspected := wasm.Inspect(module)
		if i == nil || i.Bytes != len(module) || len(i.SHA256) != 64 {
			t.Fatalf("wanted at least hash and size, found %+v", i)
		}
		m, err := wasm.Open(t.Context(), module, o)
		if err != nil {
			if e, ok := errors.AsType[*wasm.Error](err); !ok || e.Error() == "" || m != nil {
				t.Fatalf("wanted an *Error, found %v", err)
			}
			return
		}
		defer func() {
			if err := m.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		if inspected != nil || i.Check() != nil {
			t.Fatalf("Open takes what Inspect refuses: %v, %v", inspected, i.Check())
		}
		for _, op := range i.Ops() {
			var request []byte
			if op != wasm.OpDescribe {
				request = []byte("hello")
			}
			for range 2 {
				reply, err := m.Call(t.Context(), op, request)
				if e, ok := errors.AsType[*wasm.Error](err); err != nil && !ok || ok && (reply != nil || e.MemoryUsed > e.MemoryLimit) {
					t.Fatalf("wanted a reply or an *Error, found %d bytes and %v", len(reply), err)
				}
			}
		}
	})
}

// A result of a guest is a reply exactly if all of it lies in memory and below the cap.
func FuzzResult(f *testing.F) {
	const size, most = 17 << 16, 1000
	for _, r := range []uint64{0, 1, 1 << 32, 8<<32 | 2, 8<<32 | most, 8<<32 | (most + 1), (size-1)<<32 | 1, (size-1)<<32 | 2, size << 32, 0xffffffff_ffffffff, 0xfffffff0_00000064} {
		f.Add(r)
	}
	// The result is what the request says.
	m := open(f, echo().decide(code(i32Const(arena), 0x29, 3, 0)...).bytes(), wasm.Options{MaxReplyBytes: most})
	f.Fuzz(func(t *testing.T, result uint64) {
		request := binary.LittleEndian.AppendUint64(nil, result)
		at, n := result>>32, result&0xffffffff
		reply, err := m.Call(t.Context(), wasm.OpDecide, request)
		switch {
		case result == 0 || at+n > size:
			isError(t, err, wasm.ErrBadReply)
			return
		case n > most:
			isError(t, err, wasm.ErrTooLarge)
			return
		}
		if err != nil || uint64(len(reply)) != n {
			t.Fatalf("%#x: wanted %d bytes, found %d and %v", result, n, len(reply), err)
		}
		if from := arena - int(at); from >= 0 && from+8 <= len(reply) && string(reply[from:from+8]) != string(request) {
			t.Fatalf("%#x: wanted the request in the reply at %d, found %q", result, from, reply)
		}
	})
}
