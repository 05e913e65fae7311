// A server: a store in PostgreSQL, a broker on it, and the service of topics in front.

package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/server"
	"github.com/wattle-es/wattle/server/policy"
	"github.com/wattle-es/wattle/topic"
	"github.com/wattle-es/wattle/topic/remotetopic"
)

// serve serves until ctx ends, and says on out where. Whoever reaches it may do
// everything: it listens on loopback, without TLS. See wattle serve for how it is done
// properly.
func serve(ctx context.Context, s story, out io.Writer) error {
	pool, err := pgxpool.New(ctx, s.store)
	if err != nil {
		return err
	}
	defer pool.Close()
	log, err := pglog.Open(ctx, pool, &pglog.Options{Schema: s.schema})
	if err != nil {
		return err
	}
	store := eventstore.New(log, nil)
	defer store.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	broker, err := topic.NewBroker(ctx, store, &topic.Options{Address: url, LeaseTTL: s.ttl})
	if err != nil {
		return err
	}
	defer broker.Close()
	anybody, err := policy.Parse("anonymous * *\n")
	if err != nil {
		return err
	}
	served, err := server.New(server.Options{Policy: policy.Fixed(anybody), Anonymous: true})
	if err != nil {
		return err
	}
	topics := remotetopic.NewService(broker, &remotetopic.ServiceOptions{Options: served.HandlerOptions(),
		Forward: func(address string) (remotetopic.Peer, error) { return remotetopic.NewPeer(address, nil) }})
	defer topics.Close()
	if err := served.Mount(topics.Handler()); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- broker.Run(running) }()
	if _, err := fmt.Fprintln(out, url); err != nil {
		return err
	}
	err = served.Serve(ctx, l)
	stop()
	<-ended
	return err
}
