//go:build !wasm

// Guests written by hand, byte by byte: what compilers never make is what is to be tested.

package wasm_test

import (
	"maps"
	"slices"
)

// Opcodes, as far as guests here use them.
const (
	opUnreachable = 0x00
	opLoop        = 0x03
	opIf          = 0x04
	opEnd         = 0x0b
	opBr          = 0x0c
	opReturn      = 0x0f
	opCall        = 0x10
	opDrop        = 0x1a
	opGet         = 0x20
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opStore8      = 0x3a
	opMemorySize  = 0x3f
	opMemoryGrow  = 0x40
	opI32         = 0x41
	opI64         = 0x42
	opI32Eqz      = 0x45
	opI32Eq       = 0x46
	opI32Add      = 0x6a
	opI64Or       = 0x84
	opI64Shl      = 0x86
	opI64FromI32  = 0xad // unsigned

	void = 0x40 // type of a block
	i32  = 0x7f
	i64  = 0x7e
)

// Signatures that guests use.
var (
	sigAlloc = sig(i32).to(i32)
	sigOp    = sig(i32).to(i64)
	sigNone  = sig().to(i64)
	sigVoid  = sig().to()
	sigAbort = sig(i32, i32, i32, i32).to()
)

type signature struct{ from, result []byte }

func sig(from ...byte) signature                { return signature{from: from} }
func (s signature) to(result ...byte) signature { s.result = result; return s }

type function struct {
	sig    signature
	body   []byte
	export string
}

type imported struct {
	module, name string
	sig          signature
}

// guest is a module in the making. Its fields are what is encoded.
type guest struct {
	imports   []imported
	functions []function
	pages     uint32 // of memory, at first
	table     []byte // limits of a table, if any
	globals   int    // mutable i32, of value 0
	start     int    // index of a function, if not 0
	data      map[uint32]string
	noMemory  bool
	extra     []byte // sections behind all others
}

// arena is where hand-made guests take requests and answer from.
const arena = 1024

// echo is a guest of good manners: it describes itself as {} and answers with the request.
func echo() *guest {
	g := &guest{pages: 17, data: map[uint32]string{8: "{}"}} // room for requests of 1 MiB
	g.export("es1_alloc", sigAlloc, i32Const(arena)...)
	g.export("es1_describe", sigNone, result(8, 2)...)
	for _, name := range []string{"es1_decide", "es1_evolve", "es1_keys", "es1_project"} {
		g.export(name, sigOp, answer...)
	}
	return g
}

// answer returns the request as the reply.
var answer = code(i64Const(arena), i64Const(32), opI64Shl, opGet, 0, opI64FromI32, opI64Or)

// result is pointer and length of a reply.
func result(at, n uint32) []byte { return i64Const(int64(uint64(at)<<32 | uint64(n))) }

func (g *guest) export(name string, s signature, body ...byte) {
	g.functions = append(g.functions, function{s, body, name})
}

// decide replaces what es1_decide does.
func (g *guest) decide(body ...byte) *guest { return g.with("es1_decide", sigOp, body...) }

// with replaces an exported function, or adds it.
func (g *guest) with(name string, s signature, body ...byte) *guest {
	g.without(name)
	g.export(name, s, body...)
	return g
}

func (g *guest) without(name string) *guest {
	g.functions = slices.DeleteFunc(g.functions, func(f function) bool { return f.export == name })
	return g
}

// code joins bytes and pieces of code.
func code(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		default:
			panic("neither byte nor code")
		}
	}
	return b
}

func i32Const(n int32) []byte { return append([]byte{opI32}, sleb(int64(n))...) }
func i64Const(n int64) []byte { return append([]byte{opI64}, sleb(n)...) }

func sleb(n int64) (b []byte) {
	for {
		low := byte(n & 0x7f)
		if n >>= 7; n == 0 && low&0x40 == 0 || n == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

func uleb(n int) (b []byte) {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func text(s string) []byte { return append(uleb(len(s)), s...) }

// list is a vector of the format: how many, then each.
func list(items ...[]byte) []byte {
	b := uleb(len(items))
	for _, i := range items {
		b = append(b, i...)
	}
	return b
}

func section(id byte, body []byte) []byte {
	return append(append([]byte{id}, uleb(len(body))...), body...)
}

// custom is a custom section.
func custom(name string, body []byte) []byte { return section(0, append(text(name), body...)) }

// bytes encodes the guest.
func (g *guest) bytes() []byte {
	var types, imports, functions, exports, bodies, data, globals [][]byte
	typeOf := func(s signature) []byte {
		t := append([]byte{0x60}, append(append(uleb(len(s.from)), s.from...), append(uleb(len(s.result)), s.result...)...)...)
		i := slices.IndexFunc(types, func(o []byte) bool { return slices.Equal(o, t) })
		if i < 0 {
			i, types = len(types), append(types, t)
		}
		return uleb(i)
	}
	for _, m := range g.imports {
		imports = append(imports, append(append(text(m.module), text(m.name)...), append([]byte{0}, typeOf(m.sig)...)...))
	}
	for i, f := range g.functions {
		functions = append(functions, typeOf(f.sig))
		if f.export != "" {
			exports = append(exports, append(text(f.export), append([]byte{0}, uleb(len(imports)+i)...)...))
		}
		body := append([]byte{0}, append(f.body, opEnd)...)
		bodies = append(bodies, append(uleb(len(body)), body...))
	}
	for range g.globals {
		globals = append(globals, []byte{i32, 1, opI32, 0, opEnd})
	}
	b := []byte("\x00asm\x01\x00\x00\x00")
	b = append(b, section(1, list(types...))...)
	b = append(b, section(2, list(imports...))...)
	b = append(b, section(3, list(functions...))...)
	if g.table != nil {
		b = append(b, section(4, list(append([]byte{0x70}, g.table...)))...)
	}
	if !g.noMemory {
		b = append(b, section(5, list(append([]byte{0}, uleb(int(g.pages))...)))...)
		exports = append(exports, append(text("memory"), 2, 0))
	}
	b = append(b, section(6, list(globals...))...)
	b = append(b, section(7, list(exports...))...)
	if g.start != 0 {
		b = append(b, section(8, uleb(g.start))...)
	}
	b = append(b, section(10, list(bodies...))...)
	for _, at := range slices.Sorted(maps.Keys(g.data)) {
		data = append(data, append(append([]byte{0}, append(i32Const(int32(at)), opEnd)...), text(g.data[at])...))
	}
	b = append(b, section(11, list(data...))...)
	return append(b, g.extra...)
}
