// Concurrent histories on PostgreSQL: with nothing in their way, and while sessions
// are ended, connections cut and the server killed.

package pglog_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func soak() bool { return os.Getenv("WATTLE_SOAK") != "" }

// linearSenders are how many statements at once each of the logs sends: few, so that
// appends wait and go together, and one log without group commit.
var linearSenders = []int{1, 2, -1}

// linearHarness opens logs as several processes would: each on a pool of its own.
func linearHarness(dsn string, bend func(c *pgxpool.Config), schema func(t testing.TB) string) logtest.Harness {
	opened := 0
	another := func(t testing.TB, schema string) eventstore.Log {
		p := pool(t, dsn, func(c *pgxpool.Config) {
			c.MaxConns = 6
			c.ConnConfig.RuntimeParams["application_name"] = "linear"
			if bend != nil {
				bend(c)
			}
		})
		l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: schema, Senders: linearSenders[opened%len(linearSenders)]})
		if err != nil {
			t.Fatal(err)
		}
		opened++
		return &store{l, p, schema}
	}
	return logtest.Harness{
		Open:   func(t testing.TB) eventstore.Log { return another(t, schema(t)) },
		Reopen: func(t testing.TB, log eventstore.Log) eventstore.Log { return another(t, log.(*store).schema) },
	}
}

// TestLinear: with nothing in its way a log is linearizable, and no outcome unknown.
func TestLinear(t *testing.T) {
	h := linearHarness(pgtest.DSN(t), nil, func(t testing.TB) string { _, schema := pgtest.Schema(t); return schema })
	logtest.Linear(t, h, logtest.LinearOptions{Histories: linearHistories(40), Logs: 3, Parallel: 4, Limit: 8 * time.Minute})
}

// TestLinearFaults: nor does it answer anything else while its sessions are ended, its
// connections cut, and its server killed and started again.
func TestLinearFaults(t *testing.T) {
	srv, admin := server(t)
	p, err := cutproxy.New("127.0.0.1:" + strconv.Itoa(srv.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	f := &linearFaults{t: t, srv: srv, admin: admin, proxy: p, every: 50}
	if soak() {
		f.every = 500
	}
	through := func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks = "127.0.0.1", uint16(p.Port()), nil
	}
	h := linearHarness(srv.DSN(), through, func(testing.TB) string { return "" })
	logtest.Linear(t, h, logtest.LinearOptions{Histories: linearHistories(24), Logs: 3, Parallel: 4, Limit: 8 * time.Minute, Fault: f.one})
	t.Logf("faults: %d sessions ended, %d connections cut, %d times the server was killed", f.ended, f.cut, f.killed)
	if f.ended == 0 || f.cut == 0 || f.killed == 0 {
		t.Error("a kind of fault did not happen")
	}
}

func linearHistories(n int) int {
	if soak() {
		return 2000
	}
	return n
}

// linearFaults does harm to a server and to the connections to it.
type linearFaults struct {
	t                     testing.TB
	srv                   *pgtest.Server
	admin                 *pgxpool.Pool
	proxy                 *cutproxy.Proxy
	every                 int // how many faults until the server is killed
	n, ended, cut, killed int
}

func (f *linearFaults) one(rng *rand.Rand) {
	switch f.n++; {
	case f.n%f.every == 0:
		if f.killed++; f.killed%2 == 0 {
			f.srv.Immediate(f.t)
		} else {
			f.srv.KillPostmaster(f.t)
		}
		f.srv.Start(f.t)
		f.admin.Reset()
	case f.n%2 == 0:
		f.cut++
		fault := cutproxy.Fault{Direction: cutproxy.ToServer, After: int64(rng.IntN(1500)), Mode: []cutproxy.Mode{cutproxy.FIN, cutproxy.RST}[rng.IntN(2)]}
		if rng.IntN(2) == 0 { // the server has carried it out, the answer does not arrive
			fault.Direction, fault.After = cutproxy.ToClient, int64(rng.IntN(60))
		}
		f.proxy.Arm(fault)
	default:
		tag, err := f.admin.Exec(context.Background(), "select pg_terminate_backend(pid) from (select pid from pg_stat_activity where application_name = 'linear' order by random() limit 1) x")
		if err != nil {
			f.t.Errorf("end a session: %v", err)
		}
		f.ended += int(tag.RowsAffected())
	}
}
