package guests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func TestMain(m *testing.M) {
	if paths := filepath.SplitList(os.Getenv(envCompile)); len(paths) == 2 {
		if err := compileHere(paths[0], paths[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func compileHere(file, cache string) error {
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return wasm.Precompile(context.Background(), module, cache, nil)
}

// A test finds what was compiled for it: opening the guest compiles nothing more.
func TestBuild(t *testing.T) {
	module, cache, err := Build("../..", "./eventstore/wasm/testdata/least", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files := func() int {
		all, err := filepath.Glob(filepath.Join(cache, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := files(); n != 1 {
		t.Fatalf("wanted one file, found %d", n)
	}
	m, err := wasm.Open(t.Context(), module, &wasm.Options{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := files(); n != 1 {
		t.Errorf("wanted nothing compiled again, found %d files", n)
	}
}
