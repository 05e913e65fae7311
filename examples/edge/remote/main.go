//go:build js

// Command remote is the whole command side of the loan process as a Worker whose log is at
// a wattle serve: it loads a stream over fetch, decides, and appends behind the fence,
// before it answers.
//
// WATTLE_SERVER is the URL of the server and WATTLE_TOKEN the bearer token by which it
// knows the Worker; empty: none.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/lean"
	"github.com/wattle-es/wattle/examples/edge/worker"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// limit bounds what a request takes; its sender may set a deadline before that.
const limit = 30 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "remote:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	log, err := lean.Open(os.Getenv("WATTLE_SERVER"), &lean.Options{Token: os.Getenv("WATTLE_TOKEN")})
	if err != nil {
		return err
	}
	defer log.Close()
	return worker.Serve(ctx, httpcarrier.NewHandler(handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		x, err := aggregate.NewExecutor(ctx, eventstore.New(log, nil), wire.Applications(), nil)
		if err != nil {
			return nil, err
		}
		return guest.NewService(x, wire.Category, wire.Events(), guest.CommandsOf(wire.Commands()), nil).Handle(ctx, r)
	}), nil))
}
