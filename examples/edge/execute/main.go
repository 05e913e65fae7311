//go:build js

// Command execute is the whole command side of the loan process as a Worker: it loads a
// stream from PostgreSQL, decides, and appends behind the fence, before it answers.
//
// DATABASE_URL is the database, best through a pooler in transaction mode, and
// WATTLE_SCHEMA the schema; empty: wattle.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/edge/worker"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// limit bounds what a request takes; its sender may set a deadline before that.
const limit = 30 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "execute:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	pool, err := connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	return worker.Serve(ctx, httpcarrier.NewHandler(handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		service, err := open(ctx, pool)
		if err != nil {
			return nil, err
		}
		return service.Handle(ctx, r)
	}), nil))
}

// connect returns a pool of one: a program answers one request. It dials when it is asked
// for a connection, not before.
func connect(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = 1, 0
	config.ConnConfig.DialFunc, config.ConnConfig.LookupFunc = worker.Dial, worker.Lookup
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // all that a pooler in transaction mode allows
	return pgxpool.NewWithConfig(ctx, config)
}

func open(ctx context.Context, pool *pgxpool.Pool) (handler.Handler, error) {
	log, err := pglog.Open(ctx, pool, &pglog.Options{Schema: os.Getenv("WATTLE_SCHEMA"), ReclaimEvery: -1})
	if err != nil {
		return nil, err
	}
	x, err := aggregate.NewExecutor(ctx, eventstore.New(log, nil), wire.Applications(), nil)
	if err != nil {
		return nil, err
	}
	return guest.NewService(x, wire.Category, wire.Events(), guest.CommandsOf(wire.Commands()), nil), nil
}
