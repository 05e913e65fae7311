// What counts as caught, and what does not.

package main

import (
	"errors"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, c := range map[string]struct {
		out  string
		err  error
		kind kind
		text string
	}{
		"a test fails": {"--- FAIL: TestA (0.00s)\n    a_test.go:1: wanted 1\nFAIL\nFAIL\tm/p\t0.1s\n", failed, caught, "TestA"},
		"a case fails": {"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n        --- FAIL: TestA/b/c (0.00s)\n    --- FAIL: TestA/d (0.00s)\nFAIL\n",
			failed, caught, "TestA/b/c"},
		"a test panics":      {"--- FAIL: TestA (0.00s)\npanic: boom\n", failed, caught, "TestA"},
		"the process panics": {"panic: boom\n\ngoroutine 7 [running]:\n", failed, caught, "panic: boom"},
		"a goroutine leaks":  {"PASS\ngoleak: Errors on successful test run: found unexpected goroutines:\n", failed, caught, "goleak: Errors on successful test run: found unexpected goroutines:"},
		"all pass":           {"ok  \tm/p\t0.1s\n", nil, missed, "all pass"},
		"no such test":       {"ok  \tm/p\t0.1s [no tests to run]\n", nil, broken, "no test matches"},
		"not compiled":       {"# m/p\np.go:1:1: undefined: x\nFAIL\tm/p [build failed]\nFAIL\n", failed, broken, "it does not compile"},
		"no such package":    {"FAIL\tm/p [setup failed]\nFAIL\n", failed, broken, "it does not compile"},
		"out of time":        {"panic: test timed out after 1m30s\n\trunning tests:\n", failed, broken, "no test caught it, they ran out of time"},
		"killed":             {"signal: killed\nFAIL\tm/p\t9s\nFAIL\n", failed, broken, "the tests did not run: exit status 1"},
	} {
		if v := judge(c.out, c.err); v.kind != c.kind || v.text != c.text {
			t.Errorf("%s: %s, %q, want %s, %q", name, v.kind, v.text, c.kind, c.text)
		}
	}
}

// Names tell the bugs apart, and every bug is one.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range areas {
		for _, b := range a.bugs {
			name := a.name + ": " + b.name
			if seen[name] || b.old == "" || b.old == b.now || b.run == "" || strings.Contains(b.name, "\n") {
				t.Errorf("%s: want a name of its own, a change and the tests to run", name)
			}
			seen[name] = true
		}
	}
}
