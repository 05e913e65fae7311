// What the migration to version 3 makes of projectors that are at work already.

package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/wattle-es/wattle/migrations"
)

// Every version that has a checkpoint is registered, the highest one as live; the
// checkpoints are as they were, on the way up and down.
func TestProjectorsAtWorkAreRegistered(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "odd %")
	q := pgx.Identifier{schema}.Sanitize()
	run(t, pool, `CREATE SCHEMA `+q)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	p, err := migrations.Provider(db, schema)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	run(t, pool, `INSERT INTO `+q+`.checkpoints (projector, version, lane, epoch, position, mark_position, holder, incarnation, mark_id)
		SELECT k.projector, k.version, k.lane, 5, 6, 6, gen_random_uuid(), gen_random_uuid(), gen_random_uuid()
		FROM (VALUES ('p', 1, 0), ('p', 3, 0), ('p', 2, 0), ('p/b', 1, 0), ('p2', 9, 0), ('p2', 9, 1), ('p2', 9, 2)) AS k (projector, version, lane)`)
	checkpoints := `SELECT string_agg(c::text, ' ' ORDER BY c) FROM ` + q + `.checkpoints AS c`
	text := func(sql string) (s string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := text(checkpoints)
	up(t, pool, schema)
	got := text(`SELECT string_agg(concat_ws(' ', projector, version, lanes, role, stream, categories, types, quiet), ', ' ORDER BY projector, version) FROM ` + q + `.projectors`)
	if want := "p 1 1 1  {} {} {}, p 2 1 1  {} {} {}, p 3 1 0  {} {} {}, p/b 1 1 0  {} {} {}, p2 9 3 0  {} {} {}"; got != want {
		t.Errorf("registered\n%s\nwant\n%s", got, want)
	}
	if after := text(checkpoints); after != before {
		t.Errorf("checkpoints\n%s\nwere\n%s", after, before)
	}
	if _, err := pool.Exec(t.Context(), `UPDATE `+q+`.projectors SET role = 0 WHERE projector = 'p'`); err == nil {
		t.Error("three live versions of one projector")
	}
	if _, err := p.DownTo(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if after := text(checkpoints); after != before {
		t.Errorf("down: checkpoints\n%s\nwere\n%s", after, before)
	}
}
