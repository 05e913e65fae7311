//go:build !wasm

// What is refused when a module is opened, by name, and what Inspect says.

package wasm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func TestOpenRefuses(t *testing.T) {
	wasi := func(name string, s signature) *guest {
		g := echo()
		g.imports = []imported{{"wasi_snapshot_preview1", name, s}}
		return g
	}
	from := func(module, name string, s signature) *guest {
		g := echo()
		g.imports = []imported{{module, name, s}}
		return g
	}
	with := func(change func(g *guest)) *guest {
		g := echo()
		change(g)
		return g
	}
	good := echo().bytes()
	other := fmt.Sprintf("%064x", 7)
	for name, c := range map[string]struct {
		module []byte
		o      wasm.Options
		kind   error
		text   string // of the error
	}{
		"nothing":                     {nil, wasm.Options{}, wasm.ErrNotAModule, "does not begin"},
		"text":                        {[]byte("(module)"), wasm.Options{}, wasm.ErrNotAModule, "does not begin"},
		"another version":             {[]byte("\x00asm\x02\x00\x00\x00"), wasm.Options{}, wasm.ErrNotAModule, "does not begin"},
		"a component":                 {[]byte("\x00asm\x0d\x00\x01\x00\x07\x00"), wasm.Options{}, wasm.ErrComponent, "wasip1"},
		"empty module":                {good[:8], wasm.Options{}, wasm.ErrExport, "memory"},
		"too large":                   {good, wasm.Options{MaxModuleBytes: len(good) - 1}, wasm.ErrTooLarge, fmt.Sprint(len(good))},
		"not allowed":                 {good, wasm.Options{Allow: []string{other}}, wasm.ErrNotAllowed, "Allow"},
		"nothing allowed":             {good, wasm.Options{Allow: []string{}}, wasm.ErrNotAllowed, "Allow"},
		"unknown import":              {from("env", "log", sig(i32).to()).bytes(), wasm.Options{}, wasm.ErrImport, `"env" "log" (i32) ()`},
		"abort of another type":       {from("env", "abort", sig(i32).to()).bytes(), wasm.Options{}, wasm.ErrImport, `"env" "abort" (i32) ()`},
		"newer WASI":                  {from("wasi:io/poll@0.2.0", "poll", sigVoid).bytes(), wasm.Options{}, wasm.ErrImport, `"wasi:io/poll@0.2.0" "poll"`},
		"no such function":            {wasi("spawn", sigVoid).bytes(), wasm.Options{}, wasm.ErrImport, `"spawn"`},
		"function of another type":    {wasi("proc_exit", sigVoid).bytes(), wasm.Options{}, wasm.ErrImport, `"proc_exit" () ()`},
		"memory of the host":          {withImportedMemory(), wasm.Options{}, wasm.ErrImport, `memory "env" "memory"`},
		"no memory":                   {with(func(g *guest) { g.noMemory, g.data = true, nil }).bytes(), wasm.Options{}, wasm.ErrExport, "memory"},
		"no es1_alloc":                {echo().without("es1_alloc").bytes(), wasm.Options{}, wasm.ErrExport, "es1_alloc"},
		"no es1_describe":             {echo().without("es1_describe").bytes(), wasm.Options{}, wasm.ErrExport, "es1_describe"},
		"es1_alloc of another type":   {echo().with("es1_alloc", sigNone, i64Const(8)...).bytes(), wasm.Options{}, wasm.ErrExport, "es1_alloc () (i64)"},
		"es1_keys of another type":    {echo().with("es1_keys", sigNone, i64Const(8)...).bytes(), wasm.Options{}, wasm.ErrExport, "es1_keys () (i64)"},
		"_initialize of another type": {echo().with("_initialize", sigNone, i64Const(8)...).bytes(), wasm.Options{}, wasm.ErrExport, "_initialize () (i64)"},
		"more memory than allowed":    {good, wasm.Options{MemoryPages: 16}, wasm.ErrMemory, "16 pages of memory, found 17"},
		"exceptions":                  {append(slices.Clone(good), section(13, []byte{1, 0, 0})...), wasm.Options{}, wasm.ErrNotAModule, "kind 13"},
		"threads":                     {bytes.Replace(good, section(5, []byte{1, 0, 17}), section(5, []byte{1, 3, 17, 17}), 1), wasm.Options{}, wasm.ErrNotAModule, "threads"},
		"code that is not valid":      {echo().decide(opI32Add).bytes(), wasm.Options{}, wasm.ErrNotAModule, ""},
		"sections out of order":       {append(slices.Clone(good), section(1, []byte{0})...), wasm.Options{}, wasm.ErrNotAModule, "out of order"},
		"start that traps":            {echo().with("_initialize", sigVoid, opUnreachable).bytes(), wasm.Options{}, wasm.ErrTrap, "start"},
		"start without end":           {echo().with("_initialize", sigVoid, endless...).bytes(), wasm.Options{StartTimeout: 50 * time.Millisecond}, wasm.ErrDeadline, "of 50ms"},
		"start section without end": {with(func(g *guest) {
			g.export("spin", sigVoid, endless...)
			g.start = len(g.functions) - 1
		}).bytes(), wasm.Options{StartTimeout: 50 * time.Millisecond}, wasm.ErrDeadline, "of 50ms"},
		"start that wants it all": {echo().with("_initialize", sigVoid, code(i32Const(50), opMemoryGrow, 0, i32Const(-1), opI32Eq, opIf, void, opUnreachable, opEnd)...).bytes(), wasm.Options{MemoryPages: 20}, wasm.ErrMemory, "start"},
		"negative option":         {good, wasm.Options{MemoryPages: -1}, wasm.ErrInvalid, "MemoryPages"},
		"option too high":         {good, wasm.Options{MemoryPages: 65537}, wasm.ErrInvalid, "MemoryPages"},
		"negative time":           {good, wasm.Options{Timeout: -1}, wasm.ErrInvalid, "Timeout"},
		"hash that is none":       {good, wasm.Options{Allow: []string{"abc"}}, wasm.ErrInvalid, "Allow"},
		"cache in a file":         {good, wasm.Options{CacheDir: "load_test.go/cache"}, wasm.ErrInvalid, "CacheDir"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Name = "refused"
			m, err := wasm.Open(t.Context(), c.module, &c.o)
			if m != nil {
				t.Error("wanted no Module")
			}
			e := isError(t, err, c.kind)
			if !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("wanted %q in one line, found %q", c.text, err)
			}
			if e.Name != "refused" {
				t.Errorf("wanted the name of the guest, found %+v", e)
			}
			if e.BadReply() {
				t.Error("wanted no bad reply")
			}
		})
	}
}

// withImportedMemory is a module that wants its memory from the host.
func withImportedMemory() []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00"), section(2, list(append(append(text("env"), text("memory")...), 2, 0, 1)))...)
}

// Every beginning of a module is refused, without harm.
func TestTruncatedModules(t *testing.T) {
	g := echo()
	g.imports = []imported{{"env", "abort", sigAbort}}
	g.table = []byte{0, 1}
	module := g.bytes()
	kinds := []error{wasm.ErrNotAModule, wasm.ErrExport, wasm.ErrImport}
	data := section(11, list(code(0, i32Const(8), opEnd, text("{}"))))
	for n := range module {
		m, err := wasm.Open(t.Context(), module[:n], nil)
		if n == len(module)-len(data) { // all but its data, the last section: a module still
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			continue
		}
		if m != nil || !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }) {
			t.Errorf("%d of %d bytes: wanted a refusal, found %v", n, len(module), err)
		}
	}
	answers(t, open(t, module, wasm.Options{}), wasm.OpDecide, "hello", "hello")
}

func TestAllowed(t *testing.T) {
	module := echo().bytes()
	hash := fmt.Sprintf("%X", sha256.Sum256(module)) // either case will do
	m := open(t, module, wasm.Options{Allow: []string{fmt.Sprintf("%064x", 1), hash}})
	answers(t, m, wasm.OpDecide, "hello", "hello")
	if !strings.EqualFold(m.Hash(), hash) {
		t.Errorf("wanted %s, found %s", hash, m.Hash())
	}
	isError(t, m.Swap(t.Context(), echo().without("es1_keys").bytes()), wasm.ErrNotAllowed)
	answers(t, m, wasm.OpDecide, "hello", "hello")
}

func TestOpenWithoutTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := wasm.Open(ctx, echo().bytes(), nil)
	isError(t, err, wasm.ErrCanceled)
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err = wasm.Open(ctx, echo().bytes(), nil)
	isError(t, err, wasm.ErrDeadline)
}

func TestCallRefuses(t *testing.T) {
	m := open(t, echo().without("es1_project").bytes(), wasm.Options{MaxRequestBytes: 10})
	for _, c := range []struct {
		op, request string
		kind        error
	}{
		{"project", "hello", wasm.ErrExport},
		{"compute", "hello", wasm.ErrInvalid},
		{"", "hello", wasm.ErrInvalid},
		{"es1_decide", "hello", wasm.ErrInvalid},
		{"decide", "elevenbytes", wasm.ErrTooLarge},
		{"describe", "hello", wasm.ErrInvalid},
	} {
		reply, err := m.Call(t.Context(), c.op, []byte(c.request))
		if e := isError(t, err, c.kind); reply != nil || e.Module != m.Hash() || e.Temporary() || e.BadReply() {
			t.Errorf("%s %q: found %q and %+v", c.op, c.request, reply, e)
		}
	}
	answers(t, m, wasm.OpDecide, "ten bytes!", "ten bytes!")
	answers(t, m, wasm.OpDecide, "", "")
	answers(t, m, wasm.OpDescribe, "", "{}")
}

func TestInspect(t *testing.T) {
	g := echo().without("es1_keys")
	g.imports = []imported{{"env", "abort", sigAbort}, {"env", "odd\nname", sigNone}}
	g.table, g.start = []byte{1, 2, 9}, 3
	g.extra = append(custom("name", append([]byte{0, 10}, text("the guest")...)), custom("producers", []byte("xyz"))...)
	module := g.bytes()
	i, err := wasm.Inspect(module)
	if err != nil {
		t.Fatal(err)
	}
	if i.SHA256 != fmt.Sprintf("%x", sha256.Sum256(module)) || i.Bytes != len(module) || i.GzipBytes < 100 || i.GzipBytes > len(module)+50 {
		t.Errorf("hash and sizes: %+v", i)
	}
	if i.Name != "the guest" || i.Component || !i.Start || i.Functions != 5 {
		t.Errorf("name, start and functions: %+v", i)
	}
	if want := []wasm.Import{{"env", "abort", "func", "(i32 i32 i32 i32) ()"}, {"env", "odd\nname", "func", "() (i64)"}}; !slices.Equal(i.Imports, want) {
		t.Errorf("imports: %v", i.Imports)
	}
	if want := []wasm.Export{{"es1_alloc", "func", "(i32) (i32)"}, {"es1_describe", "func", "() (i64)"}, {"es1_decide", "func", "(i32) (i64)"},
		{"es1_evolve", "func", "(i32) (i64)"}, {"es1_project", "func", "(i32) (i64)"}, {"memory", "memory", ""}}; !slices.Equal(i.Exports, want) {
		t.Errorf("exports: %v", i.Exports)
	}
	if ops := i.Ops(); !slices.Equal(ops, []string{"describe", "decide", "evolve", "project"}) {
		t.Errorf("operations: %v", ops)
	}
	if len(i.Memories) != 1 || i.Memories[0].String() != "17" || (wasm.Limits{Min: 1, Max: 2, Bounded: true}).String() != "1 to 2" {
		t.Errorf("memory: %v", i.Memories)
	}
	sum := 8
	for _, s := range i.Sections {
		sum += s.Bytes + 2
	}
	if last := i.Sections[len(i.Sections)-1]; last.Custom != "producers" || sum > len(module) || sum < len(module)-20 {
		t.Errorf("sections: %+v, %d of %d bytes", i.Sections, sum, len(module))
	}
	if e := isError(t, i.Check(), wasm.ErrImport); !strings.Contains(e.Error(), `odd\nname`) {
		t.Errorf("wanted the odd name quoted, found %v", e)
	}
}

func TestInspectWhatIsNone(t *testing.T) {
	i, err := wasm.Inspect([]byte("\x00asm\x0d\x00\x01\x00"))
	if isError(t, err, wasm.ErrComponent); !i.Component || i.Bytes != 8 || len(i.SHA256) != 64 {
		t.Errorf("wanted a component, found %+v", i)
	}
	i, err = wasm.Inspect([]byte("#!/bin/sh"))
	if isError(t, err, wasm.ErrNotAModule); i.Component || i.Bytes != 9 || len(i.SHA256) != 64 {
		t.Errorf("wanted hash and size, found %+v", i)
	}
}
