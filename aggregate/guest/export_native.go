//go:build !wasm

// The one line that makes a program a WebAssembly guest, where it is none.

package guest

import "github.com/wattle-es/wattle/handler"

// Export makes the program a WebAssembly guest that answers with h. It is called once, in
// an init function (main does not run in a guest), as
//
//	func init() { guest.Export(guest.New(accounts, guest.CommandsOf(commands), nil)) }
//
// and the program is built by
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o guest.wasm
//
// Built for anything else it only panics if err is not nil, as it does in a guest.
func Export(h handler.Handler, err error) {
	if err != nil {
		panic(err)
	}
	_ = h
}
