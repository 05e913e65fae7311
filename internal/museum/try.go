// Planting one bug, and what the tests say of it.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// timeout bounds the tests of one bug. A bug that makes them hang has to be
	// caught by a test of its own: on a busy machine anything runs out of time.
	timeout = 90 * time.Second
	// controlTimeout bounds the tests of a whole area without a bug.
	controlTimeout = 6 * time.Minute
)

// verdict is what became of one bug.
type verdict struct {
	kind   kind
	text   string // by which test it was caught, or what is wrong
	output string // of the tests, shortened
	took   time.Duration
}

type kind string

const (
	caught kind = "caught"
	missed kind = "MISSED"
	broken kind = "BROKEN"
)

// control runs the tests of an area without a bug.
func (a area) control(ctx context.Context) verdict {
	var patterns []string
	for _, b := range a.bugs {
		patterns = append(patterns, b.run)
	}
	return test(ctx, a.pkg, strings.Join(patterns, "|"), "", controlTimeout)
}

// try plants the bug and runs the tests that are to catch it.
func (b bug) try(ctx context.Context, pkg string) verdict {
	dir, err := os.MkdirTemp("", "wattle-museum-")
	if err != nil {
		return verdict{kind: broken, text: err.Error()}
	}
	defer os.RemoveAll(dir)
	overlay, err := b.plant(dir)
	if err != nil {
		return verdict{kind: broken, text: err.Error()}
	}
	return test(ctx, pkg, b.run, overlay, timeout)
}

// changed returns the file with the bug in it.
func (b bug) changed() ([]byte, error) {
	src, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(src, []byte(b.old)); n != 1 {
		return nil, fmt.Errorf("%s holds %q %d times, want once", b.file, b.old, n)
	}
	return bytes.Replace(src, []byte(b.old), []byte(b.now), 1), nil
}

// plant writes the changed file and the overlay that puts it in place.
func (b bug) plant(dir string) (overlay string, err error) {
	src, err := b.changed()
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(b.file)
	if err != nil {
		return "", err
	}
	planted := filepath.Join(dir, filepath.Base(b.file))
	if err := os.WriteFile(planted, src, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: planted}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// test runs some tests of a package, with an overlay or ("") without.
func test(ctx context.Context, pkg, pattern, overlay string, limit time.Duration) verdict {
	ctx, cancel := context.WithTimeout(ctx, limit+2*time.Minute) // building takes time too
	defer cancel()
	args := []string{"test", "-count=1", "-short", "-failfast", "-vet=off", "-timeout", limit.String(), "-run", pattern}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = pkg // which may be of a module of its own
	cmd.Env = append(os.Environ(), envOverlay+"="+overlay)
	if onlyJS[pkg] {
		cmd.Args = append(cmd.Args, "-exec", filepath.Join(goRoot(ctx), "lib", "wasm", "go_js_wasm_exec"))
		cmd.Env = append(cmd.Env, "GOOS=js", "GOARCH=wasm")
	}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return judge(string(out), err)
}

// envOverlay tells tests that build a program to build it with the bug too.
const envOverlay = "WATTLE_TEST_OVERLAY"

// onlyJS are packages that there are for js only; their tests run in Node.js.
var onlyJS = map[string]bool{"examples/edge/worker": true}

// goRoot is where Go is; "" and a message if it cannot be asked.
func goRoot(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go env GOROOT:", err)
	}
	return strings.TrimSpace(string(out))
}

// judge reads the output of go test.
func judge(out string, err error) verdict {
	v := verdict{kind: broken, output: shortened(out)}
	switch {
	case strings.Contains(out, "no tests to run"):
		v.text = "no test matches"
	case err == nil:
		v.kind, v.text = missed, "all pass"
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		v.text = "it does not compile"
	case strings.Contains(out, "panic: test timed out after"):
		v.text = "no test caught it, they ran out of time"
	case culprit(out) == "":
		v.text = "the tests did not run: " + err.Error()
	default:
		v.kind, v.text = caught, culprit(out)
	}
	return v
}

var failure = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)|^(panic: .{0,100}|fatal error: .{0,100}|goleak: .{0,100})`)

// culprit names the innermost test of the first that failed, or why there is none.
func culprit(out string) string {
	name := ""
	for _, m := range failure.FindAllStringSubmatch(out, -1) {
		switch {
		case m[1] == "":
			if name == "" {
				name = m[2]
			}
		case name == "" || strings.HasPrefix(m[1], name+"/"):
			name = m[1]
		default:
			return name
		}
	}
	return name
}

// shortened keeps the lines that a reader wants to see.
func shortened(out string) string {
	const most = 12
	out, _, _ = strings.Cut(out, "\npgtest: the end of the server's log")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("… %d more lines", len(lines)-most))
	}
	for i, l := range lines {
		if r := []rune(l); len(r) > 300 {
			l = string(r[:300]) + "…"
		}
		lines[i] = "    | " + l
	}
	return strings.Join(lines, "\n")
}
