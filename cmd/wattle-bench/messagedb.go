// message-db: SQL functions over one table, from its npm package.

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

const messageDBVersion = "1.3.1"

type messageDB struct {
	*inGo
	categories int
	last       []int64 // position of each stream's last message, -1 before the first
	found      string  // its version
}

// openMessageDB installs its schema as its own install.sh does, without the role, which would outlive the database.
func openMessageDB(categories int) func(context.Context, *setup) (store, error) {
	return func(ctx context.Context, s *setup) (store, error) {
		dir, err := npmPackage(ctx, "@eventide/message-db", messageDBVersion)
		if err != nil {
			return nil, err
		}
		// Its functions find each other by search_path.
		s.config.ConnConfig.RuntimeParams["search_path"] = "message_store,public"
		g, err := openPool(ctx, s, "message_store.messages")
		if err != nil {
			return nil, err
		}
		m := &messageDB{inGo: g, categories: categories}
		for range s.streams {
			m.last = append(m.last, -1)
		}
		for _, part := range []string{"schema", "types", "tables", "functions", "indexes"} {
			if err := m.install(ctx, filepath.Join(dir, "node_modules/@eventide/message-db/database", part)); err != nil {
				return m, err
			}
		}
		return m, g.pool.QueryRow(ctx, "SELECT message_store_version()").Scan(&m.found)
	}
}

func (m *messageDB) install(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.sql"))
	if err == nil && files == nil {
		err = fmt.Errorf("no SQL in %s", dir)
	}
	for _, file := range files {
		var sql []byte
		if sql, err = os.ReadFile(file); err == nil {
			err = m.exec(ctx, string(sql))
		}
		if err != nil {
			return fmt.Errorf("installing %s: %w", file, err)
		}
	}
	return err
}

func (m *messageDB) name(stream int) string {
	return fmt.Sprintf("%s%d-%d", category, stream%m.categories, stream)
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (m *messageDB) append(ctx context.Context, q querier, stream int) error {
	return q.QueryRow(ctx, `SELECT write_message($1, $2, $3, $4, NULL, $5)`, eventstore.NewUUID().String(), m.name(stream), eventType,
		m.payload(int(m.last[stream])+1), m.last[stream]).Scan(&m.last[stream])
}

func (m *messageDB) appends(ctx context.Context, writers, k int, d time.Duration) (sample, error) {
	return drive(ctx, writers, k, d, func(ctx context.Context, stream int) error { return m.append(ctx, m.pool, stream) })
}

func (m *messageDB) fill(ctx context.Context) error {
	for stream := range m.streams {
		err := pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			for range m.entries {
				if err := m.append(ctx, tx, stream); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// messageRow is a row of its reading functions.
type messageRow struct {
	id, stream, kind string
	position, global int64
	data, metadata   *string
	time             time.Time
}

func (m *messageDB) messages(ctx context.Context, sql string, args ...any) ([]messageRow, error) {
	rows, err := m.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r messageRow, err error) {
		return r, row.Scan(&r.id, &r.stream, &r.kind, &r.position, &r.global, &r.data, &r.metadata, &r.time)
	})
}

func (m *messageDB) loads(ctx context.Context, d time.Duration) (sample, error) {
	return m.loadsOf(ctx, d, func(ctx context.Context, stream int) (int, error) {
		all, err := m.messages(ctx, `SELECT * FROM get_stream_messages($1)`, m.name(stream))
		return len(all), err
	})
}

// catchUp reads one category after another: there is no feed over several.
func (m *messageDB) catchUp(ctx context.Context) (sample, error) {
	return once(func() (n int, err error) {
		for c := range m.categories {
			for from := int64(1); ; {
				all, err := m.messages(ctx, `SELECT * FROM get_category_messages($1, $2, $3)`, fmt.Sprintf("%s%d", category, c), from, page)
				if err != nil {
					return n, err
				}
				n += len(all)
				if len(all) < page {
					break
				}
				from = all[len(all)-1].global + 1
			}
		}
		return n, nil
	})
}

func (m *messageDB) version() string {
	return fmt.Sprintf("message-db %s (npm package %s)", m.found, messageDBVersion)
}
