// The conformance suite on the log in memory.

package memlog_test

import (
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

var harness = logtest.Harness{Open: func(testing.TB) eventstore.Log { return memlog.New(nil) }}

func TestLog(t *testing.T)             { logtest.Run(t, harness) }
func TestDedicated(t *testing.T)       { logtest.Run(t, logtest.Dedicated(harness)) }
func TestRandomDedicated(t *testing.T) { logtest.Random(t, logtest.Dedicated(harness), nil) }
func TestRandom(t *testing.T)          { logtest.Random(t, harness, nil) }
func TestProbe(t *testing.T)           { logtest.Probe(t, harness, logtest.ProbeOptions{}) }
func BenchmarkLog(b *testing.B)        { logtest.Bench(b, harness) }
func TestLinear(t *testing.T)          { logtest.Linear(t, harness, logtest.LinearOptions{Parallel: 2}) }
