// Compare: what a rebuilt read model has in common with the one it is to replace.

package pgcheckpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// CompareOptions of Compare; nil and the zero value are the defaults.
type CompareOptions struct {
	// Key are the columns that tell rows apart. Empty: a row is its own key, so one that
	// differs is found twice, as only in the old and only in the new.
	Key []string
	// Ignore are columns that may differ, as the time of an update.
	Ignore []string
	// Sample, if it is above 1, compares about one of so many keys, the same ones on both
	// sides and every time.
	Sample int
	// Examples of differences that are returned; 0 means DefaultExamples, at most
	// MaxExamples.
	Examples int
}

// Comparison is what Compare has found.
type Comparison struct {
	Old, New         int64 // rows in all
	Keys             int64 // compared; all, but for Options.Sample
	OnlyOld, OnlyNew int64 // keys that the other one does not have
	Differ           int64 // keys of which the rows differ
	Examples         []Difference
}

// Difference is one key of which the rows differ. Its rows are JSON objects, in a JSON
// array, cut off when they are long; empty: there are none.
type Difference struct {
	Key      string // JSON array of the key's columns, or the row
	Old, New string
}

// Same says if no difference was found: the counts are equal, and so is all that was
// compared.
func (c Comparison) Same() bool {
	return c.Old == c.New && c.OnlyOld == 0 && c.OnlyNew == 0 && c.Differ == 0
}

func (c Comparison) String() string {
	s := fmt.Sprintf("%d rows in the old one, %d in the new one; of %d keys %d are only in the old one, %d only in the new one, %d differ",
		c.Old, c.New, c.Keys, c.OnlyOld, c.OnlyNew, c.Differ)
	for _, d := range c.Examples {
		s += fmt.Sprintf("\n  %s: old %s, new %s", d.Key, cmp.Or(d.Old, "none"), cmp.Or(d.New, "none"))
	}
	return s
}

// Compare compares two relations as of one moment: the read model of a version that is
// in use with that of its successor, before the one is switched to the other. Each is
// the name of a table or view as SQL spells it, with its schema, or a SELECT, WITH or
// VALUES without a semicolon. Both are run as they are: never make them of what a user
// has typed.
//
// Values are compared as PostgreSQL's JSON has them, columns by name; a column that only
// one has makes its rows differ, unless it is ignored. Rows with the same key are
// compared as a bag. It reads both in full, also for a sample, and sorts what it
// compares: run it where that disturbs nobody.
//
// Mistakes in the options or the SQL, and what is named and not there, are ErrInvalid.
func Compare(ctx context.Context, pool *pgxpool.Pool, old, new string, o *CompareOptions) (Comparison, error) {
	if o == nil {
		o = &CompareOptions{}
	}
	switch {
	case pool == nil:
		return Comparison{}, invalidCompare("a pool", "nil")
	case o.Sample < 0 || o.Examples < 0 || o.Examples > MaxExamples:
		return Comparison{}, invalidCompare(fmt.Sprintf("a sample of at least 0, 0 to %d examples", MaxExamples), fmt.Sprintf("%d and %d", o.Sample, o.Examples))
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Comparison{}, translate("compare", err, connecting)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return Comparison{}, translate("compare", err, reading)
	}
	defer rollback(ctx, tx)
	for _, r := range []string{old, new} {
		if err := hasColumns(ctx, tx, relation(r), o.Key); err != nil {
			return Comparison{}, ofCompare(err)
		}
	}
	c, err := compare(ctx, tx, relation(old), relation(new), o)
	return c, ofCompare(err)
}

// ofCompare sorts an error of a query. What is wrong with the SQL, or named and not
// there, is the caller's mistake.
func ofCompare(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code[:2] == "42" && pg.Code != "42501" {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "compare", Wanted: "two relations, each a name with its schema or a SELECT", Err: err}
	}
	return translate("compare", err, reading)
}

func invalidCompare(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "compare", Wanted: wanted, Found: found}
}

// relation is what can stand behind FROM.
func relation(r string) string {
	word, _, _ := strings.Cut(strings.TrimLeft(r, " \t\r\n("), " ")
	switch strings.ToUpper(strings.TrimSpace(word)) {
	case "SELECT", "WITH", "VALUES", "TABLE":
		return "(" + r + "\n)" // behind a comment, too
	}
	return r
}

func hasColumns(ctx context.Context, tx pgx.Tx, from string, key []string) error {
	rows, err := tx.Query(ctx, "SELECT * FROM "+from+" AS r LIMIT 0")
	if err != nil {
		return err
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	for _, column := range key {
		if !slices.ContainsFunc(rows.FieldDescriptions(), func(f pgconn.FieldDescription) bool { return f.Name == column }) {
			return invalidCompare(fmt.Sprintf("column %q of the key", column), "none in "+from)
		}
	}
	return nil
}

// compareSQL groups the rows of both by key and joins the groups. $1 key columns, $2
// columns to ignore, $3 one of how many, $4 how many examples. Hash and equality of jsonb
// agree, so a key is in the sample of both or of neither.
const compareSQL = `WITH differences AS MATERIALIZED (
  SELECT key, o.rows AS old, n.rows AS new FROM (%s) AS o FULL JOIN (%s) AS n USING (key))
SELECT count(*), count(*) FILTER (WHERE new IS NULL), count(*) FILTER (WHERE old IS NULL), count(*) FILTER (WHERE old <> new),
  (SELECT coalesce(jsonb_agg(jsonb_build_object('Key', key::text, 'Old', coalesce(old::text, ''), 'New', coalesce(new::text, '')) ORDER BY key), '[]')::text
   FROM (SELECT * FROM differences WHERE old IS DISTINCT FROM new ORDER BY key LIMIT $4::bigint) AS e)
FROM differences`

const groupsSQL = `SELECT key, jsonb_agg(row ORDER BY row) AS rows FROM (
  SELECT CASE WHEN cardinality($1::text[]) = 0 THEN row
    ELSE (SELECT jsonb_agg(whole -> k.name ORDER BY k.n) FROM unnest($1::text[]) WITH ORDINALITY AS k (name, n)) END AS key, row
  FROM (SELECT to_jsonb(r) AS whole, to_jsonb(r) - $2::text[] AS row FROM %s AS r) AS j) AS k
WHERE (jsonb_hash_extended(key, 0) & 9223372036854775807) %% $3::bigint = 0 GROUP BY key`

func compare(ctx context.Context, tx pgx.Tx, old, new string, o *CompareOptions) (c Comparison, err error) {
	if err := tx.QueryRow(ctx, "SELECT (SELECT count(*) FROM "+old+" AS r), (SELECT count(*) FROM "+new+" AS r)").Scan(&c.Old, &c.New); err != nil {
		return Comparison{}, err
	}
	sql := fmt.Sprintf(compareSQL, fmt.Sprintf(groupsSQL, old), fmt.Sprintf(groupsSQL, new))
	var examples string
	err = tx.QueryRow(ctx, sql, append([]string{}, o.Key...), append([]string{}, o.Ignore...), int64(max(o.Sample, 1)), int64(cmp.Or(o.Examples, DefaultExamples))).
		Scan(&c.Keys, &c.OnlyOld, &c.OnlyNew, &c.Differ, &examples)
	if err != nil {
		return Comparison{}, err
	}
	if err := json.Unmarshal([]byte(examples), &c.Examples); err != nil {
		return Comparison{}, fmt.Errorf("examples: %w", err)
	}
	for i := range c.Examples {
		d := &c.Examples[i]
		d.Key, d.Old, d.New = short(d.Key), short(d.Old), short(d.New)
	}
	return c, nil
}

// short cuts a text that is long, between two characters.
func short(s string) string {
	if len(s) <= maxExampleBytes {
		return s
	}
	n := maxExampleBytes
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
