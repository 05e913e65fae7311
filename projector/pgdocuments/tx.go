// The documents inside a step's transaction.

package pgdocuments

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/projector"
)

// statements are the texts for one table.
type statements struct {
	get, all, clear        string
	lock, read             string
	update, upsert, remove string
}

func newStatements(table string) statements {
	const of = " WHERE projector = $1::text AND version = $2::integer"
	const given = " FROM unnest($3::text[], $4::text[]) AS x (key, data)"
	const conflict = " ON CONFLICT (projector, version, key) DO UPDATE SET "
	return statements{
		get:   "SELECT data::text FROM " + table + of + " AND key = $3::text AND data IS NOT NULL",
		all:   "SELECT key, data::text FROM " + table + of + " AND data IS NOT NULL ORDER BY key",
		clear: "DELETE FROM " + table + of,
		// In one order for all, so that steps wait for each other and never in a circle. A row
		// that is there is locked and not changed; one that is not is made, for a lock on what
		// does not exist. What they hold is read by the next statement, whose snapshot is newer
		// than the locks; that of a SELECT FOR UPDATE would be older.
		lock: "INSERT INTO " + table + " AS d (projector, version, key) SELECT $1::text, $2::integer, x.key FROM unnest($3::text[]) AS x (key) ORDER BY x.key" +
			conflict + "data = NULL WHERE false",
		read:   "SELECT key, data::text FROM " + table + of + " AND key = ANY ($3::text[]) AND data IS NOT NULL",
		update: "UPDATE " + table + " AS d SET data = x.data::json, updated = now()" + given + " WHERE d.projector = $1::text AND d.version = $2::integer AND d.key = x.key",
		upsert: "INSERT INTO " + table + " (projector, version, key, data) SELECT $1::text, $2::integer, x.key, x.data::json" + given + " ORDER BY x.key" +
			conflict + "data = excluded.data, updated = now()",
		remove: "DELETE FROM " + table + of + " AND key = ANY ($3::text[])",
	}
}

// transaction implements guest.Tx.
type transaction struct {
	sql  *statements
	tx   pgx.Tx
	step projector.Step
	name string
	read map[string]bool // that were read: if there is a row without data
}

// Read locks the documents, those that do not exist too, and returns them.
func (t *transaction) Read(ctx context.Context, keys []string) (map[string][]byte, error) {
	t.read = make(map[string]bool, len(keys))
	for _, key := range keys {
		if !keepable(key) {
			return nil, invalid(key)
		}
		t.read[key] = true
	}
	docs := map[string][]byte{}
	b := &pgx.Batch{}
	b.Queue(t.sql.lock, t.name, t.step.Key.Version, slices.Sorted(maps.Keys(t.read)))
	b.Queue(t.sql.read, t.name, t.step.Key.Version, keys).Query(func(rows pgx.Rows) error {
		var key, text string
		_, err := pgx.ForEachRow(rows, []any{&key, &text}, func() error {
			docs[key], t.read[key] = []byte(text), false
			return nil
		})
		return err
	})
	return docs, t.failed(t.tx.SendBatch(ctx, b).Close())
}

// keepable says if a key is one that a column of text can hold.
func keepable(key string) bool { return utf8.ValidString(key) && !strings.Contains(key, "\x00") }

// list is keys and data of documents, for unnest.
type list struct{ keys, data []string }

func (l *list) add(key string, data []byte) {
	l.keys, l.data = append(l.keys, key), append(l.data, string(data))
}

// Write writes what changed in one round trip.
func (t *transaction) Write(ctx context.Context, put map[string][]byte, remove []string) error {
	var old, blind list
	for _, key := range slices.Sorted(maps.Keys(put)) {
		_, read := t.read[key]
		switch {
		case !keepable(key):
			return invalid(key)
		case read: // there is a row, and it is ours
			old.add(key, put[key])
			t.read[key] = false
		default:
			blind.add(key, put[key])
		}
	}
	b := &pgx.Batch{}
	if len(old.keys) > 0 {
		b.Queue(t.sql.update, t.name, t.step.Key.Version, old.keys, old.data)
	}
	if len(blind.keys) > 0 {
		b.Queue(t.sql.upsert, t.name, t.step.Key.Version, blind.keys, blind.data)
	}
	return t.send(ctx, b, remove)
}

// send removes documents too, and the rows without data that are left.
func (t *transaction) send(ctx context.Context, b *pgx.Batch, remove []string) error {
	remove = slices.Clone(remove)
	for key, empty := range t.read {
		if empty {
			remove = append(remove, key)
		}
	}
	t.read = nil
	if len(remove) > 0 {
		b.Queue(t.sql.remove, t.name, t.step.Key.Version, remove)
	}
	if b.Len() == 0 {
		return nil
	}
	return t.failed(t.tx.SendBatch(ctx, b).Close())
}

// tidy leaves no row without data where nothing was written.
func (t *transaction) tidy(ctx context.Context) error { return t.send(ctx, &pgx.Batch{}, nil) }
