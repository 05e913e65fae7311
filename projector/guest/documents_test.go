// The documents in memory, held against the suite.

package guest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/guest/documentstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryDocuments(t *testing.T) {
	documentstest.Run(t, func(*testing.T) guest.Documents { return &guest.MemoryDocuments{} })
}
