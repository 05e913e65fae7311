// Command program uses what is meant for WebAssembly, so that its size can be held
// against a limit: all of it, or with the tag small what a command side needs.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
)

type (
	event   interface{ isEvent() }
	command interface{ isCommand() }
	counted struct{ By int }
	count   struct{ By int }
)

func (counted) isEvent() {}
func (count) isCommand() {}

var counters = aggregate.Type[int, command, event]{
	Category: "counter",
	Schema:   schema.New[event](schema.Wire[counted]("counted", 1)),
	Decider: aggregate.Decider[int, command, event]{
		Initial: func() int { return 0 },
		Decide:  func(_ int, c command) ([]event, error) { return []event{counted(c.(count))}, nil },
		Evolve:  func(s int, e event) int { return s + e.(counted).By },
	},
}

func main() {
	total, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(total)
}

// run counts once, and returns what more has seen in the end.
func run(ctx context.Context) (int, error) {
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	x, err := aggregate.NewExecutor(ctx, store, counters, nil)
	if err != nil {
		return 0, err
	}
	if _, err := x.Execute(ctx, "a", count{1}); err != nil {
		return 0, err
	}
	return more(ctx, store, x)
}
