// The conformance suite on a log in files.

package filelog_test

import (
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// smallSegment makes logs roll and reclaim often.
const smallSegment = 4 << 10

func harness(o filelog.Options) logtest.Harness {
	return logtest.Harness{Open: func(t testing.TB) eventstore.Log {
		l, err := filelog.Open(t.TempDir(), &o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
		return l
	}}
}

func TestLog(t *testing.T) {
	for _, c := range []struct {
		name string
		o    filelog.Options
	}{{"usual", filelog.Options{}}, {"small", filelog.Options{SegmentBytes: 64 << 10, OpenFiles: 4, ReclaimEvery: 250 * time.Millisecond}}} {
		t.Run(c.name, func(t *testing.T) {
			h := harness(c.o)
			logtest.Run(t, h)
			logtest.Run(t, logtest.Dedicated(h))
			logtest.Probe(t, h, logtest.ProbeOptions{})
		})
	}
}

func TestRandom(t *testing.T) {
	logtest.Random(t, harness(filelog.Options{SegmentBytes: smallSegment, ReclaimEvery: time.Millisecond}), memory)
}

func TestLinear(t *testing.T) {
	logtest.Linear(t, harness(filelog.Options{SegmentBytes: 64 << 10, ReclaimEvery: 10 * time.Millisecond}), logtest.LinearOptions{})
}

func memory(testing.TB) eventstore.Log { return memlog.New(nil) }
