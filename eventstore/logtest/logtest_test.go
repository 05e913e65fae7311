// The suite on memlog.

package logtest_test

import (
	"fmt"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var memory = logtest.Harness{Open: openMemory}

func openMemory(t testing.TB) eventstore.Log {
	log := memlog.New(nil)
	t.Cleanup(func() { log.Close() })
	return log
}

func TestRun(t *testing.T) { logtest.Run(t, memory) }

func TestRandom(t *testing.T) {
	for i := range 5 { // of 100 histories each
		t.Run(fmt.Sprint(i), func(t *testing.T) { logtest.Random(t, memory, openMemory) })
	}
}

func TestProbe(t *testing.T) { logtest.Probe(t, memory, logtest.ProbeOptions{}) }

func BenchmarkLog(b *testing.B) { logtest.Bench(b, memory) }
