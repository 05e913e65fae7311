// Package importtest checks the import law: who may import whom, and what must
// stay out of the packages that are compiled to WebAssembly.
package importtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/wattle-es/wattle"

// law says for each package of the module which others of it it may import. A name
// covers what lies below it. Tests are not bound by it.
var law = map[string][]string{
	"eventstore":                       {},
	"eventstore/schema":                {"eventstore"},
	"eventstore/memlog":                {"eventstore"},
	"eventstore/filelog":               {"eventstore", "internal/vfs"},
	"eventstore/pglog":                 {"eventstore"},
	"eventstore/wasm":                  {"eventstore"},
	"eventstore/natsannounce":          {"eventstore"},
	"eventstore/logtest":               {"eventstore", "eventstore/memlog"},
	"aggregate":                        {"eventstore", "eventstore/schema"},
	"aggregate/aggregatetest":          {"aggregate"},
	"aggregate/guest":                  {"eventstore", "eventstore/schema", "eventstore/wasm", "aggregate", "handler"},
	"projector":                        {"eventstore", "eventstore/schema", "internal/sharing"},
	"projector/pgcheckpoint":           {"eventstore", "eventstore/pglog", "eventstore/schema", "projector"},
	"projector/natssink":               {"eventstore", "projector"},
	"projector/logcheckpoint":          {"eventstore", "projector"},
	"projector/controltest":            {"eventstore", "projector"},
	"projector/timer":                  {"eventstore"},
	"projector/guest":                  {"eventstore", "eventstore/schema", "eventstore/wasm", "handler", "projector", "projector/timer"},
	"projector/guest/documentstest":    {"eventstore", "handler", "projector", "projector/guest"},
	"projector/pgdocuments":            {"eventstore", "projector", "projector/guest", "projector/pgcheckpoint"},
	"eventstore/remotelog":             {"eventstore", "eventstore/remotelog/wattlev1", "internal/streaming", "internal/wire"},
	"eventstore/remotelog/lean":        {"eventstore"},
	"eventstore/remotelog/wattlev1":    {},
	"internal/wire":                    {"eventstore", "eventstore/remotelog/wattlev1"},
	"topic":                            {"eventstore", "internal/sharing"},
	"topic/remotetopic":                {"eventstore", "eventstore/remotelog", "eventstore/remotelog/wattlev1", "internal/streaming", "internal/wire", "topic"},
	"server":                           {"eventstore", "eventstore/remotelog", "eventstore/remotelog/wattlev1", "internal/wire", "topic", "server", "server/policy"},
	"server/policy":                    {},
	"server/devcert":                   {},
	"handler":                          {"eventstore"},
	"handler/httpcarrier":              {"eventstore", "handler", "handler/internal/farside"},
	"handler/conformance":              {"eventstore", "handler"},
	"migrations":                       {},
	"migrations/pgtest":                {"migrations"},
	"examples":                         {"eventstore", "aggregate", "projector", "handler", "migrations", "server", "topic", "examples"},
	"cmd":                              {"eventstore", "aggregate", "projector", "handler", "migrations", "examples", "server", "topic", "cmd"},
	"internal":                         {"eventstore", "aggregate", "projector", "handler", "migrations", "examples", "server", "topic", "internal"},
	"internal/sharing":                 {"eventstore"},
	"internal/streaming":               {"eventstore"},
	"internal/vfs":                     {},
	"handler/internal/farside":         {"eventstore", "handler"},
	"handler/internal/nearside":        {"handler"},
	"handler/internal/carriertest":     {"eventstore", "eventstore/memlog", "eventstore/schema", "aggregate", "aggregate/guest", "handler"},
	"handler/natscarrier":              {"eventstore", "handler", "handler/internal/farside", "handler/internal/nearside"},
	"handler/connectcarrier":           {"eventstore", "handler", "handler/internal/farside", "handler/internal/nearside", "handler/connectcarrier/handlerv1"},
	"handler/connectcarrier/handlerv1": {},
}

// lean packages are compiled to WebAssembly: they and all they import keep to the
// standard library without the network, the module and these.
var lean = []string{
	"eventstore",
	"eventstore/schema",
	"eventstore/memlog",
	"eventstore/wasm",
	"eventstore/remotelog/lean",
	"aggregate",
	"aggregate/guest",
	"handler",
	"projector",
	"projector/guest",
	"projector/timer",
}

var leanMayImport = []string{
	"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/metric",
	// what these need themselves
	"go.opentelemetry.io/otel/internal", "go.opentelemetry.io/otel/semconv", "go.opentelemetry.io/auto/sdk", "github.com/cespare/xxhash",
}

var leanMustNot = []string{"net", "net/http", "crypto/tls", "os/exec", "testing", "database/sql"}

// testOnly are modules that nothing but these packages, and tests, may reach: no
// program is to link them.
var testOnly = map[string][]string{
	"github.com/anishathalye/porcupine": {"eventstore/logtest"},
	"pgregory.net/rapid":                {"eventstore/logtest", "projector/controltest"},
}

// confined are modules that one package of the library may import, and nothing but it and
// the programs above may reach: who does not want them does not link them.
var confined = map[string]string{
	"github.com/tetratelabs/wazero":                 "eventstore/wasm",
	"github.com/prometheus/client_golang":           "server",
	"go.opentelemetry.io/otel/exporters/prometheus": "server",
	"connectrpc.com/grpchealth":                     "server",
	"connectrpc.com/grpcreflect":                    "server",
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

func list(t *testing.T, env []string, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}

// covers says if name is one of the packages or lies below one of them.
func covers(packages []string, name string) bool {
	return slices.ContainsFunc(packages, func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

// ruleOf returns the entry of the law that is nearest to a package.
func ruleOf(name string) (allowed []string, ok bool) {
	for n := name; n != ""; {
		if allowed, ok = law[n]; ok {
			return allowed, true
		}
		i := strings.LastIndexByte(n, '/')
		if i < 0 {
			break
		}
		n = n[:i]
	}
	return nil, false
}

func TestLaw(t *testing.T) {
	for _, p := range list(t, nil, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		allowed, ok := ruleOf(name)
		if !ok {
			t.Errorf("%s is not in the law: say what it may import", name)
		}
		for _, imp := range p.Imports {
			own, isOwn := strings.CutPrefix(imp, module+"/")
			switch {
			case isOwn && own != name && !allows(allowed, own):
				t.Errorf("%s imports %s; it may import %v", name, own, allowed)
			case imp == "testing" && !strings.HasSuffix(name, "test"):
				t.Errorf("%s imports testing; only packages named …test may", name)
			}
		}
	}
}

func TestTestOnly(t *testing.T) {
	reached := map[string]bool{}
	for _, p := range list(t, nil, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for dep, may := range testOnly {
			if !slices.ContainsFunc(p.Deps, func(d string) bool { return covers([]string{dep}, d) }) {
				continue
			}
			if reached[dep] = true; !slices.Contains(may, name) {
				t.Errorf("%s reaches %s; only %v may", name, dep, may)
			}
		}
	}
	for dep := range testOnly {
		if !reached[dep] {
			t.Errorf("nothing reaches %s: take it out of the table", dep)
		}
	}
}

func TestConfined(t *testing.T) {
	reached := map[string]bool{}
	for _, p := range list(t, nil, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for dep, owner := range confined {
			has := func(all []string) bool {
				return slices.ContainsFunc(all, func(d string) bool { return covers([]string{dep}, d) })
			}
			if has(p.Imports) && name != owner {
				t.Errorf("%s imports %s; only %s may", name, dep, owner)
			}
			if has(p.Deps) && name != owner && !covers([]string{"examples", "cmd", "internal"}, name) {
				t.Errorf("%s reaches %s; only %s, examples and commands may", name, dep, owner)
			}
			reached[dep] = reached[dep] || name == owner && has(p.Deps)
		}
	}
	for dep, owner := range confined {
		if !reached[dep] {
			t.Errorf("%s does not reach %s: take it out of the table", owner, dep)
		}
	}
}

// allows is exact for a package with a rule of its own (eventstore does not give
// eventstore/pglog to the projector), and covers below it for the upper layers.
func allows(allowed []string, name string) bool {
	if slices.Contains(allowed, name) {
		return true
	}
	upper := slices.Contains(allowed, "examples")
	return upper && covers(allowed, name)
}

func TestLean(t *testing.T) {
	for _, env := range [][]string{{"GOOS=js", "GOARCH=wasm"}, {"GOOS=wasip1", "GOARCH=wasm"}} {
		var args []string
		for _, name := range lean {
			args = append(args, "./"+name)
		}
		for _, p := range list(t, env, args...) {
			for _, dep := range p.Deps {
				third := strings.Contains(strings.SplitN(dep, "/", 2)[0], ".") && !covers([]string{module}, dep) && !strings.HasPrefix(dep, "vendor/")
				switch {
				case slices.Contains(leanMustNot, dep):
					t.Errorf("%v: %s reaches %s", env, p.ImportPath, dep)
				case third && !covers(leanMayImport, dep):
					t.Errorf("%v: %s reaches %s", env, p.ImportPath, dep)
				}
			}
		}
	}
}
