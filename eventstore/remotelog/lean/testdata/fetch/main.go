//go:build js

// Command fetch runs the client where there is a fetch and no network: its argument is
// the URL of a server that has the category "account".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/lean"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, err := lean.Open(url, nil)
	if err != nil {
		return err
	}
	store := eventstore.New(log, nil)
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: "account-fetch", Claim: true, Epoch: 1, Holder: eventstore.NewUUID(),
		Events: []eventstore.Event{{Type: "opened", Data: []byte("12345678901234567890")}, {Type: "empty"}}}
	for range 2 { // the second time it is proved
		if _, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
			return err
		}
	}
	for e, err := range store.Read(ctx, b.Stream, 0) {
		if err != nil {
			return err
		}
		fmt.Printf("%d %s %q\n", e.Seqno, e.Type, e.Data)
	}
	if _, err := store.Head(ctx, "nothing-here"); err != nil && !errors.Is(err, eventstore.ErrNoSuchCategory) {
		return err
	}
	stale := b
	stale.ID = eventstore.NewUUID()
	_, err = store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{stale}})
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || e.Kind != eventstore.ErrFenced || e.Head == nil {
		return fmt.Errorf("a stale claim: %v", err)
	}
	late, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	<-late.Done()
	if _, err := store.Head(late, b.Stream); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a late call: %v", err)
	}
	fmt.Println("refused at epoch", e.Head.Epoch)
	return nil
}
