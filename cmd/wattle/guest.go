// wattle guest: WebAssembly modules: what is in them, one call, whether they are fit.

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

const guestLong = `A guest is a WebAssembly module with the exports of ABI es1: domain code that computes and can do
nothing else. It runs here as in a program of yours: without files, network, clock or variables,
within its memory and time.`

// guests is what the flags of all its commands say.
type guests struct {
	app *app
	o   wasm.Options
}

func (a *app) guestCommand() *cobra.Command {
	g := &guests{app: a}
	c := &cobra.Command{Use: "guest", Short: "WebAssembly guests: look into one, call it, test it, compile it ahead", Long: guestLong}
	group(c)
	flags := c.PersistentFlags()
	flags.IntVar(&g.o.MemoryPages, "memory", wasm.DefaultMemoryPages, "most memory of an instance, in `PAGES` of 64 KiB")
	flags.DurationVar(&g.o.Timeout, "timeout", wasm.DefaultTimeout, "how long a call may take")
	flags.BoolVar(&g.o.Trusted, "trusted", false, "run it without looking at the time: faster, and not to be stopped")
	flags.StringVar(&g.o.CacheDir, "cache", "", "`DIR` with what is compiled, from one run to the next")
	c.AddCommand(g.inspectCommand(), g.runCommand(), g.testCommand(), g.precompileCommand())
	return c
}

// read reads a module, no more of it than may be opened.
func (g *guests) read(file string) ([]byte, error) {
	module, err := readAtMost(file, wasm.DefaultModuleBytes)
	if err != nil {
		return nil, &coded{err, exitBadInput}
	}
	g.o.Name, g.o.ProjectTimeout, g.o.Instances = file, g.o.Timeout, 1
	g.o.StartTimeout = max(g.o.Timeout, wasm.DefaultStartTimeout)
	return module, nil
}

func readAtMost(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return nil, fmt.Errorf("%s: wanted at most %d bytes, found more", file, most)
	}
	return b, err
}

// opened opens a module for one command.
func (g *guests) opened(ctx context.Context, file string, f func(*wasm.Module) error) error {
	module, err := g.read(file)
	if err != nil {
		return err
	}
	m, err := wasm.Open(ctx, module, &g.o)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close(context.WithoutCancel(ctx)) }()
	return f(m)
}

func (g *guests) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE.wasm", Short: "print what is in a module and what it says of itself", Args: arguments("FILE.wasm"),
		Long: `Inspect prints hash, sizes, imports, exports and memory of a module, and, if it is a guest, what it
describes itself as. For a module that would be refused it prints what it can, says why, and ends
with exit code 7.`,
		Example: "  wattle guest inspect loan.wasm\n  wattle guest inspect loan.wasm -o json | jq -r .sha256",
		RunE: func(c *cobra.Command, args []string) error {
			module, err := g.read(args[0])
			if err != nil {
				return err
			}
			i, refused := wasm.Inspect(module)
			var description []byte
			if refused == nil {
				refused = g.opened(c.Context(), args[0], func(m *wasm.Module) (err error) {
					description, err = m.Call(c.Context(), wasm.OpDescribe, nil)
					return err
				})
			}
			if err := g.printInfo(i, description, refused); err != nil {
				return err
			}
			return refused
		},
		ValidArgsFunction: completeModules,
	}
}

// infoJSON is what -o json prints of a module.
type infoJSON struct {
	File        string         `json:"file"`
	SHA256      string         `json:"sha256"`
	Bytes       int            `json:"bytes"`
	GzipBytes   int            `json:"gzip_bytes"`
	Name        string         `json:"name"`
	Component   bool           `json:"component"`
	Operations  []string       `json:"operations"`
	Functions   int            `json:"functions"`
	Start       bool           `json:"start"`
	Memory      string         `json:"memory_pages"`
	Imports     []importJSON   `json:"imports"`
	Exports     []exportJSON   `json:"exports"`
	Sections    map[string]int `json:"section_bytes"`
	Refused     string         `json:"refused,omitempty"`
	Description any            `json:"description"`
}

type importJSON struct {
	Module string `json:"module"`
	exportJSON
}

type exportJSON struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Type string `json:"type,omitempty"`
}

func (g *guests) printInfo(i *wasm.Info, description []byte, refused error) error {
	if g.app.output == outputJSON {
		return g.app.printJSON(g.infoOf(i, description, refused))
	}
	rows := [][]string{
		{"file", g.o.Name}, {"sha256", i.SHA256}, {"size", fmt.Sprintf("%d bytes, %d gzipped", i.Bytes, i.GzipBytes)}, {"name", printable(i.Name)},
		{"operations", strings.Join(i.Ops(), " ")}, {"memory", memoryOf(i)}, {"functions", fmt.Sprint(i.Functions)},
	}
	for _, m := range i.Imports {
		rows = append(rows, []string{"import", printable(m.Module + " " + m.Name + " " + m.Type)})
	}
	for _, e := range i.Exports {
		rows = append(rows, []string{"export", printable(strings.TrimSpace(e.Name + " " + e.Type))})
	}
	for _, s := range i.Sections {
		rows = append(rows, []string{"section", printable(strings.TrimSpace(s.Name+" "+s.Custom) + fmt.Sprintf(" %d bytes", s.Bytes))})
	}
	if refused != nil {
		rows = append(rows, []string{"refused", message(refused)})
	} else {
		rows = append(rows, []string{"describes", dataText(description)})
	}
	return g.app.printRows(rows)
}

func (g *guests) infoOf(i *wasm.Info, description []byte, refused error) infoJSON {
	j := infoJSON{File: g.o.Name, SHA256: i.SHA256, Bytes: i.Bytes, GzipBytes: i.GzipBytes, Name: i.Name, Component: i.Component, Operations: append([]string{}, i.Ops()...),
		Functions: i.Functions, Start: i.Start, Memory: memoryOf(i), Imports: []importJSON{}, Exports: []exportJSON{}, Sections: map[string]int{}}
	for _, m := range i.Imports {
		j.Imports = append(j.Imports, importJSON{m.Module, exportJSON{m.Name, m.Kind, m.Type}})
	}
	for _, e := range i.Exports {
		j.Exports = append(j.Exports, exportJSON{e.Name, e.Kind, e.Type})
	}
	for _, s := range i.Sections {
		j.Sections[strings.TrimSpace(s.Name+" "+s.Custom)] += s.Bytes
	}
	if refused != nil {
		j.Refused = message(refused)
	} else {
		j.Description = asJSON(description)
	}
	return j
}

func memoryOf(i *wasm.Info) string {
	var all []string
	for _, m := range i.Memories {
		all = append(all, m.String())
	}
	return strings.Join(all, ", ")
}

// asJSON is a reply as it is if it is JSON, else its bytes in an object.
func asJSON(reply []byte) any {
	if json.Valid(reply) && utf8.Valid(reply) {
		return json.RawMessage(reply)
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString(reply)}
}

func (g *guests) runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run FILE.wasm OPERATION [REQUEST]", Short: "call a guest once and print its reply",
		Long: `Run sends one request, from the file REQUEST or else from stdin, to an operation of a guest
(` + strings.Join(operations, ", ") + `; describe takes no request), and prints the reply. What it took
goes to stderr, or with -o json into the one object with the reply.`,
		Example: "  wattle guest run loan.wasm describe\n  wattle guest run loan.wasm decide request.json --timeout 2s",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return arguments("FILE.wasm", "OPERATION")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			request, err := g.request(args)
			if err != nil {
				return err
			}
			return g.opened(c.Context(), args[0], func(m *wasm.Module) error {
				reply, used, err := m.CallUsage(c.Context(), args[1], request)
				if err != nil {
					return g.failed(err)
				}
				return g.printReply(args[1], reply, used)
			})
		},
		ValidArgsFunction: completeModules,
	}
}

var operations = []string{wasm.OpDescribe, wasm.OpDecide, wasm.OpEvolve, wasm.OpKeys, wasm.OpProject}

// request reads the request that the arguments name. Its end is no part of it if it is a
// line break.
func (g *guests) request(args []string) (request []byte, err error) {
	switch {
	case len(args) == 3:
		request, err = readAtMost(args[2], wasm.DefaultRequestBytes+1)
	case args[1] != wasm.OpDescribe:
		request, err = io.ReadAll(io.LimitReader(g.app.stdin, wasm.DefaultRequestBytes+2))
	}
	if err != nil {
		return nil, &coded{err, exitBadInput}
	}
	return bytes.TrimSuffix(request, []byte("\n")), nil
}

// failed shows what a guest wrote to stderr, beside the error's one line.
func (g *guests) failed(err error) error {
	if e, ok := errors.AsType[*wasm.Error](err); ok && e.Stderr != "" {
		for line := range strings.Lines(e.Stderr) {
			if _, err := fmt.Fprintln(g.app.stdout, "guest: "+printable(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), "\n"))); err != nil {
				return err
			}
		}
	}
	return err
}

// replyJSON is what -o json prints of a call.
type replyJSON struct {
	Operation    string  `json:"operation"`
	Seconds      float64 `json:"seconds"`
	SecondsLimit float64 `json:"seconds_limit"` // 0: none
	Memory       int64   `json:"memory_bytes"`
	MemoryLimit  int64   `json:"memory_bytes_limit"`
	Reply        any     `json:"reply"`
}

func (g *guests) printReply(op string, reply []byte, used wasm.Usage) error {
	if g.app.output == outputJSON {
		return g.app.printJSON(replyJSON{op, used.TimeUsed.Seconds(), used.TimeLimit.Seconds(), used.MemoryUsed, used.MemoryLimit, asJSON(reply)})
	}
	g.app.console.say(used.String())
	_, err := fmt.Fprintf(g.app.stdout, "%s\n", dataText(reply))
	return err
}

func (g *guests) precompileCommand() *cobra.Command {
	return &cobra.Command{
		Use: "precompile FILE.wasm --cache DIR", Short: "compile a module ahead, for images", Args: arguments("FILE.wasm"),
		Long: `Precompile compiles a module into --cache, so that a program whose wasm.Options have this CacheDir
starts without compiling: a guest in Go takes seconds. What it leaves serves programs with the same
version of wazero, on the same kind of CPU, with the same --trusted, and no other. It is machine
code: nobody but who runs the program may be able to write there.`,
		Example: "  wattle guest precompile loan.wasm --cache /var/cache/bank",
		RunE: func(c *cobra.Command, args []string) error {
			if g.o.CacheDir == "" {
				return &usageError{"--cache DIR", "none", "see: wattle guest precompile --help"}
			}
			module, err := g.read(args[0])
			if err != nil {
				return err
			}
			began := time.Now()
			if err := wasm.Precompile(c.Context(), module, g.o.CacheDir, &g.o); err != nil {
				return err
			}
			return g.printPrecompiled(module, time.Since(began))
		},
		ValidArgsFunction: completeModules,
	}
}

func (g *guests) printPrecompiled(module []byte, took time.Duration) error {
	i, err := wasm.Inspect(module)
	if err != nil {
		return err
	}
	if g.app.output == outputJSON {
		return g.app.printJSON(struct {
			File    string  `json:"file"`
			SHA256  string  `json:"sha256"`
			Cache   string  `json:"cache"`
			Trusted bool    `json:"trusted"`
			Seconds float64 `json:"seconds"`
		}{g.o.Name, i.SHA256, g.o.CacheDir, g.o.Trusted, took.Seconds()})
	}
	_, err = fmt.Fprintf(g.app.stdout, "compiled %s (%s) into %s in %v\n", g.o.Name, i.SHA256, g.o.CacheDir, took.Round(time.Millisecond))
	return err
}

// completeModules lets the shell complete a module, an operation, and then any file.
func completeModules(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
	case len(args) == 1 && c.Name() == "run":
		return operations, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}
