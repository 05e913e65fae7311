//go:build !wasip1 && !js

// The package as WebAssembly: its core tests, built for wasip1 and run under wazero on a
// directory of the host's. Both are programs of their own: the race detector would make
// the runtime a hundred times slower and find nothing in it.

package filelog_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/tetratelabs/wazero" // its command is built below
)

func TestWasip1(t *testing.T) {
	dir := t.TempDir()
	wasm, wazero, work := filepath.Join(dir, "filelog.wasm"), filepath.Join(dir, "wazero"), filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(env []string, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Env = append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	run(nil, "go", "build", "-o", wazero, "github.com/tetratelabs/wazero/cmd/wazero")
	run([]string{"GOOS=wasip1", "GOARCH=wasm"}, "go", "test", "-c", "-ldflags=-s -w", "-o", wasm, ".")
	out := run(nil, wazero, "run", "-mount="+work+":/tmp", "-env=TMPDIR=/tmp", wasm, "-test.short", "-test.v", "-test.run", "^TestCore$|TestLog/usual/(append|fence)$")
	if !strings.Contains(out, "--- PASS: TestCore") || !strings.Contains(out, "--- PASS: TestLog/usual/append") {
		t.Errorf("the tests did not run:\n%s", out)
	}
}
