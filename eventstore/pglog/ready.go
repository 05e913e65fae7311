// Is the server one to append to? What a readiness check asks.

package pglog

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// pingLimit bounds a Ping whose context has no deadline.
const pingLimit = 5 * time.Second

// Ping returns nil if an append would come through now: it commits a transaction of
// some 60 bytes of WAL that changes nothing, under the durability of an append. It is
// for readiness checks; SELECT 1 also succeeds on a server that takes no writes.
//
// It answers ErrReadOnly on a standby or a read-only session, whose connection it
// closes, so that the next call may meet the new primary; ErrIsolation, ErrNotMigrated;
// ErrUnavailable for everything else that keeps an append from its end, as a server
// that is down, out of disk or that waits for a synchronous standby. It takes no longer
// than ctx, at most 5 s, and one connection of the pool.
func (l *Log) Ping(ctx context.Context) error {
	const op = "ping"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return l.pingError(l.translate(op, "", err, connecting))
	}
	defer conn.Release()
	var ok, readOnly bool
	var incarnation uuid
	err = conn.QueryRow(ctx, l.sql.ping).Scan(&ok, &readOnly, &incarnation)
	switch {
	case err == nil && readOnly:
		conn.Conn().Close(ctx)
		return &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: op, Wanted: "a server that takes writes",
			Found: "a standby, or a session that is read-only", Hint: "connect to the primary"}
	case err == nil && !ok:
		return isolationError(op, "")
	}
	if unfit(err) {
		conn.Conn().Close(ctx)
	}
	return l.pingError(l.translate(op, "", err, reading))
}

// pingError makes ErrUnavailable of a time-out: that an answer did not come is the
// answer.
func (l *Log) pingError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "ping", Wanted: "a commit", Found: "no answer in time",
			Hint: "is the server up, and its synchronous standby?", Err: err}
	}
	return err
}
