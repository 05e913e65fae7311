// Command least is a guest with nothing but the guest half of this package: what it
// weighs, every guest in Go does.
package main

import "github.com/wattle-es/wattle/eventstore/wasm"

func main() {}

func init() {
	wasm.Serve(func(_ string, request []byte) []byte { return request })
}
