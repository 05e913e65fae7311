// Command broker tells a story of topics: two servers on one store, four publishers, a
// consumer with three members, and one of the servers killed half way. Every message is
// there once, handled once, and in order for its key.
//
//	go run ./examples/broker -store 'postgres://user@localhost/database?sslmode=disable'
//
// The servers are processes of their own, so that one can be killed as processes are. The
// store's schema, "wattle_broker" unless -schema says otherwise, is made and dropped.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s story
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	node := flags.Bool("node", false, "be one of the servers")
	flags.StringVar(&s.store, "store", os.Getenv("BROKER_STORE"), "URL of a PostgreSQL database")
	flags.StringVar(&s.schema, "schema", "wattle_broker", "schema for the store")
	flags.IntVar(&s.messages, "messages", 2000, "messages of each publisher")
	flags.DurationVar(&s.ttl, "ttl", 2*time.Second, "how long a server that is silent keeps its partitions")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *node {
		return serve(ctx, s, out)
	}
	return s.withSchema(ctx, func() error { return s.tell(ctx, out) })
}

// withSchema calls f with the store's schema, which it makes and drops.
func (s *story) withSchema(ctx context.Context, f func() error) error {
	pool, err := pgxpool.New(ctx, s.store)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool, s.schema); err != nil {
		return err
	}
	defer func() {
		_, _ = pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+pgx.Identifier{s.schema}.Sanitize()+" CASCADE") // it is the example's own
	}()
	return f()
}
