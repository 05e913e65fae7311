// Command compile compiles a guest into a cache: compile FILE CACHE.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("wanted FILE and CACHE, found %d arguments", len(args))
	}
	module, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	return wasm.Precompile(context.Background(), module, args[1], nil)
}
