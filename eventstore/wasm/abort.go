//go:build !wasm

// The one import that is not WASI's: how AssemblyScript ends.

package wasm

import (
	"context"
	"encoding/binary"
	"fmt"
	"unicode/utf16"

	"github.com/tetratelabs/wazero/api"
)

// maxAbortUnits bounds what is read of a message, in UTF-16.
const maxAbortUnits = 512

// abortError is what a guest said when it called env.abort.
type abortError struct {
	message, file string
	line, column  uint32
}

func (e *abortError) Error() string {
	return fmt.Sprintf("abort: %q at %q line %d column %d", e.message, e.file, e.line, e.column)
}

// linkAbort gives the module env.abort, if it asks for it.
func (v *version) linkAbort(ctx context.Context) error {
	if !v.imports(moduleEnv) {
		return nil
	}
	i32 := api.ValueTypeI32
	_, err := v.runtime.NewHostModuleBuilder(moduleEnv).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(abort), []api.ValueType{i32, i32, i32, i32}, nil).
		Export(nameAbort).Instantiate(ctx)
	if err != nil {
		return v.mistake(ErrInvalid, "env.abort in the runtime", "", "", err)
	}
	return nil
}

// abort ends the call that runs; the runtime turns the panic into the call's error.
func abort(_ context.Context, guest api.Module, stack []uint64) {
	m := guest.Memory()
	panic(&abortError{
		message: readString(m, api.DecodeU32(stack[0])),
		file:    readString(m, api.DecodeU32(stack[1])),
		line:    api.DecodeU32(stack[2]),
		column:  api.DecodeU32(stack[3]),
	})
}

// readString reads a string of AssemblyScript: UTF-16 whose length in bytes stands before
// it. What is not one is empty.
func readString(m api.Memory, at uint32) string {
	if at < 4 {
		return ""
	}
	n, ok := m.ReadUint32Le(at - 4)
	if !ok {
		return ""
	}
	b, ok := m.Read(at, min(n, 2*maxAbortUnits)&^1)
	if !ok {
		return ""
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
