// Update and steps with a read model between them: who waits for whom, what is one with
// what, and what is said when the outcome is unknown.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

var pKey = projector.Key{Projector: "p", Version: 1}

// register has version 1 of p with so many lanes, none of them claimed.
func (e *env) register(c projector.Control, lanes int) {
	e.t.Helper()
	e.ok(c.Update(e.t.Context(), "p", func([]projector.Version) ([]projector.Version, error) {
		return []projector.Version{{Key: pKey, Lanes: make([]projector.Checkpoint, lanes)}}, nil
	}))
}

func (e *env) control() *pgcheckpoint.Checkpoints {
	return pgcheckpoint.NewCheckpoints(e.pool, e.options())
}

// stepOf claims a lane with one entry of the position.
func stepOf(from projector.Checkpoint, entry eventstore.Entry, position eventstore.Position) projector.Step {
	to := from
	to.Epoch, to.Holder, to.Position = from.Epoch+1, eventstore.UUID{1}, position
	entry.Position = position
	return projector.Step{Key: pKey, From: from, To: to, Batch: []eventstore.Entry{entry}}
}

func keyOf(name string) projector.Parked {
	return projector.Parked{StreamKey: name, Stream: eventstore.Stream("account-" + name), Type: "deposited", Seqno: 1, Count: 1}
}

// state tells in one line what is kept of version 1 and how many rows its model has.
func (e *env) state() string {
	e.t.Helper()
	all, err := e.control().Versions(context.Background(), "p")
	e.ok(err)
	s := ""
	for _, v := range all {
		s += fmt.Sprintf("v%d", v.Key.Version)
		for _, c := range v.Lanes {
			s += fmt.Sprintf(" %d@%d", c.Position, c.Epoch)
		}
		for _, k := range v.Parked {
			s += " " + k.StreamKey
		}
		skipped, err := e.control().Skipped(context.Background(), v.Key)
		e.ok(err)
		s += fmt.Sprintf(" skipped %d ", len(skipped))
	}
	var rows int
	e.ok(e.pool.QueryRow(context.Background(), "SELECT count(*) FROM "+e.table).Scan(&rows))
	return fmt.Sprintf("%srows %d", s, rows)
}

func (e *env) wantState(want string) {
	e.t.Helper()
	if got := e.state(); got != want {
		e.t.Errorf("kept: %s\nwant: %s", got, want)
	}
}

// An Update waits for a step that is under way, from the zero checkpoint too, and is
// given what that has led to: position, parked keys and effects. Then it fences.
func TestUpdateWaitsForAStep(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		e := newEnv(t)
		config := e.pool.Config()
		config.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		e.pool = e.poolOf(config)
		c := e.control()
		e.register(c, 1)
		var from projector.Checkpoint
		for i := range 2 {
			inside, release := make(chan struct{}), make(chan struct{})
			h := pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
				close(inside)
				<-release
				return e.insert(ctx, tx, ev)
			}, e.options())
			s := stepOf(from, e.entry(), eventstore.Position(10*(i+1)))
			s.Park = []projector.Parked{keyOf(fmt.Sprint("k", i))}
			stepped, updated := make(chan error, 1), make(chan error, 1)
			go func() { stepped <- h.Handle(context.Background(), s) }()
			<-inside
			var given string
			go func() {
				updated <- c.Update(context.Background(), "p", func(all []projector.Version) ([]projector.Version, error) {
					given = fmt.Sprint(all[0].Lanes[0].Position, len(all[0].Parked))
					all[0].Fence(eventstore.UUID{})
					return all, nil
				})
			}()
			select {
			case err := <-updated:
				t.Errorf("%s: Update did not wait: %v", level, err)
			case <-time.After(50 * time.Millisecond):
			}
			close(release)
			e.ok(<-stepped)
			e.ok(<-updated)
			if want := fmt.Sprint(s.To.Position, i+1); given != want {
				t.Errorf("%s: Update was given %s, want %s", level, given, want)
			}
			if err := h.Handle(t.Context(), projector.Step{Key: pKey, From: s.To, To: s.To}); !errors.Is(err, eventstore.ErrFenced) {
				t.Errorf("%s: a step from before: %v", level, err)
			}
			var err error
			from, err = c.Load(t.Context(), pKey)
			e.ok(err)
		}
	}
}

// Whatever a step does to parked keys is one with its effects.
func TestStepIsOneTransaction(t *testing.T) {
	e := newEnv(t)
	c := e.control()
	e.register(c, 1)
	fail := errors.New("not this one")
	h := pgcheckpoint.Handler(e.pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		err := e.insert(ctx, tx, ev)
		if ev.Position == 13 {
			return fail
		}
		return err
	}, e.options())
	s := stepOf(projector.Checkpoint{}, e.entry(), 10)
	s.Park, s.Skipped = []projector.Parked{keyOf("a"), keyOf("b")}, []projector.Parked{keyOf("c")}
	e.ok(h.Handle(t.Context(), s))
	e.wantState("v1 10@1 a b skipped 1 rows 1")
	next := stepOf(s.To, e.entry(), 13)
	next.Park, next.Unpark, next.Skipped = []projector.Parked{keyOf("d")}, []string{"a"}, []projector.Parked{keyOf("a")}
	if err := h.Handle(t.Context(), next); !errors.Is(err, fail) {
		t.Error(err)
	}
	e.wantState("v1 10@1 a b skipped 1 rows 1")
	if err := h.Handle(t.Context(), s); !errors.Is(err, eventstore.ErrFenced) { // again
		t.Error(err)
	}
	e.wantState("v1 10@1 a b skipped 1 rows 1")
	next.Batch = nil
	e.ok(h.Handle(t.Context(), next))
	e.wantState("v1 13@2 b d skipped 2 rows 1")
}

// UpdateTx: the read model is emptied and its checkpoints are set back in one.
func TestUpdateTxIsOneTransaction(t *testing.T) {
	e := newEnv(t)
	c := e.control()
	e.register(c, 2)
	s := stepOf(projector.Checkpoint{}, e.entry(), 10)
	s.Park = []projector.Parked{keyOf("a")}
	e.ok(e.handler(e.pool).Handle(t.Context(), s))
	before := "v1 10@1 0@0 a skipped 0 rows 1"
	e.wantState(before)
	reset := func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error) {
		_, err := tx.Exec(ctx, "TRUNCATE "+e.table)
		for i, l := range all[0].Lanes {
			all[0].Lanes[i] = projector.Checkpoint{Epoch: l.Epoch + 1}
		}
		all[0].Parked = nil
		return all, err
	}
	own := errors.New("ours")
	for name, c := range map[string]struct {
		also func(ctx context.Context, tx pgx.Tx) error
		want string
	}{
		"ours":                       {func(context.Context, pgx.Tx) error { return own }, "ours"},
		"its error was not returned": {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "SELECT 1/0"); return nil }, ""},
		"division by zero":           {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1/0"); return err }, ""},
		"not by the handler":         {func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, ""},
		"ended by the projector":     {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, ""},
		"ended the transaction":      {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "ROLLBACK"); return err }, ""},
		"nothing was committed": {func(ctx context.Context, tx pgx.Tx) error {
			_ = e.kill(tx)
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		}, ""},
		"violates foreign key": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+e.second()+" VALUES (1)")
			return err
		}, ""},
		"attempts lost against other": {func(context.Context, pgx.Tx) error { return &pgconn.PgError{Code: "40001"} }, ""},
	} {
		e.exec("DROP TABLE IF EXISTS " + e.second())
		e.exec("CREATE TABLE " + e.second() + " (id int REFERENCES " + pgx.Identifier{e.schema, "skipped"}.Sanitize() + " DEFERRABLE INITIALLY DEFERRED)") // found at COMMIT
		err := e.control().UpdateTx(t.Context(), "p", func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error) {
			all, err := reset(ctx, tx, all)
			return all, errors.Join(err, c.also(ctx, tx))
		})
		if err == nil || !strings.Contains(err.Error(), name) || c.want != "" && !errors.Is(err, own) {
			t.Errorf("%s: %v", name, err)
		}
		e.wantState(before)
	}
	tries := 0
	e.ok(c.UpdateTx(t.Context(), "p", func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error) {
		if tries++; tries < 3 { // and whatever a lost attempt has done is undone
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40P01'; END $$")
			return nil, err
		}
		return reset(ctx, tx, all)
	}))
	e.wantState("v1 0@2 0@1 skipped 0 rows 0")
	if err := c.UpdateTx(t.Context(), "", reset); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
}

// Rows that stay as they are are not written: not even their transaction is another.
func TestUpdateWritesTheDifference(t *testing.T) {
	e := newEnv(t)
	c := e.control()
	e.register(c, 3)
	e.ok(c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		all[0].Parked = []projector.Parked{keyOf("a"), keyOf("b")}
		return append(all, projector.Version{Key: projector.Key{Projector: "p", Version: 2}, Role: projector.Shadow, Lanes: make([]projector.Checkpoint, 1)}), nil
	}))
	rows := func() (text string) {
		e.ok(e.pool.QueryRow(t.Context(), strings.ReplaceAll(`SELECT (SELECT string_agg(lane || ':' || xmin, ' ' ORDER BY version, lane) FROM {s}.checkpoints) || ' ' ||
			(SELECT string_agg(version || ':' || xmin, ' ' ORDER BY version) FROM {s}.projectors) || ' ' || (SELECT string_agg(stream_key || ':' || xmin, ' ' ORDER BY stream_key) FROM {s}.parked)`,
			"{s}", pgx.Identifier{e.schema}.Sanitize())).Scan(&text))
		return text
	}
	before := strings.Fields(rows())
	e.ok(c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) { return all, nil }))
	if after := rows(); after != strings.Join(before, " ") {
		t.Errorf("nothing changed: %v, then %s", before, after)
	}
	e.ok(c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		all[0].Lanes[1].Epoch++
		all[0].Parked[1].Request = projector.Retry
		all[1].Quiet = []uint64{1}
		return all, nil
	}))
	var changed []string
	for i, f := range strings.Fields(rows()) {
		if f != before[i] {
			name, _, _ := strings.Cut(f, ":")
			changed = append(changed, name)
		}
	}
	if got := strings.Join(changed, " "); got != "1 2 b" {
		t.Errorf("changed %s", got)
	}
}

// A process that freezes inside an Update is ended by the server after the TTL: nothing
// has changed, and steps go on.
func TestFrozenInsideAnUpdate(t *testing.T) {
	e := newEnv(t)
	e.register(e.control(), 1)
	o := e.options()
	o.TTL = 300 * time.Millisecond
	frozen, thaw, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- pgcheckpoint.NewCheckpoints(e.pool, o).Update(context.Background(), "p", func([]projector.Version) ([]projector.Version, error) {
			close(frozen)
			<-thaw
			return nil, nil
		})
	}()
	<-frozen
	began := time.Now()
	e.ok(e.handler(e.pool).Handle(within(t), stepOf(projector.Checkpoint{}, e.entry(), 10)))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the step waited %v", took)
	}
	close(thaw)
	if err := <-done; !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("the frozen one: %v", err)
	}
	e.wantState("v1 10@1 skipped 0 rows 1")
}

// Who waits for a lock heeds its context.
func TestUpdateThatWaitsHeedsItsContext(t *testing.T) {
	e := newEnv(t)
	c := e.control()
	e.register(c, 1)
	e.ok(c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Update(ctx, "p", func(all []projector.Version) ([]projector.Version, error) { return all, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second one: %v", err)
		}
		return all, nil
	}))
}

// What comes is one of these kinds, by which the projector goes.
func TestControlErrors(t *testing.T) {
	e := newEnv(t)
	same := func(all []projector.Version) ([]projector.Version, error) { return all, nil }
	calls := func(c *pgcheckpoint.Checkpoints) map[string]error {
		s := stepOf(projector.Checkpoint{}, e.entry(), 10)
		s.Batch, s.Park = nil, []projector.Parked{keyOf("a")}
		_, lane := c.Lane(t.Context(), pKey)
		_, versions := c.Versions(t.Context(), "p")
		_, skipped := c.Skipped(t.Context(), pKey)
		return map[string]error{"Lane": lane, "Versions": versions, "Skipped": skipped, "Update": c.Update(t.Context(), "p", same), "Save": c.Save(t.Context(), s)}
	}
	for name, err := range calls(pgcheckpoint.NewCheckpoints(nil, nil)) {
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s without a pool: %v", name, err)
		}
	}
	for name, err := range calls(pgcheckpoint.NewCheckpoints(e.pool, &pgcheckpoint.Options{Schema: "no such"})) {
		if !errors.Is(err, eventstore.ErrNotMigrated) {
			t.Errorf("%s without a schema: %v", name, err)
		}
	}
	schema := pgx.Identifier{e.schema}.Sanitize()
	e.exec("DROP TABLE " + schema + ".projectors, " + schema + ".parked, " + schema + ".skipped") // as version 2 of the schema is
	for name, err := range calls(e.control()) {
		if !errors.Is(err, eventstore.ErrNotMigrated) {
			t.Errorf("%s before the migration: %v", name, err)
		}
	}
	pool := (&cutter{}).pool(t, pgx.QueryExecModeExec)
	pool.Close()
	for name, err := range calls(pgcheckpoint.NewCheckpoints(pool, e.options())) {
		if !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("%s with a pool that is closed: %v", name, err)
		}
	}
}

// What is read takes one round trip, a step that parks two, a change three.
func TestControlRoundTrips(t *testing.T) {
	e := newEnv(t)
	cut := &cutter{}
	c := pgcheckpoint.NewCheckpoints(cut.pool(t, pgx.QueryExecModeExec), e.options())
	e.register(c, 2)
	kept := projector.Checkpoint{}
	for name, call := range map[string]struct {
		want int
		f    func() error
	}{
		"Lane":     {1, func() error { _, err := c.Lane(t.Context(), pKey); return err }},
		"Versions": {1, func() error { _, err := c.Versions(t.Context(), "p"); return err }},
		"Skipped":  {1, func() error { _, err := c.Skipped(t.Context(), pKey); return err }},
		"Save": {2, func() error {
			s := stepOf(kept, e.entry(), 10)
			s.Batch, s.Park, s.Unpark, s.Skipped = nil, []projector.Parked{keyOf("a"), keyOf("b")}, []string{"a"}, []projector.Parked{keyOf("a")}
			kept = s.To
			return c.Save(t.Context(), s)
		}},
		"Update": {3, func() error {
			return c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
				all[0].Lanes[1].Epoch++
				all[0].Quiet = append(all[0].Quiet, 1)
				return all, nil
			})
		}},
	} {
		cut.set(nil)
		e.ok(call.f())
		cut.mu.Lock()
		if cut.writes != call.want {
			t.Errorf("%s: %d round trips, want %d", name, cut.writes, call.want)
		}
		cut.mu.Unlock()
	}
}

// A standby may lag, or have been the primary once: nothing is told from it.
func TestControlOnAStandby(t *testing.T) {
	srv := pgtest.NewServer(t)
	ctx := within(t)
	standby := srv.Standby(t, srv.Port())
	primary, err := pgxpool.New(ctx, srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(primary.Close)
	if err := migrations.Up(ctx, primary, ""); err != nil {
		t.Fatal(err)
	}
	srv.CaughtUp(t, standby)
	pool, err := pgxpool.New(ctx, standby.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := pgcheckpoint.NewCheckpoints(pool, nil)
	_, load := c.Load(ctx, pKey)
	_, lane := c.Lane(ctx, pKey)
	_, versions := c.Versions(ctx, "")
	_, skipped := c.Skipped(ctx, pKey)
	update := c.Update(ctx, "p", func(all []projector.Version) ([]projector.Version, error) { return all, nil })
	save := c.Save(ctx, projector.Step{Key: pKey, To: projector.Checkpoint{Epoch: 1}, Unpark: []string{"a"}})
	for i, err := range []error{load, lane, versions, skipped, update, save} {
		if !errors.Is(err, eventstore.ErrReadOnly) {
			t.Errorf("%d: %v, want ErrReadOnly", i, err)
		}
	}
}
