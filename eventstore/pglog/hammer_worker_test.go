// hammer, the worker: this test binary run again as a process of its own, which
// writes to streams that the others write to, and keeps a journal of what it was
// told.

package pglog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
)

// hammerTask is the environment variable that makes the binary a worker.
const hammerTask = "WATTLE_TEST_HAMMER"

// hammerConfig is what a worker is told.
type hammerConfig struct {
	DSN, Schema string
	Category    eventstore.Category
	Journal     string // file
	Worker      int
	Clients     int           // goroutines
	Operations  int           // of each client
	Limit       time.Duration // no operation begins after that
	Seed        uint64
}

// hammerHot is how many streams all workers fight for. The first few are trimmed.
const (
	hammerHot     = 10
	hammerTrimmed = 3
)

// hammerLine is a line of the journal: an operation that begins or, with Outcome, its
// end. A line is one write, so a worker that is killed loses none that it has written.
type hammerLine struct {
	N       int // which operation of the worker
	Op      string
	Append  *eventstore.Append `json:",omitempty"`
	Outcome string             `json:",omitempty"` // ok, unknown, refused
	Said    string             `json:",omitempty"` // the error
	Stream  eventstore.Stream  `json:",omitempty"` // fence
	Epoch   eventstore.Epoch   `json:",omitempty"` // fence: granted
	Holder  eventstore.UUID    // fence
}

// hammerWorker is a worker process.
type hammerWorker struct {
	hammerConfig
	store *eventstore.Store

	mu      sync.Mutex
	journal *os.File
	n       int
}

// hammerMain is the process. It ends with 0 if all it was told was possible.
func hammerMain(task string) int {
	w := &hammerWorker{}
	if err := w.open(task); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	began := time.Now()
	var wg sync.WaitGroup
	faults := make(chan error, w.Clients)
	for i := range w.Clients {
		wg.Go(func() {
			c := &hammerClient{hammerWorker: w, rng: rand.New(rand.NewPCG(w.Seed, uint64(w.Worker*100+i))), holder: eventstore.NewUUID(), believe: map[eventstore.Stream]eventstore.Head{}}
			for n := 0; n < w.Operations && time.Since(began) < w.Limit; n++ {
				if err := c.act(context.Background()); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(faults)
	for err := range faults {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *hammerWorker) open(task string) error {
	if err := json.Unmarshal([]byte(task), &w.hammerConfig); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(w.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["application_name"] = w.Schema
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	l, err := pglog.Open(context.Background(), pool, &pglog.Options{Schema: w.Schema, Senders: 1 + w.Worker%2})
	if err != nil {
		return err
	}
	w.store = eventstore.New(l, nil)
	w.journal, err = os.OpenFile(w.Journal, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

func (w *hammerWorker) write(l hammerLine) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.journal.Write(append(text, '\n'))
	return err
}

// begin notes that an operation begins and returns its number.
func (w *hammerWorker) begin(l hammerLine) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	l.N = w.n
	return l.N, w.write(l)
}

// finish notes how it ended. It returns an error that stops the worker if the answer
// is none that there can be.
func (w *hammerWorker) finish(l hammerLine, err error) error {
	e, ours := errors.AsType[*eventstore.Error](err)
	possible := []error{eventstore.ErrFenced, eventstore.ErrAlreadyWritten, eventstore.ErrGuard, eventstore.ErrUnavailable, eventstore.ErrUnknown}
	switch {
	case err == nil:
		l.Outcome = "ok"
	case !ours || !slices.Contains(possible, e.Kind):
		return fmt.Errorf("%s: %w", l.Op, err)
	case e.Kind == eventstore.ErrUnknown, e.Kind == eventstore.ErrUnavailable && l.Op == "resent":
		// That the second sending did nothing tells nothing of the first.
		l.Outcome, l.Said = "unknown", err.Error()
	default:
		l.Outcome, l.Said = "refused", err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(l)
}

// hammerClient is one goroutine of a worker.
type hammerClient struct {
	*hammerWorker
	rng     *rand.Rand
	holder  eventstore.UUID
	believe map[eventstore.Stream]eventstore.Head
	unsure  *eventstore.Append // sent, and of unknown outcome
	last    *eventstore.Append // acked
}

func (c *hammerClient) act(ctx context.Context) error {
	if c.unsure != nil {
		return c.send(ctx, "resent", *c.unsure)
	}
	switch n := c.rng.IntN(100); {
	case n < 40:
		return c.send(ctx, "append", eventstore.Append{Batches: []eventstore.Batch{c.batch(c.hot())}})
	case n < 55:
		return c.send(ctx, "first", eventstore.Append{Batches: []eventstore.Batch{c.batch(c.young())}})
	case n < 70:
		return c.several(ctx, "several", 2+c.rng.IntN(2), 0)
	case n < 82:
		return c.several(ctx, "guarded", 1, 1+c.rng.IntN(2))
	case n < 90:
		return c.fence(ctx, c.hot())
	case n < 95:
		return c.trim(ctx)
	case c.last != nil:
		return c.send(ctx, "resent", *c.last)
	}
	return nil
}

func (c *hammerClient) hot() eventstore.Stream { return c.stream("hot", c.rng.IntN(hammerHot)) }

// young is a stream that, most likely, nobody or only just somebody has written to:
// the workers get on at about the same pace.
func (c *hammerClient) young() eventstore.Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream("new", c.n/6+c.rng.IntN(2))
}

func (c *hammerClient) stream(kind string, n int) eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("%s-%s%d", c.Category, kind, n))
}

// batch is one that goes through if nobody was faster.
func (c *hammerClient) batch(s eventstore.Stream) eventstore.Batch {
	h := c.believe[s]
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: h.Epoch, Holder: c.holder, After: h.Last}
	if h.Holder != c.holder || c.rng.IntN(3) == 0 {
		b.Claim, b.Epoch = true, h.Epoch+1
	}
	for i := range 1 + c.rng.IntN(3) {
		b.Events = append(b.Events, eventstore.Event{Type: "hammered", Data: fmt.Appendf(nil, `{"worker":%d,"i":%d,"random":%d}`, c.Worker, i, c.rng.Uint64())})
	}
	return b
}

// several appends batches, and looks at guards, of different streams in any order:
// most of the time of heads that it has just read.
func (c *hammerClient) several(ctx context.Context, op string, batches, guards int) error {
	streams := []eventstore.Stream{c.young(), c.young() + "+"}
	for i := range hammerHot {
		streams = append(streams, c.stream("hot", i))
	}
	c.rng.Shuffle(len(streams), func(i, j int) { streams[i], streams[j] = streams[j], streams[i] })
	streams = streams[:batches+guards]
	if c.rng.IntN(4) > 0 {
		if err := c.refresh(ctx, streams); err != nil {
			return err
		}
	}
	var a eventstore.Append
	for _, s := range streams[:batches] {
		a.Batches = append(a.Batches, c.batch(s))
	}
	for _, s := range streams[batches:] {
		a.Guards = append(a.Guards, eventstore.Guard{Stream: s, At: c.believe[s].Last})
	}
	return c.send(ctx, op, a)
}

// send appends, and learns from the answer.
func (c *hammerClient) send(ctx context.Context, op string, a eventstore.Append) error {
	n, err := c.begin(hammerLine{Op: op, Append: &a})
	if err != nil {
		return err
	}
	done, err := c.store.Append(ctx, a)
	if ferr := c.finish(hammerLine{N: n, Op: op, Append: &a}, err); ferr != nil {
		return ferr
	}
	c.unsure = nil
	e, _ := errors.AsType[*eventstore.Error](err)
	switch {
	case err == nil:
		c.last = &a
		return c.acked(op, a, done)
	case e.Kind == eventstore.ErrUnknown && !e.Unprovable, e.Kind == eventstore.ErrUnavailable && op == "resent":
		c.unsure = &a
	}
	var streams []eventstore.Stream
	for _, b := range a.Batches {
		streams = append(streams, b.Stream)
	}
	return c.refresh(ctx, streams)
}

// acked checks receipts and takes over what they say.
func (c *hammerClient) acked(op string, a eventstore.Append, done eventstore.Appended) error {
	for i, b := range a.Batches {
		r := done.Receipts[i]
		if r.Stream != b.Stream || r.First != b.After.Seqno+1 || r.Last.Seqno != b.Last() || r.Replays && op != "resent" || !r.Replays && r.Fenced {
			return fmt.Errorf("%s: receipt %+v for a batch of %d after %v", op, r, len(b.Events), b.After)
		}
		if h := c.believe[b.Stream]; r.Last.Seqno >= h.Last.Seqno && !r.Fenced {
			c.believe[b.Stream] = eventstore.Head{Epoch: b.Epoch, Holder: b.Holder, Last: r.Last}
		}
	}
	return nil
}

// refresh reads heads.
func (c *hammerClient) refresh(ctx context.Context, streams []eventstore.Stream) error {
	for _, s := range streams {
		h, err := c.store.Head(ctx, s)
		if errors.Is(err, eventstore.ErrUnavailable) {
			continue
		}
		if err != nil {
			return err
		}
		c.believe[s] = h
	}
	return nil
}

func (c *hammerClient) fence(ctx context.Context, s eventstore.Stream) error {
	n, err := c.begin(hammerLine{Op: "fence", Stream: s})
	if err != nil {
		return err
	}
	h, err := c.store.Fence(ctx, s, c.holder)
	if err == nil {
		c.believe[s] = h
	}
	return c.finish(hammerLine{N: n, Op: "fence", Stream: s, Epoch: h.Epoch, Holder: c.holder}, err)
}

func (c *hammerClient) trim(ctx context.Context) error {
	s := c.stream("hot", c.rng.IntN(hammerTrimmed))
	n, err := c.begin(hammerLine{Op: "trim", Stream: s})
	if err != nil {
		return err
	}
	_, err = c.store.Trim(ctx, s, max(c.believe[s].Last.Seqno, 20)-20, false)
	return c.finish(hammerLine{N: n, Op: "trim", Stream: s}, err)
}
