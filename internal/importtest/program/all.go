//go:build !small

// All the rest: handlers and a projection.

package main

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
)

// more counts once more with the domain behind the encoded form and once as a service, and
// returns what a projection has seen of all.
func more(ctx context.Context, store *eventstore.Store, near *aggregate.Executor[int, command, event]) (int, error) {
	commands := guest.CommandsOf(schema.New[command](schema.Wire[count]("count", 1)))
	h, err := guest.New(counters, commands, nil)
	if err != nil {
		return 0, err
	}
	caller, err := handler.NewCaller(ctx, handler.Over(encoded{h}, "program"), nil)
	if err != nil {
		return 0, err
	}
	far, err := guest.NewExecutor(ctx, store, caller, nil)
	if err != nil {
		return 0, err
	}
	if _, err := far.Execute(ctx, "a", guest.Command{Command: handler.Command{Type: "count", Version: 1, Data: []byte(`{"By":2}`)}}); err != nil {
		return 0, err
	}
	service := guest.NewService(near, counters.Category, counters.Schema, commands, nil)
	reply, err := service.Handle(ctx, &handler.Request{Op: handler.Execute, Key: eventstore.NewUUID(), ID: eventstore.NewUUID(), Stream: "counter-a",
		Command: &handler.Command{Type: "count", Data: []byte(`{"By":4}`)}})
	if err != nil {
		return 0, err
	}
	return project(ctx, store, reply.Token)
}

// project runs a projection until it has seen what is at the token.
func project(ctx context.Context, store *eventstore.Store, token eventstore.Token) (total int, err error) {
	p := projector.New(store, "total", counters.Category, projector.Memory(counters.Schema, func(_ context.Context, e projector.Event[event]) error {
		total += e.Value.(counted).By
		return nil
	}))
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	err = p.Wait(ctx, token)
	stop()
	<-ran
	return total, err
}

// encoded is a handler behind its encoded form.
type encoded struct{ h handler.Handler }

func (e encoded) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(ctx, e.h, op, request), nil
}
