// MemoryCheckpoints as a Control.

package projector_test

import (
	"testing"

	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/controltest"
)

func TestMemoryControl(t *testing.T) {
	controltest.Run(t, func(testing.TB) projector.Control { return &projector.MemoryCheckpoints{} })
}
