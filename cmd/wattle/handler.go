// wattle handler: what a handler says of itself, and whether it keeps the contract.

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/target"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
)

// secretVariable names the environment variable with the key that signs requests.
const secretVariable = "WATTLE_WEBHOOK_SECRET"

const handlerLong = `A handler is domain code that decides commands, or projects entries, somewhere else: behind
HTTP, NATS or Connect, or as a WebAssembly module. TARGET is one of

` + target.Help + `

Requests over HTTP are signed (Standard Webhooks) with the key in ` + secretVariable + `, if it is set.`

// handling is what the flags that both commands have say.
type handling struct {
	app     *app
	timeout time.Duration
}

func (a *app) handlerCommand() *cobra.Command {
	h := &handling{app: a}
	c := &cobra.Command{Use: "handler", Short: "handlers of commands and entries: what they are, whether they keep the contract", Long: handlerLong}
	group(c)
	c.PersistentFlags().DurationVar(&h.timeout, "timeout", handler.DefaultTimeout, "how long a call may take")
	c.AddCommand(h.describeCommand(), h.testCommand())
	return c
}

func (h *handling) open(ctx context.Context, name string) (*target.Target, error) {
	return target.Open(ctx, name, target.Options{Timeout: h.timeout, Secret: h.app.env(secretVariable)})
}

func (h *handling) options(t *target.Target) *handler.Options {
	return &handler.Options{Timeout: h.timeout, Target: t.Name}
}

func (h *handling) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "describe TARGET", Short: "print what a handler says of itself", Args: arguments("TARGET"),
		Long: `Asks a handler what it is: its category, the operations it has, the wire names and versions of
the events that it may answer and of the commands that it decides.`,
		Example: "  wattle handler describe loan.wasm",
		RunE: func(c *cobra.Command, args []string) error {
			t, err := h.open(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = t.Close() }()
			caller, err := handler.NewCaller(c.Context(), t, h.options(t))
			if err != nil {
				return err
			}
			return h.app.printDescription(caller.Description())
		},
	}
}

func (a *app) printDescription(d handler.Description) error {
	if a.output == outputJSON {
		_, err := fmt.Fprintf(a.stdout, "%s\n", handler.AppendDescription(nil, &d))
		return err
	}
	return a.printRows([][]string{
		{"name", d.Name}, {"release", d.Release}, {"category", string(d.Category)}, {"capabilities", strings.Join(d.Capabilities, " ")},
		{"state version", fmt.Sprint(d.StateVersion)}, {"commands", wireNames(d.Commands)}, {"events", wireNames(d.Events)},
	})
}

func wireNames(wires []handler.Wire) string {
	names := make([]string, len(wires))
	for i, w := range wires {
		names[i] = fmt.Sprintf("%s/%d", w.Name, w.Version)
	}
	return strings.Join(names, " ")
}

const handlerTestLong = `Runs a handler through the conformance suite: the rules that hold for all handlers, and with
--cases those of its domain, a line of JSON each:

  {"name":"deposits","stream":"account-a","given":[{"type":"opened","version":1,"data":{}}],
   "when":{"type":"deposit","data":{"amount":5}},"then":[{"type":"deposited","version":1,"data":{"amount":5}}]}

(on one line), with "rejected":"CODE" in the place of "then" for a refusal. Given enough cases,
handlers in other languages or on other carriers are proved to be the same. A handler that
projects is given the entries in the file of --entries, a line of JSON each:

  {"stream":"account-a","type":"deposited","version":1,"data":{"amount":5}}

Exit code 8 says that a rule is broken.`

func (h *handling) testCommand() *cobra.Command {
	var cases, entries string
	c := &cobra.Command{
		Use: "test TARGET", Short: "run a handler through the conformance suite", Long: handlerTestLong, Args: arguments("TARGET"),
		Example: "  wattle handler test loan.wasm --cases cases.jsonl",
		RunE: func(c *cobra.Command, args []string) error {
			var o conformance.Options
			if err := readLines(cases, conformance.ReadCases, &o.Cases); err != nil {
				return err
			}
			if err := readLines(entries, conformance.ReadEntries, &o.Entries); err != nil {
				return err
			}
			t, err := h.open(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = t.Close() }()
			o.Caller = h.options(t)
			result, err := conformance.Run(c.Context(), t, &o)
			if err != nil {
				return err
			}
			return h.report(t.Name, len(o.Cases), result)
		},
	}
	c.Flags().StringVar(&cases, "cases", "", "`FILE` with decisions of its domain")
	c.Flags().StringVar(&entries, "entries", "", "`FILE` with entries for it to project")
	return c
}

// readLines reads a file of a line of JSON for each of something, if one is named.
func readLines[T any](file string, read func(io.Reader) ([]T, error), into *[]T) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if *into, err = read(f); err != nil {
		return &usageError{"a line of JSON for each, in " + file, err.Error(), "see: wattle handler test --help"}
	}
	return nil
}

// report prints what came of a run.
func (h *handling) report(name string, cases int, r conformance.Result) error {
	type finding struct {
		Rule  string `json:"rule"`
		Case  string `json:"case,omitempty"`
		Error string `json:"error"`
	}
	findings := make([]finding, len(r.Findings))
	for i, f := range r.Findings {
		findings[i] = finding{f.Rule, f.Case, f.Err.Error()}
	}
	a := h.app
	if a.output == outputJSON {
		if err := a.printJSON(struct {
			Target   string    `json:"target"`
			Name     string    `json:"name"`
			Rules    int       `json:"rules"`
			Cases    int       `json:"cases"`
			Calls    int       `json:"calls"`
			Findings []finding `json:"findings"`
		}{name, r.Description.Name, len(r.Rules), cases, r.Calls, findings}); err != nil {
			return err
		}
	} else {
		for _, f := range r.Findings {
			if _, err := fmt.Fprintln(a.stdout, printable(f.String())); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(a.stdout, "%s: %d rules, %d cases, %d calls, %d findings\n", printable(r.Description.Name), len(r.Rules), cases, r.Calls, len(findings)); err != nil {
			return err
		}
	}
	if len(findings) > 0 {
		return &coded{fmt.Errorf("%s: wanted no broken rule, found %d", name, len(findings)), exitFound}
	}
	return nil
}
