// Command wattle administers, shows and loads the stores of Wattle, and runs its demo.
//
// See wattle help, and wattle help COMMAND; exit codes are in wattle help exit-codes.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // a second one ends the process at once
		cancel(interruption{s})
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is main without the process: it returns the exit code. ctx ends with an
// interruption as its cause when the user wants an end.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	return newApp(stdin, stdout, stderr, env).run(ctx, args)
}

// interruption is a signal that asks the process to end.
type interruption struct{ os.Signal }

func (i interruption) Error() string { return "interrupted by " + i.String() }

// code is what shells show for a process ended by the signal.
func (i interruption) code() int {
	if s, ok := i.Signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitFailure
}
