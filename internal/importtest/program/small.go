//go:build small

// The command side alone.

package main

import (
	"context"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
)

// more does nothing more.
func more(context.Context, *eventstore.Store, *aggregate.Executor[int, command, event]) (int, error) {
	return 1, nil
}
