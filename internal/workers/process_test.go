// The worker process: this test binary run again, told by lines on its standard input
// what to do. It says on its standard output what has come of it.

package workers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// taskVariable is the environment variable that makes the binary a worker.
const taskVariable = "WATTLE_TEST_WORKER"

// task is what a worker is told at the start.
type task struct {
	DSN, Schema string
	Who         string
	Lanes       int
	Call        bool          // it does not run, but catches up whenever it is called
	Slow        time.Duration // of each effect
}

// process is a worker process.
type process struct {
	task
	x       *projection
	p       *projector.Projector
	freeze  atomic.Value // string: where it is to freeze next, "before" or "inside" a transaction
	call    atomic.Int64 // number of the call
	done    atomic.Int64 // effects of steps that were answered, in this call
	unknown atomic.Int64 // and of those whose outcome nobody knows
	output  sync.Mutex
}

func processMain(text string) int {
	w := &process{}
	if err := w.open(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer w.x.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	if !w.Call {
		go func() { ended <- w.p.Run(ctx) }()
	}
	commands := make(chan string)
	go w.read(commands)
	w.say("ready")
	for {
		select {
		case err := <-ended:
			fmt.Fprintln(os.Stderr, "Run ended:", err)
			return 1
		case command, open := <-commands:
			verb, rest, _ := strings.Cut(command, " ")
			switch {
			case !open:
				return 0 // whoever started it is gone
			case verb == "leave":
				cancel()
				if !w.Call {
					if err := <-ended; !errors.Is(err, context.Canceled) {
						fmt.Fprintln(os.Stderr, "Run ended:", err)
						return 1
					}
				}
				w.say("left")
				return 0
			case verb == "freeze":
				w.freeze.Store(rest)
			case verb == "call":
				w.catchUp(rest)
			case verb == "lanes":
				var n int
				_, _ = fmt.Sscan(rest, &n)
				w.say("lanes %v", w.p.SetLanes(ctx, n))
			}
		}
	}
}

func (w *process) open(text string) error {
	if err := json.Unmarshal([]byte(text), &w.task); err != nil {
		return err
	}
	w.freeze.Store("")
	var err error
	w.x, err = open(context.Background(), w.DSN, w.Schema, hooks{
		by:     func() string { return fmt.Sprintf("%s/%d", w.Who, w.call.Load()) },
		within: w.within,
		step:   w.step,
	})
	if err != nil {
		return err
	}
	w.p = w.x.projector(projector.Options{Lanes: w.Lanes, PageSize: 20, PollInterval: 50 * time.Millisecond})
	return nil
}

func (w *process) read(commands chan<- string) {
	defer close(commands)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, err)
			}
			return
		}
		commands <- strings.TrimSpace(line)
	}
}

// say is one write, so that a process that is killed says a thing or does not.
func (w *process) say(format string, args ...any) {
	w.output.Lock()
	defer w.output.Unlock()
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " | ")
	_, _ = os.Stdout.WriteString(text + "\n")
}

// current is the step that a process is at, in its context.
type current struct {
	lane  int
	froze bool
}

type currentKey struct{}

// stop freezes the whole process until somebody continues it.
func (w *process) stop(at *current) {
	at.froze = true
	w.say("frozen %d", at.lane)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	time.Sleep(50 * time.Millisecond) // the signal may come a moment after the call returns
}

func (w *process) step(ctx context.Context, s projector.Step, do func(ctx context.Context) error) error {
	if len(s.Batch) == 0 {
		return do(ctx)
	}
	at := &current{lane: s.Key.Lane}
	if w.freeze.CompareAndSwap("before", "") {
		w.stop(at)
	}
	err := do(context.WithValue(ctx, currentKey{}, at))
	switch {
	case err == nil:
		w.done.Add(int64(len(s.Batch)))
	case errors.Is(err, eventstore.ErrUnknown):
		w.unknown.Add(int64(len(s.Batch)))
	}
	if at.froze {
		w.say("thawed %s", outcome(err))
	}
	return err
}

// outcome says how the step ended that a process was frozen in.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, eventstore.ErrFenced):
		return "fenced"
	}
	return err.Error()
}

// within is called in the transaction, behind an effect.
func (w *process) within(ctx context.Context, tx pgx.Tx) {
	if w.Slow > 0 {
		_, _ = tx.Exec(ctx, "SELECT pg_sleep($1)", w.Slow.Seconds())
	}
	if at, ok := ctx.Value(currentKey{}).(*current); ok && w.freeze.CompareAndSwap("inside", "") {
		w.stop(at)
	}
}

// called is what comes of a call.
type called struct {
	By            string
	More          bool
	Err           string
	Took          time.Duration
	Done, Unknown int64
	Leaked        string
}

// catchUp is one invocation of a function.
func (w *process) catchUp(budget string) {
	limit, err := time.ParseDuration(budget)
	if err != nil {
		limit = 200 * time.Millisecond
	}
	_ = w.x.pool.Ping(context.Background()) // so that the pool's own goroutines are there
	before := goleak.IgnoreCurrent()
	w.call.Add(1)
	w.done.Store(0)
	w.unknown.Store(0)
	began := time.Now()
	c := called{By: fmt.Sprintf("%s/%d", w.Who, w.call.Load())}
	c.More, err = w.p.CatchUp(context.Background(), limit)
	c.Took, c.Done, c.Unknown = time.Since(began), w.done.Load(), w.unknown.Load()
	if err != nil {
		c.Err = err.Error()
	}
	if err := goleak.Find(before); err != nil {
		c.Leaked = err.Error()
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	w.say("called %s", text)
}
