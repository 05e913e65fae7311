// One writer: a connection, its streams' heads, and the append of one event at a time.

package main

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type writer struct {
	l      *layout
	n      int
	conn   *pgxpool.Conn
	tx     pgx.Tx // instead of conn, if set
	choose func(*mathrand.Rand) int
	random *mathrand.Rand
	heads  map[string]*head
	sql    map[int]string // of each category
	times  []time.Duration
	floor  int64
}

var noHolder [16]byte

// headKey finds a stream's head among a writer's.
func headKey(category int, key string) string { return fmt.Sprint(category, " ", key) }

func (b *campaign) newWriter(ctx context.Context, l *layout, n int, choose func(*mathrand.Rand) int) (*writer, error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{l: l, n: n, conn: conn, choose: choose, random: mathrand.New(mathrand.NewPCG(uint64(n), uint64(l.kind))),
		heads: make(map[string]*head), sql: make(map[int]string)}
	if l.kind == floor {
		return w, nil
	}
	rows, err := conn.Query(ctx, `SELECT category, key, last_seqno, last_id, ordinal FROM `+l.schema+`.streams WHERE key LIKE $1`,
		fmt.Sprintf("w%d-%%", n))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var category int
		var key string
		h := new(head)
		if err := rows.Scan(&category, &key, &h.seqno, &h.id, &h.ordinal); err != nil {
			return nil, err
		}
		w.heads[headKey(category, key)] = h
		w.sql[category] = l.appendSQL(category)
	}
	return w, rows.Err()
}

// append appends one event to a random stream of the writer's and keeps the time it took.
func (w *writer) append(ctx context.Context) error {
	if w.l.kind == floor {
		return w.appendFloor(ctx)
	}
	category := w.choose(w.random)
	return w.appendTo(ctx, category, streamKey(w.n, w.random.IntN(streamsPerCategory(category))))
}

func (w *writer) appendTo(ctx context.Context, category int, key string) error {
	h := w.heads[headKey(category, key)]
	e := newEvent()
	began := time.Now()
	var position int64
	err := w.queryRow(ctx, w.sql[category], category, key, int16(1), int64(1), noHolder, false, h.seqno, h.id,
		[][16]byte{e.id}, e.id, []int32{1}, []string{eventType}, []string{contentType}, []string{metadata}, [][]byte{e.payload}).
		Scan(&position)
	if err != nil {
		return fmt.Errorf("append to %d/%s after %d: %w", category, key, h.seqno, err)
	}
	w.times = append(w.times, time.Since(began))
	h.seqno++
	h.id = e.id
	return nil
}

func (w *writer) queryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if w.tx != nil {
		return w.tx.QueryRow(ctx, sql, args...)
	}
	return w.conn.QueryRow(ctx, sql, args...)
}

func (w *writer) appendFloor(ctx context.Context) error {
	e := newEvent()
	w.floor++
	began := time.Now()
	_, err := w.conn.Exec(ctx, w.l.floorSQL(), w.floor, int64(w.n), w.floor, int64(1), 1, int32(1), e.id, e.id, int16(1),
		eventType, contentType, metadata, e.payload)
	w.times = append(w.times, time.Since(began))
	return err
}
