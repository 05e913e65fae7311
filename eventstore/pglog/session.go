// Sessions: what a connection must tell us beside its answers, and what may stand
// between it and the server.

package pglog

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// Configure makes the connections of a pool talk UTF-8, whatever the role's default,
// and tell the log when a wait for a synchronous standby was cancelled. Call it before
// the pool is made:
//
//	config, err := pgxpool.ParseConfig(url)
//	pglog.Configure(config.ConnConfig)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//
// The second matters where synchronous_standby_names is set: if somebody cancels such a wait
// (pg_cancel_backend), the server answers as if all were well, and says in a notice
// only that the standby may not have what was written. With Configure that is
// ErrUnknown, and the same batch again waits for the standby anew; without it the
// append counts as acknowledged and a failover may lose it. pgx takes a handler of
// notices only before it connects, so a Log cannot do this by itself; [Open] warns of
// a pool that lacks it.
//
// OnNotice and AfterConnect that are set already are called as before; set later, they
// replace this.
func Configure(c *pgx.ConnConfig) {
	if c.RuntimeParams == nil {
		c.RuntimeParams = map[string]string{}
	}
	c.RuntimeParams["client_encoding"] = "UTF8"
	onNotice, afterConnect := c.OnNotice, c.AfterConnect
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if waits := waitsOf(conn); waits != nil && n.Routine == syncRepRoutine {
			waits.Add(1)
		}
		if onNotice != nil {
			onNotice(conn, n)
		}
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		conn.CustomData()[waitsKey] = new(atomic.Int64)
		if afterConnect != nil {
			return afterConnect(ctx, conn)
		}
		return nil
	}
}

const (
	// waitsKey is where a connection counts its waits that were cancelled.
	waitsKey = "wattle.cancelled_waits"
	// syncRepRoutine is the function of the server that sends the notice. Its SQLSTATE is
	// that of any warning, and its text is translated.
	syncRepRoutine = "SyncRepWaitForLSN"
)

func waitsOf(conn *pgconn.PgConn) *atomic.Int64 {
	waits, _ := conn.CustomData()[waitsKey].(*atomic.Int64)
	return waits
}

// readable refuses a session in which the server would take our text, which is UTF-8,
// for another encoding: what it stores then is another key, hence another stream, than
// what other sessions see. pgx keeps the server's word, so this asks nobody.
func readable(op string, s eventstore.Stream, conn *pgx.Conn) error {
	switch found := conn.PgConn().ParameterStatus("client_encoding"); found {
	case "UTF8", "SQL_ASCII": // the latter converts nothing
		return nil
	default:
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Stream: s, Wanted: "a session with client_encoding UTF8",
			Found: found + "; nothing was written", Hint: "reset client_encoding for the role or database, or make the pool with pglog.Configure"}
	}
}

// errWaitCancelled: what was committed may not have reached the standby.
var errWaitCancelled = errors.New("the wait for a synchronous standby was cancelled")

// waitWatch sees waits of one connection that are cancelled from now on.
type waitWatch struct {
	waits  *atomic.Int64 // nil where Configure was not called
	before int64
}

func watchWaits(conn *pgxpool.Conn) (w waitWatch) {
	if w.waits = waitsOf(conn.Conn().PgConn()); w.waits != nil {
		w.before = w.waits.Load()
	}
	return w
}

// err is errWaitCancelled if there was one.
func (w waitWatch) err() error {
	if w.waits != nil && w.waits.Load() != w.before {
		return errWaitCancelled
	}
	return nil
}

// prepares says if a query mode keeps prepared statements between two round trips,
// which a pooler in transaction mode may send to two servers.
func prepares(m pgx.QueryExecMode) bool {
	return m == pgx.QueryExecModeCacheStatement || m == pgx.QueryExecModeDescribeExec
}

const prepareHint = "behind a pooler in transaction mode set the pool's DefaultQueryExecMode to QueryExecModeExec, in a URL default_query_exec_mode=exec"

// warn tells what of a session may spoil a promise later. pid and standbys are what
// the server says of itself.
func (l *Log) warn(ctx context.Context, conn *pgx.Conn, pid int64, standbys bool) {
	// A pooler cannot give the process that will serve, so it makes a number up.
	if pid != int64(conn.PgConn().PID()) && prepares(conn.Config().DefaultQueryExecMode) {
		l.logger.WarnContext(ctx, "a pooler stands before the server and statements are prepared: fails in transaction mode", "hint", prepareHint)
	}
	if standbys && waitsOf(conn.PgConn()) == nil {
		l.logger.WarnContext(ctx, "synchronous_standby_names is set, and a cancelled wait for a standby would go unnoticed",
			"hint", "call pglog.Configure(config.ConnConfig) before the pool is made")
	}
}
