// A synchronous standby that keeps nothing and acknowledges late: commits then take as
// long as with a distant one, and wait side by side.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

const standbyName = "late"

// slowStandby makes every commit wait until delay after its WAL was sent, until end.
func slowStandby(ctx context.Context, pool *pgxpool.Pool, delay time.Duration) (end func() error, err error) {
	config, err := pgconn.ParseConfig(pool.Config().ConnString())
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "true", standbyName
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	var at string
	if err := pool.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text").Scan(&at); err != nil {
		return nil, err
	}
	s := &standby{conn: conn, delay: delay}
	if err := s.start(at); err != nil {
		return nil, err
	}
	go s.follow()
	set := func(names string) error {
		if _, err := pool.Exec(ctx, "alter system set synchronous_standby_names = '"+names+"'"); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, "select pg_reload_conf()")
		return err
	}
	end = func() error {
		err := set("")
		time.Sleep(time.Second) // until the reload is everywhere
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = true
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return end, set(standbyName)
}

type standby struct {
	conn  *pgconn.PgConn
	delay time.Duration
	mu    sync.Mutex // over sending
	ended bool
}

func (s *standby) start(at string) error {
	f := s.conn.Frontend()
	f.SendQuery(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + at})
	if err := f.Flush(); err != nil {
		return err
	}
	for {
		m, err := f.Receive()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			return fmt.Errorf("replication: %s", m.Message)
		}
	}
}

// follow acknowledges what comes, each piece when its time has passed. WAL comes as
// 'w': where it begins, where the server is, its clock, the bytes.
func (s *standby) follow() {
	for {
		m, err := s.conn.Frontend().Receive()
		if err != nil {
			return
		}
		data, ok := m.(*pgproto3.CopyData)
		if !ok || len(data.Data) < 25 || data.Data[0] != 'w' {
			continue
		}
		end := binary.BigEndian.Uint64(data.Data[1:]) + uint64(len(data.Data)-25)
		time.AfterFunc(s.delay, func() { s.acknowledge(end) })
	}
}

// acknowledge says that all through a place is written, flushed and applied.
func (s *standby) acknowledge(end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	status := make([]byte, 34)
	status[0] = 'r'
	for i := range 3 {
		binary.BigEndian.PutUint64(status[1+8*i:], end)
	}
	s.conn.Frontend().Send(&pgproto3.CopyData{Data: status})
	_ = s.conn.Frontend().Flush() // the server has ended it, or the bench is over
}
