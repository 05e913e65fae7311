// A store behind a proxy that cuts its dialogue at a byte, and what must hold
// afterwards.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

var cutModes = []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole}

// everyCut calls cut with faults in both directions until one does not strike, because
// what was to be cut is over. In a soak it cuts at every byte in every mode, else at
// every so many bytes to the server and to the client with the modes in turn: a
// connection costs some 50 ms.
func everyCut(t *testing.T, toServer, toClient int64, cut func(f cutproxy.Fault) (struck bool)) {
	t.Helper()
	lanes := [][]cutproxy.Mode{cutModes}
	if soak() {
		toServer, toClient, lanes = 1, 1, [][]cutproxy.Mode{cutModes[:1], cutModes[1:2], cutModes[2:]}
	} else if testing.Short() {
		toServer *= 5
	}
	for _, way := range cutproxy.Directions {
		for _, modes := range lanes {
			for i := int64(0); ; i++ {
				if i > 1<<16 {
					t.Fatal("the dialogue has no end")
				}
				step := toServer
				if way == cutproxy.ToClient {
					step = toClient
				}
				if !cut(cutproxy.Fault{Direction: way, After: i * step, Mode: modes[i%int64(len(modes))]}) {
					break
				}
			}
		}
	}
}

// proxied is a store whose connections pass a proxy, beside one on the same schema
// that goes straight to the server.
type proxied struct {
	counted // straight
	t       *testing.T
	proxy   *cutproxy.Proxy
	name    string        // application_name of the connections that pass the proxy
	bent    *pgxpool.Pool // through the proxy
	cutLog  *pglog.Log    // on it
	cut     *eventstore.Store
}

// cutTTL is how long a frozen session may hold the feed in these tests.
const cutTTL = 300 * time.Millisecond

// newProxied returns it with a pool of conns connections; bend may change its config
// and o.
func newProxied(t *testing.T, conns int32, o pglog.Options, bend func(c *pgxpool.Config)) *proxied {
	t.Helper()
	p := &proxied{counted: freshCounted(t), t: t, name: "cut" + eventstore.NewUUID().String()[:8]}
	o.Schema, o.HolderTTL = p.schema, cutTTL
	p.proxy, p.bent = behindProxy(t, pgtest.DSN(t), func(c *pgxpool.Config) {
		c.MaxConns = conns
		c.ConnConfig.RuntimeParams["application_name"] = p.name
		if bend != nil {
			bend(c)
		}
	})
	var err error
	if p.cutLog, err = pglog.Open(t.Context(), p.bent, &o); err != nil {
		t.Fatal(err)
	}
	p.cut = eventstore.New(p.cutLog, nil)
	o.Senders = 0
	if p.log, err = pglog.Open(t.Context(), p.pool, &o); err != nil {
		t.Fatal(err)
	}
	p.store = eventstore.New(p.log, nil)
	return p
}

// behindProxy returns a proxy to the server of dsn and a pool through it.
func behindProxy(t *testing.T, dsn string, bend func(c *pgxpool.Config)) (*cutproxy.Proxy, *pgxpool.Pool) {
	t.Helper()
	var proxy *cutproxy.Proxy
	made := pool(t, dsn, func(c *pgxpool.Config) {
		var err error
		if proxy, err = cutproxy.New(fmt.Sprintf("%s:%d", c.ConnConfig.Host, c.ConnConfig.Port)); err != nil {
			t.Fatal(err)
		}
		c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks = "127.0.0.1", uint16(proxy.Port()), nil
		bend(c)
	})
	t.Cleanup(proxy.Close) // before the pool is closed, which would wait for what hangs
	return proxy, made
}

// pollFeed reads the feed's end until the test ends: whoever holds it back for longer
// than the TTL is ended.
func (p *proxied) pollFeed() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := p.store.ReadFeed(ctx, 1<<62, eventstore.Filter{}, 1); err != nil && ctx.Err() == nil {
				p.t.Errorf("feed beside: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	p.t.Cleanup(func() { cancel(); wg.Wait() })
}

// dialogue is one kind of append, from the call to its answer.
type dialogue struct {
	name string
	// run sends something new through the proxy and returns what it sent. It calls armed
	// when the part to be cut begins. ctx ends when a black hole has swallowed it.
	run func(ctx context.Context, armed func()) []sent
	// resend sends one of them again, straight. Nil: the store's Append.
	resend func(ctx context.Context, s sent) (replays bool, err error)
	// holds says that a session that vanished holds locks of the caller's SQL, under the
	// caller's time-outs: it is ended before anything is sent again.
	holds bool
	every int64 // bytes between two cuts on the way to the server in an ordinary run; 0: 7
}

// sent is an append and what its caller was told.
type sent struct {
	a      eventstore.Append
	err    error
	commit bool // err is of the caller's own COMMIT, so its outcome is not known
}

// tally counts what the cuts came to.
type tally struct {
	cuts, acked, unknownThere, unknownAbsent, refused int
}

func (n *tally) add(m tally) {
	n.cuts += m.cuts
	n.acked += m.acked
	n.unknownThere += m.unknownThere
	n.unknownAbsent += m.unknownAbsent
	n.refused += m.refused
}

func (n tally) String() string {
	return fmt.Sprintf("%d cuts: %d appends acked, %d unknown and there, %d unknown and absent, %d told that nothing was written",
		n.cuts, n.acked, n.unknownThere, n.unknownAbsent, n.refused)
}

// cutEverywhere cuts a dialogue as everyCut says.
func (p *proxied) cutEverywhere(d dialogue) (total tally) {
	p.t.Helper()
	everyCut(p.t, max(d.every, 7), 14, func(f cutproxy.Fault) bool {
		for range 5 {
			p.warm(d)
			n, struck, failed := p.cutOnce(d, f)
			total.add(n)
			if p.t.Failed() {
				p.t.Fatalf("%s, %v", d.name, f)
			}
			if struck || !failed {
				return struck
			}
			// It met a connection that was broken before, which sent nothing.
		}
		p.t.Fatalf("%s, %v: it does not strike", d.name, f)
		return false
	})
	if total.unknownThere == 0 || total.unknownAbsent+total.refused == 0 {
		p.t.Errorf("%s: %v: the cuts do not meet the dialogue", d.name, total)
	}
	return total
}

// warm runs the dialogue without a fault: the pool has recovered from the one before,
// and its statement is prepared. Each connection that was broken may show it once.
func (p *proxied) warm(d dialogue) {
	p.t.Helper()
	for range p.bent.Config().MaxConns + 1 {
		failed := false
		for _, s := range d.run(p.t.Context(), func() {}) {
			failed = failed || s.err != nil
			p.settled(d, s, "without a fault")
		}
		if !failed {
			return
		}
	}
	p.t.Fatalf("%s: the pool does not recover", d.name)
}

// cutOnce cuts the dialogue once and checks what became of what was sent.
func (p *proxied) cutOnce(d dialogue, f cutproxy.Fault) (n tally, struck, failed bool) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	all := d.run(ctx, func() {
		fired := p.proxy.Arm(f)
		if f.Mode == cutproxy.BlackHole {
			go func() {
				select {
				case <-fired:
					time.AfterFunc(3*time.Millisecond, cancel)
				case <-ctx.Done():
				}
			}()
		}
	})
	if struck = p.proxy.Disarm(); struck {
		n.cuts = 1
	}
	if d.holds {
		p.proxy.Release()
	}
	for _, s := range all {
		failed = failed || s.err != nil
		n.add(p.settled(d, s, f.String()))
	}
	p.proxy.Release()
	return n, struck, failed
}

// settled sends an append again, straight to the server, and holds the first answer
// against what it finds: there once, and nobody was told otherwise.
func (p *proxied) settled(d dialogue, s sent, what string) (n tally) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	resend := d.resend
	if resend == nil {
		resend = func(ctx context.Context, s sent) (bool, error) {
			done, err := p.store.Append(ctx, s.a)
			return err == nil && done.Receipts[0].Replays, err
		}
	}
	replays, err := resend(ctx, s)
	if err != nil {
		p.t.Errorf("%s, %s: resent: %v", d.name, what, err)
		return n
	}
	unknown := errors.Is(s.err, eventstore.ErrUnknown) || s.commit
	switch {
	case s.err == nil && replays:
		n.acked++
	case unknown && replays:
		n.unknownThere++
	case unknown:
		n.unknownAbsent++
	case s.err != nil && !replays && nothingWritten(s.err):
		n.refused++
	default:
		p.t.Errorf("%s, %s: told %v, and it was there: %v", d.name, what, s.err, replays)
	}
	for _, b := range s.a.Batches {
		p.wantOnce(d, b, what)
	}
	return n
}

// nothingWritten says if an error is of those that say that nothing was written and
// that a broken connection may be reported as.
func nothingWritten(err error) bool {
	e, ours := errors.AsType[*eventstore.Error](err)
	return !ours || e.Kind == eventstore.ErrUnavailable // not ours: the context's, or of the caller's SQL
}

// wantOnce counts the entries of a batch.
func (p *proxied) wantOnce(d dialogue, b eventstore.Batch, what string) {
	p.t.Helper()
	page, err := p.store.ReadFrom(p.t.Context(), b.Stream, b.After.Seqno, 0)
	if err != nil {
		p.t.Errorf("%s, %s: %v", d.name, what, err)
		return
	}
	found := 0
	for _, e := range page.Entries {
		if e.BatchID == b.ID {
			found++
		}
	}
	if found != len(b.Events) || page.Entries[0].BatchID != b.ID {
		p.t.Errorf("%s, %s: %d entries of the batch, want %d", d.name, what, found, len(b.Events))
	}
}

// waiting is how many sessions through the proxy wait for a lock.
func (p *proxied) waiting() int64 {
	return number(p.t, p.pool, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = $1", p.name)
}

// lock locks a stream's registry row in a transaction, straight.
func (p *proxied) lock(s eventstore.Stream) (unlock func()) {
	p.t.Helper()
	tx := begin(p.t, p.pool)
	if _, err := tx.Exec(p.t.Context(), "select from "+p.schema+".streams where key = $1 for update", s.Key()); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		p.t.Helper()
		if err := tx.Rollback(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
}

// newStream is a stream that nobody else uses.
func newStream() eventstore.Stream {
	return eventstore.Stream("account-" + strings.ReplaceAll(eventstore.NewUUID().String(), "-", ""))
}
