// Command loan is the loan process and its summary as a WebAssembly guest: a few lines
// beside the code that decides and projects natively.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o loan.wasm ./examples/guest/loan
package main

import (
	"context"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/examples/loan/summary"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
)

func init() { guest.Export(loan()) }

// loan decides applications and projects what becomes of them.
func loan() (handler.Handler, error) {
	decider, err := wire.Handler()
	if err != nil {
		return nil, err
	}
	return handler.Join(context.Background(), decider, summary.Handler())
}

func main() {}
