//go:build js

// Command decide is the loan process as a Worker: it answers the handler contract's
// POSTs, and keeps nothing.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/wattle-es/wattle/examples/edge/worker"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "decide:", err)
		os.Exit(1)
	}
}

func run() error {
	h, err := wire.Handler()
	if err != nil {
		return err
	}
	return worker.Serve(context.Background(), httpcarrier.NewHandler(h, nil))
}
