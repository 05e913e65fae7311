//go:build !wasm

package wasm_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// compiled returns what lies in a cache: path to time of change.
func compiled(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		i, err := d.Info()
		all[path] = i.ModTime().UnixNano()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPrecompile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "cache")
	g := echo()
	g.table = []byte{0, 1} // a module that is changed before it is compiled
	g.imports = []imported{{"env", "abort", sigAbort}}
	module := g.with("_initialize", sigVoid, opUnreachable).bytes()
	if err := wasm.Precompile(t.Context(), module, dir, nil); err != nil {
		t.Fatal(err) // it does not run, or it would trap
	}
	before := compiled(t, dir)
	if len(before) != 1 {
		t.Fatalf("wanted one file, found %v", before)
	}
	module = g.without("_initialize").bytes()
	for range 2 {
		if err := wasm.Precompile(t.Context(), module, dir, &wasm.Options{MemoryPages: 100}); err != nil {
			t.Fatal(err)
		}
	}
	before = compiled(t, dir)
	if len(before) != 2 {
		t.Fatalf("wanted a file for each module, found %v", before)
	}
	// Open finds what Precompile left, whatever else its options say, and adds nothing.
	m := open(t, module, wasm.Options{CacheDir: dir, MemoryPages: 50, Instances: 1, MaxReplyBytes: 10})
	answers(t, m, wasm.OpDecide, "hello", "hello")
	if err := m.Swap(t.Context(), module); err != nil {
		t.Fatal(err)
	}
	after := compiled(t, dir)
	if len(after) != 2 {
		t.Errorf("wanted nothing compiled again, found %v", after)
	}
	for path, at := range before {
		if after[path] != at {
			t.Errorf("%s was written again", path)
		}
	}
	// Without the check of the deadline it is other code.
	answers(t, open(t, module, wasm.Options{CacheDir: dir, Trusted: true}), wasm.OpDecide, "hello", "hello")
	if n := len(compiled(t, dir)); n != 3 {
		t.Errorf("wanted a file more for who is trusted, found %d", n)
	}
	isError(t, wasm.Precompile(t.Context(), module, "", nil), wasm.ErrInvalid)
	isError(t, wasm.Precompile(t.Context(), module, dir, &wasm.Options{Allow: []string{}}), wasm.ErrNotAllowed)
}

func TestDamagedCache(t *testing.T) {
	dir, module := t.TempDir(), echo().bytes()
	if err := wasm.Precompile(t.Context(), module, dir, nil); err != nil {
		t.Fatal(err)
	}
	for path := range compiled(t, dir) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := wasm.Open(t.Context(), module, &wasm.Options{CacheDir: dir})
	isError(t, err, wasm.ErrCache)
	if err := os.RemoveAll(dir); err != nil { // as the error says
		t.Fatal(err)
	}
	answers(t, open(t, module, wasm.Options{CacheDir: dir}), wasm.OpDecide, "hello", "hello")
}
