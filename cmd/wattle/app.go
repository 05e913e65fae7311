// The command line: what all commands share.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
)

// storeVariable names the environment variable that stands in for --store.
const storeVariable = "WATTLE_STORE"

// The forms of output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// app is one run of the command: its surroundings and its global flags.
type app struct {
	stdin    io.Reader
	stdout   io.Writer
	console  *console // stderr
	env      func(string) string
	terminal func(any) bool // says if a stream is a terminal

	store  string
	output string
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, env func(string) string) *app {
	return &app{stdin: stdin, stdout: stdout, env: env, terminal: isTerminal, console: &console{w: stderr}}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run runs the command and returns its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.console.live = a.terminal(a.console.w)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.console)
	err := root.ExecuteContext(ctx)
	if err != nil {
		// Whatever a call answered after the user wanted an end, that is the reason.
		if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
			err = i
		}
		a.console.say(message(err))
	}
	return codeOf(err)
}

const rootLong = `Wattle is an event-sourcing framework for Go on fenced logs. This command administers its
stores and the projectors on them, shows what is in them, puts load on them, and runs a demo.

A store is named by a URL, with --store or in the environment variable ` + storeVariable + `:

  file:DIR                                            in files of a directory, relative or absolute;
                                                      one process writes, any number reads beside it
  mem:                                                in memory, gone when the process ends
  postgres://user@host:5432/database?schema=wattle    in PostgreSQL; further parameters are pgx's:
                                                      sslmode, pool_max_conns, connect_timeout,
                                                      default_query_exec_mode=exec behind PgBouncer
  https://host:4440?ca=FILE&cert=FILE&key=FILE        at a server (wattle serve), known by its
                                                      authority, with a client certificate or a
                                                      token (token=FILE)

Passwords are best given in PGPASSWORD or a .pgpass file; they are never printed.

Output is a table, or with -o json: for lists one JSON array, for read and tail one object a
line, for verify, doctor and bench one object. Progress goes to stderr: only to a terminal, but
for that of bench. Errors are one line on stderr.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "wattle",
		Short: "event sourcing on fenced logs",
		Long:  rootLong,
		Example: `  wattle demo
  wattle migrate up --store 'postgres://app@localhost/bank?schema=wattle'
  export WATTLE_STORE=file:/var/lib/bank
  wattle category list -o json
  wattle read application-173688
  wattle tail application -f
  wattle verify
  wattle doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != outputTable && a.output != outputJSON {
				return &usageError{"-o table or -o json", fmt.Sprintf("%q", a.output), ""}
			}
			return nil
		},
	}
	group(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{"flags of " + c.CommandPath(), err.Error(), "see: " + c.CommandPath() + " --help"}
	})
	flags := root.PersistentFlags()
	// The environment is not the flag's default: help would print its password.
	flags.StringVar(&a.store, "store", "", "URL of the store: file:DIR, mem:, postgres://… or https://… (default $"+storeVariable+")")
	flags.StringVarP(&a.output, "output", "o", outputTable, "form of the output: table or json")
	// Neither can fail: the flag is there.
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputTable, outputJSON}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("store", cobra.FixedCompletions([]string{"file:", "mem:", "postgres://", "https://"}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.demoCommand(), a.migrateCommand(), a.categoryCommand(), a.streamCommand(), a.readCommand(), a.tailCommand(), a.trimCommand(),
		a.projectorCommand(), a.handlerCommand(), a.guestCommand(), a.serveCommand(), a.topicCommand(), a.publishCommand(), a.consumeCommand(), a.policyCommand(), a.certCommand(),
		a.verifyCommand(), a.doctorCommand(), a.dumpCommand(), a.backupCommand(), a.benchCommand(), a.versionCommand(),
		&cobra.Command{Use: "exit-codes", Short: "what the exit codes mean", Long: exitCodesHelp})
	return root
}

// group makes a command one that only holds others: alone it prints its help, and
// with an argument that names none of them it says so, where cobra would print
// help and succeed.
func group(c *cobra.Command) {
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		var names []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		hint := "see: " + c.CommandPath() + " --help"
		if like := c.SuggestionsFor(args[0]); len(like) > 0 {
			hint = "did you mean " + like[0] + "?"
		}
		return &usageError{"a command of " + c.CommandPath() + ": " + strings.Join(names, ", "), fmt.Sprintf("%q", args[0]), hint}
	}
}

// arguments wants exactly these.
func arguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		wanted := "no argument"
		if len(names) > 0 {
			wanted = strings.Join(names, " and ")
		}
		found := "none"
		if len(args) > 0 {
			found = fmt.Sprintf("%q", args)
		}
		return &usageError{wanted + " for " + c.CommandPath(), found, "see: " + c.CommandPath() + " --help"}
	}
}

// target takes the store's URL apart. fallback stands for none; empty: there must
// be one.
func (a *app) target(fallback string) (*open.Target, error) {
	for _, address := range []string{a.store, a.env(storeVariable), fallback} {
		if address != "" {
			return open.Parse(address)
		}
	}
	return nil, &usageError{"the URL of a store", "none", "give --store or set " + storeVariable + ", see: wattle --help"}
}

// opened opens the store and closes it when f has ended.
func (a *app) opened(ctx context.Context, o open.Options, f func(*open.Store) error) error {
	t, err := a.target("")
	if err != nil {
		return err
	}
	o.Logger = a.logger()
	s, err := t.Open(ctx, &o)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// logger writes warnings to stderr.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(warnings{a.console}, &slog.HandlerOptions{Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, at slog.Attr) slog.Attr {
			if len(groups) == 0 && slices.Contains([]string{slog.TimeKey, slog.LevelKey}, at.Key) {
				return slog.Attr{}
			}
			return at
		}}))
}
