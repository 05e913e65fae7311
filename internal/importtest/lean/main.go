// Command lean is a program for WebAssembly with the lean client of a server, for its size.
package main

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/lean"
)

func main() {
	log, err := lean.Open("https://127.0.0.1:4440", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := eventstore.New(log, nil)
	defer store.Close()
	b := eventstore.Batch{Stream: "account-alice", Epoch: 1, Claim: true, Events: []eventstore.Event{{Type: "opened", Data: []byte("{}")}}}
	fmt.Println(store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{b}}))
	fmt.Println(store.ReadFrom(context.Background(), "account-alice", 0, 10))
}
