//go:build wasip1

// The guest half: what a module exports, and the handler behind it.

package wasm

import "unsafe"

// The state of the one call that runs: an instance has one caller.
var (
	handle  func(op string, request []byte) (reply []byte)
	request []byte // where the host puts requests; grows, and is used again
	reply   []byte // held, so that it stays where it is until the next call
)

// Serve says what answers the calls of the host. It is called once, in init: main does
// not run in a guest. The handler gets an operation as "decide" and its request, which it
// may use until it returns, and returns a reply that it does not touch afterwards. An
// empty reply is an internal error. A panic ends the instance, with its message told to
// the host. Outside wasip1 Serve does nothing, so that a guest's packages compile and can
// be tested anywhere.
func Serve(handler func(op string, request []byte) (reply []byte)) {
	if handler == nil || handle != nil {
		panic("wasm: wanted Serve called once, with a handler")
	}
	handle = handler
}

//go:wasmexport es1_alloc
func es1Alloc(n uint32) uint32 {
	if uint32(cap(request)) < n || request == nil {
		// Some room more than asked for, so that growing requests do not move it each time.
		request = make([]byte, n, n+n/4+4096)
	}
	request = request[:n]
	return address(request)
}

//go:wasmexport es1_describe
func es1Describe() uint64 { return call(OpDescribe, 0) }

//go:wasmexport es1_decide
func es1Decide(n uint32) uint64 { return call(OpDecide, n) }

//go:wasmexport es1_evolve
func es1Evolve(n uint32) uint64 { return call(OpEvolve, n) }

//go:wasmexport es1_keys
func es1Keys(n uint32) uint64 { return call(OpKeys, n) }

//go:wasmexport es1_project
func es1Project(n uint32) uint64 { return call(OpProject, n) }

// call has the handler answer, and returns where its reply lies.
func call(op string, n uint32) uint64 {
	if handle == nil {
		panic("wasm: no handler; give one to Serve in init")
	}
	if n > uint32(len(request)) {
		return 0
	}
	reply = handle(op, request[:n:n])
	if len(reply) == 0 {
		return 0
	}
	return uint64(address(reply))<<32 | uint64(len(reply))
}

func address(b []byte) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
