// The shape of pgnotch's append: a table per log, the fence in the UPDATE of a registry row.

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

type pgnotch struct {
	*inGo
	last []int64 // seqno of each log
}

const pgnotchRegistry = `CREATE TABLE logs (id int PRIMARY KEY, epoch bigint NOT NULL, last_seqno bigint NOT NULL, trim_before bigint NOT NULL DEFAULT 0);
  CREATE TABLE log (seqno bigint NOT NULL, payload bytea NOT NULL);
  ALTER TABLE log ALTER payload SET STORAGE plain`

// pgnotchAppend: $1 log, $2 epoch, $3 seqno before, $4… payloads. No row means that somebody else was there.
const pgnotchAppend = `WITH u AS (UPDATE logs SET last_seqno = $3::bigint + %[2]d WHERE id = $1 AND epoch = $2 AND last_seqno = $3 RETURNING last_seqno)
  INSERT INTO log_%[1]d (seqno, payload) SELECT $3::bigint + n, payload FROM u CROSS JOIN LATERAL (VALUES %[3]s) AS v (n, payload)`

// pgnotchAppend1 is the append of one event, as plain as it can be.
const pgnotchAppend1 = `WITH u AS (UPDATE logs SET last_seqno = $3::bigint + 1 WHERE id = $1 AND epoch = $2 AND last_seqno = $3 RETURNING last_seqno)
  INSERT INTO log_%d (seqno, payload) SELECT last_seqno, $4 FROM u`

// openPgnotch makes the logs, each inheriting from one parent, which is what counts and scans all of them.
func openPgnotch(ctx context.Context, s *setup) (store, error) {
	g, err := openPool(ctx, s, "log")
	if err != nil {
		return nil, err
	}
	p := &pgnotch{inGo: g, last: make([]int64, s.streams)}
	if err := g.exec(ctx, pgnotchRegistry); err != nil {
		return p, err
	}
	return p, pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		for i := range s.streams {
			_, err := tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE log_%[1]d () INHERITS (log); INSERT INTO logs VALUES (%[1]d, 1, 0)`, i))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *pgnotch) append(ctx context.Context, stream int) error {
	return p.send(ctx, stream, 1, fmt.Sprintf(pgnotchAppend1, stream), p.payload(int(p.last[stream])))
}

func (p *pgnotch) send(ctx context.Context, stream, events int, sql string, payloads ...any) error {
	done, err := p.pool.Exec(ctx, sql, append([]any{stream, int64(1), p.last[stream]}, payloads...)...)
	if err != nil {
		return err
	}
	if done.RowsAffected() != int64(events) {
		return fmt.Errorf("log %d: seqno %d is not the last one", stream, p.last[stream])
	}
	p.last[stream] += int64(events)
	return nil
}

func (p *pgnotch) appends(ctx context.Context, writers, k int, d time.Duration) (sample, error) {
	return drive(ctx, writers, k, d, p.append)
}

func (p *pgnotch) fill(ctx context.Context) error {
	for stream := range p.streams {
		var values []string
		var payloads []any
		for i := range p.entries {
			values = append(values, fmt.Sprintf("(%d, $%d::bytea)", i+1, i+4))
			payloads = append(payloads, p.payload(i))
		}
		sql := fmt.Sprintf(pgnotchAppend, stream, p.entries, strings.Join(values, ", "))
		if err := p.send(ctx, stream, p.entries, sql, payloads...); err != nil {
			return err
		}
	}
	return nil
}

func (p *pgnotch) loads(ctx context.Context, d time.Duration) (sample, error) {
	return p.loadsOf(ctx, d, func(ctx context.Context, stream int) (int, error) {
		rows, err := p.pool.Query(ctx, fmt.Sprintf(`SELECT seqno, payload FROM log_%d WHERE seqno > $1 ORDER BY seqno`, stream), 0)
		if err != nil {
			return 0, err
		}
		var n int
		var seqno int64
		var payload []byte
		_, err = pgx.ForEachRow(rows, []any{&seqno, &payload}, func() error { n++; return nil })
		return n, err
	})
}
