// Command command is the command side of the loan process as a container that listens on $PORT.
package main

import (
	"fmt"
	"os"

	"github.com/wattle-es/wattle/examples/functions"
)

func main() {
	if err := functions.Serve(functions.Command); err != nil {
		fmt.Fprintln(os.Stderr, "command:", err)
		os.Exit(1)
	}
}
