// The projection that all processes work on: its store, its read model, what is exact.

package workers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

const (
	name = "p"
	ttl  = 2 * time.Second
	// proceeds is within what everything goes on by itself; it is promised.
	proceeds = ttl + 5*time.Second
)

// categories share their keys, so that the order along a key is one over streams.
var categories = []eventstore.Category{"account", "ledger"}

type event struct{ N int }

var events = schema.New[event](schema.Wire[event]("happened", 1))

// projection is one as a process has it.
type projection struct {
	pool    *pgxpool.Pool
	schema  string
	version int
	log     eventstore.Log
	store   *eventstore.Store
	effects projector.Handler
}

// hooks are what a process does beside its effects.
type hooks struct {
	version int // 0: 1, whose read model is called model; the others' end with the number
	pool    func(*pgxpool.Config)
	log     func(*pglog.Log) eventstore.Log
	store   *eventstore.Options
	by      func() string                                                                     // who, as its effects say
	fails   func(e projector.Event[event]) error                                              // instead of an effect
	within  func(ctx context.Context, tx pgx.Tx)                                              // in the transaction, behind an effect
	step    func(ctx context.Context, s projector.Step, do func(context.Context) error) error // around a step
}

// open connects to the store and read model in a schema.
func open(ctx context.Context, dsn, schemaName string, h hooks) (*projection, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 6
	if h.pool != nil {
		h.pool(config)
	}
	x := &projection{schema: schemaName, version: max(1, h.version)}
	if x.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return nil, err
	}
	log, err := pglog.Open(ctx, x.pool, &pglog.Options{Schema: schemaName, HolderTTL: ttl})
	if err != nil {
		x.pool.Close()
		return nil, err
	}
	x.log = log
	if h.log != nil {
		x.log = h.log(log)
	}
	x.store = eventstore.New(x.log, h.store)
	insert := "INSERT INTO " + x.table() + " (stream_key, stream, seqno, position, by) VALUES ($1, $2, $3, $4, $5)"
	inner := pgcheckpoint.Handler(x.pool, events, func(ctx context.Context, tx pgx.Tx, e projector.Event[event]) error {
		if h.fails != nil {
			if err := h.fails(e); err != nil {
				return err
			}
		}
		by := ""
		if h.by != nil {
			by = h.by()
		}
		_, err := tx.Exec(ctx, insert, e.Stream.Key(), string(e.Stream), int64(e.Seqno), int64(e.Position), by)
		if err == nil && h.within != nil {
			h.within(ctx, tx)
		}
		return err
	}, &pgcheckpoint.Options{Schema: schemaName, TTL: ttl})
	x.effects = &watched{Control: inner.(projector.Control), inner: inner, step: h.step}
	return x, nil
}

func (x *projection) close() {
	_ = x.log.Close()
	x.pool.Close()
}

func (x *projection) table() string {
	if x.version > 1 {
		return pgx.Identifier{x.schema, fmt.Sprint("model", x.version)}.Sanitize()
	}
	return pgx.Identifier{x.schema, "model"}.Sanitize()
}

// projector is one on both categories.
func (x *projection) projector(o projector.Options) *projector.Projector {
	o.Categories, o.Version = categories[1:], x.version
	if o.LeaseTTL == 0 {
		o.LeaseTTL = ttl
	}
	return projector.New(x.store, name, categories[0], x.effects, &o)
}

// watched is a handler whose steps a test sees.
type watched struct {
	projector.Control
	inner projector.Handler
	step  func(ctx context.Context, s projector.Step, do func(context.Context) error) error
}

func (w *watched) Handle(ctx context.Context, s projector.Step) error {
	do := func(ctx context.Context) error { return w.inner.Handle(ctx, s) }
	if w.step == nil {
		return do(ctx)
	}
	return w.step(ctx, s, do)
}

// keys are names of streams, two at least for each of 16 lanes; the first 16 are of one
// lane each.
var keys = sync.OnceValue(func() (all []string) {
	const lanes = 16
	count := map[int]int{}
	rest := []string{}
	for i := 0; len(all) < lanes || len(rest) < 3*lanes; i++ {
		key := fmt.Sprintf("k%d", i)
		lane := projector.LaneOf(eventstore.Stream("account-"+key).Slot(), lanes)
		if count[lane]++; count[lane] == 1 {
			all = append(all, key)
		} else if len(rest) < 3*lanes {
			rest = append(rest, key)
		}
	}
	return append(all, rest...)
})

// writer appends to streams as their owner. Its methods may be called from several
// goroutines at once.
type writer struct {
	store *eventstore.Store
	mu    sync.Mutex
	marks map[eventstore.Stream]eventstore.Mark
	n     int
}

// append appends an event to each of some streams, in one step.
func (w *writer) append(ctx context.Context, streams ...eventstore.Stream) (eventstore.Token, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := eventstore.Append{}
	for _, s := range streams {
		w.n++
		ev, err := events.Encode(event{w.n})
		if err != nil {
			return eventstore.Token{}, err
		}
		a.Batches = append(a.Batches, eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: w.marks[s].Seqno == 0,
			After: w.marks[s], Events: []eventstore.Event{ev}})
	}
	done, err := w.store.Append(ctx, a)
	if err != nil {
		return eventstore.Token{}, err
	}
	for i, s := range streams {
		w.marks[s] = done.Receipts[i].Last
	}
	return done.Token, nil
}

// row is an effect.
type row struct {
	key, stream string
	seqno       eventstore.Seqno
	position    eventstore.Position
}

// exact fails unless the read model is the fold of what each lane's checkpoint covers, as
// of one moment: every effect once and, key by key, in order. It returns their number.
func (x *projection) exact(t testing.TB) int {
	t.Helper()
	lanes, rows := x.moment(t)
	got, want := map[string][]row{}, map[string][]row{}
	for _, r := range rows {
		got[r.key] = append(got[r.key], r)
	}
	n := 0
	for e, err := range x.store.Feed(context.Background(), 0, eventstore.Filter{Categories: categories}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Position <= lanes[projector.LaneOf(e.Stream.Slot(), len(lanes))] {
			want[e.Stream.Key()] = append(want[e.Stream.Key()], row{e.Stream.Key(), string(e.Stream), e.Seqno, e.Position})
			n++
		}
	}
	for _, key := range keys() {
		if !slices.Equal(got[key], want[key]) {
			at := 0
			for at < min(len(got[key]), len(want[key])) && got[key][at] == want[key][at] {
				at++
			}
			t.Errorf("key %s: %d effects, want %d; from number %d on they are %v, want %v", key, len(got[key]), len(want[key]), at, some(got[key][at:]), some(want[key][at:]))
		}
	}
	if len(rows) != n {
		t.Errorf("%d effects, want %d", len(rows), n)
	}
	return n
}

func some(rows []row) []row { return rows[:min(len(rows), 5)] }

// moment reads checkpoints and model in one snapshot.
func (x *projection) moment(t testing.TB) (lanes []eventstore.Position, rows []row) {
	t.Helper()
	err := pgx.BeginTxFunc(context.Background(), x.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		found, err := tx.Query(context.Background(), "SELECT position FROM "+pgx.Identifier{x.schema, "checkpoints"}.Sanitize()+
			" WHERE projector = $1 AND version = $2 ORDER BY lane", name, x.version)
		if err != nil {
			return err
		}
		lanes, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (p eventstore.Position, err error) {
			err = r.Scan((*uint64)(&p))
			return p, err
		})
		if err != nil {
			return err
		}
		found, err = tx.Query(context.Background(), "SELECT stream_key, stream, seqno, position FROM "+x.table()+" ORDER BY n")
		if err != nil {
			return err
		}
		rows, err = pgx.CollectRows(found, func(r pgx.CollectableRow) (one row, err error) {
			err = r.Scan(&one.key, &one.stream, (*uint64)(&one.seqno), (*uint64)(&one.position))
			return one, err
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(lanes) == 0 {
		t.Fatal("no lane has a checkpoint")
	}
	return lanes, rows
}
