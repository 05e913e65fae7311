// Compare: differences are found, all of them, and named.

package pgcheckpoint_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// models are two tables with the same thousand rows.
func models(e *env) (old, new string) {
	old, new = pgx.Identifier{e.schema, "Old model"}.Sanitize(), pgx.Identifier{e.schema, "new"}.Sanitize()
	_, err := e.pool.Exec(e.t.Context(), "CREATE TABLE "+old+" (id int, part text, amount numeric, body json, updated timestamptz DEFAULT clock_timestamp())")
	e.ok(err)
	_, err = e.pool.Exec(e.t.Context(), "CREATE TABLE "+new+" (updated timestamptz DEFAULT clock_timestamp(), amount numeric, body json, part text, id int)")
	e.ok(err)
	for _, table := range []string{old, new} {
		_, err := e.pool.Exec(e.t.Context(), "INSERT INTO "+table+" (id, part, amount, body) SELECT n, 'ä' || n % 3, n * 1.50, json_build_object('n', n) FROM generate_series(1, 1000) AS n")
		e.ok(err)
	}
	return old, new
}

func (e *env) exec(sql string, args ...any) {
	e.t.Helper()
	_, err := e.pool.Exec(e.t.Context(), sql, args...)
	e.ok(err)
}

func TestCompare(t *testing.T) {
	e := newEnv(t)
	old, new := models(e)
	o := &pgcheckpoint.CompareOptions{Key: []string{"id", "part"}, Ignore: []string{"updated"}}
	c, err := pgcheckpoint.Compare(t.Context(), e.pool, old, new, o)
	if e.ok(err); !c.Same() || c.Old != 1000 || c.New != 1000 || c.Keys != 1000 || len(c.Examples) != 0 {
		t.Fatalf("the same: %v", c)
	}
	if c, err := pgcheckpoint.Compare(t.Context(), e.pool, old, new, &pgcheckpoint.CompareOptions{Key: o.Key}); err != nil || c.Differ != 1000 || len(c.Examples) != pgcheckpoint.DefaultExamples {
		t.Errorf("with the times: %v, %v", c, err)
	}
	e.exec("DELETE FROM " + new + " WHERE id IN (10, 20)")
	e.exec("INSERT INTO " + new + " (id, part, amount) VALUES (2000, 'x', 1), (30, 'other', 1), (40, 'ä1', 60)") // the last one: 40 twice, and the same amount
	e.exec("UPDATE " + new + " SET amount = amount + 0.01 WHERE id = 50")
	e.exec("UPDATE " + new + " SET amount = NULL WHERE id = 60")
	e.exec("UPDATE "+new+" SET body = json_build_object('n', repeat('ö', 3000)) WHERE id = 70", pgx.QueryExecModeExec)
	c, err = pgcheckpoint.Compare(t.Context(), e.pool, old, new, o)
	if e.ok(err); c.Same() || c.Old != 1000 || c.New != 1001 || c.Keys != 1002 || c.OnlyOld != 2 || c.OnlyNew != 2 || c.Differ != 4 {
		t.Errorf("%v", c)
	}
	o.Examples = 100
	c, err = pgcheckpoint.Compare(t.Context(), e.pool, "SELECT * FROM "+old, "(WITH n AS (SELECT * FROM "+new+") SELECT * FROM n) -- all", o)
	e.ok(err)
	var keys []string
	for _, d := range c.Examples {
		keys = append(keys, fmt.Sprintf("%s %t %t", d.Key, d.Old != "", d.New != ""))
		if len(d.New) > 1010 || !strings.Contains(c.String(), d.Key) {
			t.Errorf("%q of %d bytes in %v", d.Key, len(d.New), c)
		}
	}
	want := `[10, "ä1"] true false, [20, "ä2"] true false, [30, "other"] false true, [40, "ä1"] true true, [50, "ä2"] true true, [60, "ä0"] true true, [70, "ä1"] true true, [2000, "x"] false true`
	if got := strings.Join(keys, ", "); got != want {
		t.Errorf("examples\n%s\nwant\n%s", got, want)
	}
	// Without a key a row that differs is one of either; duplicates count.
	c, err = pgcheckpoint.Compare(t.Context(), e.pool, old, new, &pgcheckpoint.CompareOptions{Ignore: []string{"updated"}})
	if e.ok(err); c.OnlyOld != 5 || c.OnlyNew != 6 || c.Differ != 0 {
		t.Errorf("by row: %v", c)
	}
	c, err = pgcheckpoint.Compare(t.Context(), e.pool, "VALUES (1), (1), (2)", "VALUES (1), (2), (2)", nil)
	if e.ok(err); c.Same() || c.Differ != 2 || c.Old != c.New {
		t.Errorf("bags: %v", c)
	}
}

// A sample takes the same keys on both sides and every time, about as many as was asked
// for, and samples of one in one take all.
func TestCompareSample(t *testing.T) {
	e := newEnv(t)
	old, new := models(e)
	e.exec("UPDATE " + new + " SET amount = 0")
	o := &pgcheckpoint.CompareOptions{Key: []string{"id"}, Ignore: []string{"updated"}, Sample: 10, Examples: pgcheckpoint.MaxExamples}
	first, err := pgcheckpoint.Compare(t.Context(), e.pool, old, new, o)
	e.ok(err)
	again, err := pgcheckpoint.Compare(t.Context(), e.pool, old, new, o)
	if e.ok(err); first.Keys < 50 || first.Keys > 200 || first.Differ != first.Keys || first.OnlyOld+first.OnlyNew > 0 || first.String() != again.String() {
		t.Errorf("of 1000 one in ten: %v\nagain: %v", first, again)
	}
	o.Sample = 1
	if all, err := pgcheckpoint.Compare(t.Context(), e.pool, old, new, o); err != nil || all.Differ != 1000 {
		t.Errorf("one in one: %v, %v", all, err)
	}
	// The counts are of all rows, so a row that is missing outside of the sample shows.
	e.exec("DELETE FROM " + new)
	e.exec("INSERT INTO " + new + " SELECT updated, amount, body, part, id FROM " + old + " WHERE id <> 999")
	o.Sample = 1 << 40
	if c, err := pgcheckpoint.Compare(t.Context(), e.pool, old, new, o); err != nil || c.Same() {
		t.Errorf("a row is missing: %v, %v", c, err)
	}
}

func TestCompareMistakes(t *testing.T) {
	e := newEnv(t)
	old, new := models(e)
	e.exec("ALTER TABLE " + new + " DROP COLUMN part")
	for name, c := range map[string]struct {
		new  string
		o    pgcheckpoint.CompareOptions
		want error
	}{
		"key column":     {new, pgcheckpoint.CompareOptions{Key: []string{"id", "part"}}, eventstore.ErrInvalid},
		"sample":         {new, pgcheckpoint.CompareOptions{Sample: -1}, eventstore.ErrInvalid},
		"examples":       {new, pgcheckpoint.CompareOptions{Examples: pgcheckpoint.MaxExamples + 1}, eventstore.ErrInvalid},
		"no such table":  {old + "." + new, pgcheckpoint.CompareOptions{}, eventstore.ErrInvalid},
		"no such schema": {"nowhere.model", pgcheckpoint.CompareOptions{}, eventstore.ErrInvalid},
		"no SELECT":      {"DELETE FROM " + new, pgcheckpoint.CompareOptions{}, eventstore.ErrInvalid},
		"would it write": {"SELECT * FROM (SELECT nextval('" + e.schema + ".position')) AS n", pgcheckpoint.CompareOptions{}, eventstore.ErrReadOnly},
		"division":       {"SELECT 1 / (id - 1) AS id FROM " + new, pgcheckpoint.CompareOptions{}, eventstore.ErrInvalid},
	} {
		if _, err := pgcheckpoint.Compare(t.Context(), e.pool, old, c.new, &c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pgcheckpoint.Compare(t.Context(), nil, old, new, nil); !errors.Is(err, eventstore.ErrInvalid) {
		t.Error(err)
	}
}
