// Clients that freeze between Execute and Sync, in every kind of append: whatever they
// hold is let go within the TTL and 5 s.

package pglog_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestFrozenAppends: the feed goes on, the stream can be written, and who froze learns
// that he does not know. The session is ended by a reader's watchdog and, from
// PostgreSQL 17 on, by transaction_timeout where that is set.
func TestFrozenAppends(t *testing.T) {
	endings := []string{"watchdog"}
	if number(t, pgtest.Pool(t), "select current_setting('server_version_num')::bigint") >= 170000 {
		endings = append(endings, "transaction_timeout")
	}
	for _, ending := range endings {
		for _, kind := range []string{"first append", "owner's next", "several streams", "group"} {
			t.Run(ending+", "+kind, func(t *testing.T) { t.Parallel(); frozenAppend(t, ending, kind) })
		}
	}
}

func frozenAppend(t *testing.T, ending, kind string) {
	p, schema, _, plain := fresh(t)
	ttl := 400 * time.Millisecond
	watched := pglog.Options{Schema: schema, HolderTTL: ttl}
	var w wire
	bent := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) {
		w.config(c)
		c.ConnConfig.RuntimeParams["application_name"] = schema
		if ending == "transaction_timeout" {
			c.ConnConfig.RuntimeParams["transaction_timeout"], watched.HolderTTL = "400", -1
		}
	})
	freezing, err := pglog.Open(t.Context(), bent, &pglog.Options{Schema: schema, Senders: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(freezing, nil)
	first := batch(newStream(), 1)
	a := one(next(first, must(t, s, one(first)).Receipts[0], 1)) // prepares too
	must(t, s, eventstore.Append{Batches: []eventstore.Batch{batch(newStream(), 1), batch(newStream(), 1)}})
	told := make(chan error, 2)
	send := func(a eventstore.Append) { _, err := s.Append(t.Context(), a); told <- err }
	switch kind {
	case "first append":
		a = one(batch(newStream(), 1))
	case "several streams":
		a.Batches = append(a.Batches, batch(newStream(), 1))
	case "group":
		other := batch(newStream(), 1)
		blocker := next(other, must(t, s, one(other)).Receipts[0], 1)
		tx := begin(t, p)
		if _, err := tx.Exec(t.Context(), "select from "+schema+".streams where key = $1 for update", blocker.Stream.Key()); err != nil {
			t.Fatal(err)
		}
		go send(one(blocker))
		eventually(t, "the blocker waits in its sender", func() bool {
			return number(t, p, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = $1", schema) == 1
		})
		go send(a)
		eventually(t, "the append is queued", func() bool { return freezing.Queued() == 1 })
		w.freezeNext.Store(true)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-told; err != nil {
			t.Errorf("the blocker: %v", err)
		}
	}
	if kind != "group" {
		w.freezeNext.Store(true)
		go send(a)
	}
	eventually(t, "the frozen append holds the feed", func() bool {
		return number(t, p, "select count(*) from pg_locks where locktype = 'advisory' and classid = ('"+schema+".position'::regclass)::oid") == 1
	})
	frozen := time.Now()
	free := must(t, plain, one(batch(newStream(), 1)))
	l, err := pglog.Open(t.Context(), p, &watched)
	if err != nil {
		t.Fatal(err)
	}
	reader := eventstore.New(l, nil)
	eventually(t, "the feed goes on", func() bool {
		return slices.ContainsFunc(feed(t, reader), func(e eventstore.Entry) bool { return e.Position == free.Token.Position })
	})
	if d := time.Since(frozen); d > ttl+5*time.Second {
		t.Errorf("the feed went on after %v, want it within the TTL of %v and 5 s", d, ttl)
	}
	if err := <-told; !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("told %v, want ErrUnknown", err)
	}
	if done := must(t, plain, a); done.Receipts[0].Replays {
		t.Error("the frozen append was committed")
	}
}
