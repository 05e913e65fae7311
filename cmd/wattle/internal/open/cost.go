// What calls cost the store: round trips to its database, and its write-ahead log.

package open

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// Trips counts the round trips of the connections it is given to: writes that are
// followed by a read are one, however many there are. That is what an answer was
// waited for, so preparing a statement and opening a connection count too.
type Trips struct{ n atomic.Int64 }

// Count is how many there were.
func (t *Trips) Count() int64 { return t.n.Load() }

// around makes connections that are counted.
func (t *Trips) around(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c, trips: t}, nil
	}
}

// countedConn counts an answer when it comes. pgx reads beside a write that takes
// long, so the two may meet.
type countedConn struct {
	net.Conn
	trips *Trips
	asked atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.asked.Swap(false) {
		c.trips.n.Add(1)
	}
	return n, err
}

// WAL returns how many bytes the store's server has written to its write-ahead log
// since it was made, for whomever. It answers errors.ErrUnsupported where there is none.
func (s *Store) WAL(ctx context.Context) (bytes int64, err error) {
	if s.Pool == nil {
		return 0, fmt.Errorf("write-ahead log of a store that is not in PostgreSQL: %w", errors.ErrUnsupported)
	}
	err = s.Pool.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes)
	return bytes, err
}
