// Command testlog reads what go test -json says, prints what go test alone would, and fails
// if a test has, or if any output of any test, also of those that passed, holds a secret: the
// tests' passwords, tokens and payloads have [Marker] in them.
//
//	go test -json ./... | go run ./internal/testlog
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Marker is in every secret that the tests give to the product: the passwords of pgtest, the
// tokens of server tests, payloads of logtest.
const Marker = "c4n4ry"

func main() {
	if err := read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
}

// event is one line of go test -json, see go doc test2json and cmd/go.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// pkg is the output of one package that is not decided upon yet.
type pkg struct {
	own    []string            // of no test
	tests  map[string][]string // running
	order  []string            // of tests, as they began
	failed []string            // output of tests that have failed
}

// log is what was read so far.
type log struct {
	out    io.Writer
	pkgs   map[string]*pkg
	failed bool
	told   []string // secrets
}

// maxLine bounds a line of the input; go test cuts what tests print to less.
const maxLine = 16 << 20

func read(in io.Reader, out io.Writer) error {
	l := &log{out: out, pkgs: map[string]*pkg{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Fprintln(out, lines.Text()) // of go itself
			continue
		}
		l.add(e)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for name, p := range l.pkgs { // go test was cut off
		l.end(name, p, true)
	}
	for _, t := range l.told {
		fmt.Fprintln(out, "FAIL: a secret in the output of", t)
	}
	if l.failed || len(l.told) > 0 {
		return fmt.Errorf("some tests failed, or told secrets")
	}
	return nil
}

func (l *log) add(e event) {
	if strings.Contains(e.Output, Marker) {
		l.told = append(l.told, strings.TrimSpace(e.Package+" "+e.Test)+": "+strings.TrimSpace(e.Output))
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(l.out, e.Output)
		return
	case "build-fail":
		l.failed = true
		return
	}
	p := l.pkgs[e.Package]
	if p == nil {
		p = &pkg{tests: map[string][]string{}}
		l.pkgs[e.Package] = p
	}
	if e.Test != "" {
		p.add(e)
		return
	}
	switch e.Action {
	case "output":
		p.own = append(p.own, e.Output)
	case "pass", "skip", "fail":
		l.end(e.Package, p, e.Action == "fail")
	}
}

func (p *pkg) add(e event) {
	switch e.Action {
	case "run":
		p.tests[e.Test], p.order = nil, append(p.order, e.Test)
	case "output":
		line := e.Output
		if strings.HasPrefix(line, "=== ") {
			return
		}
		if strings.HasPrefix(line, "--- ") { // below that of the test it is part of
			line = strings.Repeat("    ", strings.Count(e.Test, "/")) + line
		}
		p.tests[e.Test] = append(p.tests[e.Test], line)
	case "fail":
		p.failed = append(p.failed, p.tests[e.Test]...)
		delete(p.tests, e.Test)
	case "pass", "skip":
		delete(p.tests, e.Test)
	}
}

// end prints what is to be known of a package: its last line, or all that failed.
func (l *log) end(name string, p *pkg, failed bool) {
	delete(l.pkgs, name)
	if !failed {
		for _, line := range p.own {
			if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
				fmt.Fprint(l.out, line)
			}
		}
		return
	}
	l.failed = true
	for _, line := range p.failed {
		fmt.Fprint(l.out, line)
	}
	for _, test := range slices.Compact(p.order) { // those that have not ended: of a panic, say
		for _, line := range p.tests[test] {
			fmt.Fprint(l.out, line)
		}
	}
	for _, line := range p.own {
		fmt.Fprint(l.out, line)
	}
}
