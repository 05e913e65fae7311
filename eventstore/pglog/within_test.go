// The caller's own SQL and an append: together or not at all, and once.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestWithinCost: one round trip for the append and COMMIT, one to begin.
func TestWithinCost(t *testing.T) {
	c := freshCounted(t)
	var w wire
	wired := pool(t, pgtest.DSN(t), w.config)
	_, s := open(t, wired, c.schema)
	key := func() eventstore.Stream { return eventstore.Stream("account-" + eventstore.NewUUID().String()) }
	for _, op := range []struct {
		name              string
		append            func() eventstore.Append
		statements, trips int64
	}{
		{"first append", func() eventstore.Append { return one(batch(key(), 3)) }, 4, 3}, // begin, effect, append with commit
		{"append to several streams", func() eventstore.Append {
			return eventstore.Append{Batches: []eventstore.Batch{batch(key(), 1), batch(key(), 1)}}
		}, 4, 3},
	} {
		for range 3 {
			w.reset()
			_, err := pglog.Within(t.Context(), s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
				return op.append(), c.effect(ctx, tx, "cost")
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got, trips := w.statements.Load(), w.syncs.Load(); got != op.statements || trips != op.trips {
			t.Errorf("within, %s: %d statements in %d round trips, want %d in %d", op.name, got, trips, op.statements, op.trips)
		}
	}
	known := key()
	last := must(t, s, one(batch(known, 1))).Receipts[0]
	for _, op := range []struct {
		name              string
		append            func() eventstore.Append
		statements, trips int64
	}{
		{"first append", func() eventstore.Append { return one(batch(key(), 3)) }, 1, 1},
		{"append with a guard", func() eventstore.Append {
			b := batch(key(), 1)
			nb := next(b, must(t, c.store, one(b)).Receipts[0], 1)
			return eventstore.Append{Batches: []eventstore.Batch{nb}, Guards: []eventstore.Guard{{Stream: known, At: last.Last}}}
		}, 1, 1},
		{"first append to several streams", func() eventstore.Append { // savepoint, append, release
			return eventstore.Append{Batches: []eventstore.Batch{batch(key(), 1), batch(key(), 1)}}
		}, 3, 1},
	} {
		for range 3 {
			conn, err := pgx.ConnectConfig(t.Context(), wired.Config().ConnConfig)
			if err != nil {
				t.Fatal(err)
			}
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				a := op.append()
				w.reset()
				if _, err := pglog.AppendTx(t.Context(), s, tx, a); err != nil {
					t.Fatal(err)
				}
				if got, trips := w.statements.Load(), w.syncs.Load(); i > 0 && (got != op.statements || trips != op.trips) {
					t.Errorf("in a transaction, %s: %d statements in %d round trips, want %d in %d", op.name, got, trips, op.statements, op.trips)
				}
			}
			conn.Close(t.Context())
		}
	}
}

// TestWithinIsAtomic: the effect and the entries are both there or neither, whatever
// ends the call, and a pool of one connection is as good as new afterwards.
func TestWithinIsAtomic(t *testing.T) {
	c := freshCounted(t)
	p := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.MaxConns = 1 })
	_, s := open(t, p, c.schema)
	taken := must(t, c.store, one(batch("account-taken", 2))).Receipts[0]
	oops := errors.New("oops")
	run := func(name string, stream eventstore.Stream, a eventstore.Append, end func(ctx context.Context, tx pgx.Tx) error) (done eventstore.Appended, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = r.(error)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for a pool that gets its connection back
		defer cancel()
		return pglog.Within(ctx, s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
			if err := c.effect(ctx, tx, name); err != nil {
				return eventstore.Append{}, err
			}
			return a, end(ctx, tx)
		})
	}
	nothing := func(context.Context, pgx.Tx) error { return nil }
	late := batch("account-taken", 1)
	late.Epoch, late.After = 2, eventstore.Mark{Seqno: 1, ID: eventstore.NewUUID()}
	gap := batch("account-gap", 1)
	gap.After.Seqno = 7
	for _, x := range []struct {
		name   string
		stream eventstore.Stream
		a      eventstore.Append
		end    func(ctx context.Context, tx pgx.Tx) error
		want   error
	}{
		{"error", "account-error", one(batch("account-error", 1)), func(context.Context, pgx.Tx) error { return oops }, oops},
		{"panic", "account-panic", one(batch("account-panic", 1)), func(context.Context, pgx.Tx) error { panic(oops) }, oops},
		{"fenced", "account-taken", one(batch("account-taken", 1)), nothing, eventstore.ErrFenced},
		{"diverged", "account-taken", one(late), nothing, eventstore.ErrDiverged},
		{"gap", "account-gap", one(gap), nothing, eventstore.ErrGap},
		{"one of two refused", "account-other", eventstore.Append{Batches: []eventstore.Batch{batch("account-other", 1), batch("account-taken", 1)}}, nothing, eventstore.ErrFenced},
		{"guard", "account-guarded", eventstore.Append{Batches: []eventstore.Batch{batch("account-guarded", 1)},
			Guards: []eventstore.Guard{{Stream: "account-taken", At: eventstore.Mark{Seqno: 1, ID: taken.Last.ID}}}}, nothing, eventstore.ErrGuard},
		{"guard in no category", "account-guarded", eventstore.Append{Batches: []eventstore.Batch{batch("account-guarded", 1)},
			Guards: []eventstore.Guard{{Stream: "nowhere-x"}}}, nothing, eventstore.ErrNoSuchCategory},
		{"no such category", "account-x", one(batch("nowhere-x", 1)), nothing, eventstore.ErrNoSuchCategory},
		{"nothing to append", "account-x", eventstore.Append{}, nothing, eventstore.ErrInvalid},
		{"ended by the function", "account-ended", one(batch("account-ended", 1)), func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, eventstore.ErrInvalid},
		{"error swallowed", "account-swallowed", one(batch("account-swallowed", 1)), func(ctx context.Context, tx pgx.Tx) error {
			tx.Exec(ctx, "select 1/0")
			return nil
		}, eventstore.ErrInvalid},
	} {
		before := c.head(t, x.stream)
		_, err := run(x.name, x.stream, x.a, x.end)
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
		c.want(t, x.name, x.name, x.stream, 0, before)
	}
	b := batch("account-fine", 3)
	done, err := run("fine", b.Stream, one(b), nothing)
	if err != nil || len(done.Receipts) != 1 || done.Receipts[0].Last.Seqno != 3 || done.Receipts[0].Replays || done.Token.Position == 0 || done.Token.Incarnation.IsZero() {
		t.Errorf("%+v %v", done, err)
	}
	c.want(t, "fine", "fine", b.Stream, 1, 3)
	if entries := feed(t, c.store); entries[len(entries)-1].Position != done.Token.Position {
		t.Errorf("token at %d, last entry at %d", done.Token.Position, entries[len(entries)-1].Position)
	}
	if _, err := pglog.Within(t.Context(), eventstore.New(memlog.New(nil), nil), nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("on another log: %v, want ErrUnsupported", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := run("closed", "account-closed", one(batch("account-closed", 1)), nothing); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestWithinLostAnswer: the answer never comes, whether the server got the append or
// not; running it again with the same batch brings it about once.
func TestWithinLostAnswer(t *testing.T) {
	c := freshCounted(t)
	for name, reaches := range map[string]bool{"committed": true, "never sent": false} {
		var w wire
		_, s := open(t, pool(t, pgtest.DSN(t), w.config), c.schema)
		run := func(ctx context.Context, b eventstore.Batch, effect string, last func()) (eventstore.Appended, error) {
			return pglog.Within(ctx, s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
				err := c.effect(ctx, tx, effect)
				last()
				return one(b), err
			})
		}
		for range 3 { // the statements are prepared
			if _, err := run(t.Context(), batch(eventstore.Stream("account-"+eventstore.NewUUID().String()), 1), "warm", func() {}); err != nil {
				t.Fatal(err)
			}
		}
		b := batch(eventstore.Stream("account-"+eventstore.NewUUID().String()), 2)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := run(ctx, b, name, func() {
			if reaches {
				w.mute.Store(true)
			} else {
				w.deaf.Store(true)
			}
		})
		cancel()
		if !errors.Is(err, eventstore.ErrUnknown) {
			t.Errorf("%s: %v, want ErrUnknown", name, err)
		}
		w.mute.Store(false)
		w.deaf.Store(false)
		if reaches {
			eventually(t, "what was sent is committed", func() bool { return c.head(t, b.Stream) == 2 })
			c.want(t, name, name, b.Stream, 1, 2)
		} else {
			c.want(t, name, name, b.Stream, 0, 0)
		}
		for i := range 2 {
			done, err := run(t.Context(), b, name, func() {})
			if err != nil {
				t.Fatalf("%s, resent: %v", name, err)
			}
			if r := done.Receipts[0]; r.Replays != (reaches || i > 0) || r.First != 1 || r.Last.Seqno != 2 || done.Token.Position == 0 {
				t.Errorf("%s, resent: %+v", name, done)
			}
			c.want(t, name+", resent", name, b.Stream, 1, 2)
		}
	}
}

// TestWithinDeadlock: a deadlock between two of them makes one start again.
func TestWithinDeadlock(t *testing.T) {
	c := freshCounted(t)
	for _, name := range []string{"x", "y"} {
		exec1(t, c.pool, "insert into "+c.schema+".effects values ($1, 0)", name)
	}
	for name, last := range map[string]string{"in its SQL": "effect", "in the append": "append"} {
		var runs atomic.Int32
		var first, wg sync.WaitGroup
		first.Add(2)
		streams := []eventstore.Stream{eventstore.Stream("account-a" + last), eventstore.Stream("account-b" + last)}
		if last == "append" { // a stream locked by the one, its effect by the other
			for _, s := range streams {
				must(t, c.store, one(batch(s, 1)))
			}
		}
		for i, names := range [][]string{{"x", "y"}, {"y", "x"}} {
			wg.Go(func() {
				met := false
				_, err := pglog.Within(t.Context(), c.store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
					runs.Add(1)
					h, err := c.store.Head(ctx, streams[i])
					if err != nil {
						return eventstore.Append{}, err
					}
					b := batch(streams[i], 1)
					b.Epoch, b.After = h.Epoch+1, h.Last
					if last == "append" {
						// lock the other's stream, then wait for it in the append
						_, err = tx.Exec(ctx, "select from "+c.schema+".streams where key = $1 for update", streams[1-i].Key())
					} else {
						err = c.effect(ctx, tx, names[0])
					}
					if !met {
						met = true
						first.Done()
						first.Wait()
					}
					if err == nil && last == "effect" {
						err = c.effect(ctx, tx, names[1])
					}
					return one(b), err
				})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		if runs.Load() < 3 {
			t.Errorf("%s: %d runs: there was no deadlock, so this proves nothing", name, runs.Load())
		}
	}
	c.want(t, "effects", "x", "account-aeffect", 2, 1)
	c.want(t, "effects", "y", "account-bappend", 2, 2)
}

// TestWithinRaces: many at once on the same streams, first appends of several among
// them: what was acked is there with its effect, nothing else is.
func TestWithinRaces(t *testing.T) {
	c := freshCounted(t)
	const writers, names = 6, 8
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	var mu sync.Mutex
	acked := map[eventstore.UUID]int{}
	kinds := map[string]int{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			_, s := open(t, c.pool, c.schema)
			for i := range rounds {
				var a eventstore.Append
				_, err := pglog.Within(context.Background(), s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
					a = eventstore.Append{}
					for j := range 2 {
						st := stream((w + i + j*3) % names)
						h, err := s.Head(ctx, st)
						if err != nil {
							return a, err
						}
						b := batch(st, 1+j)
						b.Epoch, b.After = h.Epoch+1, h.Last
						a.Batches = append(a.Batches, b)
					}
					return a, c.effect(ctx, tx, a.Batches[0].ID.String())
				})
				mu.Lock()
				kinds[kindOf(err)]++
				if err == nil {
					for _, b := range a.Batches {
						acked[b.ID] = len(b.Events)
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	found := map[eventstore.UUID]int{}
	for _, e := range feed(t, c.store) {
		found[e.BatchID]++
	}
	for id, n := range acked {
		if found[id] != n {
			t.Errorf("batch %v: %d entries, acked %d", id, found[id], n)
		}
	}
	var effects int
	if err := c.pool.QueryRow(t.Context(), "select coalesce(sum(n), 0) from "+c.schema+".effects").Scan(&effects); err != nil {
		t.Fatal(err)
	}
	if len(found) != len(acked) || 2*effects != len(acked) {
		t.Errorf("%d batches there, %d acked, %d effects (want half as many)", len(found), len(acked), effects)
	}
	checkStreams(t, c.store, names)
	t.Log(kinds)
	if n := kinds["<nil>"] + kinds[eventstore.ErrFenced.Error()] + kinds[eventstore.ErrAlreadyWritten.Error()] + kinds[eventstore.ErrDiverged.Error()]; n != writers*rounds {
		t.Errorf("%v: want nothing but success and refusals", kinds)
	}
}

// TestWithinCategoryMadeAnew: a number of a category that is out of date makes the
// function run again, not fail.
func TestWithinCategoryMadeAnew(t *testing.T) {
	c := freshCounted(t)
	must(t, c.store, one(batch("account-a", 1)))
	_, other := open(t, c.pool, c.schema)
	if err := other.DeleteCategory(t.Context(), "account"); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, c.pool)
	_, err := pglog.AppendTx(t.Context(), c.store, tx, one(batch("account-b", 1)))
	if !errors.Is(err, eventstore.ErrNoSuchCategory) {
		t.Errorf("in a transaction, category gone: %v, want ErrNoSuchCategory", err)
	}
	_ = tx.Rollback(t.Context())
	if _, err := pglog.Within(t.Context(), c.store, func(context.Context, pgx.Tx) (eventstore.Append, error) { return one(batch("account-b", 1)), nil }); !errors.Is(err, eventstore.ErrNoSuchCategory) {
		t.Errorf("within, category gone: %v, want ErrNoSuchCategory", err)
	}
	create(t, c.store, "account")
	must(t, c.store, one(batch("account-old", 1))) // learns the number, which then goes out of date
	if err := other.DeleteCategory(t.Context(), "account"); err != nil {
		t.Fatal(err)
	}
	create(t, other, "account")
	runs := 0
	_, err = pglog.Within(t.Context(), c.store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
		runs++
		return one(batch("account-a", 1)), c.effect(ctx, tx, "anew")
	})
	if err != nil {
		t.Fatal(err)
	}
	c.want(t, "anew", "anew", "account-a", 1, 1)
	if runs != 2 {
		t.Errorf("the function ran %d times, want 2", runs)
	}
}

// TestWithinSettings: what is set for the transaction is seen at its COMMIT, by a
// deferred trigger, and gone behind it.
func TestWithinSettings(t *testing.T) {
	c := freshCounted(t)
	exec1(t, c.pool, fmt.Sprintf(`create table %[1]s.seen (name text, value text);
create function %[1]s.look() returns trigger language plpgsql as $$ begin
  insert into %[1]s.seen select name, setting from pg_settings where name in ('synchronous_commit', 'idle_in_transaction_session_timeout');
  return null; end $$;
create constraint trigger look after insert on %[1]s.effects deferrable initially deferred for each row execute function %[1]s.look()`, c.schema))
	for _, x := range []struct{ idle, commit, wantIdle, wantCommit string }{
		{"0", "off", "10000", "on"}, {"3min", "on", "10000", "on"}, {"700ms", "remote_apply", "700", "remote_apply"}, {"10s", "local", "10000", "on"}, {"1h", "remote_write", "10000", "on"},
	} {
		p := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) {
			c.MaxConns = 1
			withParam("idle_in_transaction_session_timeout", x.idle)(c)
			withParam("synchronous_commit", x.commit)(c)
		})
		_, s := open(t, p, c.schema)
		exec1(t, c.pool, "truncate "+c.schema+".seen, "+c.schema+".effects")
		_, err := pglog.Within(t.Context(), s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
			return one(batch(eventstore.Stream("account-"+eventstore.NewUUID().String()), 1)), c.effect(ctx, tx, "look")
		})
		if err != nil {
			t.Fatal(err)
		}
		var idle, commit, idleAfter, commitAfter string
		err = p.QueryRow(t.Context(), fmt.Sprintf(`select (select value from %[1]s.seen where name like 'idle%%'), (select value from %[1]s.seen where name like 'sync%%'),
  current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit')`, c.schema)).Scan(&idle, &commit, &idleAfter, &commitAfter)
		if err != nil {
			t.Fatal(err)
		}
		if idle != x.wantIdle || commit != x.wantCommit || idleAfter != x.idle || commitAfter != x.commit {
			t.Errorf("session at %s, %s: at COMMIT %s, %s (want %s, %s), behind it %s, %s", x.idle, x.commit, idle, commit, x.wantIdle, x.wantCommit, idleAfter, commitAfter)
		}
	}
}

// TestWithinDeferredConstraint: the append passes and COMMIT is refused: nothing is
// there, and the error says whose constraint it was.
func TestWithinDeferredConstraint(t *testing.T) {
	c := freshCounted(t)
	exec1(t, c.pool, "alter table "+c.schema+".effects add unique (n) deferrable initially deferred")
	exec1(t, c.pool, "insert into "+c.schema+".effects values ('there', 1)")
	_, err := pglog.Within(t.Context(), c.store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
		return one(batch("account-a", 1)), c.effect(ctx, tx, "again")
	})
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !errors.Is(err, eventstore.ErrInvalid) || !ok || pg.Code != "23505" {
		t.Errorf("%v, want ErrInvalid around 23505", err)
	}
	c.want(t, "refused at COMMIT", "again", "account-a", 0, 0)
}

// TestWithinBehindPgBouncer: transaction mode, the query modes that poolers allow.
func TestWithinBehindPgBouncer(t *testing.T) {
	c := freshCounted(t)
	pooled := pgtest.Bouncer(t, pgtest.DSN(t), 3)
	for name, mode := range map[string]pgx.QueryExecMode{"exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol, "cache describe": pgx.QueryExecModeCacheDescribe} {
		p := pool(t, pooled, func(c *pgxpool.Config) {
			c.MaxConns = 6
			c.ConnConfig.DefaultQueryExecMode = mode
		})
		_, s := open(t, p, c.schema)
		streams := []eventstore.Stream{eventstore.Stream("account-" + eventstore.NewUUID().String()), eventstore.Stream("account-" + eventstore.NewUUID().String())}
		a := eventstore.Append{Batches: []eventstore.Batch{batch(streams[0], 2), batch(streams[1], 1)}}
		for i := range 2 {
			done, err := pglog.Within(t.Context(), s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
				return a, c.effect(ctx, tx, name)
			})
			if err != nil || done.Receipts[1].Replays != (i > 0) {
				t.Errorf("%s: %+v %v", name, done, err)
			}
		}
		_, err := pglog.Within(t.Context(), s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
			return one(batch(streams[0], 1)), c.effect(ctx, tx, name)
		})
		if !errors.Is(err, eventstore.ErrFenced) {
			t.Errorf("%s: %v, want ErrFenced", name, err)
		}
		c.want(t, name, name, streams[0], 1, 2)
	}
}
