// What the schema promises: the facts that proofs stand on, and partitions that come and go beside appends.

package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

// The facts of the schema that pglog's proofs stand on.
func TestSchemaFacts(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	up(t, pool, schema)
	q := pgx.Identifier{schema}.Sanitize()
	for _, fact := range []struct{ why, sql string }{
		{"the sequence has been drawn from", `SELECT pg_sequence_last_value('` + q + `.position'::regclass) = 1`},
		{"CACHE 1, INCREMENT 1, no cycle", `SELECT seqcache = 1 AND seqincrement = 1 AND NOT seqcycle AND seqtypid = 'bigint'::regtype
			FROM pg_sequence WHERE seqrelid = '` + q + `.position'::regclass`},
		{"the sequence is nobody's", `SELECT count(*) = 0 FROM pg_depend WHERE objid = '` + q + `.position'::regclass AND deptype IN ('a', 'i')`},
		{"appends are HOT", `SELECT array_agg(a.attname ORDER BY a.attname) = '{category,key,ordinal}' FROM (
			SELECT DISTINCT unnest(indkey) k FROM pg_index WHERE indrelid = '` + q + `.streams'::regclass) i
			JOIN pg_attribute a ON a.attrelid = '` + q + `.streams'::regclass AND a.attnum = i.k`},
		{"one store row", `SELECT count(*) = 1 FROM ` + q + `.store`},
		{"keys of the pattern", `SELECT array_agg(c.relname ORDER BY c.relname) =
			'{entries_0_pkey,entries_0_position_key}'::name[] FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			WHERE i.indrelid = '` + q + `.entries_0'::regclass`},
	} {
		var ok bool
		if err := pool.QueryRow(t.Context(), fact.sql).Scan(&ok); err != nil || !ok {
			t.Errorf("%s: %v, %v", fact.why, ok, err)
		}
	}
}

// A new category's table is the pattern's twin, keys, storage and compression included.
func TestPartitionLikePattern(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	up(t, pool, schema)
	q := pgx.Identifier{schema}.Sanitize()
	makePartition(t, pool, q, 7)
	// A column added by a later migration reaches it, and the pattern.
	run(t, pool, `ALTER TABLE `+q+`.entries ADD COLUMN later int NOT NULL DEFAULT 3`)
	columns := func(table string) (text string) {
		err := pool.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', attname, atttypid::regtype, attnotnull, attstorage, attcompression, attcollation::regcollation), ', ' ORDER BY attnum)
			FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0`, q+"."+table).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	pattern, twin := columns("entries_0"), columns("entries_7")
	if pattern != twin || pattern != columns("entries") || !strings.Contains(pattern, "later integer") {
		t.Errorf("pattern %s\ntwin    %s", pattern, twin)
	}
	var keys string
	if err := pool.QueryRow(t.Context(), `SELECT string_agg(conname, ' ' ORDER BY conname) FROM pg_constraint
		WHERE contype IN ('p', 'u') AND conrelid = $1::text::regclass`, q+".entries_7").Scan(&keys); err != nil {
		t.Fatal(err)
	}
	if keys != "entries_7_pkey entries_7_position_key" {
		t.Errorf("keys %s", keys)
	}
}

// The statements that make and delete a category (documented in the package comment) hold up nobody: both pass beside an
// append transaction that stays open, as do other appends meanwhile.
func TestCategoriesComeAndGoBesideAppends(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	up(t, pool, schema)
	makePartition(t, pool, schema, 1)
	makePartition(t, pool, schema, 2)
	insert := func(db interface {
		Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	}, category int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := db.Exec(ctx, fmt.Sprintf(`INSERT INTO %[1]s.entries SELECT p, 1, p, 1, now(), %[2]d, 1, gen_random_uuid(), gen_random_uuid(),
			0, 't', 'c', '{}', '' FROM (SELECT nextval('%[1]s.position') p) x`, schema, category))
		return err
	}
	open, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(open, 1); err != nil {
		t.Fatal(err)
	}
	detached := make(chan error, 1)
	go func() {
		_, err := pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf(`ALTER TABLE %[1]s.entries DETACH PARTITION %[1]s.entries_2 CONCURRENTLY`, schema))
		detached <- err
	}()
	waitFor(t, pool, `SELECT coalesce(bool_or(inhdetachpending), false) FROM pg_inherits WHERE inhparent = ($1 || '.entries')::regclass`, schema)
	makePartition(t, pool, schema, 3)
	for _, category := range []int{1, 3} {
		if err := insert(pool, category); err != nil {
			t.Errorf("append to %d while 2 is being deleted: %v", category, err)
		}
	}
	var none *pgconn.PgError
	if err := insert(pool, 2); !errors.As(err, &none) || none.Code != "23514" {
		t.Errorf("append to the category that is being deleted: %v", err)
	}
	select {
	case err := <-detached:
		t.Errorf("detached under an open transaction: %v", err)
	default:
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-detached; err != nil {
		t.Fatal(err)
	}
	run(t, pool, `DROP TABLE `+schema+`.entries_2`)
}

// A deletion that died half way is seen in the catalog and can be finished.
func TestHalfDeletedCategory(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	up(t, pool, schema)
	for range 3 {
		var id int
		if err := pool.QueryRow(t.Context(), `INSERT INTO `+schema+`.categories (name, demand_snapshots) VALUES (gen_random_uuid()::text, false) RETURNING id`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		makePartition(t, pool, schema, id)
	}
	run(t, pool, `DELETE FROM `+schema+`.categories WHERE id > 1`)
	// Category 2 is left before its detach, 3 in the middle of it.
	open, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(t.Context(), `LOCK TABLE `+schema+`.entries IN ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), `SET statement_timeout = 200`); err != nil {
		t.Fatal(err)
	}
	detach := fmt.Sprintf(`ALTER TABLE %[1]s.entries DETACH PARTITION %[1]s.entries_3 CONCURRENTLY`, schema)
	if _, err := conn.Exec(t.Context(), detach); err == nil {
		t.Fatal("the detach was not held up")
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), `SELECT c.relname, coalesce(i.inhdetachpending, false) FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r' AND c.relname ~ '^entries_[1-9][0-9]*$'
		AND NOT EXISTS (SELECT FROM `+schema+`.categories k WHERE 'entries_' || k.id = c.relname) ORDER BY 1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	type left struct {
		Table   string
		Pending bool
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[left])
	if err != nil || fmt.Sprint(got) != "[{entries_2 false} {entries_3 true}]" {
		t.Fatalf("left over: %v, %v", got, err)
	}
	run(t, pool, fmt.Sprintf(`ALTER TABLE %[1]s.entries DETACH PARTITION %[1]s.entries_3 FINALIZE`, schema))
	run(t, pool, fmt.Sprintf(`ALTER TABLE %[1]s.entries DETACH PARTITION %[1]s.entries_2 CONCURRENTLY`, schema))
	run(t, pool, fmt.Sprintf(`DROP TABLE %[1]s.entries_2, %[1]s.entries_3`, schema))
}

// makePartition is what creating a category does after inserting its row, in the same transaction.
func makePartition(t *testing.T, pool *pgxpool.Pool, schema string, id int) {
	t.Helper()
	run(t, pool, fmt.Sprintf(`CREATE TABLE %[1]s.entries_%[2]d (LIKE %[1]s.entries_0 INCLUDING ALL);
		ALTER TABLE %[1]s.entries ATTACH PARTITION %[1]s.entries_%[2]d FOR VALUES IN (%[2]d)`, schema, id))
}
