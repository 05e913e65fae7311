// The fleet: worker processes as the test that starts them sees them, with appends going
// on and a watch over epochs.

package workers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// fleet is a projection, and processes that work on it.
type fleet struct {
	*testing.T
	x       *projection
	p       *projector.Projector // of this process, which does not work
	w       *writer
	dice    *rand.Rand
	lanes   int
	workers []*worker
	started int
}

func newFleet(t *testing.T, seed uint64, lanes int) *fleet {
	t.Helper()
	pgtest.DSN(t) // starts the server, whose goroutines stay
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	t.Logf("seed %d", seed)
	f := &fleet{T: t, lanes: lanes, dice: rand.New(rand.NewPCG(seed, 1))}
	f.x = newProjection(t)
	f.p = f.x.projector(projector.Options{Lanes: lanes})
	f.w = &writer{store: f.x.store, marks: map[eventstore.Stream]eventstore.Mark{}}
	return f
}

// newProjection makes a store with an empty read model.
func newProjection(t *testing.T) *projection {
	t.Helper()
	_, schema := pgtest.Schema(t)
	x := connect(t, schema, hooks{})
	for _, c := range categories {
		ok(t, x.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}))
	}
	model(t, x)
	return x
}

// model makes an empty read model.
func model(t *testing.T, x *projection) {
	t.Helper()
	_, err := x.pool.Exec(t.Context(), "CREATE TABLE "+x.table()+
		" (n bigint GENERATED ALWAYS AS IDENTITY, stream_key text, stream text, seqno bigint, position bigint, by text)")
	ok(t, err)
}

func connect(t *testing.T, schema string, h hooks) *projection {
	t.Helper()
	x, err := open(t.Context(), pgtest.DSN(t), schema, h)
	ok(t, err)
	t.Cleanup(x.close)
	return x
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// worker is a worker process.
type worker struct {
	f      *fleet
	who    string
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	stderr bytes.Buffer
	ended  chan struct{}
	err    error // how it ended
}

// join starts a process and waits until it works.
func (f *fleet) join(o task) *worker {
	f.Helper()
	f.started++
	o.DSN, o.Schema, o.Lanes, o.Who = pgtest.DSN(f), f.x.schema, f.lanes, fmt.Sprint("w", f.started)
	text, err := json.Marshal(o)
	ok(f, err)
	w := &worker{f: f, who: o.Who, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	w.cmd.Stderr = &w.stderr
	w.in, err = w.cmd.StdinPipe()
	ok(f, err)
	out, err := w.cmd.StdoutPipe()
	ok(f, err)
	ok(f, w.cmd.Start())
	go w.listen(out)
	f.Cleanup(w.kill)
	w.await("ready")
	f.workers = append(f.workers, w)
	return w
}

func (w *worker) listen(out io.Reader) {
	defer close(w.ended)
	defer close(w.lines)
	for in := bufio.NewScanner(out); in.Scan(); {
		w.lines <- in.Text()
	}
	w.err = w.cmd.Wait()
}

// await waits until the process has said something that begins so, and returns the rest.
func (w *worker) await(verb string) string {
	w.f.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case line, open := <-w.lines:
			if !open {
				<-w.ended
				w.f.Fatalf("worker %s ended, %v, before it said %q: %s", w.who, w.err, verb, w.stderr.String())
			}
			if said, rest, _ := strings.Cut(line, " "); said == verb {
				return rest
			}
		case <-limit:
			w.f.Fatalf("worker %s does not say %q: %s", w.who, verb, w.stderr.String())
		}
	}
}

func (w *worker) tell(format string, args ...any) {
	w.f.Helper()
	_, err := fmt.Fprintf(w.in, format+"\n", args...)
	ok(w.f, err)
}

func (w *worker) signal(s syscall.Signal) {
	w.f.Helper()
	ok(w.f, w.cmd.Process.Signal(s))
}

// kill ends it without a word to anybody.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.ended
	_ = w.in.Close()
}

// leave has it end as it should.
func (w *worker) leave() {
	w.f.Helper()
	w.tell("leave")
	w.await("left")
	<-w.ended
	if w.err != nil {
		w.f.Errorf("worker %s: %v: %s", w.who, w.err, w.stderr.String())
	}
}

// pick takes a worker out of those that are at work.
func (f *fleet) pick() *worker {
	i := f.dice.IntN(len(f.workers))
	w := f.workers[i]
	f.workers = append(f.workers[:i:i], f.workers[i+1:]...)
	return w
}

// back puts it there again.
func (f *fleet) back(w *worker) { f.workers = append(f.workers, w) }

// appending appends to streams left to chance until the test ends or stop is called.
func (f *fleet) appending() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	dice := rand.New(rand.NewPCG(f.dice.Uint64(), 2))
	var going sync.WaitGroup
	going.Go(func() {
		for ctx.Err() == nil {
			key := keys()[dice.IntN(len(keys()))]
			streams := []eventstore.Stream{eventstore.Stream(string(categories[dice.IntN(2)]) + "-" + key)}
			if dice.IntN(10) == 0 { // two streams of one key in one step
				streams = []eventstore.Stream{eventstore.Stream("ledger-" + key), eventstore.Stream("account-" + key)}
			}
			if _, err := f.w.append(context.Background(), streams...); err != nil {
				f.Errorf("append: %v", err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); going.Wait() })
	f.Cleanup(stop)
	return stop
}

// proceeds fails unless all lanes are worked on within TTL + 5 s of a moment: each has
// something to handle, appended now, and all of it is passed.
func (f *fleet) proceeds(what string, since time.Time) {
	f.Helper()
	var streams []eventstore.Stream
	for _, key := range keys()[:16] {
		streams = append(streams, eventstore.Stream("account-"+key))
	}
	token, err := f.w.append(f.Context(), streams...)
	ok(f, err)
	ctx, cancel := context.WithDeadline(context.Background(), since.Add(proceeds))
	defer cancel()
	if err := f.p.Wait(ctx, token); err != nil {
		f.Fatalf("%s: %v later not all lanes are worked on: %v", what, proceeds, err)
	}
	f.Logf("%s: all lanes are worked on %v later", what, time.Since(since).Round(10*time.Millisecond))
}

// watch fails the test if the epoch of a lane, or of a lease, ever falls, or changes its
// holder without rising, but for one that is given back. stop returns how often it looked.
func (f *fleet) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	looks := 0
	watching.Go(func() {
		last := map[string]granted{}
		for ctx.Err() == nil {
			now, err := f.granted()
			if err != nil {
				f.Errorf("watch: %v", err)
				return
			}
			looks++
			for what, g := range now {
				was := last[what]
				if g.epoch < was.epoch || g.epoch == was.epoch && g.holder != was.holder && was.holder != nobody && g.holder != nobody {
					f.Errorf("%s: epoch %d of %s after %d of %s", what, g.epoch, g.holder, was.epoch, was.holder)
				}
				last[what] = g
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		watching.Wait()
		if looks < 10 {
			f.Errorf("epochs were looked at %d times only", looks)
		}
	})
	f.Cleanup(stop)
	return stop
}

type granted struct {
	epoch  int64
	holder string
}

var nobody = eventstore.UUID{}.String()

// granted lists the epochs of lanes and leases.
func (f *fleet) granted() (map[string]granted, error) {
	rows, err := f.x.pool.Query(context.Background(), "SELECT 'lane '||lane, epoch, holder::text FROM "+pgx.Identifier{f.x.schema, "checkpoints"}.Sanitize()+
		" UNION ALL SELECT 'lease '||name, epoch, coalesce(holder::text, $1) FROM "+pgx.Identifier{f.x.schema, "leases"}.Sanitize(), nobody)
	if err != nil {
		return nil, err
	}
	all := map[string]granted{}
	var what string
	var g granted
	_, err = pgx.ForEachRow(rows, []any{&what, &g.epoch, &g.holder}, func() error { all[what] = g; return nil })
	return all, err
}

// unlocked waits until the row of a lane can be locked, and returns how long that took.
func (f *fleet) unlocked(lane string) time.Duration {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	began := time.Now()
	tx, err := f.x.pool.Begin(ctx)
	ok(f, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(ctx, "SELECT FROM "+pgx.Identifier{f.x.schema, "checkpoints"}.Sanitize()+" WHERE projector = $1 AND lane = $2::text::int FOR UPDATE", name, lane)
	ok(f, err)
	return time.Since(began)
}

// ends has all workers leave and holds the model against the log.
func (f *fleet) ends() {
	f.Helper()
	f.proceeds("in the end", time.Now())
	for len(f.workers) > 0 {
		f.pick().leave()
	}
	n := f.x.exact(f)
	if all := f.w.n; n != all {
		f.Errorf("%d of %d entries are handled", n, all)
	}
	f.Logf("%d entries, each handled once and in order", n)
}

func outage(err error) bool {
	for _, kind := range []error{eventstore.ErrUnavailable, eventstore.ErrUnknown, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
