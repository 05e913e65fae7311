// The native handler of the loan process, held against the process.

package wire_test

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
)

func TestRegistries(t *testing.T) {
	var events, commands []reflect.Type
	for _, l := range wire.Events().List() {
		events = append(events, l.Type)
	}
	for _, l := range wire.Commands().List() {
		commands = append(commands, l.Type)
	}
	if len(events) != len(loan.EventTypes()) || len(commands) != len(loan.CommandTypes()) {
		t.Errorf("%d events and %d commands", len(events), len(commands))
	}
	for _, c := range loan.CommandTypes() {
		if wired, err := wiretest.Command(c.Zero); err != nil || wired.Type != c.Name {
			t.Errorf("%s: %v, %v", c.Name, wired, err)
		}
	}
}

// The handler called directly, and through the encoded form.
func TestConforms(t *testing.T) {
	h, err := wire.Handler()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := wiretest.Cases(1, 40, 10)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]handler.Handler{"direct": h, "encoded": handler.Over(bytesOf{h}, "encoded")} {
		result, err := conformance.Run(t.Context(), h, &conformance.Options{Cases: cases})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range result.Findings {
			t.Errorf("%s: %v", name, f)
		}
		t.Logf("%s: %d cases, %d rules, %d calls", name, len(cases), len(result.Rules), result.Calls)
	}
}

var update = flag.Bool("update", false, "write the file of cases anew")

// The cases in examples/guest, for wattle handler test, are those of today.
func TestCasesFile(t *testing.T) {
	const file = "../../guest/cases.jsonl"
	cases, err := wiretest.Cases(1, 6, 8)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := conformance.WriteCases(&want, cases); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what is generated (%v); write it anew with -update", file, err)
	}
}
