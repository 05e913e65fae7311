// The conformance suite through a real server: over every backend, and in every form that
// a client may speak.

package remotelog_test

import (
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// remote is a client with the way to make another one.
type remote struct {
	*remotelog.Log
	url string
}

// behind returns a harness of clients of a server over a log.
func behind(log func(t testing.TB) eventstore.Log, options func(t testing.TB) *remotelog.Options) logtest.Harness {
	client := func(t testing.TB, url string) eventstore.Log { return &remote{open(t, url, options(t)), url} }
	return logtest.Harness{
		Open:   func(t testing.TB) eventstore.Log { return client(t, serve(t, log(t), nil)) },
		Reopen: func(t testing.TB, l eventstore.Log) eventstore.Log { return client(t, l.(*remote).url) },
	}
}

func usual(testing.TB) *remotelog.Options { return nil }

func memory(testing.TB) eventstore.Log { return memlog.New(nil) }

func files(t testing.TB) eventstore.Log {
	l, err := filelog.Open(t.TempDir(), &filelog.Options{SegmentBytes: 64 << 10, ReclaimEvery: 250 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return l
}

func postgres(t testing.TB) eventstore.Log {
	pool, schema := pgtest.Schema(t)
	l, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return l
}

func TestLog(t *testing.T) {
	for name, log := range map[string]func(testing.TB) eventstore.Log{"memory": memory, "files": files, "postgres": postgres} {
		t.Run(name, func(t *testing.T) {
			h := behind(log, usual)
			logtest.Run(t, h)
			if name == "memory" || soak() { // the log behind has been through it
				logtest.Run(t, logtest.Dedicated(h))
			}
			logtest.Probe(t, h, logtest.ProbeOptions{Duration: 300 * time.Millisecond})
		})
	}
}

func TestForms(t *testing.T) {
	for name, options := range map[string]func(testing.TB) *remotelog.Options{
		"JSON over HTTP 1.1": func(t testing.TB) *remotelog.Options { return &remotelog.Options{Transport: http1(t), JSON: true} },
		"gRPC":               func(testing.TB) *remotelog.Options { return &remotelog.Options{Protocol: remotelog.GRPC, Gzip: true} },
	} {
		if name == "gRPC" && !soak() {
			continue // package server's tests have it, behind all of theirs
		}
		t.Run(name, func(t *testing.T) { logtest.Run(t, behind(memory, options)) })
	}
}

func TestRandom(t *testing.T) {
	for name, log := range map[string]func(testing.TB) eventstore.Log{"memory": memory, "files": files} {
		t.Run(name, func(t *testing.T) { logtest.Random(t, behind(log, usual), memory) })
	}
}

func TestLinear(t *testing.T) {
	for name, log := range map[string]func(testing.TB) eventstore.Log{"memory": memory, "files": files, "postgres": postgres} {
		t.Run(name, func(t *testing.T) {
			logtest.Linear(t, behind(log, usual), logtest.LinearOptions{Histories: linearHistories(), Operations: 50, Logs: 2})
		})
	}
}

func linearHistories() int {
	if soak() {
		return 2000
	}
	return 20
}
