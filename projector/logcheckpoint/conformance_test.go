// The conformance suite of projector.Control over every backend.

package logcheckpoint_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/controltest"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// backends open an empty log.
var backends = map[string]func(t testing.TB) eventstore.Log{
	"memlog": func(testing.TB) eventstore.Log { return memlog.New(nil) },
	"filelog": func(t testing.TB) eventstore.Log {
		log, err := filelog.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		return log
	},
	"pglog": func(t testing.TB) eventstore.Log {
		pool, schema := pgtest.Schema(t)
		log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		return log
	},
}

func open(t testing.TB, log eventstore.Log) *logcheckpoint.Checkpoints {
	t.Helper()
	c, err := logcheckpoint.New(t.Context(), eventstore.New(log, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	pgtest.DSN(t) // starts the server, whose goroutines stay
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			opens := func(t testing.TB) projector.Control { return open(t, backend(t)) }
			controltest.Run(t, opens)
			if name != "pglog" || os.Getenv("WATTLE_SOAK") != "" { // a minute there
				controltest.Random(t, opens)
			}
		})
	}
}
