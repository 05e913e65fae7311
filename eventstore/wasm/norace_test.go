//go:build !race

package wasm_test

// raced says that the tests run with the race detector.
const raced = false
