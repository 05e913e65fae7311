//go:build !wasm

// What a module says of itself, read without compiling it, and what of that is refused.

package wasm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// Info is what the bytes of a module say. Names are of the module's choice.
type Info struct {
	SHA256    string // of the bytes, hex
	Bytes     int
	GzipBytes int    // as gzip -9 has it
	Name      string // from the name section
	Component bool   // it is a component: nothing below is set

	Imports   []Import
	Exports   []Export
	Memories  []Limits // its own, in pages of 64 KiB; guests have one
	Functions int      // its own
	Start     bool     // it runs code of its own when an instance is made
	Sections  []Section
}

// Import is what a module wants from its host.
type Import struct {
	Module, Name string
	Kind         string // "func", "table", "memory" or "global"
	Type         string // of a function "(i32 i32) (i64)"
}

// Export is what a module gives to its host.
type Export struct {
	Name string
	Kind string // as of an Import
	Type string // of a function, else empty
}

// Limits of a memory or table.
type Limits struct {
	Min, Max uint32
	Bounded  bool // Max is set
}

// String is "17" or "17 to 512".
func (l Limits) String() string {
	if !l.Bounded {
		return strconv.FormatUint(uint64(l.Min), 10)
	}
	return fmt.Sprintf("%d to %d", l.Min, l.Max)
}

// Section is a part of a module's bytes.
type Section struct {
	Name   string // as "code"
	Custom string // name of a custom section
	Bytes  int
}

// The exports and imports of ABI es1.
const (
	exportMemory     = "memory"
	exportInitialize = "_initialize"
	exportAlloc      = "es1_alloc"
	exportPrefix     = "es1_"

	moduleWASI = "wasi_snapshot_preview1"
	moduleEnv  = "env"
	nameAbort  = "abort"
)

// ops are the operations; the index of one is that of its function in an instance.
var ops = [...]string{OpDescribe, OpDecide, OpEvolve, OpKeys, OpProject}

// component is how a component begins.
var component = []byte("\x00asm\x0d\x00\x01\x00")

// Inspect reads a module without compiling it. What it finds is complete only without an
// error; an ErrComponent and an ErrNotAModule come with an Info of hash and size.
func Inspect(module []byte) (*Info, error) {
	l, err := inspect(module, "", true)
	return &l.Info, err
}

// inspect reads a module; sized says if its size under gzip is wanted, which takes time.
func inspect(module []byte, name string, sized bool) (*layout, error) {
	sum := sha256.Sum256(module)
	basics := Info{SHA256: hex.EncodeToString(sum[:]), Bytes: len(module)}
	if sized {
		basics.GzipBytes = gzipBytes(module)
	}
	mistake := Error{Op: opOpen, Name: name, Module: basics.SHA256}
	if bytes.HasPrefix(module, component) {
		basics.Component = true
		mistake.Kind, mistake.Wanted, mistake.Found = ErrComponent, "a core module", "a component"
		mistake.Hint = "build it as a core module for wasip1 (Go: GOOS=wasip1 -buildmode=c-shared; Rust: wasm32-wasip1 or wasm32-unknown-unknown), without componentizing it"
		return &layout{Info: basics}, &mistake
	}
	l, err := read(module)
	if err != nil {
		mistake.Kind, mistake.Wanted, mistake.Cause = ErrNotAModule, "a module of core WebAssembly 2", err
		return &layout{Info: basics}, &mistake
	}
	l.SHA256, l.Bytes, l.GzipBytes = basics.SHA256, basics.Bytes, basics.GzipBytes
	return l, nil
}

// Check says what Open would refuse in the imports and exports: nil, or an *Error.
func (i *Info) Check() error {
	for _, m := range i.Imports {
		if err := i.checkImport(m); err != nil {
			return err
		}
	}
	if len(i.Memories) != 1 || !i.exports(exportMemory, "memory", "") {
		return i.refuse(ErrExport, `one memory of its own, exported as "memory"`, i.exported(exportMemory), "")
	}
	if !i.exports(exportAlloc, "func", "(i32) (i32)") {
		return i.refuse(ErrExport, "es1_alloc (i32) (i32)", i.exported(exportAlloc), hintExport)
	}
	for _, op := range ops {
		if err := i.checkOp(op); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(i.Exports, func(e Export) bool { return e.Name == exportInitialize }) && !i.exports(exportInitialize, "func", "() ()") {
		return i.refuse(ErrExport, "_initialize () ()", i.exported(exportInitialize), "")
	}
	return nil
}

const hintExport = "a guest in Go imports this package, calls Serve in init and is built with GOOS=wasip1 -buildmode=c-shared"

func (i *Info) checkImport(m Import) error {
	switch {
	case m.Kind == "func" && m.Module == moduleWASI: // that there is such a function is found when it is opened
	case m.Kind == "func" && m.Module == moduleEnv && m.Name == nameAbort && m.Type == "(i32 i32 i32 i32) ()":
	default:
		return i.refuse(ErrImport, "imports from wasi_snapshot_preview1 and env.abort alone",
			fmt.Sprintf("%s %.100q %.100q %s", m.Kind, m.Module, m.Name, m.Type), "guests get nothing from their host but requests")
	}
	return nil
}

// checkOp checks the export behind an operation; only describe has to be there.
func (i *Info) checkOp(op string) error {
	name := exportPrefix + op
	sig := "(i32) (i64)"
	if op == OpDescribe {
		sig = "() (i64)"
	}
	there := slices.ContainsFunc(i.Exports, func(e Export) bool { return e.Name == name })
	if i.exports(name, "func", sig) || !there && op != OpDescribe {
		return nil
	}
	return i.refuse(ErrExport, name+" "+sig, i.exported(name), hintExport)
}

// Ops are the operations that the module exports.
func (i *Info) Ops() (has []string) {
	for _, op := range ops {
		if slices.ContainsFunc(i.Exports, func(e Export) bool { return e.Name == exportPrefix+op && e.Kind == "func" }) {
			has = append(has, op)
		}
	}
	return has
}

func (i *Info) exports(name, kind, sig string) bool {
	return slices.Contains(i.Exports, Export{name, kind, sig})
}

// exported says as what a name is exported, for errors.
func (i *Info) exported(name string) string {
	for _, e := range i.Exports {
		if e.Name == name {
			return fmt.Sprintf("%s %s %s", e.Kind, e.Name, e.Type)
		}
	}
	return "no export of that name"
}

func (i *Info) refuse(kind error, wanted, found, hint string) error {
	return &Error{Kind: kind, Op: opOpen, Module: i.SHA256, Wanted: wanted, Found: found, Hint: hint}
}

func gzipBytes(b []byte) int {
	var n counter
	w, _ := gzip.NewWriterLevel(&n, gzip.BestCompression) // the level is right
	_, _ = w.Write(b)                                     // and a counter never fails
	_ = w.Close()
	return int(n)
}

type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
