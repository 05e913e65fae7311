// Failover to a synchronous standby: nothing that was acked is lost, and everything
// goes on by itself.

package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

type deposited struct{ Amount int64 }

var events = schema.New[deposited](schema.Wire[deposited]("deposited", 1))

// account is a balance; a command is an amount.
var account = aggregate.Type[int64, int64, deposited]{Category: "account", Schema: events, Decider: aggregate.Decider[int64, int64, deposited]{
	Initial: func() int64 { return 0 },
	Decide:  func(_, amount int64) ([]deposited, error) { return []deposited{{amount}}, nil },
	Evolve:  func(s int64, e deposited) int64 { return s + e.Amount },
}}

// TestFailoverSynchronous: the primary is killed, then the next one is cut off from
// its clients and its standby while it runs on. Clients reach the new one through the
// address that they know.
func TestFailoverSynchronous(t *testing.T) {
	a := pgtest.NewServer(t)
	migrated(t, a)
	direct(t, a).Close()
	front, link := pgtest.NewProxy(t, a.Port()), pgtest.NewProxy(t, a.Port())
	b := standbyOf(t, a, link)

	p := newPool(t, front.DSN())
	_, store := open(t, p)
	w := start(t, store, 8, 2)
	model := project(t, store, p)
	deposits := deposit(t, store)
	w.working("start", time.Now())

	// Whose postmaster is killed ends its wait for the standby and shows for a moment what
	// the standby has not: nobody is to reach it then, as when the machine is gone.
	front.Point(0)
	front.Cut()
	a.KillPostmaster(t)
	front.Point(b.Port())
	b.Promote(t)
	w.working("the primary was killed", time.Now())

	link2 := pgtest.NewProxy(t, b.Port())
	c := standbyOf(t, b, link2)
	cut := pgtest.NewProxy(t, b.Port()) // a client that still reaches the old one
	_, late := open(t, newPool(t, cut.DSN()))
	w.working("the second standby", time.Now())
	link2.Point(0)
	link2.Cut()
	front.Point(c.Port())
	front.Cut()
	c.Promote(t)
	w.working("the primary was cut off", time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := late.Append(ctx, one(batch("account-late", 1))); !outage(err) {
		t.Errorf("append to the primary that was cut off: %v", err)
	}

	there := direct(t, c)
	deposits.halt()
	w.stop(there)
	deposits.stop(there)
	model.stop(there)
	if h, err := there.Head(t.Context(), "account-late"); err != nil || h.Last.Seqno != 0 {
		t.Errorf("what was not acked by the old primary: %+v %v", h, err)
	}
}

// standbyOf makes a standby that a commit waits for.
func standbyOf(t *testing.T, s *pgtest.Server, link *pgtest.Proxy) *pgtest.Server {
	t.Helper()
	standby := s.Standby(t, link.Port())
	s.Set(t, "synchronous_standby_names", standby.Name())
	return standby
}

// projection is a projector with its read model in the same database.
type projection struct {
	t      testing.TB
	p      *projector.Projector
	cancel context.CancelFunc
	done   chan error
}

// project runs a projector whose model is a table of the positions handled, without a
// key, so that a double effect is seen.
func project(t testing.TB, store *eventstore.Store, p *pgxpool.Pool, options ...*projector.Options) *projection {
	t.Helper()
	exec(t, p, "create table if not exists wattle.model (n bigint generated always as identity, position bigint not null)")
	h := pgcheckpoint.Handler(p, events, func(ctx context.Context, tx pgx.Tx, e projector.Event[deposited]) error {
		_, err := tx.Exec(ctx, "insert into wattle.model (position) values ($1)", int64(e.Position))
		return err
	})
	return run(t, projector.New(store, "model", "account", h, options...))
}

func run(t testing.TB, p *projector.Projector) *projection {
	x := &projection{t: t, p: p, done: make(chan error, 1)}
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { x.done <- p.Run(ctx) })
	t.Cleanup(func() { x.cancel(); wg.Wait() })
	return x
}

// stop waits until the projector has everything that is there, ends it, and holds its
// model against the log.
func (x *projection) stop(there *eventstore.Store) {
	x.t.Helper()
	all := feed(x.t, there)
	page, err := there.ReadFeed(x.t.Context(), 0, eventstore.Filter{}, 1)
	if err != nil {
		x.t.Fatal(err)
	}
	token := eventstore.Token{Incarnation: page.Incarnation, Position: all[len(all)-1].Position}
	for at, err := x.p.Status().Position, error(context.DeadlineExceeded); err != nil; at = x.p.Status().Position {
		ctx, cancel := context.WithTimeout(x.t.Context(), resumes)
		err = x.p.Wait(ctx, token)
		cancel()
		if err != nil && x.p.Status().Position == at { // a backlog may take its time, standing still may not
			x.t.Errorf("the projector is behind: %v", err)
			break
		}
	}
	x.cancel()
	if err := <-x.done; err != context.Canceled {
		x.t.Errorf("the projector ended with %v", err)
	}
	checkModel(x.t, poolOf(x.t, there), all)
}

// checkModel: each effect once, in order along each stream.
func checkModel(t testing.TB, p *pgxpool.Pool, all []eventstore.Entry) {
	t.Helper()
	rows, err := p.Query(context.Background(), "select position from wattle.model order by n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(got) != len(all) {
		t.Fatalf("%d effects of %d entries, %v", len(got), len(all), err)
	}
	at := map[eventstore.Position]eventstore.Entry{}
	for _, e := range all {
		at[e.Position] = e
	}
	last := map[eventstore.Stream]eventstore.Seqno{}
	for i, position := range got {
		e, ok := at[eventstore.Position(position)]
		if !ok || e.Seqno != last[e.Stream]+1 {
			t.Fatalf("effect %d is of position %d, entry %d of %q, behind entry %d", i, position, e.Seqno, e.Stream, last[e.Stream])
		}
		last[e.Stream] = e.Seqno
	}
}

// depositor executes commands with IDs, each until it is answered.
type depositor struct {
	t      testing.TB
	cancel context.CancelFunc
	wg     sync.WaitGroup
	acked  int64
	tried  int64
	retry  int
}

func deposit(t testing.TB, store *eventstore.Store) *depositor {
	t.Helper()
	x, err := aggregate.NewExecutor(t.Context(), store, account, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &depositor{t: t}
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { d.cancel(); d.wg.Wait() })
	d.wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			d.tried++
			for ctx.Err() == nil {
				each, cancel := context.WithTimeout(context.Background(), patience)
				_, err := x.Execute(each, "executed", 1, aggregate.CommandKey(fmt.Sprint("command ", n)))
				cancel()
				if err == nil {
					d.acked++
					break
				}
				if d.retry++; !outage(err) {
					t.Errorf("execute: %v", err)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	})
	return d
}

func (d *depositor) halt() { d.cancel(); d.wg.Wait() }

// stop holds the balance against the commands.
func (d *depositor) stop(there *eventstore.Store) {
	d.t.Helper()
	d.halt()
	x, err := aggregate.NewExecutor(d.t.Context(), there, account, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	balance, m, err := x.Load(d.t.Context(), "executed")
	if err != nil || balance < d.acked || balance > d.tried {
		d.t.Errorf("balance %d at %v (%v) after %d commands acked of %d", balance, m, err, d.acked, d.tried)
	}
	d.t.Logf("%d commands acked of %d, %d sent again", d.acked, d.tried, d.retry)
}
