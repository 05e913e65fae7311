//go:build !wasm

package wasm_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// A guest is opened once, as the program starts, and called from anywhere. Its second
// byte on is the answer; what it does for an "n" ends it, and harms nobody.
func Example() {
	module, err := goGuest() // as os.ReadFile("guest.wasm") does
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	guest, err := wasm.Open(ctx, module, &wasm.Options{
		Name:         "echo",
		CacheDir:     filepath.Join(shared, "cache"), // compiled once, not at each start
		Timeout:      time.Minute,                    // the default is 250 ms
		StartTimeout: time.Minute,
	})
	if err != nil {
		panic(err)
	}
	defer guest.Close(ctx)

	reply, err := guest.Call(ctx, wasm.OpDecide, []byte("ehello"))
	fmt.Println(string(reply), err)

	_, err = guest.Call(ctx, wasm.OpDecide, []byte("n"))
	var e *wasm.Error
	if errors.As(err, &e) {
		fmt.Println(errors.Is(err, wasm.ErrTrap), e.Temporary(), e.Stderr[:51])
	}

	reply, err = guest.Call(ctx, wasm.OpDecide, []byte("estill here"))
	fmt.Println(string(reply), err)
	// Output:
	// hello <nil>
	// true true panic: runtime error: invalid memory address or nil
	// still here <nil>
}
