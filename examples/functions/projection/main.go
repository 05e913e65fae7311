// Command projection is the projection of the loan process as a container that listens on $PORT.
package main

import (
	"fmt"
	"os"

	"github.com/wattle-es/wattle/examples/functions"
)

func main() {
	if err := functions.Serve(functions.Projection); err != nil {
		fmt.Fprintln(os.Stderr, "projection:", err)
		os.Exit(1)
	}
}
