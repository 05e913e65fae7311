package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a module of one file with tests.
func module(t *testing.T, tests string) (said string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n\ngo 1.26\n", "m.go": "package m\n", "m_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Args\n\n" + tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "test", "-count=1", "-json", "./...")
	c.Dir = dir
	all, _ := c.Output() // that tests fail is in it
	var out strings.Builder
	err = read(strings.NewReader(string(all)), &out)
	return out.String(), err
}

func TestOutput(t *testing.T) {
	secret := "c4n" + "4ry"
	for name, d := range map[string]struct {
		tests  string
		wants  []string
		not    []string
		failed bool
	}{
		"passes": {"func TestA(t *testing.T) { t.Log(\"quiet\") }", []string{"ok  \tm\t"}, []string{"quiet", "TestA", "PASS"}, false},
		"fails": {"func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { t.Error(\"why\") }) }\nfunc TestB(t *testing.T) { t.Log(\"quiet\") }",
			[]string{"--- FAIL: TestA (", "    --- FAIL: TestA/x (", "why", "FAIL\tm\t"}, []string{"quiet", "=== RUN"}, true},
		"panics":         {"func TestA(t *testing.T) { t.Log(\"before\"); panic(\"oh\") }", []string{"before", "panic: oh", "FAIL\tm\t"}, nil, true},
		"exits":          {"func TestA(t *testing.T) { println(\"last words\"); os.Exit(3) }", []string{"last words", "FAIL\tm\t"}, nil, true},
		"does not build": {"func TestA(t *testing.T) { nothing() }", []string{"undefined: nothing", "FAIL\tm [build failed]"}, nil, true},
		"has no tests":   {"var _ testing.TB", []string{"[no tests to run]"}, nil, false},
		"tells":          {"func TestA(t *testing.T) { t.Log(\"the password is " + secret + "-1\") }", []string{"ok  \tm\t", "FAIL: a secret in the output of m TestA: ", "the password is"}, nil, true},
		"tells outside":  {"func TestMain(m *testing.M) { m.Run(); println(\"" + secret + "\") }\nfunc TestA(*testing.T) {}", []string{"a secret in the output of m: "}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := module(t, d.tests)
			if (err != nil) != d.failed {
				t.Errorf("it ended with %v", err)
			}
			for _, want := range d.wants {
				if !strings.Contains(said, want) {
					t.Errorf("wanted %q in\n%s", want, hide(said))
				}
			}
			for _, not := range d.not {
				if strings.Contains(said, not) {
					t.Errorf("found %q in\n%s", not, hide(said))
				}
			}
		})
	}
}

// hide keeps this test from telling a secret.
func hide(s string) string { return strings.ReplaceAll(s, Marker, "…") }

// What was cut off has failed, and what is no event is passed on.
func TestCutOff(t *testing.T) {
	var out strings.Builder
	err := read(strings.NewReader("go: downloading x\n{\"Action\":\"run\",\"Package\":\"m\",\"Test\":\"TestA\"}\n{\"Action\":\"output\",\"Package\":\"m\",\"Test\":\"TestA\",\"Output\":\"so far\\n\"}\n"), &out)
	if err == nil || !strings.Contains(out.String(), "so far") || !strings.Contains(out.String(), "go: downloading x") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
