// How wide the tests go, and the server that read models apart from the log live on.

package cluster

import (
	"os"
	"testing"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// soak says if the wide versions are asked for.
func soak() bool { return os.Getenv("WATTLE_SOAK") != "" }
