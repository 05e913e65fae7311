// Package workers tests the runtime of projectors on the real thing: processes that are
// killed and frozen, one PostgreSQL, a NATS server that comes and goes. A read model
// without a unique key shows every effect that happens twice, and its order.
package workers

import (
	"os"
	"testing"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(taskVariable); text != "" {
		os.Exit(processMain(text))
	}
	pgtest.Main(m)
}

// soak says if the wide versions are asked for.
func soak() bool { return os.Getenv("WATTLE_SOAK") != "" }
