// Package guests builds Go guests for the tests and benchmarks of other packages.
package guests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the Go guest in a package of the module at root ("./examples/guest/loan")
// and compiles it, in dir, and returns the module and the directory of what was compiled,
// for wasm.Options.CacheDir. The race detector would make the compiler ten times slower and
// find nothing in it, so that runs in a program without.
func Build(root, pkg, dir string) (module []byte, cache string, err error) {
	file, cache := filepath.Join(dir, "guest.wasm"), filepath.Join(dir, "cache")
	if err := run(root, []string{"GOOS=wasip1", "GOARCH=wasm"}, "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, pkg); err != nil {
		return nil, "", err
	}
	if err := compile(root, file, cache); err != nil {
		return nil, "", err
	}
	module, err = os.ReadFile(file)
	return module, cache, err
}

// envCompile has the test binary of this package compile the file into the directory that
// it names, and end.
const envCompile = "WATTLE_TEST_COMPILE_GUEST"

// compile compiles for a program as the caller is: what test binaries compile is kept apart,
// as in them the runtime does not know its version.
func compile(root, file, cache string) error {
	if strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		return run(root, []string{envCompile + "=" + file + string(os.PathListSeparator) + cache}, "test", "-count=1", "-run", "^$", "./internal/guests")
	}
	return run(root, nil, "run", "./internal/guests/compile", file, cache)
}

func run(root string, env []string, args ...string) error {
	c := exec.Command("go", args...)
	c.Dir = root
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
}
