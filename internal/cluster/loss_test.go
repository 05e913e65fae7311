// Failover to a standby that lagged: what was acked is lost, and nobody goes on as if
// it were not.

package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// TestFailoverWithLoss: a standby is promoted that has not got the last entries. Then
// its own standby, which has got an entry and not the one before it.
func TestFailoverWithLoss(t *testing.T) {
	a := pgtest.NewServer(t)
	migrated(t, a)
	direct(t, a).Close()
	front, link := pgtest.NewProxy(t, a.Port()), pgtest.NewProxy(t, a.Port())
	b := a.Standby(t, link.Port())
	_, store := open(t, newPool(t, front.DSN()))

	lossAtTheEnd(t, store, front, link, a, b)
	link2 := pgtest.NewProxy(t, b.Port())
	c := b.Standby(t, link2.Port())
	lossBelowTheMark(t, store, front, link2, b, c)
}

// failOver cuts the standby off, lets more be written meanwhile, and promotes it.
func failOver(t *testing.T, front, link *pgtest.Proxy, from, to *pgtest.Server, meanwhile func()) {
	t.Helper()
	from.CaughtUp(t, to)
	link.Point(0)
	link.Cut()
	meanwhile()
	from.KillPostmaster(t)
	to.Promote(t)
	front.Point(to.Port())
}

// lossAtTheEnd: writers and projectors that know more than the new primary.
func lossAtTheEnd(t *testing.T, store *eventstore.Store, front, link *pgtest.Proxy, a, b *pgtest.Server) {
	x, err := aggregate.NewExecutor(t.Context(), store, account, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"alice", "bob", "carol"} {
		execute(t, x, key, 3)
	}
	bare, grown := batch("account-bare", 2), batch("account-grown", 2)
	must(t, store, bare)
	must(t, store, grown)
	apart := newFollowers(t, store, "end", "account-grown")
	beside := project(t, store, poolOf(t, store))

	exhaust(t, store, "categories_id_seq")
	failOver(t, front, link, a, b, func() {
		create(t, store, "lost")
		must(t, store, batch("lost-1", 1))
		execute(t, x, "alice", 3)
		execute(t, x, "bob", 3)
		bare, grown = next(bare, 2), next(grown, 2)
		must(t, store, bare)
		token := must(t, store, grown).Token
		apart.wait(token)
		if err := beside.p.Wait(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	})

	// Others go on with what is there, further than where it had come before.
	_, there := open(t, newPool(t, b.DSN()))
	create(t, there, "found")
	y, err := aggregate.NewExecutor(t.Context(), there, account, nil)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, y, "bob", 5)
	again := batch("account-grown", 4)
	again.Epoch, again.After = 2, eventstore.Mark{Seqno: 2, ID: grown.After.ID}
	grownAgain := must(t, there, again).Token
	must(t, there, batch("account-new", 60))

	attempt := func(what string, want error, do func() error) {
		t.Helper()
		err := do()
		for end := time.Now().Add(resumes); outage(err) && time.Now().Before(end); err = do() {
			time.Sleep(20 * time.Millisecond)
		}
		wantKind(t, what, err, want)
	}
	appending := func(b eventstore.Batch) func() error {
		return func() error { _, err := store.Append(t.Context(), one(b)); return err }
	}
	executing := func(key string) func() error {
		return func() error { _, err := x.Execute(t.Context(), key, 1); return err }
	}
	attempt("a warm writer behind the new head", eventstore.ErrDiverged, appending(next(bare, 1)))
	attempt("a warm writer whose stream was taken over", eventstore.ErrFenced, appending(next(grown, 1)))
	attempt("a warm state behind the new head", eventstore.ErrDiverged, executing("alice"))
	attempt("a warm state of a stream that has grown again", eventstore.ErrDiverged, executing("bob"))
	attempt("a warm state of which nothing was lost", nil, executing("carol"))
	attempt("a category that was lost", eventstore.ErrNoSuchCategory, appending(batch("lost-2", 1)))

	apart.wake("stream", grownAgain)
	apart.diverged()
	if i := slices.IndexFunc(feed(t, there), func(e eventstore.Entry) bool { return e.Stream.Category() == "found" }); i >= 0 {
		t.Fatal("written into a category of another name")
	}
	beside.stop(there) // it lost its checkpoint along with the entries, and goes on behind what is left of both
	checkStreams(t, there, feed(t, there))
}

// lossBelowTheMark: one transaction draws a position, the next draws one, commits and
// is replicated; then the first commits and is not. Readers have passed both.
func lossBelowTheMark(t *testing.T, store *eventstore.Store, front, link *pgtest.Proxy, b, c *pgtest.Server) {
	p := poolOf(t, store)
	eventually(t, "the pool finds the new primary", func() bool { return p.Ping(t.Context()) == nil })
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := pglog.AppendTx(t.Context(), store, tx, one(batch("account-late", 1))); err != nil {
		t.Fatal(err)
	}
	early := batch("account-early", 1)
	token := must(t, store, early).Token
	apart := newFollowers(t, store, "below", "account-early")
	failOver(t, front, link, b, c, func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		apart.wait(token)
	})
	all := feed(t, direct(t, c))
	if last := all[len(all)-1]; last.ID != early.Events[0].ID {
		t.Fatalf("the last entry there is %+v, so this proves nothing", last)
	}
	apart.divergedExcept("stream") // of which nothing was lost
}

// exhaust draws from a sequence what it has logged ahead, so that the next draw is as
// easily lost as any write.
func exhaust(t *testing.T, store *eventstore.Store, sequence string) {
	t.Helper()
	for range 64 {
		var left int
		if err := poolOf(t, store).QueryRow(t.Context(), "select log_cnt from wattle."+sequence).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		exec(t, poolOf(t, store), "select nextval('wattle."+sequence+"')")
	}
	t.Fatal("never exhausted")
}

func execute(t *testing.T, x *aggregate.Executor[int64, int64, deposited], key string, n int) {
	t.Helper()
	for range n {
		if _, err := x.Execute(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// followers are projectors that keep their checkpoints apart from the log: in memory
// and on another server; one follows a single stream.
type followers struct {
	t      *testing.T
	all    map[string]*follower
	stream eventstore.Stream
}

type follower struct {
	*projection
	mu      sync.Mutex
	handled []eventstore.Entry
	passed  int // of these, before the failover
}

func (f *follower) take(batch ...eventstore.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handled = append(f.handled, batch...)
}

func newFollowers(t *testing.T, store *eventstore.Store, name string, stream eventstore.Stream) *followers {
	elsewhere, schema := pgtest.Schema(t)
	fs := &followers{t, map[string]*follower{}, stream}
	add := func(kind string, category eventstore.Category, h func(f *follower) projector.Handler, o *projector.Options) {
		f := &follower{}
		f.projection = run(t, projector.New(store, name+" "+kind, category, h(f), o))
		fs.all[kind] = f
	}
	inMemory := func(f *follower) projector.Handler {
		return projector.Func(func(_ context.Context, batch []eventstore.Entry) error { f.take(batch...); return nil })
	}
	add("memory", "account", inMemory, nil)
	add("stream", "", inMemory, &projector.Options{Stream: stream, PollInterval: time.Hour})
	add("elsewhere", "account", func(f *follower) projector.Handler {
		return pgcheckpoint.Handler(elsewhere, events, func(_ context.Context, _ pgx.Tx, e projector.Event[deposited]) error {
			f.take(e.Entry)
			return nil
		}, &pgcheckpoint.Options{Schema: schema})
	}, nil)
	return fs
}

// wait waits until all have passed a token.
func (fs *followers) wait(token eventstore.Token) {
	fs.t.Helper()
	ctx, cancel := context.WithTimeout(fs.t.Context(), resumes)
	defer cancel()
	for kind, f := range fs.all {
		if err := f.p.Wait(ctx, token); err != nil {
			fs.t.Fatalf("%s: %v", kind, err)
		}
		f.mu.Lock()
		f.passed = len(f.handled)
		f.mu.Unlock()
	}
}

// wake makes one look that has not looked since before the failover and so has met no
// error.
func (fs *followers) wake(kind string, token eventstore.Token) {
	f := fs.all[kind]
	before := f.p.Status().Looked
	ctx, cancel := context.WithCancel(fs.t.Context())
	defer cancel()
	go func() { _ = f.p.Wait(ctx, token) }()
	eventually(fs.t, "it looks", func() bool { return f.p.Status().Looked.After(before) || len(f.done) > 0 })
}

func (fs *followers) diverged() { fs.t.Helper(); fs.divergedExcept("") }

// divergedExcept waits until all but one have stopped, having handled nothing more.
func (fs *followers) divergedExcept(other string) {
	fs.t.Helper()
	for kind, f := range fs.all {
		if kind == other {
			continue
		}
		select {
		case err := <-f.done:
			if !errors.Is(err, eventstore.ErrDiverged) {
				fs.t.Errorf("%s ended with %v", kind, err)
			}
			f.done <- err
		case <-time.After(resumes):
			fs.t.Errorf("%s goes on: %+v", kind, f.p.Status())
		}
		f.mu.Lock()
		if len(f.handled) != f.passed {
			fs.t.Errorf("%s handled %d entries of the other history", kind, len(f.handled)-f.passed)
		}
		f.mu.Unlock()
	}
}
