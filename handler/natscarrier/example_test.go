package natscarrier_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

// greeter is a handler that says what it is, and refuses all else: a Decider made a
// handler by aggregate/guest does more.
var greeter = handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	if r.Op == handler.Describe {
		return &handler.Reply{Description: &handler.Description{Name: "greeter", Release: "1.0.0"}}, nil
	}
	return nil, handler.Unsupported(r, handler.Describe)
})

func Example() {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	ns.Start()
	defer func() { ns.Shutdown(); ns.WaitForShutdown() }()
	if !ns.ReadyForConnections(10 * time.Second) {
		return
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	ctx := context.Background()
	service, err := natscarrier.Serve(ctx, nc, greeter, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = service.Stop(ctx) }()

	caller, err := handler.NewCaller(ctx, natscarrier.NewClient(nc, service.Prefix(), nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(service.Prefix(), caller.Description().Release)
	// Output: handler.greeter 1.0.0
}
