// That each effect happens exactly once, whatever fails.

package pgcheckpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

var modes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	pgx.QueryExecModeDescribeExec, pgx.QueryExecModeCacheDescribe}

func TestRunAndWait(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			e := newEnv(t)
			e.deposit(10)
			p := projector.New(e.store, "p", "account", e.handler((&cutter{}).pool(t, mode)))
			run(t, p)
			for n := range 5 {
				e.ok(p.Wait(within(t), e.deposit(3)))
				e.check(10 + 3*(n+1))
			}
		})
	}
}

func TestBatchHandlerMayCopy(t *testing.T) {
	e := newEnv(t)
	e.deposit(100)
	sizes := []int{}
	h := pgcheckpoint.BatchHandler(e.pool, events, func(ctx context.Context, tx pgx.Tx, batch []projector.Event[Event]) error {
		sizes = append(sizes, len(batch))
		_, err := tx.CopyFrom(ctx, pgx.Identifier{e.schema, "model"}, []string{"position"},
			pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) { return []any{int64(batch[i].Position)}, nil }))
		return err
	}, e.options())
	p := projector.New(e.store, "p", "account", h, &projector.Options{PageSize: 40})
	if more, err := p.CatchUp(within(t), 0); more || err != nil {
		t.Fatalf("more %v, %v", more, err)
	}
	if fmt.Sprint(sizes) != "[40 40 20]" {
		t.Errorf("batches %v", sizes)
	}
	e.check(100)
}

// The whole checkpoint comes back as it was saved.
func TestCheckpointRoundTrip(t *testing.T) {
	e := newEnv(t)
	c := pgcheckpoint.NewCheckpoints(e.pool, e.options())
	key := projector.Key{Projector: `it's "odd" \ §`, Version: 7, Lane: 3}
	if found, err := c.Load(t.Context(), key); err != nil || found.Epoch != 0 {
		t.Fatalf("%v, %v", found, err)
	}
	var from projector.Checkpoint
	for i := range 3 {
		to := projector.Checkpoint{Epoch: eventstore.Epoch(i + 1), Holder: eventstore.NewUUID(), Incarnation: eventstore.NewUUID(), Timeline: 1<<32 - 1,
			Position: eventstore.MaxNumber, Mark: eventstore.PositionMark{Position: eventstore.MaxNumber - 1, ID: eventstore.NewUUID()},
			Seqno: eventstore.Seqno(i), Recent: bytes.Repeat([]byte{byte(i)}, i*500)}
		e.ok(c.Save(t.Context(), projector.Step{Key: key, From: from, To: to}))
		found, err := c.Load(t.Context(), key)
		if err != nil || fmt.Sprintf("%#v", found) != fmt.Sprintf("%#v", withRecent(to)) {
			t.Fatalf("%v\nfound %#v\nwant  %#v", err, found, to)
		}
		for name, wrong := range map[string]func(*projector.Checkpoint){
			"epoch":    func(c *projector.Checkpoint) { c.Epoch++ },
			"holder":   func(c *projector.Checkpoint) { c.Holder = eventstore.NewUUID() },
			"position": func(c *projector.Checkpoint) { c.Position-- },
			"seqno":    func(c *projector.Checkpoint) { c.Seqno++ },
			"zero":     func(c *projector.Checkpoint) { *c = projector.Checkpoint{} },
		} {
			other := to
			wrong(&other)
			if err := c.Save(t.Context(), projector.Step{Key: key, From: other, To: to}); !errors.Is(err, eventstore.ErrFenced) {
				t.Errorf("from another %s: %v", name, err)
			}
		}
		from = to
	}
}

func withRecent(c projector.Checkpoint) projector.Checkpoint {
	c.Recent = append([]byte{}, c.Recent...)
	return c
}

// A crash at every step: the model is the fold of the entries up to the
// checkpoint after each, and complete at the end.
func TestCrashAtEveryStep(t *testing.T) {
	e := newEnv(t)
	cut := &cutter{}
	pool := cut.pool(t, pgx.QueryExecModeCacheStatement)
	handled := 0
	for _, crash := range []struct {
		name    string
		onWrite func(c *cutConn, b []byte) error
		handler func(ctx context.Context, tx pgx.Tx, n int) error
		want    error
		done    bool // all the same
	}{
		{name: "begin not sent", onWrite: func(_ *cutConn, b []byte) error {
			return cutIf(bytes.Contains(b, []byte("begin")) || bytes.Contains(b, []byte("stmtcache")))
		}, want: eventstore.ErrUnavailable},
		{name: "handler error", handler: func(_ context.Context, _ pgx.Tx, n int) error { return cutIf(n == 3) }, want: errCut},
		{name: "handler panic", handler: func(_ context.Context, _ pgx.Tx, n int) error {
			if n == 3 {
				panic(errCut)
			}
			return nil
		}, want: errCut},
		{name: "backend killed in handler", handler: func(ctx context.Context, tx pgx.Tx, n int) error {
			if n != 3 {
				return nil
			}
			return e.kill(tx)
		}, want: eventstore.ErrUnavailable},
		{name: "backend killed, handler blind", handler: func(ctx context.Context, tx pgx.Tx, n int) error {
			if n == 5 {
				return e.kill(tx)
			}
			return nil
		}, want: eventstore.ErrUnknown},
		{name: "commit not sent", onWrite: func(_ *cutConn, b []byte) error { return cutIf(isCommit(b)) }, want: eventstore.ErrUnavailable},
		{name: "commit answer lost", onWrite: func(c *cutConn, b []byte) error {
			if isCommit(b) {
				c.loseAnswer()
			}
			return nil
		}, want: eventstore.ErrUnknown, done: true},
	} {
		e.deposit(5)
		n := 0
		h := pgcheckpoint.Handler(pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
			err := e.insert(ctx, tx, ev)
			if n++; err == nil && crash.handler != nil {
				err = crash.handler(ctx, tx, n)
			}
			return err
		}, e.options())
		step := e.next() // one batch: a projector would salvage a part of it
		e.ok(pool.Ping(t.Context()))
		cut.set(crash.onWrite)
		err := h.Handle(within(t), step)
		cut.set(nil)
		if !errors.Is(err, crash.want) {
			t.Errorf("%s: %v, want %v", crash.name, err, crash.want)
		}
		if crash.done {
			handled += 5
		}
		e.check(handled)
		p := projector.New(e.store, "p", "account", e.handler(pool))
		if more, err := p.CatchUp(within(t), 0); more || err != nil {
			t.Errorf("%s: afterwards: more %v, %v", crash.name, more, err)
		}
		if !crash.done {
			handled += 5
		}
		e.check(handled)
	}
}

// next is the step that handles all there is, as one who claims the lane.
func (e *env) next() projector.Step {
	e.t.Helper()
	from, err := e.control().Load(e.t.Context(), pKey)
	e.ok(err)
	to := from
	to.Epoch, to.Holder, to.Incarnation = from.Epoch+1, eventstore.NewUUID(), e.incarnation()
	s := projector.Step{Key: pKey, From: from}
	for entry, err := range e.store.Feed(e.t.Context(), from.Position, eventstore.Filter{}) {
		e.ok(err)
		s.Batch, to = append(s.Batch, entry), to.Past(entry, to)
	}
	s.To = to
	return s
}

func cutIf(yes bool) error {
	if yes {
		return errCut
	}
	return nil
}

// kill ends the session of a transaction.
func (e *env) kill(tx pgx.Tx) error {
	_, err := e.pool.Exec(context.Background(), "SELECT pg_terminate_backend($1, 5000)", int(tx.Conn().PgConn().PID()))
	return err
}

// Run heals by itself from each of these, in one go.
func TestRunHealsAfterCuts(t *testing.T) {
	e := newEnv(t)
	cut := &cutter{}
	pool := cut.pool(t, pgx.QueryExecModeExec)
	p := projector.New(e.store, "p", "account", e.handler(pool))
	stop := run(t, p)
	e.ok(p.Wait(within(t), e.deposit(2)))
	for i := range 6 {
		var once atomic.Bool
		cut.set(func(c *cutConn, b []byte) error {
			switch {
			case i%2 == 0 && isCommit(b) && once.CompareAndSwap(false, true):
				c.loseAnswer()
			case i%2 == 1 && isCommit(b) && once.CompareAndSwap(false, true):
				return errCut
			}
			return nil
		})
		e.ok(p.Wait(within(t), e.deposit(3)))
		cut.set(nil)
		e.check(2 + 3*(i+1))
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// P5: the link cut at every write of the dialogue, first in the direction to the
// server, then the answer.
func TestP5CutAtEveryMessage(t *testing.T) {
	e := newEnv(t)
	cut := &cutter{}
	pool := cut.pool(t, pgx.QueryExecModeExec)
	handled := 0
	for _, answer := range []bool{false, true} {
		for at := 1; ; at++ {
			e.deposit(3)
			n, hit := 0, false
			var mu sync.Mutex
			cut.set(func(c *cutConn, _ []byte) error {
				mu.Lock()
				defer mu.Unlock()
				if n++; n != at {
					return nil
				}
				hit = true
				if answer {
					c.loseAnswer()
					return nil
				}
				return errCut
			})
			p := projector.New(e.store, "p", "account", e.handler(pool), &projector.Options{PollInterval: 10 * time.Millisecond, LeaseTTL: 300 * time.Millisecond})
			stop := run(t, p)
			handled += 3
			e.ok(p.Wait(within(t), eventstore.Token{Incarnation: e.incarnation(), Position: eventstore.Position(handled)}))
			stop()
			cut.set(nil)
			e.check(handled)
			mu.Lock()
			over := !hit || at > 20
			mu.Unlock()
			if over {
				break
			}
		}
	}
}

func (e *env) incarnation() eventstore.UUID {
	p, err := e.store.ReadFeed(e.t.Context(), 0, eventstore.Filter{}, 1)
	e.ok(err)
	return p.Incarnation
}

// Overlapping instances under every isolation level: each effect once.
func TestOverlapsUnderEveryIsolation(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			e := newEnv(t)
			e.deposit(60)
			var wg sync.WaitGroup
			for range 4 {
				config := e.pool.Config()
				config.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
				config.MaxConns = 2
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				e.ok(err)
				t.Cleanup(pool.Close)
				p := projector.New(e.store, "p", "account", e.handler(pool), &projector.Options{PageSize: 5})
				wg.Go(func() {
					for more := true; more; {
						var err error
						if more, err = p.CatchUp(context.Background(), 0); err != nil && !errors.Is(err, eventstore.ErrFenced) {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			e.check(60)
		})
	}
}

// An instance frozen inside its transaction is ended by the server after the
// TTL: its successor waits no longer, and the zombie changes nothing.
func TestFrozenInsideTheTransaction(t *testing.T) {
	e := newEnv(t)
	e.deposit(5)
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o := e.options()
	o.TTL = 300 * time.Millisecond
	mute := &muteLog{Log: e.store.Log().(*memlog.Log)}
	zombie := projector.New(eventstore.New(mute, nil), "p", "account", pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		err := e.insert(ctx, tx, ev)
		once.Do(func() { close(frozen); <-thaw })
		return err
	}, o), &projector.Options{LeaseTTL: o.TTL})
	run(t, zombie)
	<-frozen
	mute.cut.Store(true) // what is frozen renews no lease
	began := time.Now()
	p := projector.New(e.store, "p", "account", e.handler(e.pool), &projector.Options{LeaseTTL: o.TTL})
	run(t, p)
	e.ok(p.Wait(within(t), e.deposit(5)))
	if took := time.Since(began); took > o.TTL+5*time.Second {
		t.Errorf("the successor waited %v", took)
	}
	close(thaw)
	mute.cut.Store(false)
	time.Sleep(4 * o.TTL)
	e.check(10)
	e.ok(p.Wait(within(t), e.deposit(5)))
	e.check(15)
}

// muteLog is a log whose leases cannot be reached while it is cut.
type muteLog struct {
	*memlog.Log
	cut atomic.Bool
}

func (l *muteLog) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	if l.cut.Load() {
		return nil, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}
	}
	return l.Log.UpdateLeases(ctx, u)
}

// A handler that is too slow for the TTL is told so, instead of being tried for ever.
func TestTooSlowForTTL(t *testing.T) {
	e := newEnv(t)
	e.deposit(1)
	o := e.options()
	o.TTL = 50 * time.Millisecond
	p := projector.New(e.store, "p", "account", pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		if _, err := e.pool.Exec(ctx, "SELECT pg_sleep(0.3)"); err != nil { // computes, while its own transaction idles
			return err
		}
		return e.insert(ctx, tx, ev)
	}, o), &projector.Options{Tries: 2, StopOnPoison: true})
	err := p.Run(within(t))
	entry, ok := errors.AsType[*projector.EntryError](err)
	if !ok || entry.Seqno != 1 || !strings.Contains(err.Error(), "TTL") {
		t.Errorf("%v", err)
	}
	e.check(0)
}

// The time-out holds inside the transaction and nothing of it stays in the session.
func TestSettingsEndWithTheTransaction(t *testing.T) {
	e := newEnv(t)
	e.deposit(1)
	config := e.pool.Config()
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	e.ok(err)
	t.Cleanup(pool.Close)
	show := func(q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (v string) {
		e.ok(q.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&v))
		return v
	}
	before, inside := show(pool), ""
	o := e.options()
	o.TTL = 7 * time.Second
	p := projector.New(e.store, "p", "account", pgcheckpoint.Handler(pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		inside = show(tx)
		return e.insert(ctx, tx, ev)
	}, o))
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	if after := show(pool); inside != "7s" || after != before {
		t.Errorf("before %q, inside %q, after %q", before, inside, after)
	}
}

// A read may lose against others, too, where SERIALIZABLE is the default.
func TestLostReadsAreTriedAgain(t *testing.T) {
	e := newEnv(t)
	schema := pgx.Identifier{e.schema}.Sanitize()
	_, err := e.pool.Exec(t.Context(), strings.ReplaceAll(`ALTER TABLE S.checkpoints RENAME TO kept; CREATE SEQUENCE S.reads;
		CREATE FUNCTION S.lost() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('S.reads') < 4 THEN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END IF; RETURN true; END $$;
		CREATE VIEW S.checkpoints AS SELECT * FROM S.kept, S.lost() AS l WHERE l`, "S.", schema+"."))
	e.ok(err)
	_, err = e.pool.Exec(t.Context(), "INSERT INTO "+schema+".kept (projector, version, lane, position, mark_position, mark_id, epoch, holder, incarnation, timeline, seqno, recent) "+
		"VALUES ('p', 1, 0, 7, 7, gen_random_uuid(), 1, gen_random_uuid(), gen_random_uuid(), 0, 0, '')")
	e.ok(err)
	found, err := pgcheckpoint.NewCheckpoints(e.pool, e.options()).Load(t.Context(), projector.Key{Projector: "p", Version: 1})
	if err != nil || found.Position != 7 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestSerializationFailuresAreTriedAgain(t *testing.T) {
	e := newEnv(t)
	e.deposit(3)
	for _, code := range []string{"40001", "40P01"} {
		tries := 0
		p := projector.New(e.store, "p", "account", pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
			if err := e.insert(ctx, tx, ev); err != nil {
				return err
			}
			if tries++; tries <= 3 {
				_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '"+code+"'; END $$")
				return err
			}
			return nil
		}, e.options()))
		if _, err := p.CatchUp(within(t), 0); err != nil {
			t.Fatal(err)
		}
		if tries != 6 {
			t.Errorf("%s: %d calls", code, tries)
		}
		e.deposit(3)
	}
	e.check(6)
	always := projector.New(e.store, "p", "account", pgcheckpoint.Handler(e.pool, events, func(context.Context, pgx.Tx, projector.Event[Event]) error {
		return &pgconn.PgError{Code: "40001"}
	}, e.options()))
	if _, err := always.CatchUp(within(t), 0); !errors.Is(err, eventstore.ErrOverloaded) {
		t.Error(err)
	}
	e.check(6)
}
