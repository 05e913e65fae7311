// One-off statements: texts that name one log's tables. They go unprepared, several in
// one round trip, whatever the pool's mode is: thousands of logs would drive everything
// else out of the connection's cache of statements, and a miss costs a round trip.

package pglog

import (
	"context"
	"encoding/hex"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// indexOnly makes the planner look up ranges in an index also where it knows nothing of
// a table yet; on a new log it would read all of it. It ends with the transaction.
const indexOnly = `select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'on', true)`

// oneOffs are statements to be sent together.
type oneOffs struct {
	batch pgconn.Batch
	n     int
}

func (o *oneOffs) add(sql string, args ...any) {
	values, types := make([][]byte, len(args)), make([]uint32, len(args))
	for i, a := range args {
		values[i], types[i] = textOf(a)
	}
	o.batch.ExecParams(sql, values, types, nil, []int16{pgx.BinaryFormatCode})
	o.n++
}

// textOf writes an argument as text, with its type's OID.
func textOf(a any) ([]byte, uint32) {
	switch a := a.(type) {
	case int32:
		return strconv.AppendInt(nil, int64(a), 10), pgtype.Int4OID
	case int64:
		return strconv.AppendInt(nil, a, 10), pgtype.Int8OID
	case string:
		return []byte(a), pgtype.TextOID
	case []byte:
		return append([]byte(`\x`), hex.EncodeToString(a)...), pgtype.ByteaOID
	case uuid:
		return []byte(a.String()), pgtype.UUIDOID
	}
	panic("no text form for an argument of this type") // ours, each seen by a test
}

// results are what one-off statements answer, one after the other.
type results struct {
	all   *pgconn.MultiResultReader
	types *pgtype.Map
}

// next returns the rows of the next statement; they must be closed before the one
// after it.
func (r *results) next() (pgx.Rows, error) {
	if !r.all.NextResult() {
		if err := r.all.Close(); err != nil {
			return nil, err
		}
		return nil, pgx.ErrNoRows
	}
	return pgx.RowsFromResultReader(r.types, r.all.ResultReader()), nil
}

// skip passes the next statement over.
func (r *results) skip() error {
	rows, err := r.next()
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// row takes the one row of the next statement; pgx.ErrNoRows if it has none.
func (r *results) row(targets ...any) error {
	rows, err := r.next()
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		rows.Close()
		if rows.Err() != nil {
			return rows.Err()
		}
		return pgx.ErrNoRows
	}
	if err := rows.Scan(targets...); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// send sends the statements in one round trip; read takes their answers in order.
func (o *oneOffs) send(ctx context.Context, conn *pgx.Conn, read func(r *results) error) error {
	r := &results{all: conn.PgConn().ExecBatch(ctx, &o.batch), types: conn.TypeMap()}
	err := read(r)
	if cerr := r.all.Close(); err == nil || pgCode(err) == "" && cerr != nil {
		err = cerr // what the server said counts more than what reading made of it
	}
	return err
}

// look sends statements that read, as of one moment if there are several, on q's
// connection: indexOnly and what queue adds.
func (l *Log) look(ctx context.Context, q querier, queue func(o *oneOffs), read func(r *results) error) error {
	conn, release, inTx, err := l.connOf(ctx, q)
	if err != nil {
		return err
	}
	defer release()
	o := &oneOffs{}
	if !inTx {
		o.add("begin isolation level repeatable read read only")
	}
	o.add(indexOnly)
	queue(o)
	if !inTx {
		o.add("commit")
	}
	return o.send(ctx, conn, func(r *results) error {
		skip := 2
		if inTx {
			skip = 1
		}
		for range skip {
			if err := r.skip(); err != nil {
				return err
			}
		}
		return read(r)
	})
}

// connOf returns the connection behind q, and whether it is in the caller's
// transaction.
func (l *Log) connOf(ctx context.Context, q querier) (conn *pgx.Conn, release func(), inTx bool, err error) {
	switch q := q.(type) {
	case *pgxpool.Pool:
		c, err := q.Acquire(ctx)
		if err != nil {
			return nil, nil, false, err
		}
		return c.Conn(), c.Release, false, nil
	case *pgxpool.Conn:
		return q.Conn(), func() {}, false, nil
	}
	return q.(pgx.Tx).Conn(), func() {}, true, nil
}
