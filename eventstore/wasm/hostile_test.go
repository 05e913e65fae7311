//go:build !wasm

// Guests made to harm, by hand. Whatever they do ends as an error, and the next call is
// answered as ever.

package wasm_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// When request[0] is '!', do what is to be tested, else answer with the request.
func onBang(body ...byte) []byte {
	return code(i32Const(arena), 0x2d, 0, 0, i32Const('!'), opI32Eq, opIf, void, body, opEnd, answer)
}

const bang = "!"

func TestHostileReplies(t *testing.T) {
	const memory = 17 << 16
	for name, c := range map[string]struct {
		result []byte
		found  string
	}{
		"zero":                    {i64Const(0), "0, an internal error"},
		"beyond the end":          {result(memory-10, 11), "11 bytes at 1114102 of 1114112"},
		"pointer far beyond":      {result(0xffffffff, 1), "1 bytes at 4294967295"},
		"sum that overflows":      {result(0xfffffff0, 100), "100 bytes at 4294967280"},
		"2 GB":                    {result(8, 0x7fffffff), "2147483647 bytes"},
		"4 GB":                    {result(8, 0xffffffff), "4294967295 bytes"},
		"a byte over the cap":     {result(8, 1001), "1001 bytes"},
		"length without pointer":  {result(0, 0x7fffffff), "2147483647 bytes"},
		"pointer without a reply": {result(memory+1, 0), "0 bytes at 1114113"},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, echo().decide(onBang(code(c.result, opReturn)...)...).bytes(), wasm.Options{MaxReplyBytes: 1000})
			kind := wasm.ErrBadReply
			if name == "a byte over the cap" { // it is one, and in memory
				kind = wasm.ErrTooLarge
			}
			e := fails(t, m, t.Context(), bang, kind)
			if !strings.HasPrefix(e.Found, c.found) || e.BadReply() != (kind == wasm.ErrBadReply) || e.Temporary() {
				t.Errorf("wanted %q found, and final, found %v", c.found, e)
			}
			answers(t, m, wasm.OpDecide, "hello", "hello")
		})
	}
	// What is just inside is a reply.
	m := open(t, echo().decide(result(memory-1000, 1000)...).bytes(), wasm.Options{MaxReplyBytes: 1000})
	answers(t, m, wasm.OpDecide, "", strings.Repeat("\x00", 1000))
	m = open(t, echo().decide(result(8, 0)...).bytes(), wasm.Options{})
	answers(t, m, wasm.OpDecide, "", "")
}

func TestHostileAlloc(t *testing.T) {
	for name, at := range map[string]int32{"last byte": 17<<16 - 1, "far beyond": -1} {
		t.Run(name, func(t *testing.T) {
			m := open(t, echo().with("es1_alloc", sigAlloc, i32Const(at)...).bytes(), wasm.Options{})
			if e := fails(t, m, t.Context(), "hello", wasm.ErrBadReply); !strings.Contains(e.Wanted, "es1_alloc") {
				t.Errorf("wanted es1_alloc blamed, found %v", e)
			}
			answers(t, m, wasm.OpDescribe, "", "{}")
		})
	}
	m := open(t, echo().with("es1_alloc", sigAlloc, opUnreachable).bytes(), wasm.Options{})
	fails(t, m, t.Context(), "hello", wasm.ErrTrap)
	answers(t, m, wasm.OpDescribe, "", "{}")
}

var endless = code(opLoop, void, opBr, 0, opEnd)

func TestHostileCode(t *testing.T) {
	g := echo()
	self := len(g.functions) - 1 // es1_decide will be the last
	for name, c := range map[string]struct {
		body []byte
		kind error
	}{
		"trap":                {code(opUnreachable), wasm.ErrTrap},
		"endless recursion":   {code(opGet, 0, opCall, self, opReturn), wasm.ErrTrap},
		"endless loop":        {endless, wasm.ErrDeadline},
		"all the memory":      {code(i32Const(60_000), opMemoryGrow, 0, i32Const(-1), opI32Eq, opIf, void, opUnreachable, opEnd), wasm.ErrMemory},
		"a page too many":     {code(i32Const(24), opMemoryGrow, 0, i32Const(-1), opI32Eq, opIf, void, opUnreachable, opEnd), wasm.ErrMemory},
		"write out of bounds": {code(i32Const(-1), i32Const(1), opStore8, 0, 0), wasm.ErrTrap},
	} {
		t.Run(name, func(t *testing.T) {
			o := wasm.Options{MemoryPages: 40, Instances: 1}
			if c.kind == wasm.ErrDeadline {
				o.Timeout = 100 * time.Millisecond
			}
			m := open(t, echo().decide(onBang(c.body...)...).bytes(), o)
			for range 2 {
				e := fails(t, m, t.Context(), bang, c.kind)
				if name != "endless loop" && name != "endless recursion" && !strings.Contains(e.Stack, "(i32) i64") {
					t.Errorf("wanted a stack, found %q", e.Stack)
				}
				answers(t, m, wasm.OpProject, "hello", "hello") // which has more time
			}
		})
	}
}

// tree is a guest that calls 2^depth functions without a loop, where nothing looks at the
// deadline: 30 deep it ran for 9 s with a deadline of 200 ms, while the garbage collector
// stood still, and so the process.
func tree(depth int) *guest {
	g := echo().without("es1_decide")
	leaf := len(g.functions)
	g.functions = append(g.functions, function{sig: sigVoid})
	for i := range depth {
		g.functions = append(g.functions, function{sig: sigVoid, body: code(opCall, uleb(leaf+i), opCall, uleb(leaf+i))})
	}
	return g.decide(onBang(code(opCall, uleb(leaf+depth))...)...)
}

// What cannot be stopped in time is an error at least. With one processor nothing that
// watches the deadline runs beside the guest.
func TestLateAnswer(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	m := open(t, tree(22).bytes(), wasm.Options{Timeout: 3 * time.Millisecond, Instances: 1})
	for late, tries := false, 0; !late; tries++ {
		e := fails(t, m, t.Context(), bang, wasm.ErrDeadline)
		if e.TimeUsed < e.TimeLimit || !e.Temporary() {
			t.Errorf("wanted the time over, found %+v", e)
		}
		if late = e.Found == "one that came late"; tries == 100 {
			t.Fatalf("wanted an answer that came late, found %v each time", e)
		}
		answers(t, m, wasm.OpProject, "hello", "hello") // which has more time
	}
}

// A guest that is refused memory and copes has done nothing wrong, nor has a later trap
// of it to do with memory.
func TestRefusedMemoryIsNoFault(t *testing.T) {
	body := code(i32Const(1000), opMemoryGrow, 0, opDrop, answer)
	trap := code(opUnreachable)
	m := open(t, echo().decide(body...).with("es1_keys", sigOp, trap...).bytes(), wasm.Options{MemoryPages: 40, Instances: 1})
	answers(t, m, wasm.OpDecide, "hello", "hello")
	_, err := m.Call(t.Context(), wasm.OpKeys, nil)
	isError(t, err, wasm.ErrTrap)
}

// Tables lie beside the memory of a guest, on the host: they are bounded too.
func TestTablesAreBounded(t *testing.T) {
	grow := code(0xd0, 0x70, i32Const(300_000), 0xfc, 0x0f, 0, i32Const(-1), opI32Eq, opIf, void, result(8, 2), opReturn, opEnd, answer)
	for name, limits := range map[string][]byte{"no maximum": {0, 1}, "a high one": {1, 1, 0xff, 0xff, 0xff, 0x7f}} {
		t.Run(name, func(t *testing.T) {
			g := echo().decide(grow...)
			g.table = limits
			answers(t, open(t, g.bytes(), wasm.Options{}), wasm.OpDecide, "it grew", "{}")
		})
	}
	// What stays within the bound works, in a table whose module had none.
	g := echo().decide(code(0xd0, 0x70, i32Const(1000), 0xfc, 0x0f, 0, i32Const(1), opI32Eq, opIf, void, result(8, 2), opReturn, opEnd, answer)...)
	g.table = []byte{0, 1}
	answers(t, open(t, g.bytes(), wasm.Options{}), wasm.OpDecide, "it did not", "{}")

	g = echo()
	g.table = append([]byte{0}, uleb(1<<20)...)
	_, err := wasm.Open(t.Context(), g.bytes(), nil)
	isError(t, err, wasm.ErrNotAModule)
}

// The host's own functions, called with what overflows and points nowhere.
func TestHostileCallsOfWASI(t *testing.T) {
	i32s := func(n int) signature { return sig(make4(n)...).to(i32) }
	for _, c := range []struct {
		name string
		args []int32
	}{
		{"poll_oneoff", []int32{0, 0, 89478486, 0}}, // times 48 is 32 in 32 bits
		{"poll_oneoff", []int32{-1, -1, -1, -1}},
		{"fd_write", []int32{2, 0, -1, 0}},
		{"fd_write", []int32{2, 0, 0x20000001, 0}}, // times 8 is 8
		{"fd_read", []int32{0, 0, 0x20000001, 0}},
		{"random_get", []int32{8, -1}},
		{"args_get", []int32{-1, -1}},
		{"environ_get", []int32{-1, -1}},
		{"fd_close", []int32{2}},
		{"fd_renumber", []int32{0, 1}},
		{"fd_prestat_get", []int32{3, -1}},
		{"sched_yield", nil},
	} {
		t.Run(fmt.Sprint(c.name, c.args), func(t *testing.T) {
			g := echo()
			g.imports = []imported{{"wasi_snapshot_preview1", c.name, i32s(len(c.args))}}
			var body []byte
			for _, a := range c.args {
				body = append(body, i32Const(a)...)
			}
			body = code(body, opCall, 0, opDrop)
			m := open(t, g.decide(onBang(body...)...).bytes(), wasm.Options{Instances: 1})
			began := time.Now()
			if reply, err := m.Call(t.Context(), wasm.OpDecide, []byte(bang)); err != nil {
				isError(t, err, wasm.ErrTrap)
			} else if string(reply) != bang {
				t.Errorf("wanted the request, found %q", reply)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			answers(t, m, wasm.OpDecide, "hello", "hello")
		})
	}
}

func make4(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = i32
	}
	return b
}

// A guest that ends itself, at any time, by WASI.
func TestGuestEndsItself(t *testing.T) {
	exit := code(i32Const(0), opCall, 0)
	ending := func() *guest {
		g := echo()
		g.imports = []imported{{"wasi_snapshot_preview1", "proc_exit", sig(i32).to()}}
		return g
	}
	m := open(t, ending().decide(onBang(exit...)...).bytes(), wasm.Options{Instances: 1})
	fails(t, m, t.Context(), bang, wasm.ErrTrap)
	answers(t, m, wasm.OpDecide, "hello", "hello")

	_, err := wasm.Open(t.Context(), ending().with("_initialize", sigVoid, exit...).bytes(), nil)
	if e := isError(t, err, wasm.ErrTrap); e.Op != "start" {
		t.Errorf("wanted it to fail in its start, found %v", e)
	}
}

func TestAbort(t *testing.T) {
	utf := func(s string) string {
		units := utf16.Encode([]rune(s))
		b := []byte{byte(len(units) * 2), byte(len(units) * 2 >> 8), byte(len(units) * 2 >> 16), 0}
		for _, u := range units {
			b = append(b, byte(u), byte(u>>8))
		}
		return string(b)
	}
	for name, c := range map[string]struct {
		message, file int32
		found         string
	}{
		"said":         {104, 204, `abort: "no such loan: é😀" at "guest.ts" line 12 column 34`},
		"nothing said": {0, 0, `abort: "" at "" line 12 column 34`},
		"nowhere":      {-1, 3, `abort: "" at "" line 12 column 34`},
		"too long":     {304, 204, `abort: ""`},
	} {
		t.Run(name, func(t *testing.T) {
			g := echo()
			g.imports = []imported{{"env", "abort", sigAbort}}
			g.data[100], g.data[200], g.data[300] = utf("no such loan: é😀"), utf("guest.ts"), "\xff\xff\xff\xff"
			m := open(t, g.decide(onBang(code(i32Const(c.message), i32Const(c.file), i32Const(12), i32Const(34), opCall, 0)...)...).bytes(), wasm.Options{})
			e := fails(t, m, t.Context(), bang, wasm.ErrTrap)
			if name == "too long" {
				if !strings.HasPrefix(e.Found, `abort: "`) || len(e.Found) > 5000 {
					t.Errorf("wanted a message cut short, found %d bytes: %.100q", len(e.Found), e.Found)
				}
			} else if e.Found != c.found {
				t.Errorf("wanted %s, found %s", c.found, e.Found)
			}
			answers(t, m, wasm.OpDecide, "hello", "hello")
		})
	}
}

// counting is a guest that counts its calls in a global and then does something.
func counting(body ...byte) *guest {
	g := echo()
	g.globals = 1
	return g.decide(code(opGlobalGet, 0, i32Const(1), opI32Add, opGlobalSet, 0, body)...)
}

// A guest that works once and then traps: an instance that trapped is never met again.
func TestInstanceAfterATrap(t *testing.T) {
	second := code(opGlobalGet, 0, i32Const(2), opI32Eq, opIf, void, opUnreachable, opEnd, answer)
	m := open(t, counting(second...).bytes(), wasm.Options{Instances: 1})
	for range 5 {
		answers(t, m, wasm.OpDecide, "first", "first")
		fails(t, m, t.Context(), "second", wasm.ErrTrap)
	}
	// After a bad reply too.
	second = code(opGlobalGet, 0, i32Const(2), opI32Eq, opIf, void, i64Const(0), opReturn, opEnd, answer)
	m = open(t, counting(second...).bytes(), wasm.Options{Instances: 1})
	for range 5 {
		answers(t, m, wasm.OpDecide, "first", "first")
		fails(t, m, t.Context(), "second", wasm.ErrBadReply)
	}
}

// count answers with how often the instance was called, in one byte.
var count = code(i32Const(arena), opGlobalGet, 0, opStore8, 0, 0, result(arena, 1))

func TestRecycling(t *testing.T) {
	m := open(t, counting(count...).bytes(), wasm.Options{Instances: 1, RecycleCalls: 3})
	for i := range 10 {
		answers(t, m, wasm.OpDecide, "", string(rune(i%3+1)))
	}
	// A page more with every call: it begins with 17, and is replaced above 20 of 40.
	grow := code(i32Const(1), opMemoryGrow, 0, opDrop, i32Const(arena), opMemorySize, 0, opStore8, 0, 0, result(arena, 1))
	m = open(t, echo().decide(grow...).bytes(), wasm.Options{Instances: 1, MemoryPages: 40})
	for i := range 10 {
		answers(t, m, wasm.OpDecide, "", string(rune(18+i%4)))
	}
}

func TestCallFresh(t *testing.T) {
	m := open(t, counting(count...).bytes(), wasm.Options{Instances: 1})
	answers(t, m, wasm.OpDecide, "", "\x01")
	answers(t, m, wasm.OpDecide, "", "\x02")
	for range 3 {
		if reply, err := m.CallFresh(t.Context(), wasm.OpDecide, nil); err != nil || string(reply) != "\x01" {
			t.Fatalf("wanted an instance never called before, found %q %v", reply, err)
		}
	}
	if n := m.Idle(); n != 1 {
		t.Errorf("wanted one instance to wait, found %d", n)
	}
}
