//go:build !wasip1

// The guest half where there is no host above: it does nothing.

package wasm

// Serve does nothing here: guests are built for wasip1, and only there does it say what
// answers the calls of the host. It is there so that a guest's packages compile and can
// be tested anywhere.
func Serve(func(op string, request []byte) (reply []byte)) {}
