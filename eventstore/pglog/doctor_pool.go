// Examine, the pool: is a pooler between it and the server, and do they suit.

package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

const hintExec = "set the pool's DefaultQueryExecMode to QueryExecModeExec (default_query_exec_mode=exec in the URL)"

// pooler finds out whether a pooler stands between: it gives every client a process ID of
// its own invention. Whether it changes sessions between transactions, and whether a
// prepared statement survives that, is tried.
func (x *examination) pooler(ctx context.Context) {
	conn, err := x.pool.Acquire(ctx)
	if err != nil {
		x.unseen("pooler", err)
		return
	}
	defer conn.Release()
	pid, err := backend(ctx, conn)
	switch {
	case err != nil:
		x.unseen("pooler", err)
	case uint32(pid) == conn.Conn().PgConn().PID():
		x.ok("pooler", "none")
	default:
		x.between(ctx, conn, pid)
	}
}

// backend is the process ID of the session that serves a connection now.
func backend(ctx context.Context, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (pid int32, err error) {
	err = q.QueryRow(ctx, `select pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// unfitModes are those that need one session over several round trips.
var unfitModes = map[pgx.QueryExecMode]bool{pgx.QueryExecModeCacheStatement: true, pgx.QueryExecModeDescribeExec: true}

// between judges a pooler: conn is a connection that was served by session pid.
func (x *examination) between(ctx context.Context, conn *pgxpool.Conn, pid int32) {
	mode := x.pool.Config().ConnConfig.DefaultQueryExecMode
	if !unfitModes[mode] {
		x.ok("pooler", fmt.Sprintf("there is one; query mode %q suits it", mode))
		return
	}
	wanted := `query mode "exec" behind a pooler`
	found := fmt.Sprintf("query mode %q", mode)
	if x.pool.Config().MaxConns < 2 {
		x.add("pooler", eventstore.SeverityWarning, wanted, found+" (it takes two connections to see what the pooler does)", hintExec)
		return
	}
	switch moved, err := x.moves(ctx, conn, pid); {
	case err != nil:
		x.add("pooler", eventstore.SeverityFault, wanted, found+", in which a statement failed when the pooler changed sessions: "+err.Error(), hintExec)
	case !moved:
		x.add("pooler", eventstore.SeverityWarning, wanted, found+"; the pooler kept the session this time", hintExec+", unless it pools whole sessions")
	default:
		x.ok("pooler", fmt.Sprintf("there is one, which keeps prepared statements over a change of sessions; query mode %q suits it", mode))
	}
}

// moves makes the pooler change the session of a connection, by occupying that one with
// another connection's transaction, and says what that does to a prepared statement.
func (x *examination) moves(ctx context.Context, conn *pgxpool.Conn, pid int32) (moved bool, err error) {
	defer conn.Conn().Close(context.WithoutCancel(ctx)) // its statements are anybody's guess
	name := "wattle_" + eventstore.NewUUID().String()
	if _, err := conn.Conn().Prepare(ctx, name, `select pg_backend_pid()`); err != nil {
		return false, err
	}
	other, err := x.pool.Acquire(ctx)
	if err != nil {
		return false, nil
	}
	defer other.Release()
	defer other.Conn().Close(context.WithoutCancel(ctx))
	tx, err := other.Begin(ctx)
	if err != nil {
		return false, nil
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // nothing was done in it
	occupied, err := backend(ctx, tx)
	if err != nil {
		return false, nil
	}
	if occupied == pid { // it is prepared here, and would stay so
		defer tx.Exec(context.WithoutCancel(ctx), "deallocate "+pgx.Identifier{name}.Sanitize(), pgx.QueryExecModeExec)
	}
	var now int32
	if err := conn.QueryRow(ctx, name).Scan(&now); err != nil {
		return true, err
	}
	return now != pid, nil
}
