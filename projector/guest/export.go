//go:build wasm

// The one line that makes a program a WebAssembly guest.

package guest

import (
	"context"

	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/handler"
)

// Export makes the program a WebAssembly guest that answers with h. It is called once, in
// an init function (main does not run in a guest), as
//
//	func init() { guest.Export(guest.New(balances)) }
//
// and the program is built by
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o guest.wasm
//
// Built for anything else it does nothing.
func Export(h handler.Handler) {
	wasm.Serve(func(op string, request []byte) []byte {
		return handler.Serve(context.Background(), h, op, request)
	})
}
