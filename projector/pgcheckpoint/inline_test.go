// Effects inside the append's transaction: a table of unique names that agrees with the
// log whatever happens.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

type (
	userEvent interface{ userEvent() }
	Named     struct{ Name string }
	name      struct{ Name string } // command
	user      struct{ Names int }
	users     = aggregate.Executor[user, name, userEvent]
)

func (Named) userEvent() {}

var (
	userEvents = schema.New[userEvent](schema.Wire[Named]("named", 1))
	userType   = aggregate.Type[user, name, userEvent]{Category: "user", Schema: userEvents,
		Decider: aggregate.Decider[user, name, userEvent]{
			Initial: func() user { return user{} },
			Decide:  func(_ user, c name) ([]userEvent, error) { return []userEvent{Named(c)}, nil },
			Evolve:  func(s user, _ userEvent) user { return user{s.Names + 1} },
		}}
	errTaken = errors.New("the name is taken")
)

// newNames is a store in PostgreSQL beside a table of names.
func newNames(t *testing.T) *env {
	e := onPostgres(t)
	_, err := e.pool.Exec(t.Context(), "CREATE TABLE "+e.second()+" (name text PRIMARY KEY, stream text NOT NULL, seqno bigint NOT NULL, event uuid NOT NULL)")
	e.ok(err)
	return e
}

func uniqueViolation(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505"
}

// take is f: it knows nothing of repetitions.
func (e *env) take(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+e.second()+" VALUES ($1, $2, $3, $4)", ev.Value.(Named).Name, string(ev.Stream), int64(ev.Seqno), ev.ID.String())
	if uniqueViolation(err) {
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	return err
}

func (e *env) storeOn(pool *pgxpool.Pool) *eventstore.Store {
	log, err := pglog.Open(e.t.Context(), pool, &pglog.Options{Schema: e.schema})
	e.ok(err)
	e.t.Cleanup(func() { _ = log.Close() })
	return eventstore.New(log, nil)
}

func (e *env) users(store *eventstore.Store, f func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error) *users {
	x, err := aggregate.NewExecutor(e.t.Context(), store, userType, &aggregate.Options{Append: pgcheckpoint.Inline(store, userEvents, f)})
	e.ok(err)
	return x
}

// names says that the table has a row for each event of the log, and returns how many.
func (e *env) names() int {
	e.t.Helper()
	rows, err := e.pool.Query(context.Background(), "SELECT name || ' ' || stream || ' ' || seqno || ' ' || event FROM "+e.second())
	e.ok(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	e.ok(err)
	var want []string
	for entry, err := range e.store.Feed(context.Background(), 0, eventstore.Filter{Categories: []eventstore.Category{"user"}}) {
		e.ok(err)
		v, err := userEvents.Decode(entry)
		e.ok(err)
		want = append(want, fmt.Sprintf("%s %s %d %v", v.(Named).Name, entry.Stream, entry.Seqno, entry.ID))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.t.Fatalf("table and log disagree:\n%q\n%q", got, want)
	}
	return len(got)
}

// TestInlineUnique: two processes race for each name; exactly one gets it.
func TestInlineUnique(t *testing.T) {
	e := newNames(t)
	var calls atomic.Int32
	f := func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
		calls.Add(1)
		return e.take(ctx, tx, ev)
	}
	xs := []*users{e.users(e.open(), f), e.users(e.open(), f)}
	const rounds = 20
	for i := range rounds {
		var wg sync.WaitGroup
		errs := make([]error, len(xs))
		for j, x := range xs {
			wg.Go(func() {
				_, errs[j] = x.Execute(t.Context(), fmt.Sprintf("%d-%d", i, j), name{fmt.Sprint("name", i)})
			})
		}
		wg.Wait()
		won := slices.Index(errs, nil)
		if won < 0 || errs[1-won] == nil {
			t.Fatalf("round %d: %v", i, errs)
		}
		refused, ok := errors.AsType[*projector.EntryError](errs[1-won])
		if !ok || !errors.Is(refused, errTaken) || refused.Seqno != 1 || refused.Stream != eventstore.Stream(fmt.Sprintf("user-%d-%d", i, 1-won)) {
			t.Fatalf("round %d: %v", i, errs[1-won])
		}
	}
	if n := e.names(); n != rounds || calls.Load() != 2*rounds {
		t.Errorf("%d names in %d rounds, %d calls", n, rounds, calls.Load())
	}
}

// TestInlineRefusalIsTheCommands: whatever f's error wraps, it is not taken for the
// log's, and nothing of the append is there, of no stream.
func TestInlineRefusalIsTheCommands(t *testing.T) {
	e := newNames(t)
	var fail func(tx pgx.Tx) error
	calls := 0
	x := e.users(e.store, func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
		calls++
		if err := e.take(ctx, tx, ev); err != nil {
			return err
		}
		if fail != nil && ev.Value.(Named).Name == "b" {
			return fail(tx)
		}
		return nil
	})
	for name, f := range map[string]func(pgx.Tx) error{
		"fenced":   func(pgx.Tx) error { return &eventstore.Error{Kind: eventstore.ErrFenced, Op: "elsewhere"} },
		"written":  func(pgx.Tx) error { return eventstore.ErrAlreadyWritten },
		"panic":    func(pgx.Tx) error { panic(errTaken) },
		"commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		fail, calls = f, 0
		_, err := x.ExecuteMulti(t.Context(), []string{"one", "two"}, func(map[string]user) (map[string][]userEvent, error) {
			return map[string][]userEvent{"one": {Named{"a"}}, "two": {Named{"b"}, Named{"c"}}}, nil
		})
		bad, ok := errors.AsType[*projector.EntryError](err)
		if !ok || bad.Stream != "user-two" || bad.Seqno != 1 || calls != 2 || e.names() != 0 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
	fail = nil
	if _, err := x.Execute(t.Context(), "two", name{"b"}); err != nil || e.names() != 1 {
		t.Errorf("%v", err)
	}
	failed := e.users(e.store, func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
		_ = e.take(ctx, tx, ev)
		return nil
	})
	if _, err := failed.Execute(t.Context(), "three", name{"b"}); !errors.Is(err, eventstore.ErrInvalid) || e.names() != 1 {
		t.Errorf("a failed statement that f hides: %v", err)
	}
}

// TestInlineOnAnOldState: what f refuses on a state that others have passed is no refusal.
func TestInlineOnAnOldState(t *testing.T) {
	e := newNames(t)
	errOld := errors.New("the table has gone on")
	f := func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
		var n int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+e.second()+" WHERE stream = $1", string(ev.Stream)).Scan(&n); err != nil {
			return err
		}
		if n != int64(ev.Seqno)-1 {
			return errOld
		}
		return e.take(ctx, tx, ev)
	}
	x, rival := e.users(e.store, f), e.users(e.open(), f)
	for i, who := range []*users{x, rival, x, rival, rival, x} {
		if _, err := who.Execute(t.Context(), "alice", name{fmt.Sprint(i)}); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := e.names(); n != 6 {
		t.Error(n)
	}
}

// TestInlineLostAnswer: the answer to the commit is lost. The Executor sends again, f
// refuses because its row is there, and the append is proved. Without an Executor too.
func TestInlineLostAnswer(t *testing.T) {
	e := newNames(t)
	var c cutter
	pool := c.pool(t, pgx.QueryExecModeExec)
	store := e.storeOn(pool)
	var calls atomic.Int32
	f := func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
		calls.Add(1)
		return e.take(ctx, tx, ev)
	}
	lose := func() {
		var once sync.Once
		calls.Store(0)
		c.set(func(c *cutConn, b []byte) error {
			if calls.Load() > 0 && isCommit(b) {
				once.Do(c.loseAnswer)
			}
			return nil
		})
	}
	x := e.users(store, f)
	lose()
	res, err := x.Execute(t.Context(), "alice", name{"a"})
	if err != nil || res.Mark.Seqno != 1 || res.Replayed || calls.Load() != 2 || e.names() != 1 {
		t.Fatalf("%+v, %v after %d calls", res, err, calls.Load())
	}
	if res, err = x.Execute(t.Context(), "alice", name{"b"}); err != nil || res.Mark.Seqno != 2 || e.names() != 2 {
		t.Fatalf("%+v, %v", res, err)
	}

	appends := pgcheckpoint.Inline(store, userEvents, f)
	ev, err := userEvents.Encode(Named{"c"})
	e.ok(err)
	a := eventstore.Append{Batches: []eventstore.Batch{{ID: eventstore.NewUUID(), Stream: "user-bob", Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: []eventstore.Event{ev}}}}
	lose()
	if _, err := appends(t.Context(), a); !errors.Is(err, eventstore.ErrUnknown) {
		t.Fatal(err)
	}
	done, err := appends(t.Context(), a)
	if err != nil || !done.Receipts[0].Replays || e.names() != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	a.Batches[0].ID = eventstore.NewUUID()
	if _, err := appends(t.Context(), a); !errors.Is(err, eventstore.ErrFenced) {
		t.Errorf("another batch there: %v", err)
	}
}

// TestInlineCutAtEveryByte cuts the link at every 41st byte (in a soak at every 3rd) between f's first SQL and
// the answer to COMMIT. The command is sent again under its ID: it has happened once, and
// the table agrees with the log before and after.
func TestInlineCutAtEveryByte(t *testing.T) {
	e := newNames(t)
	c, err := pgxpool.ParseConfig(pgtest.DSN(t))
	e.ok(err)
	proxy, err := cutproxy.New(fmt.Sprintf("%s:%d", c.ConnConfig.Host, c.ConnConfig.Port))
	e.ok(err)
	c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks, c.MaxConns = "127.0.0.1", uint16(proxy.Port()), nil, 4
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	e.ok(err)
	t.Cleanup(pool.Close)
	t.Cleanup(proxy.Close)
	store := e.storeOn(pool)
	healed := e.users(e.store, e.take)
	every := int64(41)
	if os.Getenv("WATTLE_SOAK") != "" {
		every = 3
	}
	done, cuts, failed := 0, 0, 0
	for _, way := range cutproxy.Directions {
		for i, struck := int64(0), true; struck && i < 1<<12; i++ {
			fault := cutproxy.Fault{Direction: way, After: every * i, Mode: []cutproxy.Mode{cutproxy.FIN, cutproxy.RST}[i%2]}
			var arm sync.Once
			x := e.users(store, func(ctx context.Context, tx pgx.Tx, ev projector.Event[userEvent]) error {
				arm.Do(func() { proxy.Arm(fault) })
				return e.take(ctx, tx, ev)
			})
			key, id := fmt.Sprint(way, i), aggregate.CommandID(eventstore.NewUUID())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := x.Execute(ctx, key, name{key}, id)
			cancel()
			if struck = proxy.Disarm(); struck {
				cuts++
			}
			if err != nil {
				failed++
				if !struck || !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrUnknown) {
					t.Errorf("%v, struck %v: %v", fault, struck, err)
				}
			}
			pool.Reset()
			e.names()
			res, err := healed.Execute(t.Context(), key, name{key}, id)
			if err != nil || res.Mark.Seqno != 1 {
				t.Fatalf("%v, healed: %+v, %v", fault, res, err)
			}
			if done++; e.names() != done {
				t.Fatalf("%v: %d names, want %d", fault, e.names(), done)
			}
		}
	}
	t.Logf("%d cuts, %d of them an error", cuts, failed)
	if cuts < 20 || failed == 0 {
		t.Errorf("%d cuts, %d errors: they do not meet the dialogue", cuts, failed)
	}
}

// TestInlineWithoutIDs: f sees the IDs that the events will have, also where nobody gave any.
func TestInlineWithoutIDs(t *testing.T) {
	e := newNames(t)
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "user"}))
	var named []eventstore.Event
	for _, n := range []string{"a", "b"} {
		ev, err := userEvents.Encode(Named{n})
		e.ok(err)
		named = append(named, ev)
	}
	a := eventstore.Append{Batches: []eventstore.Batch{{Stream: "user-a", Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: named}}}
	_, err := pgcheckpoint.Inline(e.store, userEvents, e.take)(t.Context(), a)
	if e.ok(err); e.names() != 2 || !a.Batches[0].ID.IsZero() || !named[0].ID.IsZero() {
		t.Errorf("the caller's append was changed: %+v", a)
	}
}

func TestInlineElsewhere(t *testing.T) {
	store := eventstore.New(memlog.New(nil), nil)
	f := func(context.Context, pgx.Tx, projector.Event[userEvent]) error { return nil }
	_, err := pgcheckpoint.Inline(store, userEvents, f)(t.Context(), eventstore.Append{})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	e := onPostgres(t)
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "user"}))
	appends := pgcheckpoint.Inline(e.store, userEvents, f)
	for name, a := range map[string]eventstore.Append{
		"nothing":   {},
		"no stream": {Batches: []eventstore.Batch{{Epoch: 1, Claim: true, Events: []eventstore.Event{{Type: "named", Data: []byte(`{}`)}}}}},
	} {
		if _, err := appends(t.Context(), a); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unknown := eventstore.Append{Batches: []eventstore.Batch{{Stream: "user-a", Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: []eventstore.Event{{Type: "unheard"}}}}}
	_, err = appends(t.Context(), unknown)
	if bad, ok := errors.AsType[*projector.EntryError](err); !ok || !bad.Permanent {
		t.Errorf("a type that cannot be decoded: %v", err)
	}
}
