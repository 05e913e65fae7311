// What an append costs beside round trips: WAL, and what it waits for.

package pglog_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestAppendWAL: an append of one event writes its payload to the WAL once, and no more
// than a stated number of bytes with it, in both layouts. Page images, which come once
// a checkpoint and page, are left out.
func TestAppendWAL(t *testing.T) {
	const size, appends = 900, 1000
	_, p := server(t, pgtest.Setting("autovacuum", "off"), pgtest.Setting("full_page_writes", "off"))
	l, err := pglog.Open(t.Context(), p, &pglog.Options{ReclaimEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	create(t, s, "account")
	for stream, most := range map[eventstore.Stream]int64{"account-a": 640, createLogs(t, s, 1)[0]: 540} {
		last := grow(t, s, eventstore.Batch{Stream: stream}, 10, 1, size)
		from := number(t, p, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
		grow(t, s, last, appends, 1, size)
		each := (number(t, p, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn") - from) / appends
		if each < size || each-size > most {
			t.Errorf("%s: %d bytes of WAL for %d of payload, want at most %d more", stream, each, size, most)
		}
		t.Logf("%s: %d bytes of WAL for %d of payload", stream, each, size)
	}
}

// TestAppendWaitsForNothingElse: with every other row and table of the store locked
// that an append could touch, it goes through at once.
func TestAppendWaitsForNothingElse(t *testing.T) {
	admin, schema, _, s, logs := freshLogs(t, 2)
	streams := []eventstore.Stream{"account-a", "account-b", logs[0], logs[1]}
	last := map[eventstore.Stream]*eventstore.Batch{}
	for _, stream := range streams {
		b := batch(stream, 1)
		must(t, s, one(b))
		last[stream] = &b
	}
	impatient := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "2s" })
	_, quick := open(t, impatient, schema)
	for i, stream := range streams {
		tx := begin(t, admin)
		exec1(t, tx, "select from "+schema+".streams s join "+schema+".categories c on c.id = s.category where c.name || '-' || s.key <> $1 for update of s", string(stream))
		exec1(t, tx, "select from "+schema+".categories for no key update")
		exec1(t, tx, "select from "+schema+".store for update")
		exec1(t, tx, "lock table "+schema+".snapshots, "+schema+".holds, "+schema+".leases, "+schema+".checkpoints in access exclusive mode")
		exec1(t, tx, "select pg_advisory_xact_lock_shared($1)", i) // somebody's own
		b := next(*last[stream], last[stream].Written(), 2)
		if _, err := quick.Append(t.Context(), one(b)); err != nil {
			t.Errorf("append to %s beside everything locked: %v", stream, err)
		}
		tx.Rollback(t.Context())
	}
}
