// On which terms a handler works: what it may not do, what it is told, what a
// batch costs.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// What a handler may not do, and what it is told.
func TestHandlersThatMisbehave(t *testing.T) {
	e := newEnv(t)
	_, err := e.pool.Exec(t.Context(), "CREATE TABLE "+e.second()+" (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	e.ok(err)
	e.deposit(3)
	type fn = func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error
	for name, f := range map[string]fn{
		"ended by the projector": func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error { return tx.Commit(ctx) },
		"not by the handler":     func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error { return tx.Rollback(ctx) },
		"ended the transaction itself": func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error {
			_, err := tx.Exec(ctx, "ROLLBACK")
			return err
		},
		"its error was not returned": func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		},
		"rows left open": func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
			return err
		},
		"duplicate key": func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error { // found at COMMIT
			_, err := tx.Exec(ctx, "INSERT INTO "+e.second()+" VALUES (1), (1)")
			return err
		},
		"syntax error": func(ctx context.Context, tx pgx.Tx, _ projector.Event[Event]) error {
			_, err := tx.Exec(ctx, "SELEKT")
			return err
		},
	} {
		p := projector.New(e.store, "p", "account", pgcheckpoint.Handler(e.pool, events, f, e.options()), &projector.Options{Tries: 2, PageSize: 1, StopOnPoison: true})
		err := p.Run(within(t))
		if entry, ok := errors.AsType[*projector.EntryError](err); !ok || entry.Seqno != 1 || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		e.check(0)
	}
	// Savepoints are the handler's own, and the usual deferred Rollback does no harm.
	p := projector.New(e.store, "p", "account", pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		defer tx.Rollback(ctx)
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		})
		if err == nil {
			return errors.New("divided by zero")
		}
		return e.insert(ctx, tx, ev)
	}, e.options()))
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Error(err)
	}
	e.check(3)
}

// An entry that cannot be decoded stops a projector that is to stop, with its name; what
// stands before it is kept.
func TestUnknownTypeStops(t *testing.T) {
	e := newEnv(t)
	e.deposit(4)
	e.append(eventstore.Event{Type: "vanished", Data: []byte("{}")})
	e.deposit(2)
	p := projector.New(e.store, "p", "account", e.handler(e.pool), &projector.Options{StopOnPoison: true})
	err := p.Run(within(t))
	entry, ok := errors.AsType[*projector.EntryError](err)
	if !ok || entry.Seqno != 5 || entry.Stream != "account-a" || !entry.Permanent || !strings.Contains(err.Error(), "vanished") {
		t.Errorf("%v", err)
	}
	e.check(4)
}

func TestBadSetUpIsNamed(t *testing.T) {
	e := newEnv(t)
	e.deposit(1)
	other := pgtest.Pool(t)
	for want, h := range map[error]projector.Handler{
		eventstore.ErrNotMigrated: pgcheckpoint.Handler(other, events, e.insert, &pgcheckpoint.Options{Schema: "no such"}),
		eventstore.ErrInvalid:     pgcheckpoint.Handler(nil, events, e.insert),
	} {
		p := projector.New(e.store, "p", "account", h)
		if err := p.Run(within(t)); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for _, o := range [][]*pgcheckpoint.Options{{{TTL: -1}}, {{TTL: 100 * time.Hour}}, {nil, nil}} {
		h := pgcheckpoint.Handler(other, events, e.insert, o...)
		if _, err := h.Load(t.Context(), projector.Key{}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Error(err)
		}
		if err := h.Handle(t.Context(), projector.Step{Batch: []eventstore.Entry{{}}}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Error(err)
		}
	}
}

// A server that takes no writes is an outage, and its connections are not kept.
func TestReadOnlyIsAnOutage(t *testing.T) {
	e := newEnv(t)
	e.deposit(2)
	config := e.pool.Config()
	var readOnly atomic.Bool
	readOnly.Store(true)
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.RuntimeParams["default_transaction_read_only"] = map[bool]string{true: "on", false: "off"}[readOnly.Load()]
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	e.ok(err)
	t.Cleanup(pool.Close)
	p := projector.New(e.store, "p", "account", e.handler(pool))
	run(t, p)
	for p.Status().LastError == nil {
		time.Sleep(time.Millisecond)
	}
	if err := p.Status().LastError; !errors.Is(err, eventstore.ErrReadOnly) {
		t.Error(err)
	}
	readOnly.Store(false)
	e.ok(p.Wait(within(t), e.deposit(1)))
	e.check(3)
}

// Begin, timeout and checkpoint go out together: with a handler of one statement
// a batch takes three round trips.
func TestRoundTrips(t *testing.T) {
	e := newEnv(t)
	for _, mode := range modes {
		cut := &cutter{}
		h := pgcheckpoint.BatchHandler(cut.pool(t, mode), events, func(ctx context.Context, tx pgx.Tx, batch []projector.Event[Event]) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+e.table+" (position) SELECT generate_series($1::bigint, $2)", int64(batch[0].Position), int64(batch[len(batch)-1].Position))
			return err
		}, e.options())
		key, from := projector.Key{Projector: mode.String(), Version: 1}, projector.Checkpoint{}
		trips := 0
		for i := range 3 { // the first ones prepare
			cut.set(nil)
			to := projector.Checkpoint{Epoch: 1, Holder: eventstore.UUID{1}, Position: eventstore.Position(i + 1)}
			e.ok(h.Handle(t.Context(), projector.Step{Key: key, From: from, To: to, Batch: []eventstore.Entry{e.entry()}}))
			from = to
			cut.mu.Lock()
			trips = cut.writes
			cut.mu.Unlock()
		}
		want := 3
		if mode == pgx.QueryExecModeDescribeExec {
			want = 5 // this mode asks first
		}
		if trips != want {
			t.Errorf("%v: %d round trips, want %d", mode, trips, want)
		}
	}
}

func (e *env) entry() eventstore.Entry {
	ev, err := events.Encode(Deposited{1})
	e.ok(err)
	ev.Version = 1
	return eventstore.Entry{Event: ev, Stream: "account-a", Seqno: 1, Position: 1}
}

// A server that waits for a synchronous standby that is gone never answers COMMIT. The
// projector gives it up, so that it can meet the new primary, and is exactly once when
// that turns out to be the old one.
func TestCommitThatIsNeverAnswered(t *testing.T) {
	e, srv := newOwnServer(t)
	h := pgcheckpoint.Handler(e.pool, events, e.insert, &pgcheckpoint.Options{TTL: 300 * time.Millisecond})
	p := projector.New(e.store, "p", "account", h)
	run(t, p)
	e.ok(p.Wait(within(t), e.deposit(2)))
	srv.Set(t, "synchronous_standby_names", "nobody")
	token := e.deposit(3)
	givenUp(t, p)
	srv.Set(t, "synchronous_standby_names", "")
	e.ok(p.Wait(within(t), token))
	e.check(5)
}

// The same of a checkpoint that is kept alone, in one statement.
func TestSaveThatIsNeverAnswered(t *testing.T) {
	e, srv := newOwnServer(t)
	var handled atomic.Int64
	h := projector.Sink(pgcheckpoint.NewCheckpoints(e.pool, &pgcheckpoint.Options{TTL: 300 * time.Millisecond}),
		func(_ context.Context, _ projector.Key, batch []eventstore.Entry) error {
			handled.Add(int64(len(batch)))
			return nil
		})
	p := projector.New(e.store, "p", "account", h)
	run(t, p)
	e.ok(p.Wait(within(t), e.deposit(2)))
	srv.Set(t, "synchronous_standby_names", "nobody")
	token := e.deposit(3)
	givenUp(t, p)
	srv.Set(t, "synchronous_standby_names", "")
	e.ok(p.Wait(within(t), token))
	if n := handled.Load(); n < 5 {
		t.Errorf("%d entries handled", n)
	}
}

// newOwnServer keeps the read model on a server of its own, whose settings may be changed.
func newOwnServer(t *testing.T) (*env, *pgtest.Server) {
	t.Helper()
	srv := pgtest.NewServer(t)
	e := newEnv(t)
	pool, err := pgxpool.New(t.Context(), srv.DSN())
	e.ok(err)
	t.Cleanup(pool.Close)
	e.pool, e.schema, e.table = pool, "wattle", "wattle.model"
	e.ok(migrations.Up(t.Context(), pool, ""))
	_, err = pool.Exec(t.Context(), "CREATE TABLE wattle.model (n int GENERATED ALWAYS AS IDENTITY, position bigint)")
	e.ok(err)
	return e, srv
}

// givenUp waits until a step is given up whose answer does not come.
func givenUp(t *testing.T, p *projector.Projector) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !errors.Is(p.Status().LastError, eventstore.ErrUnknown); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it waits on: %+v", p.Status())
		}
	}
}

// A lock that the handler's SQL does not get is no fault of the entry: nothing is parked,
// and all is handled once whoever has it lets go.
func TestLockedIsNoFaultOfTheEntry(t *testing.T) {
	e := newEnv(t)
	e.deposit(3)
	other, err := e.pool.Begin(t.Context())
	e.ok(err)
	defer other.Rollback(context.Background())
	_, err = other.Exec(t.Context(), "LOCK TABLE "+e.table)
	e.ok(err)
	h := pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '10ms'"); err != nil {
			return err
		}
		return e.insert(ctx, tx, ev)
	}, e.options())
	p := projector.New(e.store, "p", "account", h, &projector.Options{Tries: 1})
	_, err = p.CatchUp(within(t), 0)
	var entry *projector.EntryError
	if !errors.Is(err, eventstore.ErrOverloaded) || errors.As(err, &entry) {
		t.Errorf("%v, want ErrOverloaded of no entry", err)
	}
	run(t, p)
	for limit := time.Now().Add(20 * time.Second); !errors.Is(p.Status().LastError, eventstore.ErrOverloaded); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%+v", p.Status())
		}
	}
	e.ok(other.Rollback(t.Context()))
	e.ok(p.Wait(within(t), e.deposit(1)))
	e.check(4)
}
