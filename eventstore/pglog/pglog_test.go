// The conformance suite on PostgreSQL.

package pglog_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(hammerTask); task != "" {
		os.Exit(hammerMain(task))
	}
	pgtest.Main(m)
}

// store is what a log of the suite was opened on.
type store struct {
	*pglog.Log
	pool   *pgxpool.Pool
	schema string
}

var harness = logtest.Harness{
	Open: func(t testing.TB) eventstore.Log {
		pool, schema := pgtest.Schema(t)
		l, _ := open(t, pool, schema)
		return &store{l, pool, schema}
	},
	Reopen: func(t testing.TB, log eventstore.Log) eventstore.Log {
		s := log.(*store)
		l, _ := open(t, s.pool, s.schema)
		return &store{l, s.pool, s.schema}
	},
	LongTx: func(ctx context.Context, log eventstore.Log, a eventstore.Append, meanwhile func(), commit bool) error {
		s := log.(*store)
		tx, err := s.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		if _, err := s.AppendIn(ctx, tx, a); err != nil {
			return err
		}
		meanwhile()
		if !commit {
			return tx.Rollback(ctx)
		}
		return tx.Commit(ctx)
	},
}

func TestLog(t *testing.T) { logtest.Run(t, harness) }

func TestDedicated(t *testing.T) { logtest.Run(t, logtest.Dedicated(harness)) }

// TestRandom compares with a model and with memlog, history by history.
func TestRandom(t *testing.T) {
	logtest.Random(t, harness, func(testing.TB) eventstore.Log { return memlog.New(nil) })
}

func TestRandomDedicated(t *testing.T) {
	logtest.Random(t, logtest.Dedicated(harness), func(testing.TB) eventstore.Log { return memlog.New(nil) })
}

func BenchmarkLog(b *testing.B) { logtest.Bench(b, harness) }

func TestSchemaVersion(t *testing.T) {
	if pglog.SchemaVersion != migrations.Version {
		t.Errorf("pglog works with schema version %d, the migrations end at %d", pglog.SchemaVersion, migrations.Version)
	}
}
