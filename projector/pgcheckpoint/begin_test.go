// Rebuilds from the snapshots of an aggregate whose streams were trimmed, store and read
// model in one PostgreSQL.

package pgcheckpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

type account struct{ Fold int64 }

// deposits is an aggregate that takes amounts.
var deposits = aggregate.Type[account, int64, Event]{Category: "deposit", Schema: events, Snapshots: aggregate.Snapshots{Every: 1000},
	Decider: aggregate.Decider[account, int64, Event]{
		Initial: func() account { return account{} },
		Decide:  func(_ account, amount int64) ([]Event, error) { return []Event{Deposited{amount}}, nil },
		Evolve:  func(a account, e Event) account { return account{fold(a.Fold, e.(Deposited).Amount)} },
	}}

func fold(f, amount int64) int64 { return (f*31 + amount) % 1_000_003 }

// applyDeposit is a handler as users write it; it also refuses what does not follow.
func (e *env) applyDeposit(table string) func(context.Context, pgx.Tx, projector.Event[Event]) error {
	return func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		if sn, ok := ev.Snapshot(); ok {
			var kept struct{ State account }
			if err := json.Unmarshal(sn.Data, &kept); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, $3) ON CONFLICT (stream) DO UPDATE SET seqno = $2, fold = $3",
				string(ev.Stream), int64(sn.At.Seqno), kept.State.Fold)
			return err
		}
		if ev.Seqno == 1 {
			_, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, 1, $2)", string(ev.Stream), fold(0, ev.Value.(Deposited).Amount))
			return err
		}
		tag, err := tx.Exec(ctx, "UPDATE "+table+" SET seqno = $2, fold = (fold*31 + $3) % 1000003 WHERE stream = $1 AND seqno = $2 - 1",
			string(ev.Stream), int64(ev.Seqno), ev.Value.(Deposited).Amount)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("entry %d of %s does not follow what is there", ev.Seqno, ev.Stream)
		}
		return err
	}
}

func TestRebuildFromSnapshots(t *testing.T) {
	for seed := range int64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { rebuildFromSnapshots(t, rand.New(rand.NewSource(seed))) })
	}
}

func rebuildFromSnapshots(t *testing.T, rng *rand.Rand) {
	e := onPostgres(t)
	x, err := aggregate.NewExecutor(t.Context(), e.store, deposits, nil)
	e.ok(err)
	snapshotter := projector.NewSnapshotter(e.store, "s", "deposit", pgcheckpoint.NewCheckpoints(e.pool, e.options()), projector.SnapshotOptions{
		Take: func(ctx context.Context, s eventstore.Stream) (eventstore.Mark, error) {
			return x.Snapshot(ctx, s.Key())
		},
		Every: uint64(1 + rng.Intn(3)), KeepEntries: uint64(rng.Intn(2))})
	deposit := func(n int) {
		for range n {
			_, err := x.Execute(t.Context(), fmt.Sprint(rng.Intn(6)), int64(rng.Intn(1000)))
			e.ok(err)
		}
	}
	deposit(30)
	for version := 1; version <= 3; version++ {
		caughtUp(t, snapshotter)
		table := pgx.Identifier{e.schema, fmt.Sprint("deposits", version)}.Sanitize()
		_, err := e.pool.Exec(t.Context(), "CREATE TABLE "+table+" (stream text PRIMARY KEY, seqno bigint, fold bigint)")
		e.ok(err)
		h := pgcheckpoint.Handler(e.pool, events, e.applyDeposit(table), e.options())
		o := &projector.Options{Snapshots: true, Version: version, PageSize: 1 + rng.Intn(5), Lanes: version, NoHold: version > 1}
		for range 4 {
			if _, err := projector.New(e.store, "d", "deposit", h, o).CatchUp(within(t), 1); err != nil {
				t.Fatal(err)
			}
			deposit(5)
			caughtUp(t, snapshotter)
		}
		if version > 1 { // a shadow stays below the live one
			caughtUp(t, projector.New(e.store, "d", "deposit", pgcheckpoint.Handler(e.pool, events, e.applyDeposit(pgx.Identifier{e.schema, "deposits1"}.Sanitize()), e.options()),
				&projector.Options{Snapshots: true}))
		}
		caughtUp(t, projector.New(e.store, "d", "deposit", h, o))
		e.failedOver(projector.Key{Projector: "d", Version: version}, version)
		caughtUp(t, projector.New(e.store, "d", "deposit", h, o))
		for i := range 6 {
			want, at, err := x.Load(t.Context(), fmt.Sprint(i))
			e.ok(err)
			var seqno, sum int64
			err = e.pool.QueryRow(t.Context(), "SELECT seqno, fold FROM "+table+" WHERE stream = $1", fmt.Sprintf("deposit-%d", i)).Scan(&seqno, &sum)
			if at.Seqno > 0 && (err != nil || seqno != int64(at.Seqno) || sum != want.Fold) {
				t.Errorf("version %d: deposit-%d is %d at %d, %v, want %+v at %d", version, i, sum, seqno, err, want, at.Seqno)
			}
		}
	}
}

// failedOver makes the checkpoints of all lanes as if the server had failed over since,
// so that what was handled is compared with the digests.
func (e *env) failedOver(key projector.Key, lanes int) {
	e.t.Helper()
	c := pgcheckpoint.NewCheckpoints(e.pool, e.options())
	for key.Lane = range lanes {
		kept, err := c.Load(e.t.Context(), key)
		e.ok(err)
		other := kept
		other.Timeline++
		e.ok(c.Save(e.t.Context(), projector.Step{Key: key, From: kept, To: other}))
	}
}

func caughtUp(t *testing.T, p *projector.Projector) {
	t.Helper()
	if more, err := p.CatchUp(within(t), 0); more || err != nil {
		t.Fatalf("more %v, %v", more, err)
	}
}
