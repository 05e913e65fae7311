// The proof that the Decider is pure: built for wasip1 and run under wazero it
// decides as native code does.

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wattle-es/wattle/examples/loan"
)

// asked is a command and what native code decides on it.
type asked struct {
	request
	want answer
}

// demo is the commands of the demo, case by case, then violations of every rule.
func demo(t *testing.T) (all []asked) {
	t.Helper()
	for c := range loan.Generate(1, 200) {
		state := loan.Initial()
		for i := range c.Events {
			command, err := loan.CommandFor(c, i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ask(t, c.Key, &state, command))
		}
	}
	n := 0
	for v := range loan.GenerateViolations(1) {
		n++
		state := loan.Initial()
		for _, command := range v.Given {
			all = append(all, ask(t, fmt.Sprintf("violation %d", n), &state, command))
		}
		if data, err := json.Marshal(v.When); err != nil {
			continue // what JSON cannot carry reaches no guest
		} else if back, err := command(request{Type: nameOf(v.When), Data: data}); err != nil || back != v.When {
			continue
		}
		last := ask(t, fmt.Sprintf("violation %d", n), &state, v.When)
		if last.want.Refused == "" {
			t.Fatalf("%v: wanted a refusal, found %+v", v.Rule, last.want)
		}
		all = append(all, last)
	}
	return all
}

func ask(t *testing.T, key string, state *loan.State, c loan.Command) asked {
	t.Helper()
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	events, err := loan.Decide(*state, c)
	for _, e := range events {
		*state = loan.Evolve(*state, e)
	}
	return asked{request{key, nameOf(c), data}, answerOf(events, err)}
}

func nameOf(c loan.Command) string {
	for _, t := range loan.CommandTypes() {
		if reflect.TypeOf(t.Zero) == reflect.TypeOf(c) {
			return t.Name
		}
	}
	return ""
}

func TestGuestDecidesAsNative(t *testing.T) {
	all := demo(t)
	var in bytes.Buffer
	for _, a := range all {
		if err := json.NewEncoder(&in).Encode(a.request); err != nil {
			t.Fatal(err)
		}
	}
	out := underWazero(t, &in)
	lines := bufio.NewScanner(strings.NewReader(out))
	refused := 0
	for i, a := range all {
		if !lines.Scan() {
			t.Fatalf("wanted %d answers, found %d", len(all), i)
		}
		want, err := json.Marshal(a.want)
		if err != nil {
			t.Fatal(err)
		}
		if lines.Text() != string(want) {
			t.Fatalf("%s %s: native decides\n%s\nthe guest\n%s", a.Case, a.Data, want, lines.Text())
		}
		if a.want.Refused != "" {
			refused++
		}
	}
	if lines.Scan() {
		t.Errorf("wanted %d answers, found more: %s", len(all), lines.Text())
	}
	if refused < 20 {
		t.Errorf("wanted refusals among the %d answers, found %d", len(all), refused)
	}
}

// underWazero builds the guest for wasip1 and runs it with nothing but stdin and
// stdout.
func underWazero(t *testing.T, stdin *bytes.Buffer) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build for wasip1: %v\n%s", err, out)
	}
	code, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	runtime := wazero.NewRuntime(t.Context())
	defer runtime.Close(t.Context())
	wasi_snapshot_preview1.MustInstantiate(t.Context(), runtime)
	var stdout, stderr bytes.Buffer
	config := wazero.NewModuleConfig().WithStdin(stdin).WithStdout(&stdout).WithStderr(&stderr).WithArgs("guest")
	_, err = runtime.InstantiateWithConfig(t.Context(), code, config)
	if exit, ok := err.(*sys.ExitError); err != nil && (!ok || exit.ExitCode() != 0) {
		t.Fatalf("the guest ended with %v: %s", err, stderr.String())
	}
	return stdout.String()
}

func TestBadRequests(t *testing.T) {
	for line, want := range map[string]string{
		`{"case":"a","type":"loan.unknown","data":{}}`:  `"loan.unknown"`,
		`{"case":"a","type":"loan.submit","data":[]}`:   "cannot unmarshal",
		`{"case":"a","type":"loan.submit"`:              "unexpected EOF",
		`{"case":"a","type":"loan.submit","data":null}`: "",
	} {
		var out bytes.Buffer
		err := run(strings.NewReader(line), &out)
		if want == "" && (err != nil || !strings.Contains(out.String(), "refused")) {
			t.Errorf("%s: wanted a refusal, found %v and %s", line, err, out.String())
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: wanted %q, found %v", line, want, err)
		}
	}
}
