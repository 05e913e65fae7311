// What the tests of this package share: a store in memory, a log that can be
// bent, and a read model that commits like a database.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type Event interface{ event() }

type Deposited struct{ Amount int64 }
type Renamed struct{ Name string }

func (Deposited) event() {}
func (Renamed) event()   {}

var events = schema.New[Event](schema.Wire[Deposited]("deposited", 1), schema.Wire[Renamed]("renamed", 1))

// bentLog is a memlog whose answers a test can change.
type bentLog struct {
	*memlog.Log
	mu       sync.Mutex
	readFeed func(after eventstore.Position, f eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error)
	down     error // answer of all reads
	reads    int   // of feed and streams
	scanned  int   // entries that feed reads looked at, as far as they were returned
}

func (l *bentLog) set(f func(*bentLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *bentLog) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads++; l.down != nil {
		return eventstore.FeedPage{}, l.down
	}
	p, err := l.Log.ReadFeed(ctx, after, f, limit)
	if p.Through.Position > after {
		l.scanned += int(p.Through.Position - after) // one category: positions have no gaps
	}
	if l.readFeed != nil {
		return l.readFeed(after, f, p, err)
	}
	return p, err
}

func (l *bentLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads++; l.down != nil {
		return eventstore.Page{}, l.down
	}
	return l.Log.ReadFrom(ctx, s, after, limit)
}

// env is a store with categories account (trimmed freely) and other.
type env struct {
	t     testing.TB
	log   *bentLog
	store *eventstore.Store
	marks map[eventstore.Stream]eventstore.Mark
}

func newEnv(t testing.TB, o *eventstore.Options) *env {
	t.Helper()
	e := &env{t: t, log: &bentLog{Log: memlog.New(nil)}, marks: map[eventstore.Stream]eventstore.Mark{}}
	e.store = eventstore.New(e.log, o)
	for _, c := range []eventstore.Category{"account", "other"} {
		e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}))
	}
	return e
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// append writes events to a stream, as one batch of its owner.
func (e *env) append(s eventstore.Stream, values ...Event) eventstore.Token {
	e.t.Helper()
	return e.appendCtx(e.t.Context(), s, values...)
}

func (e *env) appendCtx(ctx context.Context, s eventstore.Stream, values ...Event) eventstore.Token {
	e.t.Helper()
	b := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: e.marks[s].Seqno == 0, After: e.marks[s]}
	for _, v := range values {
		ev, err := events.Encode(v)
		e.ok(err)
		b.Events = append(b.Events, ev)
	}
	done, err := e.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
	e.ok(err)
	e.marks[s] = done.Receipts[0].Last
	return done.Token
}

// deposit appends n deposits of 1 to a stream, one by one.
func (e *env) deposit(s eventstore.Stream, n int) (t eventstore.Token) {
	e.t.Helper()
	for range n {
		t = e.append(s, Deposited{1})
	}
	return t
}

// all returns what is in the category's feed.
func (e *env) all(c ...eventstore.Category) []eventstore.Entry {
	e.t.Helper()
	var all []eventstore.Entry
	for entry, err := range eventstore.New(e.log.Log, nil).Feed(context.Background(), 0, eventstore.Filter{Categories: c, AcceptTrimmed: true}) {
		e.ok(err)
		all = append(all, entry)
	}
	return all
}

// database is a read model that commits like one: the effects of a batch and its
// checkpoint become visible together. fail is called at each point of a step; its
// error ends the step as a crash of client or connection would.
type database struct {
	mu     sync.Mutex
	kept   projector.Checkpoint
	model  []eventstore.Position // of the entries handled, in order
	writes int                   // committed steps
	fail   func(point string, e *eventstore.Entry) error
	loads  func() error
}

var errOutage = &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}

func (d *database) Load(context.Context, projector.Key) (projector.Checkpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loads != nil {
		if err := d.loads(); err != nil {
			return projector.Checkpoint{}, err
		}
	}
	return d.kept, nil
}

func (d *database) Handle(ctx context.Context, s projector.Step) error {
	batch := s.Batch
	point := func(name string, e *eventstore.Entry) error {
		if d.fail == nil {
			return ctx.Err()
		}
		return errors.Join(ctx.Err(), d.fail(name, e))
	}
	if err := point("begin", nil); err != nil {
		return err
	}
	var effects []eventstore.Position
	for i := range batch {
		err := projector.Contain(batch[i:i+1], func() error { return point("entry", &batch[i]) })
		if errors.Is(err, eventstore.ErrUnavailable) {
			return errOutage
		}
		if err != nil {
			return err
		}
		effects = append(effects, batch[i].Position)
	}
	if err := point("commit", nil); err != nil {
		return err
	}
	if err := d.commit(s.Key, s.From, s.To, effects); err != nil {
		return err
	}
	return point("committed", nil)
}

func (d *database) commit(key projector.Key, from, to projector.Checkpoint, effects []eventstore.Position) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.kept.Same(from) {
		return projector.FencedError(key, from, d.kept)
	}
	d.kept, d.model, d.writes = to, append(d.model, effects...), d.writes+1
	return nil
}

// get returns what is there, safely beside a Run.
func (d *database) get() (kept projector.Checkpoint, handled, writes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept, len(d.model), d.writes
}

// check holds model and checkpoint against the log: model = fold(entries ≤ checkpoint).
func (d *database) check(t testing.TB, all []eventstore.Entry) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var want []eventstore.Position
	for _, e := range all {
		if e.Position <= d.kept.Position {
			want = append(want, e.Position)
		}
	}
	if !slices.Equal(d.model, want) {
		t.Fatalf("checkpoint %v: model has %d entries %v, want %d %v", d.kept, len(d.model), clip(d.model), len(want), clip(want))
	}
}

func clip(p []eventstore.Position) []eventstore.Position { return p[max(0, len(p)-20):] }

// run starts p.Run and returns a function that stops it and gives its error.
func run(t testing.TB, p *projector.Projector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// within is a context that ends the test rather than hang it.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wantKind(t testing.TB, err, kind error) *eventstore.Error {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want %v", err, kind)
	}
	e, _ := errors.AsType[*eventstore.Error](err)
	return e
}

// announcer hands hints to its subscribers, as the test says.
type announcer struct {
	mu     sync.Mutex
	subs   map[int]func(eventstore.Announcement)
	n      int
	refuse error
	held   []eventstore.Announcement // announced, not delivered
	direct bool                      // deliver at once
}

func (a *announcer) Announce(_ context.Context, hints []eventstore.Announcement) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = append(a.held, hints...)
	if a.direct {
		for _, h := range hints {
			a.deliverLocked(h)
		}
	}
	return nil
}

func (a *announcer) Subscribe(_ context.Context, _ []eventstore.Category, f func(eventstore.Announcement)) (func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		return nil, a.refuse
	}
	if a.subs == nil {
		a.subs = map[int]func(eventstore.Announcement){}
	}
	a.n++
	id := a.n
	a.subs[id] = f
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.subs, id)
	}, nil
}

func (a *announcer) deliver(h eventstore.Announcement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deliverLocked(h)
}

func (a *announcer) deliverLocked(h eventstore.Announcement) {
	for _, id := range slices.Sorted(maps.Keys(a.subs)) {
		a.subs[id](h)
	}
}

func stream(i int) eventstore.Stream { return eventstore.Stream(fmt.Sprintf("account-%d", i)) }
