// Command museum shows that the tests can fail: it plants one bug after another
// with go test -overlay (the tree is not touched) and runs the tests that are to
// catch it. A bug that is not caught, or that no longer applies to the code, fails
// the run.
//
//	go run ./internal/museum            # all
//	go run ./internal/museum -bug NAME  # those whose name contains NAME
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bug is one planted bug: in File the text Old, which stands there once, becomes New.
type bug struct {
	Name     string
	File     string // from the root of the module
	Old, New string
	Package  string // whose tests are to catch it
	Run      string // which of them
}

// timeout bounds the tests of one bug: a bug that makes them hang is caught too.
const timeout = 4 * time.Minute

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

func run(args []string, out io.Writer) int {
	flags := flag.NewFlagSet("museum", flag.ContinueOnError)
	only := flags.String("bug", "", "only bugs whose name contains this")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	caught, missed := 0, 0
	start := time.Now()
	for _, b := range bugs {
		if !strings.Contains(b.Name, *only) {
			continue
		}
		t := time.Now()
		verdict, err := b.try(context.Background())
		if err != nil {
			verdict = "BROKEN: " + err.Error()
		}
		if verdict == "caught" {
			caught++
		} else {
			missed++
		}
		fmt.Fprintf(out, "%-8s %-48s %5.1f s\n", verdict, b.Name, time.Since(t).Seconds())
	}
	fmt.Fprintf(out, "museum: %d passed, %d failed (a bug passes when the suite catches it), %.0f s\n", caught, missed, time.Since(start).Seconds())
	if missed > 0 {
		return 1
	}
	return 0
}

// try plants the bug and says "caught" or "MISSED".
func (b bug) try(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "wattle-museum-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := b.plant(dir)
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "go", "vet", "-overlay", overlay, "./"+filepath.Dir(b.File)).CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %s", bytes.TrimSpace(out))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-short", "-failfast", "-timeout", timeout.String(), "-overlay", overlay, "-run", b.Run, "./"+b.Package)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(out, []byte("no tests to run")):
		return "", fmt.Errorf("no test matches %s", b.Run)
	case err == nil:
		return "MISSED", nil
	case bytes.Contains(out, []byte("[build failed]")):
		return "", fmt.Errorf("the tests do not compile: %s", bytes.TrimSpace(out))
	}
	return "caught", nil
}

// plant writes the changed file and the overlay that puts it in place.
func (b bug) plant(dir string) (overlay string, err error) {
	path, err := filepath.Abs(b.File)
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(src, []byte(b.Old)); n != 1 {
		return "", fmt.Errorf("%s holds %q %d times, want once", b.File, b.Old, n)
	}
	changed := filepath.Join(dir, filepath.Base(b.File))
	if err := os.WriteFile(changed, bytes.Replace(src, []byte(b.Old), []byte(b.New), 1), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
