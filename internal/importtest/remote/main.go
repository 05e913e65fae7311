// Command remote is a program for WebAssembly that uses a store at the other end of a
// network, so that its size can be held against a limit.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

func main() {
	if err := run(context.Background(), os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	log, err := remotelog.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	store := eventstore.New(log, nil)
	defer store.Close()
	for e, err := range store.Read(ctx, "counter-a", 0) {
		if err != nil {
			return err
		}
		fmt.Println(e.Seqno, e.Type)
	}
	return nil
}
