// The participants and what each has to be able to do.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// participant is one row of the tables.
type participant struct {
	name  string
	about string // how it is used, and what it does not promise
	ours  bool   // the product
	reads bool   // it takes part in the reading
	open  func(context.Context, *setup) (store, error)
}

// participants in the order of the tables. One more layout or sender setting of the product is one more line.
var participants = []participant{
	{name: floorName, open: openFloor,
		about: "bare prepared INSERT of Wattle's columns into a table without index or key; promises nothing"},
	{name: productName, ours: true, reads: true, open: openWattle(wattle{}),
		about: "eventstore.Store over pglog, shared layout, group commit as by default; expected version, epoch and last ID checked, one feed over all streams"},
	{name: "wattle-alone", ours: true, open: openWattle(wattle{senders: -1}),
		about: "the same without group commit: an append is a statement of its own"},
	{name: "wattle-log", ours: true, open: openWattle(wattle{layout: eventstore.Dedicated}),
		about: "the same on dedicated streams: every check and chunked payloads, two tables a log, no feed"},
	{name: "pgnotch", reads: true, open: openPgnotch,
		about: "the shape of pgnotch's statement: a table per log, without a key, the fence in the UPDATE of a registry row; " +
			"keeps seqno and bytes only (no event ID, type, time or metadata), and there is no feed"},
	{name: "message-db", reads: true, open: openMessageDB(16),
		about: "write_message with expected version, called by pgx without a client library; writers spread over 16 categories, as appends to one category wait for each other; its feeds are per category"},
	{name: "message-db-1", reads: true, open: openMessageDB(1),
		about: "the same with all streams in one category, as Wattle's are here"},
	{name: "emmett", reads: true, open: openEmmett,
		about: "emmett-postgresql, appendToStream with expected version from N concurrent async writers in one Node.js process"},
	{name: "watermill", reads: true, open: openWatermill,
		about: "watermill-sql, a queue: no streams, no expected version, nothing to load; one topic, feed is a new consumer group's subscription with acks"},
}

const (
	floorName   = "floor"
	productName = "wattle"
)

// setup is what a participant is opened with.
type setup struct {
	config   *pgxpool.Config // a database of its own, as many connections as there are writers at most
	payloads [][]byte        // JSON objects of one size
	streams  int             // numbered from 0, each appended to by one goroutine at a time
	entries  int             // of each stream after fill
}

func (s *setup) payload(i int) []byte { return s.payloads[i%len(s.payloads)] }

// store is a participant opened in a database of its own. A method that it has nothing for answers
// errors.ErrUnsupported.
type store interface {
	// appends lets writers append events one at a time for d; writer w of n appends to the streams w*k … w*k+k-1 in
	// turn, where k = streams / most writers. It tells how long each acknowledged append took.
	appends(ctx context.Context, writers, k int, d time.Duration) (sample, error)
	// fill writes the entries of every stream.
	fill(ctx context.Context) error
	// loads reads whole streams, one after another, for d; a sample's event is a stream.
	loads(ctx context.Context, d time.Duration) (sample, error)
	// catchUp reads the events of all streams once, in the order and the pages that a consumer gets.
	catchUp(ctx context.Context) (sample, error)
	// scan reads the same table once, plainly, by the same driver.
	scan(ctx context.Context) (sample, error)
	// count is the number of events there.
	count(ctx context.Context) (int64, error)
	// rest gives connections back, so that the next participant has the server to itself.
	rest()
	// version of the participant, empty for what is written here.
	version() string
	close()
}

// sample is one measurement.
type sample struct {
	events int
	times  []time.Duration // of single operations, where they were taken
	took   time.Duration
	cpu    time.Duration // of the client
}

// page is how many events a consumer asks for at a time, of all that let it choose.
const page = 1000

// drive calls do from n goroutines for d. do gets the stream that is the goroutine's turn.
func drive(ctx context.Context, n, k int, d time.Duration, do func(ctx context.Context, stream int) error) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var out sample
	var all sync.WaitGroup
	start, cpu := time.Now(), ownCPU()
	for w := range n {
		all.Go(func() {
			var mine []time.Duration
			for i := 0; time.Since(start) < d; i++ {
				t := time.Now()
				if err := do(ctx, w*k+i%k); err != nil {
					cancel(err)
					break
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			out.times = append(out.times, mine...)
		})
	}
	all.Wait()
	out.events, out.took, out.cpu = len(out.times), time.Since(start), ownCPU()-cpu
	return out, context.Cause(ctx)
}

// once times a reading of many events.
func once(read func() (events int, err error)) (sample, error) {
	start, cpu := time.Now(), ownCPU()
	n, err := read()
	return sample{events: n, took: time.Since(start), cpu: ownCPU() - cpu}, err
}

// ownCPU is the time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inGo is what the participants that this process drives have in common.
type inGo struct {
	*setup
	pool  *pgxpool.Pool
	table string // of the events
}

func openPool(ctx context.Context, s *setup, table string) (*inGo, error) {
	pool, err := pgxpool.NewWithConfig(ctx, s.config)
	if err != nil {
		return nil, err
	}
	return &inGo{setup: s, pool: pool, table: table}, nil
}

// scan leaves the rows undecoded.
func (g *inGo) scan(ctx context.Context) (sample, error) {
	return once(func() (int, error) { return g.read(ctx, "SELECT * FROM "+g.table) })
}

func (g *inGo) read(ctx context.Context, sql string) (n int, err error) {
	rows, err := g.pool.Query(ctx, sql)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		rows.RawValues()
	}
	return n, rows.Err()
}

func (g *inGo) count(ctx context.Context) (n int64, err error) {
	err = g.pool.QueryRow(ctx, "SELECT count(*) FROM "+g.table).Scan(&n)
	return n, err
}

func (g *inGo) fill(context.Context) error              { return errors.ErrUnsupported }
func (g *inGo) catchUp(context.Context) (sample, error) { return sample{}, errors.ErrUnsupported }
func (g *inGo) loads(context.Context, time.Duration) (sample, error) {
	return sample{}, errors.ErrUnsupported
}
func (g *inGo) rest()           { g.pool.Reset() }
func (g *inGo) version() string { return "" }
func (g *inGo) close()          { g.pool.Close() }

// loadsOf is loads by a function that reads one stream and tells how many events it found.
func (g *inGo) loadsOf(ctx context.Context, d time.Duration, load func(ctx context.Context, stream int) (int, error)) (sample, error) {
	return drive(ctx, 1, g.streams, d, func(ctx context.Context, stream int) error {
		n, err := load(ctx, stream)
		if err == nil && n != g.entries {
			err = fmt.Errorf("stream %d: wanted %d events, found %d", stream, g.entries, n)
		}
		return err
	})
}

// exec runs SQL of several statements.
func (g *inGo) exec(ctx context.Context, sql string) error {
	_, err := g.pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}
