// What the tests of lanes and workers share: a read model that several workers keep
// together, and workers that can be killed and frozen.

package projector_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// ledger is a read model that commits with its checkpoints, shared by workers. It notes
// what was handled, and what is wrong with that.
type ledger struct {
	projector.MemoryCheckpoints
	mu      sync.Mutex
	handled map[eventstore.Position]int
	last    map[string]eventstore.Position // by stream key
	steps   int                            // with entries
	faults  []string
	loud    int // entries that were not quiet
}

func newLedger() *ledger {
	return &ledger{handled: map[eventstore.Position]int{}, last: map[string]eventstore.Position{}}
}

// Handle does a step, or answers ErrFenced.
func (l *ledger) Handle(ctx context.Context, s projector.Step) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Save(ctx, s); err != nil {
		return err
	}
	if len(s.Batch) > 0 {
		l.steps++
	}
	for _, e := range s.Batch {
		l.note(ctx, e)
	}
	return nil
}

func (l *ledger) note(ctx context.Context, e eventstore.Entry) {
	key := e.Stream.Key()
	if l.handled[e.Position]++; l.handled[e.Position] > 1 {
		l.faults = append(l.faults, fmt.Sprintf("position %d of %s handled %d times", e.Position, key, l.handled[e.Position]))
	}
	if e.Position < l.last[key] {
		l.faults = append(l.faults, fmt.Sprintf("position %d of %s handled after %d", e.Position, key, l.last[key]))
	}
	l.last[key] = e.Position
	if !projector.Quiet(ctx, e) {
		l.loud++
	}
}

// wiped empties the model.
func (l *ledger) wiped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handled, l.last = map[eventstore.Position]int{}, map[string]eventstore.Position{}
}

// stepped is how many steps had entries.
func (l *ledger) stepped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.steps
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.handled)
}

// exact fails if the model is not that of these entries, each handled once, in order.
func (l *ledger) exact(t testing.TB, want []eventstore.Entry) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	for _, e := range want {
		if l.handled[e.Position] != 1 {
			t.Errorf("entry %d of %s at position %d handled %d times", e.Seqno, e.Stream, e.Position, l.handled[e.Position])
		}
	}
	if len(l.handled) != len(want) {
		t.Errorf("%d entries handled, want %d", len(l.handled), len(want))
	}
}

// worker is a process that works on a ledger: before is called before a step commits,
// after when it has; an error stands for a lost connection.
type worker struct {
	*ledger
	before, after func(ctx context.Context, s projector.Step) error
}

func (w *worker) Handle(ctx context.Context, s projector.Step) error {
	if w.before != nil {
		if err := w.before(ctx, s); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.ledger.Handle(ctx, s); err != nil || w.after == nil {
		return err
	}
	return w.after(ctx, s)
}

// workerProcess is a worker that runs.
type workerProcess struct {
	p    *projector.Projector
	kill func()       // without a word to anybody
	stop func() error // as it should be
	dead *silent
}

// silent is a log whose leases cannot be reached any more.
type silent struct {
	*bentLog
	mu  sync.Mutex
	cut bool
}

func (s *silent) UpdateLeases(ctx context.Context, u eventstore.LeaseUpdate) ([]eventstore.Lease, error) {
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	if cut {
		return nil, errOutage
	}
	return s.Log.UpdateLeases(ctx, u)
}

// start starts a worker of a projector.
func (e *env) start(h projector.Handler, o projector.Options) *workerProcess {
	log := &silent{bentLog: e.log}
	p := projector.New(eventstore.New(log, nil), "p", "account", h, &o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	pr := &workerProcess{p: p, dead: log}
	pr.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	pr.kill = func() {
		log.mu.Lock()
		log.cut = true
		log.mu.Unlock()
		_ = pr.stop()
	}
	e.t.Cleanup(func() { _ = pr.stop() })
	return pr
}

// spread appends n deposits to streams of as many keys.
func (e *env) spread(n, keys int) (t eventstore.Token) {
	e.t.Helper()
	for i := range n {
		t = e.append(eventstore.Stream(fmt.Sprintf("account-%d", i%keys)), Deposited{1})
	}
	return t
}

// lanes returns how many lanes each process works on.
func lanes(all ...*workerProcess) (n []int) {
	for _, pr := range all {
		n = append(n, len(pr.p.Status().Lanes))
	}
	return n
}

// eventually waits for something to be so, for a bounded time.
func eventually(t testing.TB, most time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}
