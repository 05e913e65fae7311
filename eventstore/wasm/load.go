//go:build !wasm

// From bytes to a version of a module: checked, compiled, ready to make instances.

package wasm

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

const (
	opOpen  = "open"
	opStart = "start"
)

// version is a compiled module, with a runtime of its own so that all of it can be let go.
// Its pool is of the Module.
type version struct {
	o       *Options
	info    Info
	has     []string // operations
	runtime wazero.Runtime
	cache   wazero.CompilationCache // nil without Options.CacheDir
	code    wazero.CompiledModule

	idle    []*instance // the last one was used last
	calls   int         // that run now
	retired bool        // another one has taken its place; it is closed after its last call
}

// load checks and compiles a module. Nothing of it runs.
func load(ctx context.Context, module []byte, o *Options) (*version, error) {
	if len(module) > o.MaxModuleBytes {
		return nil, &Error{Kind: ErrTooLarge, Op: opOpen, Name: o.Name, Wanted: fmt.Sprintf("a module of at most %d bytes", o.MaxModuleBytes),
			Found: fmt.Sprint(len(module)), Hint: "strip it (Go: -ldflags='-s -w'), or raise MaxModuleBytes"}
	}
	l, err := inspect(module, o.Name, false)
	if err != nil {
		return nil, err
	}
	v := &version{o: o, info: l.Info, has: l.Ops()}
	if !o.allows(l.SHA256) {
		return nil, v.mistake(ErrNotAllowed, "a module whose SHA-256 is in Options.Allow", l.SHA256, "", nil)
	}
	if err := l.Check(); err != nil {
		err.(*Error).Name = o.Name
		return nil, err
	}
	if pages := l.Memories[0].Min; int64(pages) > int64(o.MemoryPages) {
		return nil, v.mistake(ErrMemory, fmt.Sprintf("a module that begins with at most %d pages of memory", o.MemoryPages), fmt.Sprint(pages), "raise MemoryPages", nil)
	}
	capped, err := l.capTables(module)
	if err != nil {
		return nil, v.mistake(ErrNotAModule, "a module of core WebAssembly 2", "", "", err)
	}
	if err := v.compile(ctx, capped); err != nil {
		v.free()
		return nil, err
	}
	return v, nil
}

// runtimeConfig is the same wherever something is compiled, so that a cache fits. Memory
// is bounded by the allocator of an instance, which sees what is refused.
func (o *Options) runtimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2). // exceptions never: they have let guests write to the host's memory
		WithMemoryLimitPages(maxPages).
		WithDebugInfoEnabled(false). // its parser is not for what guests write
		WithCloseOnContextDone(!o.Trusted)
}

// compile compiles a module and gives it its host modules.
func (v *version) compile(ctx context.Context, module []byte) (err error) {
	config := v.o.runtimeConfig()
	if v.o.CacheDir != "" {
		if v.cache, err = wazero.NewCompilationCacheWithDir(v.o.CacheDir); err != nil {
			return v.mistake(ErrInvalid, "CacheDir to be a directory that can be written to", "", "", err)
		}
		config = config.WithCompilationCache(v.cache)
	}
	v.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if err := v.linkWASI(ctx); err != nil {
		return err
	}
	if err := v.linkAbort(ctx); err != nil {
		return err
	}
	ctx = experimental.WithCompilationWorkers(ctx, max(2, runtime.GOMAXPROCS(0))) // one alone would not look at ctx
	v.code, err = v.runtime.CompileModule(ctx, module)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return v.mistake(ended(ctx), "time to compile the module", "", "", ctx.Err())
	case v.cache != nil && compiles(ctx, module, v.o):
		return v.mistake(ErrCache, "a CacheDir whose files are whole", "", "delete it", err)
	}
	return v.mistake(ErrNotAModule, "a module of core WebAssembly 2", "", "", err)
}

// compiles says if a module compiles without a cache.
func compiles(ctx context.Context, module []byte, o *Options) bool {
	r := wazero.NewRuntimeWithConfig(ctx, o.runtimeConfig())
	defer closeQuietly(r)
	_, err := r.CompileModule(ctx, module)
	return err == nil
}

// linkWASI gives the module WASI, if it asks for it, and refuses functions WASI has not.
func (v *version) linkWASI(ctx context.Context) error {
	if !v.imports(moduleWASI) {
		return nil
	}
	wasi, err := wasi_snapshot_preview1.NewBuilder(v.runtime).Compile(ctx)
	if err != nil {
		return v.mistake(ErrInvalid, "WASI in the runtime", "", "", err)
	}
	has := wasi.ExportedFunctions()
	for _, i := range v.info.Imports {
		if f, ok := has[i.Name]; i.Module == moduleWASI && (!ok || i.Type != signatureOf(f)) {
			return v.mistake(ErrImport, "functions of WASI preview 1", fmt.Sprintf("%.100q %s", i.Name, i.Type), "", nil)
		}
	}
	if _, err := v.runtime.InstantiateModule(ctx, wasi, wazero.NewModuleConfig()); err != nil {
		return v.mistake(ErrInvalid, "WASI in the runtime", "", "", err)
	}
	return nil
}

// signatureOf renders the type of a function of the runtime as read does.
func signatureOf(f api.FunctionDefinition) string {
	list := func(types []api.ValueType) string {
		var b bytes.Buffer
		for i, t := range types {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(valueType(t))
		}
		return "(" + b.String() + ")"
	}
	return list(f.ParamTypes()) + " " + list(f.ResultTypes())
}

func (v *version) imports(module string) bool {
	for _, i := range v.info.Imports {
		if i.Module == module {
			return true
		}
	}
	return false
}

func (v *version) mistake(kind error, wanted, found, hint string, cause error) error {
	return &Error{Kind: kind, Op: opOpen, Name: v.o.Name, Module: v.info.SHA256, Wanted: wanted, Found: found, Hint: hint, Cause: cause}
}

// free lets go of all that a version holds. None of its calls may run.
func (v *version) free() {
	if v.runtime != nil {
		closeQuietly(v.runtime)
	}
	if v.cache != nil {
		closeQuietly(v.cache)
	}
}

// closeQuietly closes what holds memory alone: there is nothing to lose, so nothing that
// an error could tell. No context ends it.
func closeQuietly(c api.Closer) { _ = c.Close(context.Background()) }

// Precompile compiles a module into a directory, so that an Open with this CacheDir need
// not. It is for images: what it leaves serves the same version of the runtime, kind of
// CPU and setting of Trusted, and no other (a test binary counts as another version).
// Nothing of the module runs.
func Precompile(ctx context.Context, module []byte, cacheDir string, o *Options) error {
	used, err := o.orDefault()
	if err != nil {
		return err
	}
	if used.CacheDir = cacheDir; cacheDir == "" {
		return used.invalid("a directory for what is compiled", `""`)
	}
	began := time.Now()
	v, err := load(ctx, module, &used)
	if err != nil {
		return err
	}
	newMetrics(&used).compiled(ctx, time.Since(began))
	v.free()
	return nil
}
