// The checkpoints as a Control: the suite, in every mode and under every isolation, and
// what it cannot see from outside.

package pgcheckpoint_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/controltest"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

func TestControl(t *testing.T) {
	open := func(mode pgx.QueryExecMode, level string) func(testing.TB) projector.Control {
		return func(tb testing.TB) projector.Control {
			e := newEnv(tb.(*testing.T))
			config := e.pool.Config()
			config.ConnConfig.DefaultQueryExecMode = mode
			config.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
			config.MaxConns = 10
			return pgcheckpoint.NewCheckpoints(e.poolOf(config), e.options())
		}
	}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { controltest.Run(t, open(mode, "read committed")) })
	}
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) { controltest.Run(t, open(pgx.QueryExecModeCacheStatement, level)) })
	}
	t.Run("random", func(t *testing.T) {
		controltest.Random(t, open(pgx.QueryExecModeCacheStatement, "read committed"))
	})
}

func (e *env) poolOf(config *pgxpool.Config) *pgxpool.Pool {
	e.t.Helper()
	pool, err := pgxpool.NewWithConfig(e.t.Context(), config)
	e.ok(err)
	e.t.Cleanup(pool.Close)
	return pool
}

// The suite through PgBouncer in transaction mode: nothing is kept in the session.
func TestControlThroughBouncer(t *testing.T) {
	e := newEnv(t)
	config, err := pgxpool.ParseConfig(pgtest.Bouncer(t, pgtest.DSN(t), 5))
	e.ok(err)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.MaxConns = 10
	c := pgcheckpoint.NewCheckpoints(e.poolOf(config), e.options())
	controltest.Run(t, func(testing.TB) projector.Control { return c })
}
