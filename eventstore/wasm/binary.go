//go:build !wasm

// Reading the binary format of WebAssembly, as far as it says what a module imports and
// exports. Nothing here runs or compiles, and no allocation is larger than the module.

package wasm

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The sections that are read, by their numbers.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

var sectionNames = [...]string{"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data", "data count"}

// kinds of imports and exports, by their numbers.
var kindNames = [...]string{"func", "table", "memory", "global"}

// order is where a section stands in a module; data count stands before code.
func order(id byte) int {
	if id == sectionDataCount {
		return 2*sectionElement + 1 // behind element, before code
	}
	return 2 * int(id)
}

// reader walks over bytes; after its first mistake it gives zeros.
type reader struct {
	b   []byte
	at  int // offset of b in the module, for messages
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s at byte %d", what, r.at)
		r.b = nil
	}
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.fail("cut short")
		return nil
	}
	taken := r.b[:n:n]
	r.b, r.at = r.b[n:], r.at+int(n)
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// u32 reads an unsigned LEB128 of at most 32 bits.
func (r *reader) u32() (n uint32) {
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		if shift == 28 && b > 0x0f {
			break
		}
		n |= uint32(b&0x7f) << shift
		if b&0x80 == 0 {
			return n
		}
	}
	r.fail("number too long")
	return 0
}

// Most of what a module may have of each; compilers stay far below.
const (
	maxFunctions = 1_000_000
	maxOthers    = 100_000 // types, imports, exports, globals, segments
	maxValues    = 1_000   // of one type's parameters or results
)

// count reads how many elements follow, of at least one byte each.
func (r *reader) count(most uint32) uint32 {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)) || n > most {
		r.fail(fmt.Sprintf("count of %d, too high", n))
		return 0
	}
	return n
}

func (r *reader) name() string {
	b := r.take(r.u32())
	if !utf8.Valid(b) {
		r.fail("name that is not UTF-8")
		return ""
	}
	return string(b)
}

// limits reads the limits of a table or memory; those of threads and 64 bits are not
// core WebAssembly 2.
func (r *reader) limits() (l Limits) {
	switch flags := r.byte(); flags {
	case 0:
		l.Min = r.u32()
	case 1:
		l.Min, l.Bounded = r.u32(), true
		l.Max = r.u32()
	default:
		r.fail(fmt.Sprintf("limits of kind %d (threads and 64-bit memories are not supported)", flags))
	}
	return l
}

func valueType(b byte) string {
	switch b {
	case 0x7f:
		return "i32"
	case 0x7e:
		return "i64"
	case 0x7d:
		return "f32"
	case 0x7c:
		return "f64"
	case 0x7b:
		return "v128"
	case 0x70:
		return "funcref"
	case 0x6f:
		return "externref"
	}
	return fmt.Sprintf("0x%02x", b)
}

func (r *reader) valueTypes() string {
	var names []string
	for range r.count(maxValues) {
		names = append(names, valueType(r.byte()))
	}
	return "(" + strings.Join(names, " ") + ")"
}

// signature reads a function type: "(i32) (i64)".
func (r *reader) signature() string {
	if r.byte() != 0x60 {
		r.fail("type that is not a function's")
	}
	return r.valueTypes() + " " + r.valueTypes()
}

// described reads the type behind an import of a kind; types are the signatures.
func (r *reader) described(kind byte, types []string) string {
	switch kind {
	case 0:
		return r.typeAt(types, r.u32())
	case 1:
		t := valueType(r.byte())
		return t + " " + r.limits().String()
	case 2:
		return r.limits().String()
	case 3:
		t := valueType(r.byte())
		r.byte()
		return t
	}
	r.fail(fmt.Sprintf("import of kind %d", kind))
	return ""
}

func (r *reader) typeAt(types []string, i uint32) string {
	if uint64(i) >= uint64(len(types)) {
		r.fail("type that is not there")
		return ""
	}
	return types[i]
}

// layout is what read found.
type layout struct {
	Info
	tables     []Limits // its own, not imported ones
	tableTypes []byte
	tableAt    section // of the table section, if there
}

// section is where one lies in the module, with its header.
type section struct{ from, to int }

var errMagic = errors.New("does not begin as a module does")

// read reads a core module.
func read(module []byte) (*layout, error) {
	if len(module) < 8 || string(module[:4]) != "\x00asm" || string(module[4:8]) != "\x01\x00\x00\x00" {
		return nil, errMagic
	}
	var l layout
	p := parts{layout: &l}
	last := 0
	for r := (&reader{b: module[8:], at: 8}); len(r.b) > 0; {
		from := r.at
		id := r.byte()
		body := &reader{at: r.at}
		body.b = r.take(r.u32())
		body.at = r.at - len(body.b)
		if r.err == nil && int(id) >= len(sectionNames) {
			r.at = from
			r.fail(fmt.Sprintf("section of kind %d (exceptions and other additions to core WebAssembly 2 are not supported)", id))
		}
		if r.err == nil && id != sectionCustom && order(id) <= last {
			r.fail("sections out of order")
		}
		if r.err != nil {
			return nil, r.err
		}
		if id != sectionCustom {
			last = order(id)
		}
		s := Section{Name: sectionNames[id], Bytes: len(body.b)}
		p.section(id, &s, body)
		if body.err != nil {
			return nil, fmt.Errorf("%s section: %w", sectionNames[id], body.err)
		}
		if id == sectionTable {
			l.tableAt = section{from, r.at}
		}
		l.Sections = append(l.Sections, s)
	}
	return &l, p.resolve()
}

// parts collects what sections say.
type parts struct {
	*layout
	types     []string
	functions []string // signatures, imported ones first
	exported  []uint32 // index of each of Exports
}

func (p *parts) section(id byte, s *Section, r *reader) {
	switch id {
	case sectionCustom:
		if s.Custom = r.name(); s.Custom == "name" {
			p.Name = moduleName(r)
		}
		return
	case sectionType:
		for range r.count(maxOthers) {
			p.types = append(p.types, r.signature())
		}
	case sectionImport:
		for range r.count(maxOthers) {
			p.importOne(r)
		}
	case sectionFunction:
		for range r.count(maxFunctions) {
			p.functions = append(p.functions, r.typeAt(p.types, r.u32()))
			p.Functions++
		}
	case sectionTable:
		for range r.count(maxOthers) {
			p.tableTypes = append(p.tableTypes, r.byte())
			p.tables = append(p.tables, r.limits())
		}
	case sectionMemory:
		for range r.count(maxOthers) {
			p.Memories = append(p.Memories, r.limits())
		}
	case sectionExport:
		for range r.count(maxOthers) {
			p.exportOne(r)
		}
	case sectionStart:
		p.Start = true
		r.u32()
	case sectionGlobal, sectionElement, sectionData:
		r.count(maxOthers)
		return // the rest is of no interest here
	case sectionCode:
		r.count(maxFunctions)
		return
	default:
		return
	}
	if len(r.b) > 0 {
		r.fail("longer than what it holds")
	}
}

func (p *parts) importOne(r *reader) {
	i := Import{Module: r.name(), Name: r.name()}
	kind := r.byte()
	i.Type = r.described(kind, p.types)
	if r.err != nil {
		return
	}
	i.Kind = kindNames[kind]
	if kind == 0 {
		p.functions = append(p.functions, i.Type)
	}
	p.Imports = append(p.Imports, i)
}

func (p *parts) exportOne(r *reader) {
	e := Export{Name: r.name()}
	kind, index := r.byte(), r.u32()
	if int(kind) >= len(kindNames) {
		r.fail(fmt.Sprintf("export of kind %d", kind))
	}
	if r.err != nil {
		return
	}
	e.Kind = kindNames[kind]
	p.Exports, p.exported = append(p.Exports, e), append(p.exported, index)
}

// resolve gives exported functions their types, which may stand behind them.
func (p *parts) resolve() error {
	for i := range p.Exports {
		e := &p.Exports[i]
		if e.Kind != "func" {
			continue
		}
		if uint64(p.exported[i]) >= uint64(len(p.functions)) {
			return fmt.Errorf("export section: a function that is not there")
		}
		e.Type = p.functions[p.exported[i]]
	}
	return nil
}

// moduleName reads the module's own name from the name section; a mistake there is none
// of the module.
func moduleName(r *reader) string {
	n := &reader{b: r.b}
	if n.byte() != 0 {
		return ""
	}
	n.u32()
	return n.name()
}

// capTables returns the module with a bound on each of its tables, and a copy only if
// something changes: what can grow without bound on the host is not the guest's to decide.
func (l *layout) capTables(module []byte) ([]byte, error) {
	if len(l.tables) > maxTables {
		return nil, fmt.Errorf("wanted at most %d tables, found %d", maxTables, len(l.tables))
	}
	changed := false
	body := appendU32(nil, uint32(len(l.tables)))
	for i, t := range l.tables {
		if t.Min > maxTableElements {
			return nil, fmt.Errorf("wanted a table of at most %d elements, found %d", maxTableElements, t.Min)
		}
		if !t.Bounded || t.Max > maxTableElements {
			changed, t.Max = true, maxTableElements
		}
		body = append(body, l.tableTypes[i], 1)
		body = appendU32(appendU32(body, t.Min), t.Max)
	}
	if !changed {
		return module, nil
	}
	capped := make([]byte, 0, len(module)+len(body))
	capped = append(capped, module[:l.tableAt.from]...)
	capped = appendU32(append(capped, sectionTable), uint32(len(body)))
	capped = append(capped, body...)
	return append(capped, module[l.tableAt.to:]...), nil
}

// appendU32 appends an unsigned LEB128.
func appendU32(b []byte, n uint32) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}
