// The layouts: their tables, the statement that appends to them, the statements that read them.

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/migrations"
)

type kind int

const (
	floor kind = iota
	one
	parent
	tables
)

func (k kind) String() string { return [...]string{"floor", "one", "parent", "tables"}[k] }

// layout is one of them in a schema of its own, so that all have the same registry, sequence and statement.
type layout struct {
	kind   kind
	schema string
	nextID int   // of the next category
	last   int64 // position before the preload, where the reads begin
}

// columns of an entry, as the migration has them; tables has no category.
const columns = `position, stream, seqno, epoch, time, category, version, id, batch, slot, type, content_type, metadata, data`

func (l *layout) columns() string {
	if l.kind == tables {
		return strings.Replace(columns, " category,", "", 1)
	}
	return columns
}

// table is where a category's entries are.
func (l *layout) table(category int) string {
	switch l.kind {
	case parent, tables:
		return fmt.Sprintf("%s.entries_%d", l.schema, category)
	}
	return l.schema + ".entries"
}

// target is what an append to a category names.
func (l *layout) target(category int) string {
	if l.kind == tables {
		return l.table(category)
	}
	return l.schema + ".entries"
}

// setUp migrates a schema for each layout and bends its entries into shape.
func (b *campaign) setUp(ctx context.Context) error {
	b.tearDown(ctx)
	for _, k := range []kind{floor, one, parent, tables} {
		l := &layout{kind: k, schema: "bench_" + k.String(), nextID: 1}
		if err := migrations.Up(ctx, b.pool, l.schema); err != nil {
			return err
		}
		if err := b.shape(ctx, l); err != nil {
			return err
		}
		for category := 1; category <= lastSmall; category++ {
			if _, err := b.create(ctx, l); err != nil {
				return err
			}
		}
		if k == floor {
			b.floor = l
			continue
		}
		b.layouts = append(b.layouts, l)
		if err := b.register(ctx, l, lastSmall); err != nil {
			return err
		}
	}
	_, err := b.pool.Exec(ctx, "CHECKPOINT")
	return err
}

func (b *campaign) tearDown(ctx context.Context) {
	for _, k := range []kind{floor, one, parent, tables} {
		_, _ = b.pool.Exec(ctx, "SET client_min_messages = warning; DROP SCHEMA IF EXISTS bench_"+k.String()+" CASCADE")
	}
}

// shape replaces the migration's partitioned entries where the layout is another.
func (b *campaign) shape(ctx context.Context, l *layout) error {
	s := l.schema
	var sql string
	switch l.kind {
	case floor:
		sql = `CREATE TABLE S.e (LIKE S.entries INCLUDING STORAGE INCLUDING COMPRESSION); DROP TABLE S.entries; ALTER TABLE S.e RENAME TO entries`
	case one:
		sql = `CREATE TABLE S.e (LIKE S.entries_0 INCLUDING ALL); DROP TABLE S.entries; ALTER TABLE S.e RENAME TO entries;
			ALTER TABLE S.entries DROP CONSTRAINT e_position_key, ADD UNIQUE (category, position)`
	case tables:
		// Made afresh, not by dropping the column: a dropped column leaves a null bitmap in every row.
		sql = `DROP TABLE S.entries; CREATE TABLE S.entries_0 (position bigint NOT NULL UNIQUE, stream bigint NOT NULL, seqno bigint NOT NULL,
			epoch bigint NOT NULL, time timestamptz NOT NULL, version int NOT NULL, id uuid NOT NULL, batch uuid NOT NULL, slot smallint NOT NULL,
			type text COLLATE "C" NOT NULL, content_type text COLLATE "C" NOT NULL, metadata text COLLATE "C" NOT NULL, data bytea NOT NULL,
			PRIMARY KEY (stream, seqno))`
	default:
		return nil
	}
	_, err := b.pool.Exec(ctx, strings.ReplaceAll(sql, "S.", s+"."))
	return err
}

// create makes a category the way the product would, in one transaction, and gives its id.
func (b *campaign) create(ctx context.Context, l *layout) (id int, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `INSERT INTO `+l.schema+`.categories (name, demand_snapshots) VALUES ($1, false) RETURNING id`,
			fmt.Sprintf("category%d", l.nextID)).Scan(&id)
		if err != nil || l.kind == floor || l.kind == one {
			return err
		}
		t := l.table(id)
		if _, err := tx.Exec(ctx, `CREATE TABLE `+t+` (LIKE `+l.schema+`.entries_0 INCLUDING ALL)`); err != nil || l.kind == tables {
			return err
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s.entries ATTACH PARTITION %s FOR VALUES IN (%d)`, l.schema, t, id))
		return err
	})
	l.nextID++
	return id, err
}

// streamsPerCategory of a writer: the large category has more.
func streamsPerCategory(category int) int {
	if category == 1 {
		return 200
	}
	return 20
}

// streamKey names a writer's stream.
func streamKey(writer, n int) string { return fmt.Sprintf("w%d-s%d", writer, n) }

// firstID is the last entry's ID of a stream that nobody has appended to in this benchmark.
var firstID = [16]byte{1}

// register makes the registry rows of all writers for categories up to last; head is seqno 0, so that every measured
// append is an update and takes the same way.
func (b *campaign) register(ctx context.Context, l *layout, last int) error {
	for category := 1; category <= last; category++ {
		_, err := b.pool.Exec(ctx, `INSERT INTO `+l.schema+`.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
			SELECT $1, 'w'||w||'-s'||s, (w * 31 + s) % 1024, 1, $2, 0, $2, now()
			FROM generate_series(0, $3 - 1) w, generate_series(0, $4 - 1) s ON CONFLICT DO NOTHING`,
			category, firstID, maxWriters, streamsPerCategory(category))
		if err != nil {
			return err
		}
	}
	_, err := b.pool.Exec(ctx, `VACUUM ANALYZE `+l.schema+`.streams`)
	return err
}

// appendSQL is the single append: fence, gap and same-history check, first append, lower-bound lock, entries. $1 category
// $2 key $3 slot $4 epoch $5 holder $6 claim $7 previous seqno $8 its id $9 ids $10 batch $11 versions $12 types
// $13 content types $14 metadata $15 data. No row: refused.
func (l *layout) appendSQL(category int) string {
	return l.expand(`WITH u AS (UPDATE S.streams SET epoch = $4, holder = $5, last_seqno = $7 + cardinality($9::uuid[]),
		last_id = ($9::uuid[])[cardinality($9::uuid[])], last_time = greatest(last_time, statement_timestamp())
	  WHERE category = $1 AND key = $2 AND CASE WHEN $6::bool THEN epoch < $4 ELSE epoch = $4 END AND last_seqno = $7 AND last_id = $8::uuid
	  RETURNING ordinal, last_time),
	n AS (INSERT INTO S.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
	  SELECT $1, $2, $3, $4, $5, cardinality($9::uuid[]), ($9::uuid[])[cardinality($9::uuid[])], statement_timestamp()
	  WHERE $7 = 0 AND $6 AND NOT EXISTS (SELECT 1 FROM u) ON CONFLICT DO NOTHING RETURNING ordinal, last_time),
	w AS MATERIALIZED (SELECT * FROM u UNION ALL SELECT * FROM n),
	k AS MATERIALIZED (SELECT ordinal, last_time, v, LOCK FROM (SELECT ordinal, last_time, LASTV + 0 * ordinal AS v FROM w OFFSET 0) x)
	INSERT INTO TARGET (COLUMNS)
	SELECT GUARD, ordinal, $7 + ev, $4, last_time, CATEGORY version, id, $10, $3, type, content_type, metadata, data
	FROM (SELECT k.ordinal, k.last_time, k.v, e.* FROM k CROSS JOIN
	  unnest($9::uuid[], $11::int[], $12::text[], $13::text[], $14::text[], $15::bytea[])
	  WITH ORDINALITY e (id, version, type, content_type, metadata, data, ev) ORDER BY ev) x
	RETURNING position`, l.target(category), "$1,")
}

// expand fills in schema, target and the feed's lock.
func (l *layout) expand(sql, target, category string) string {
	if l.kind == tables {
		category = ""
	}
	sql = strings.NewReplacer(
		"LOCK", `pg_advisory_xact_lock_shared('S.position'::regclass::oid::int4, ((v << 32) >> 32)::int4)`,
		"LASTV", `pg_sequence_last_value('S.position')`,
		"GUARD", `nullif(greatest(nextval('S.position'), v), v) + 0 * v`,
		"TARGET", target, "COLUMNS", l.columns(), "CATEGORY", category,
	).Replace(sql)
	return strings.ReplaceAll(sql, "S.", l.schema+".")
}

// floorSQL is the bare insert of the same columns.
func (l *layout) floorSQL() string {
	return `INSERT INTO ` + l.schema + `.entries (` + columns + `) VALUES ($1, $2, $3, $4, now(), $5, $6, $7, $8, $9, $10, $11, $12, $13)`
}

// categoryFeed reads a page of one category after position $1, at most $2 entries.
func (l *layout) categoryFeed(category int) string {
	where := "position > $1"
	if l.kind == one {
		where = fmt.Sprintf("category = %d AND position > $1", category)
	}
	return `SELECT ` + l.columns() + ` FROM ` + l.table(category) + ` WHERE ` + where + ` ORDER BY position LIMIT $2`
}

// wholeFeed reads a page of all categories in position order from the parent.
func (l *layout) wholeFeed() string {
	return `SELECT ` + columns + ` FROM ` + l.schema + `.entries WHERE position > $1 ORDER BY position LIMIT $2`
}

// mergedFeed does it by a limited branch for each of the categories.
func (l *layout) mergedFeed(categories []int) string {
	branches := make([]string, len(categories))
	for i, category := range categories {
		branches[i] = "(" + l.categoryFeed(category) + ")"
	}
	return strings.Join(branches, " UNION ALL ") + " ORDER BY position LIMIT $2"
}
