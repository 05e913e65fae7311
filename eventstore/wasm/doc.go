// Package wasm is the byte boundary between a program and its WebAssembly guests:
// core modules that hold domain logic and can do nothing but compute.
//
// It carries bytes and does not know what they mean. Both halves are here: the host
// ([Module], on everything but WebAssembly) and the guest ([Serve], on wasip1).
//
// # ABI es1
//
// A guest exports these; the names carry the version, and what is missing or has another
// type is found when the module is opened. A pointer is an offset into memory.
//
//	memory                         its one linear memory
//	_initialize()                  if there, called once before everything else
//	es1_alloc(len i32) i32         where the host is to put a request of len bytes
//	es1_describe() i64             what this guest is
//	es1_decide(len i32) i64        the others take the request that was put there,
//	es1_evolve(len i32) i64        and each may be left out
//	es1_keys(len i32) i64
//	es1_project(len i32) i64
//
// A result is pointer<<32 | length of the reply, which stays where it is until the next
// call; 0 is an internal error of the guest. There is one request buffer, valid until the
// handler returns, and nothing is ever freed: a host replaces an instance when it has
// grown.
//
// Imports may come from wasi_snapshot_preview1 and be env.abort (AssemblyScript); any
// other is refused. WASI gives no file, argument, variable or socket; its clock starts at
// 2022-01-01 and moves a millisecond a reading, its random bytes are always the same ones.
// So a fresh instance answers the same on every machine; that a warmed one does too is
// the guest's duty, and [Module.CheckDeterminism] looks for those that fail.
//
// # Guests in Go
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o guest.wasm .
//
// main never runs in a module built so: handlers are given to [Serve] in init.
//
// # Trust
//
// Every call is bounded in time, memory, request, reply and stderr, and whatever a guest
// does wrong ends as an [Error] of the host, with the instance thrown away. That protects
// from guests with bugs. SECURITY.md says what it does not stop.
package wasm

// The operations of a guest, as [Module.Call] and the handler of [Serve] name them.
const (
	OpDescribe = "describe" // takes no request
	OpDecide   = "decide"
	OpEvolve   = "evolve"
	OpKeys     = "keys"
	OpProject  = "project"
)
