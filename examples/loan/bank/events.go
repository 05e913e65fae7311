// The registry of the loan events.

package bank

import (
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
)

// Events returns the registry of the loan events.
func Events() *schema.Registry[loan.Event] { return wire.Events() }
