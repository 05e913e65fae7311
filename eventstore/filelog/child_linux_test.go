// The program that is killed: this test binary, run again as a child that appends to a
// real directory and tells what was acked.

package filelog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// The environment variables that make a child.
const (
	childDir     = "WATTLE_FILELOG_CHILD"         // the directory of the store
	childClients = "WATTLE_FILELOG_CHILD_CLIENTS" // how many append side by side
	childSteps   = "WATTLE_FILELOG_CHILD_STEPS"   // how much each of them does
	childFull    = "WATTLE_FILELOG_CHILD_FULL"    // mount a small file system on the directory, and fill it
)

func TestMain(m *testing.M) {
	switch dir := os.Getenv(childDir); {
	case dir == "":
		os.Exit(m.Run())
	case os.Getenv(childFull) != "":
		os.Exit(ended(fillDisk(dir)))
	default:
		clients, _ := strconv.Atoi(os.Getenv(childClients))
		steps, _ := strconv.Atoi(os.Getenv(childSteps))
		os.Exit(ended(appendLoad(dir, clients, steps)))
	}
}

// ended is the exit status of a child.
func ended(err error) int {
	if err != nil {
		fmt.Printf("! %v\n", err)
		return 1
	}
	return 0
}

func childOptions() *filelog.Options {
	return &filelog.Options{SegmentBytes: 8 << 10, ReclaimEvery: 3 * time.Millisecond}
}

// content is what stands in the entry of a seqno.
func content(s eventstore.Stream, n eventstore.Seqno) string {
	return fmt.Sprintf("%s %d %0*d", s, n, 20+int(n)*37%500, n)
}

// appendLoad opens the store and has clients append to it until something fails. What
// was acked is told on standard output, a line each.
func appendLoad(dir string, clients, steps int) error {
	log, err := filelog.Open(dir, childOptions())
	if err != nil {
		fmt.Printf("e open: %v\n", err)
		if !errors.Is(err, eventstore.ErrUnavailable) {
			return err
		}
		return nil
	}
	store := eventstore.New(log, nil)
	if err := store.CreateCategory(context.Background(), free); err != nil {
		return after(log, store, "create category", err)
	}
	var all sync.WaitGroup
	failures := make([]error, clients)
	for i := range clients {
		all.Go(func() { failures[i] = (&client{log: log, store: store, stream: clientName(i)}).run(steps) })
	}
	all.Wait()
	err = errors.Join(failures...)
	if closeErr := log.Close(); closeErr != nil {
		fmt.Printf("e close: %v\n", closeErr)
	}
	return err
}

// client appends to one stream, fences it and trims it now and then.
type client struct {
	log    *filelog.Log
	store  *eventstore.Store
	stream eventstore.Stream
	head   eventstore.Head
}

func (c *client) run(steps int) (err error) {
	ctx := context.Background()
	for i := range steps {
		switch {
		case c.head.Epoch == 0 || i%50 == 49:
			if c.head, err = c.store.Fence(ctx, c.stream, eventstore.NewUUID()); err == nil {
				fmt.Printf("f %s %d\n", c.stream, c.head.Epoch)
			}
		case i%40 == 39:
			var r eventstore.TrimResult
			if r, err = c.store.Trim(ctx, c.stream, c.head.Last.Seqno-3, false); err == nil {
				fmt.Printf("t %s %d\n", c.stream, r.Trimmed)
			}
		default:
			err = c.append(ctx, 1+i%3)
		}
		if err != nil {
			return after(c.log, c.store, string(c.stream), err)
		}
	}
	return nil
}

func (c *client) append(ctx context.Context, events int) error {
	b := eventstore.Batch{Stream: c.stream, Epoch: c.head.Epoch, Holder: c.head.Holder, After: c.head.Last}
	for i := range events {
		b.Events = append(b.Events, eventstore.Event{Type: "e", ContentType: "text/plain", Data: []byte(content(c.stream, b.After.Seqno+eventstore.Seqno(i)+1))})
	}
	done, err := c.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
	if err == nil {
		c.head.Last = done.Receipts[0].Last
		fmt.Printf("a %s %d\n", c.stream, c.head.Last.Seqno)
	}
	return err
}

// after holds a log to its word when a change has failed: either it goes on by itself,
// or nothing is acked any more; reads go on.
func after(log *filelog.Log, store *eventstore.Store, what string, cause error) error {
	fmt.Printf("e %s: %v\n", what, cause)
	if !errors.Is(cause, eventstore.ErrReadOnly) && !errors.Is(cause, eventstore.ErrUnknown) && !errors.Is(cause, eventstore.ErrUnavailable) {
		return fmt.Errorf("%s: error = %w, want one that says that nothing can be written", what, cause)
	}
	ctx := context.Background()
	for range 5 {
		if _, _, err := store.AcquireLease(ctx, "after", eventstore.NewUUID(), time.Second); log.Failed() && !errors.Is(err, eventstore.ErrReadOnly) {
			return fmt.Errorf("%s: a lease behind the failed write: %v", what, err)
		}
	}
	for _, err := range store.Feed(ctx, 0, eventstore.Filter{AcceptTrimmed: true}) {
		if err != nil {
			return fmt.Errorf("%s: read behind the failed write: %w", what, err)
		}
	}
	return nil
}
